"""Logs of ASTRA-sim.

The console says when each rank has finished; its log, with ``trace-enabled`` 1, when
each node of the trace was issued and when it called back.  A cycle is a nanosecond.  A
job that hangs ends with exit status 0 and too few ranks, so whoever reads has to count
them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from chakram.errors import ResultsError
from chakram.results.readers.lines import lines_of, number

COLLECTIVE_NODE = 7
"""Type of a node that is a collective."""

_FINISHED = re.compile(
    r"sys\[(\d+)\] finished, (\d+) cycles, exposed communication (\d+) cycles\."
)
_EVENT = re.compile(
    r"(issue|callback),\s*sys->id=(\d+), tick=(\d+), node->id=(\d+), "
    r"node->name=(.*), node->type=(\d+)$"
)
_STUCK = re.compile(r"sys\.id=(\d+) has unreleased nodes")
_LOG_HINT = "is it console.txt or log.log of ASTRA-sim?"


class RankFinish(NamedTuple):
    """When a rank had done its trace, and how long it did not compute."""

    rank: int
    end_ns: int
    exposed_ns: int


class NodeTime(NamedTuple):
    """A node of the trace of one rank; ``end_ns`` None: it never called back."""

    rank: int
    node_id: int
    name: str
    kind: int
    start_ns: int
    end_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AstraSimLog:
    """What a log says.

    Attributes:
        finishes: By rank, ascending; of a job that hangs some are missing.
        nodes: In the order in which they were issued.
        stuck: Ranks that ASTRA-sim names as hanging.
    """

    finishes: tuple[RankFinish, ...]
    nodes: tuple[NodeTime, ...]
    stuck: tuple[int, ...]


def read_log(data: bytes, source: str) -> AstraSimLog:
    """Return what a console or log of ASTRA-sim says.

    Lines of several ranks may stand in one another's; what is recognised is taken.

    Raises:
        ResultsError: If it is no text, says something twice, or nothing at all.
    """
    finishes: dict[int, RankFinish] = {}
    issued: dict[tuple[int, int], NodeTime] = {}
    stuck: list[int] = []
    for where, line in lines_of(data, source):
        for match in _FINISHED.finditer(line):
            rank, end_ns, exposed_ns = (
                number(text, where, "number") for text in match.groups()
            )
            if rank in finishes:
                raise ResultsError(where, f"rank {rank} finishes twice", _LOG_HINT)
            finishes[rank] = RankFinish(rank, end_ns, exposed_ns)
        if event := _EVENT.search(line):
            _take(event, issued, where)
        stuck += (number(each, where, "rank") for each in _STUCK.findall(line))
    if not finishes and not issued and not stuck:
        raise ResultsError(source, "says of no rank when it finished", _LOG_HINT)
    return AstraSimLog(
        finishes=tuple(finishes[rank] for rank in sorted(finishes)),
        nodes=tuple(issued.values()),
        stuck=tuple(sorted(set(stuck))),
    )


def _take(
    event: re.Match[str], issued: dict[tuple[int, int], NodeTime], where: str
) -> None:
    what, name = event[1], event[5]
    rank, tick_ns, node_id, kind = (
        number(event[place], where, "number") for place in (2, 3, 4, 6)
    )
    known = issued.get((rank, node_id))
    if what == "issue":
        if known is not None:
            raise ResultsError(
                where, f"node {node_id} of rank {rank} is issued twice", _LOG_HINT
            )
        issued[rank, node_id] = NodeTime(rank, node_id, name, kind, tick_ns, None)
    elif known is None or known.end_ns is not None or tick_ns < known.start_ns:
        raise ResultsError(
            where,
            f"node {node_id} of rank {rank} calls back, and is not under way",
            "logs of 10 MiB are continued in another file: join them",
        )
    else:
        issued[rank, node_id] = known._replace(end_ns=tick_ns)
