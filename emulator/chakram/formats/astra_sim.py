"""Logs of ASTRA-sim; sets what another simulator has found beside records of a run.

The console of ASTRA-sim says when each rank has finished; its log, with
``trace-enabled`` 1, when each node of the trace was issued and when it called back.  A
cycle is a nanosecond.  A job that hangs ends with exit status 0 and too few ranks, so
whoever reads has to count them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from chakram.formats.ns3 import read_flow_times
from chakram.formats.text_lines import lines_of, number
from chakram.foundation.errors import ResultsError

if TYPE_CHECKING:
    from chakram.records.run_records import CollectiveRecord, RankRecord

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


class Flow(NamedTuple):
    """A message of a run, between nodes as the other simulator counts them."""

    src: int
    dst: int
    size_bytes: int
    posted_ns: int
    fct_ns: int


class Beside(NamedTuple):
    """One quantity twice, in ns; ``other_ns`` is the other simulator's."""

    what: str
    own_ns: int
    other_ns: int

    @property
    def deviation(self) -> float | None:
        """Ours over theirs, minus 1; None where theirs is 0."""
        return self.own_ns / self.other_ns - 1 if self.other_ns else None


def looks_like_flows(data: bytes) -> bool:
    """Tell whether a file is rather a ``fct.txt`` than a log."""
    return len(data.partition(b"\n")[0].split()) == len(Flow._fields) + 3


def beside_log(
    data: bytes,
    source: str,
    *,
    collectives: Iterable[CollectiveRecord],
    ranks: Sequence[RankRecord],
) -> list[Beside]:
    """Set collectives and ranks beside a log of ASTRA-sim.

    Collectives are the same whose nodes have one name, in the order of their start; a
    rank takes as long as its iteration.

    Args:
        data: The log.
        source: Its name.
        collectives: Of one iteration.
        ranks: Likewise.

    Raises:
        ResultsError: If it is no log, or of other ranks.
    """
    log = read_log(data, source)
    found: list[Beside] = []
    theirs: dict[str, dict[int, list[int]]] = {}
    of_name: dict[tuple[int, str], int] = {}
    for node in log.nodes:
        if node.kind != COLLECTIVE_NODE or node.end_ns is None:
            continue
        place = of_name.get((node.rank, node.name), 0)
        of_name[node.rank, node.name] = place + 1
        times_ns = theirs.setdefault(node.name, {}).setdefault(place, [])
        times_ns += (node.start_ns, node.end_ns)
    places: dict[str, int] = {}
    for record in sorted(collectives, key=lambda each: each.start_ns):
        name = record.identity.name
        place = places.get(name, 0)
        places[name] = place + 1
        if times_ns := theirs.get(name, {}).get(place, []):
            other_ns = max(times_ns) - min(times_ns)
            found.append(Beside(f"collective {name}", record.duration_ns, other_ns))
    finishes = {each.rank: each.end_ns for each in log.finishes}
    own = {rank.number: rank.end_ns - rank.start_ns for rank in ranks}
    if finishes.keys() - own.keys() or log.stuck:
        others = sorted({*(finishes.keys() - own.keys()), *log.stuck})
        raise ResultsError(
            source,
            f"rank {others[0]} "
            + ("did not finish" if log.stuck else "is not in this experiment"),
            "compare with a run of the same job that ended",
        )
    found += (
        Beside(f"rank {rank}", own[rank], end_ns)
        for rank, end_ns in sorted(finishes.items())
    )
    return found


def beside_flows(data: bytes, source: str, *, flows: Iterable[Flow]) -> list[Beside]:
    """Set messages beside a ``fct.txt`` of ns-3.

    Messages are the same that are the n-th between two nodes.

    Raises:
        ResultsError: If it is none, or its messages are others.
    """
    theirs: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for each in sorted(read_flow_times(data, source), key=lambda each: each.start_ns):
        theirs.setdefault((each.src, each.dst), []).append(
            (each.size_bytes, each.fct_ns, each.end_ns)
        )
    own: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    begin_ns: int | None = None
    for flow in sorted(flows, key=lambda each: each.posted_ns):
        begin_ns = flow.posted_ns if begin_ns is None else begin_ns
        own.setdefault((flow.src, flow.dst), []).append(
            (flow.size_bytes, flow.fct_ns, flow.posted_ns + flow.fct_ns - begin_ns)
        )
    _require_same(own, theirs, source)
    times_ns = [
        sorted(fct_ns for pair in side.values() for _, fct_ns, _ in pair)
        for side in (own, theirs)
    ]
    if not times_ns[0]:
        return []
    ends_ns = [
        max(end_ns for pair in side.values() for *_, end_ns in pair)
        for side in (own, theirs)
    ]
    return [
        *(
            Beside(
                f"FCT p{percent}", *(_percentile(each, percent) for each in times_ns)
            )
            for percent in (50, 95, 99, 100)
        ),
        Beside("end", *ends_ns),
    ]


def _require_same(
    own: Mapping[tuple[int, int], Sequence[tuple[int, int, int]]],
    theirs: Mapping[tuple[int, int], Sequence[tuple[int, int, int]]],
    source: str,
) -> None:
    for pair in sorted({*own, *theirs}):
        sizes = [[size for size, *_ in side.get(pair, ())] for side in (own, theirs)]
        if sizes[0] != sizes[1]:
            raise ResultsError(
                source,
                f"from node {pair[0]} to node {pair[1]} it has {len(sizes[1])} "
                f"messages of {sum(sizes[1])} bytes, this experiment {len(sizes[0])} "
                f"of {sum(sizes[0])}",
                "compare runs of the same job",
            )


def _percentile(sorted_ns: Sequence[int], percent: int) -> int:
    """Return the nearest-rank percentile."""
    return sorted_ns[max(0, -(-len(sorted_ns) * percent // 100) - 1)]
