"""What is wrong in traces: inside each rank's, in groups, and between ranks.

A check gives problems instead of raising.  What stands in one rank's trace is checked
here, all of it; what ranks must agree about is checked by ``chakram.program.matching``,
and by ``chakram.program.ordering``, which shows the first deadlock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from chakram.chakra.trace_warning import Remark, remark_at
from chakram.collectives.groups import WORLD, ProcessGroup
from chakram.foundation.errors import MatchingError, TraceError
from chakram.program.matching import check_matching
from chakram.program.ordering import order_collectives
from chakram.trace.node import NodeKind, TraceNode

if TYPE_CHECKING:
    from chakram.trace.graph import TraceGraph


PROBLEMS_KEPT = 1000
"""Problems of one kind that are told one by one."""


class ProblemKind(StrEnum):
    """What makes a trace impossible to replay."""

    UNKNOWN_GROUP = "unknown-group"
    NOT_A_MEMBER = "not-a-member"
    RANK_OUT_OF_RANGE = "rank-out-of-range"
    NO_SIZE = "no-size"
    NO_PEER = "no-peer"
    SELF_MESSAGE = "self-message"
    CYCLE = "cycle"
    MISSING_RANKS = "missing-ranks"
    MISMATCH = "mismatch"
    DEADLOCK = "deadlock"
    LOST_COMMUNICATION = "lost-communication"


def check_trace_set(
    graphs: Mapping[int, TraceGraph],
    groups: Mapping[str, ProcessGroup],
    least_ranks: Mapping[int, int] | None = None,
) -> list[Remark]:
    """Return the faults of the set, of ranks by rank and position, then of groups.

    Of a kind the first ``PROBLEMS_KEPT`` are told, the rest is counted.

    Args:
        graphs: The traces of all ranks.
        groups: The process groups.
        least_ranks: See ``TraceSet``.
    """
    problems = list(_missing_ranks(graphs, least_ranks or {}))
    counts: Counter[StrEnum] = Counter()
    used: set[str] = set()
    for rank in sorted(graphs):
        graph = graphs[rank]
        # Most nodes are collectives of groups that the rank is in: no view of those.
        is_member: dict[str | None, bool] = {}
        for position in graph.communication():
            name = graph.group(position)
            if name not in is_member:
                is_member[name] = _is_member(graph.rank, groups.get(name or WORLD))
                used.add(name or WORLD)
            if (
                not is_member[name]
                or graph.kind(position) is not NodeKind.COLLECTIVE
                or graph.comm_bytes(position) < 0
            ):
                node = graph.node(position)
                for problem in _node_problems(graph, node, groups, len(graphs)):
                    counts[problem.kind] += 1
                    if counts[problem.kind] <= PROBLEMS_KEPT:
                        problems.append(problem)
        problems.extend(_cycle(graph))
    problems.extend(
        _not_told(kind, count - PROBLEMS_KEPT)
        for kind, count in counts.items()
        if count > PROBLEMS_KEPT
    )
    problems.extend(_group_problems(groups, used, len(graphs)))
    if not used:
        problems.extend(_lost_communication(graphs))
    return problems


def check_across_ranks(
    graphs: Mapping[int, TraceGraph], groups: Mapping[str, ProcessGroup]
) -> tuple[list[Remark], tuple[str, ...]]:
    """Return what ranks disagree about, and what is odd about their agreement.

    The traces must have passed ``check_trace_set``.
    """
    matching, faults = check_matching(graphs, groups)
    if matching is None:
        problems = [_across_ranks(ProblemKind.MISMATCH, error) for error in faults.kept]
        if faults.more:
            problems.append(_not_told(ProblemKind.MISMATCH, faults.more))
        return problems, ()
    if len(graphs) == 1:
        # Collectives are counted in an order that the one rank can run them in.
        return [], matching.warnings
    try:
        ordering = order_collectives(graphs, matching)
    except MatchingError as error:
        return [_across_ranks(ProblemKind.DEADLOCK, error)], matching.warnings
    return [], (*matching.warnings, *ordering.warnings)


def _not_told(kind: StrEnum, count: int) -> Remark:
    return Remark(
        kind,
        None,
        "and more",
        f"{count} more of this kind are not told one by one",
        hint="they are like those above",
    )


def _across_ranks(kind: ProblemKind, error: MatchingError) -> Remark:
    return Remark(
        kind,
        None,
        error.where,
        error.found,
        hint=error.hint or "do the traces come from one run?",
    )


def require_replayable(
    graphs: Mapping[int, TraceGraph],
    groups: Mapping[str, ProcessGroup],
    least_ranks: Mapping[int, int] | None = None,
) -> None:
    """Refuse a trace set with faults.

    Raises:
        TraceError: With the first fault, and how many more there are.
    """
    problems = check_trace_set(graphs, groups, least_ranks)
    if problems:
        first, more = problems[0], len(problems) - 1
        hint = f"{first.hint}; {more} more: chakram trace lint" if more else first.hint
        raise TraceError(first.where, first.found, hint)


def _missing_ranks(
    graphs: Mapping[int, TraceGraph], least_ranks: Mapping[int, int]
) -> Iterator[Remark]:
    """Yield the problem that the job had more ranks than the set has files."""
    rank = max(least_ranks, key=lambda each: (least_ranks[each], -each), default=None)
    if rank is not None and least_ranks[rank] > len(graphs):
        yield Remark(
            ProblemKind.MISSING_RANKS,
            rank,
            graphs[rank].source,
            f"states that the job had {least_ranks[rank]} ranks; the set has "
            f"files of {len(graphs)}",
            hint="give the files of all ranks; `replicate` makes a job of one rank's "
            "trace",
        )


def _is_member(rank: int, group: ProcessGroup | None) -> bool:
    return group is not None and rank in group


def _lost_communication(graphs: Mapping[int, TraceGraph]) -> Iterator[Remark]:
    """Yield a problem of a set without communication in which PyTorch did some.

    chakra_converter makes communication of the kernels of a GPU only; a run with gloo
    has none.  Which group an operation belongs to is not in what is left of it.
    """
    for rank in sorted(graphs):
        graph = graphs[rank]
        for position in range(len(graph)):
            if graph.node(position).name.startswith("c10d::"):
                yield Remark(
                    ProblemKind.LOST_COMMUNICATION,
                    rank,
                    graph.locate(position),
                    "is communication on a CPU, of which the converter made no "
                    "communication node; no other node of the set communicates either",
                    hint="replay the host traces (JSON) that it was made from",
                )
                return


def _node_problems(
    graph: TraceGraph,
    node: TraceNode,
    groups: Mapping[str, ProcessGroup],
    nranks: int,
) -> Iterator[Remark]:
    def problem(kind: ProblemKind, found: str, hint: str) -> Remark:
        return remark_at(kind, graph, node.position, found, hint=hint)

    name = node.group or WORLD
    group = groups.get(name)
    if group is None and name != WORLD:
        yield problem(
            ProblemKind.UNKNOWN_GROUP,
            f"names process group {name!r}, which nothing defines",
            "define it in comm_group.json beside the traces, or name the group file "
            "(--comm-groups)",
        )
    elif group is not None and graph.rank not in group:
        yield problem(
            ProblemKind.NOT_A_MEMBER,
            f"uses process group {name!r}, which is {list(group.ranks)[:16]}",
            f"the group must have rank {graph.rank}",
        )
    if node.kind is NodeKind.COLLECTIVE:
        if node.comm_bytes < 0:
            yield problem(
                ProblemKind.NO_SIZE,
                f"is {node.op} without a size",
                "its producer dropped comm_size; convert the trace anew",
            )
        return
    if node.peer is None:
        yield problem(
            ProblemKind.NO_PEER,
            "is a message without its other side",
            "comm_dst of a send and comm_src of a receive say it",
        )
    elif node.peer >= nranks:
        yield problem(
            ProblemKind.RANK_OUT_OF_RANGE,
            f"is a message with rank {node.peer}; the set has {nranks} ranks",
            "are all files of the set there?",
        )
    elif node.peer == graph.rank:
        yield problem(
            ProblemKind.SELF_MESSAGE,
            "is a message of a rank with itself",
            "such a message meets no network; remove it",
        )
    if not node.comm_bytes:
        yield problem(
            ProblemKind.NO_SIZE,
            "is a message without a size",
            "the body of a custom collective is no workload",
        )


def _cycle(graph: TraceGraph) -> Iterator[Remark]:
    try:
        graph.topological_order()
    except TraceError as error:
        yield Remark(
            ProblemKind.CYCLE,
            graph.rank,
            error.where,
            error.found,
            hint=error.hint or "",
        )


def _group_problems(
    groups: Mapping[str, ProcessGroup], used: set[str], nranks: int
) -> Iterator[Remark]:
    for name in sorted(used & groups.keys()):
        beyond = [rank for rank in groups[name].ranks if rank >= nranks]
        if beyond:
            yield Remark(
                ProblemKind.RANK_OUT_OF_RANGE,
                None,
                f"process group {name!r}",
                f"has rank {beyond[0]}; the set has {nranks} ranks",
                hint="are all files of the set there?",
            )
