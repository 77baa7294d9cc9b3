"""Reader of ASTRA-sim logs, and comparison of another simulator's results with a run.

The ASTRA-sim console reports when each rank finishes. With ``trace-enabled`` set to 1,
the log also reports when each trace node was issued and when it called back. One cycle
is one nanosecond. A job that hangs exits with status 0 but reports too few ranks, so
callers must count the ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from chakram.formats.ns3 import read_flow_times
from chakram.formats.text_lines import lines_of, number
from chakram.foundation.errors import ResultsError
from chakram.records.run_records import CollectiveRecord, RankRecord

COLLECTIVE_NODE = 7
"""Node type of a collective."""

_FINISHED = re.compile(
    r"sys\[(\d+)\] finished, (\d+) cycles, exposed communication (\d+) cycles\."
)
_EVENT = re.compile(
    r"(issue|callback),\s*sys->id=(\d+), tick=(\d+), node->id=(\d+), "
    r"node->name=(.*), node->type=(\d+)$"
)
_STUCK = re.compile(r"sys\.id=(\d+) has unreleased nodes")
_LOG_HINT = "use ASTRA-sim's console.txt or log.log"


class RankFinish(NamedTuple):
    """Finish time and exposed communication time of one rank."""

    rank: int
    end_ns: int
    exposed_ns: int


class NodeTime(NamedTuple):
    """One trace node on one rank, with ``end_ns`` None if it never called back."""

    rank: int
    node_id: int
    name: str
    kind: int
    start_ns: int
    end_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AstraSimLog:
    """Content of one log.

    Attributes:
        finishes: Finish times by ascending rank. Ranks are missing if the job hung.
        nodes: Nodes in the order in which they were issued.
        stuck: Ranks that ASTRA-sim reports as having unreleased nodes.
    """

    finishes: tuple[RankFinish, ...]
    nodes: tuple[NodeTime, ...]
    stuck: tuple[int, ...]


def read_log(data: bytes, source: str) -> AstraSimLog:
    """Return the content of an ASTRA-sim console file or log.

    ASTRA-sim may interleave the output of several ranks within one line. The reader
    keeps every entry it recognizes and skips everything else.

    Raises:
        ResultsError: If the data is not text, is inconsistent, or has no known entry.
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
        raise ResultsError(source, "has no line about the end of a rank", _LOG_HINT)
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
            f"node {node_id} of rank {rank} ends without having started",
            "join the log files: ASTRA-sim starts another file after 10 MiB",
        )
    else:
        issued[rank, node_id] = known._replace(end_ns=tick_ns)


class Flow(NamedTuple):
    """A message of a run, with the node numbers of the other simulator."""

    src: int
    dst: int
    size_bytes: int
    posted_ns: int
    fct_ns: int


class ComparedTimes(NamedTuple):
    """One quantity as measured by Chakram and by the other simulator, in ns."""

    what: str
    own_ns: int
    other_ns: int

    @property
    def deviation(self) -> float | None:
        """Relative deviation of Chakram's value, or None if the other value is 0."""
        return self.own_ns / self.other_ns - 1 if self.other_ns else None


def is_log(data: bytes) -> bool:
    """Return whether a file has an entry of an ASTRA-sim console file or log."""
    text = data.decode("utf-8", errors="replace")
    return any(each.search(text) for each in (_FINISHED, _EVENT, _STUCK))


def is_flow_file(data: bytes) -> bool:
    """Return whether a file looks like a ``fct.txt`` rather than a log."""
    return len(data.partition(b"\n")[0].split()) == len(Flow._fields) + 3


def compare_with_log(
    data: bytes,
    source: str,
    *,
    collectives: Iterable[CollectiveRecord],
    ranks: Sequence[RankRecord],
) -> list[ComparedTimes]:
    """Compare collectives and ranks with an ASTRA-sim log.

    Collectives match by node name. Collectives with the same name match in order of
    start time. The time of a rank is the duration of its iteration.

    Args:
        data: Content of the log.
        source: Name of the log, for error messages.
        collectives: Collectives of one iteration.
        ranks: Ranks in the same iteration.

    Raises:
        ResultsError: If the data is not a log, or the log has stuck or unknown ranks.
    """
    log = read_log(data, source)
    found: list[ComparedTimes] = []
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
            found.append(
                ComparedTimes(f"collective {name}", record.duration_ns, other_ns)
            )
    finishes = {each.rank: each.end_ns for each in log.finishes}
    own = {rank.number: rank.end_ns - rank.start_ns for rank in ranks}
    if finishes.keys() - own.keys() or log.stuck:
        others = sorted({*(finishes.keys() - own.keys()), *log.stuck})
        raise ResultsError(
            source,
            f"rank {others[0]} "
            + ("did not finish" if log.stuck else "is not in this experiment"),
            "compare with a finished run of the same job",
        )
    found += (
        ComparedTimes(f"rank {rank}", own[rank], end_ns)
        for rank, end_ns in sorted(finishes.items())
    )
    return found


def compare_with_flows(
    data: bytes, source: str, *, flows: Iterable[Flow]
) -> list[ComparedTimes]:
    """Compare messages with a ``fct.txt`` from ns-3.

    The n-th message between two nodes in the run matches the n-th one in the file.

    Raises:
        ResultsError: If the data is not a ``fct.txt``, or its messages differ from the
            run.
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
            ComparedTimes(
                f"FCT p{percent}", *(_percentile(each, percent) for each in times_ns)
            )
            for percent in (50, 95, 99, 100)
        ),
        ComparedTimes("end", *ends_ns),
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
                f"has {len(sizes[1])} messages of {sum(sizes[1])} bytes from node "
                f"{pair[0]} to node {pair[1]}, but this experiment has {len(sizes[0])} "
                f"of {sum(sizes[0])}",
                "compare runs of the same job",
            )


def _percentile(sorted_ns: Sequence[int], percent: int) -> int:
    """Return the nearest-rank percentile."""
    return sorted_ns[max(0, -(-len(sorted_ns) * percent // 100) - 1)]
