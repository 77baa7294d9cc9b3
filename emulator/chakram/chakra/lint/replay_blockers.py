"""Problems in trace sets: within one rank's trace, in groups, and between ranks.

Checks return problems instead of raising errors. This module checks each rank's trace.
``chakram.program.matching`` checks the agreement between ranks, and
``chakram.program.collective_order`` finds the first deadlock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from chakram.chakra.trace_warning import TraceWarning, warning_at
from chakram.collectives.groups import WORLD, ProcessGroup
from chakram.foundation.errors import MatchingError, TraceError
from chakram.program.collective_order import order_collectives
from chakram.program.matching import check_matching
from chakram.trace.node import NodeKind, TraceNode
from chakram.trace.shared_columns import once_per_shape

if TYPE_CHECKING:
    from array import array

    from chakram.trace.graph import TraceGraph


PROBLEMS_KEPT = 1000
"""Number of problems of one kind that are reported individually."""


class ProblemKind(StrEnum):
    """Faults that make a trace impossible to replay."""

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
) -> list[TraceWarning]:
    """Return the problems of a set: missing ranks, then nodes by rank, then groups.

    Only the first ``PROBLEMS_KEPT`` node problems of a kind are returned. A further
    problem of that kind states how many were omitted.

    Args:
        graphs: The traces of all ranks.
        groups: The process groups by name.
        least_ranks: See ``TraceSet``.
    """
    problems = list(_missing_ranks(graphs, least_ranks or {}))
    counts: Counter[StrEnum] = Counter()
    used: set[str] = set()
    uses_of = once_per_shape(_uses)
    orders: dict[bytes, array[int] | None] = {}
    for rank in sorted(graphs):
        graph = graphs[rank]
        firsts, others = uses_of(graph)
        names = {graph.group(position) for position in firsts}
        is_member = {
            name: _is_member(graph.rank, groups.get(name or WORLD)) for name in names
        }
        used.update(name or WORLD for name in names)
        # Most nodes are collectives of a group that contains the rank. They need no
        # ``TraceNode``.
        for position in others if all(is_member.values()) else graph.communication():
            if not is_member[graph.group(position)] or _may_be_wrong(graph, position):
                node = graph.node(position)
                for problem in _node_problems(graph, node, groups, len(graphs)):
                    counts[problem.kind] += 1
                    if counts[problem.kind] <= PROBLEMS_KEPT:
                        problems.append(problem)
        graph.order = graph.order or orders.get(graph.shape())
        problems.extend(_cycle(graph))
        orders[graph.shape()] = graph.order
    problems.extend(
        _omitted_problems(kind, count - PROBLEMS_KEPT)
        for kind, count in counts.items()
        if count > PROBLEMS_KEPT
    )
    problems.extend(_group_problems(groups, used, len(graphs)))
    if not used:
        problems.extend(_lost_communication(graphs))
    return problems


def check_across_ranks(
    graphs: Mapping[int, TraceGraph], groups: Mapping[str, ProcessGroup]
) -> tuple[list[TraceWarning], tuple[str, ...]]:
    """Return disagreements between ranks, and warnings about matching their nodes.

    The traces must have passed ``check_trace_set``.
    """
    matching, faults = check_matching(graphs, groups)
    if matching is None:
        problems = [_across_ranks(ProblemKind.MISMATCH, error) for error in faults.kept]
        if faults.more:
            problems.append(_omitted_problems(ProblemKind.MISMATCH, faults.more))
        return problems, ()
    if len(graphs) == 1:
        # Matching uses an order that a single rank can always execute.
        return [], matching.warnings
    try:
        ordering = order_collectives(graphs, matching)
    except MatchingError as error:
        return [_across_ranks(ProblemKind.DEADLOCK, error)], matching.warnings
    return [], (*matching.warnings, *ordering.warnings)


def _omitted_problems(kind: StrEnum, count: int) -> TraceWarning:
    return TraceWarning(
        kind,
        None,
        "and more",
        f"{count} more findings of this kind are not listed",
        hint="see the findings above, which are similar",
    )


def _across_ranks(kind: ProblemKind, error: MatchingError) -> TraceWarning:
    return TraceWarning(
        kind,
        None,
        error.where,
        error.found,
        hint=error.hint or "check that the traces come from one run",
    )


def require_replayable(
    graphs: Mapping[int, TraceGraph],
    groups: Mapping[str, ProcessGroup],
    least_ranks: Mapping[int, int] | None = None,
) -> None:
    """Refuse a trace set that has problems.

    Raises:
        TraceError: If there are problems. The error states the first problem and the
            number of further problems.
    """
    problems = check_trace_set(graphs, groups, least_ranks)
    if problems:
        first, more = problems[0], len(problems) - 1
        hint = f"{first.hint}; {more} more: chakram trace lint" if more else first.hint
        raise TraceError(first.where, first.found, hint)


def _missing_ranks(
    graphs: Mapping[int, TraceGraph], least_ranks: Mapping[int, int]
) -> Iterator[TraceWarning]:
    """Yield a problem if the job had more ranks than the set has files."""
    rank = max(least_ranks, key=lambda each: (least_ranks[each], -each), default=None)
    if rank is not None and least_ranks[rank] > len(graphs):
        yield TraceWarning(
            ProblemKind.MISSING_RANKS,
            rank,
            graphs[rank].source,
            f"states that the job had {least_ranks[rank]} ranks, but the set has files "
            f"of {len(graphs)}",
            hint=(
                "add the files of all ranks, or use `replicate` to make a job from one "
                "rank's trace"
            ),
        )


def _uses(graph: TraceGraph) -> tuple[list[int], list[int]]:
    """Return the first node of every group, and the nodes to check in each rank."""
    positions = graph.communication()
    firsts = {graph.group_number(each): each for each in reversed(positions)}
    others = [each for each in positions if _may_be_wrong(graph, each)]
    return list(firsts.values()), others


def _may_be_wrong(graph: TraceGraph, position: int) -> bool:
    """Return whether a communication node may have a problem other than its group."""
    is_collective = graph.kind(position) is NodeKind.COLLECTIVE
    return not is_collective or graph.comm_bytes(position) < 0


def _is_member(rank: int, group: ProcessGroup | None) -> bool:
    return group is not None and rank in group


def _lost_communication(graphs: Mapping[int, TraceGraph]) -> Iterator[TraceWarning]:
    """Yield a problem if a set without communication contains PyTorch's CPU transfers.

    chakra_converter creates communication nodes only for GPU kernels. A set converted
    from a gloo run has no such nodes, and its other nodes do not state their process
    groups.
    """
    for rank in sorted(graphs):
        graph = graphs[rank]
        for position in range(len(graph)):
            if graph.node(position).name.startswith("c10d::"):
                yield TraceWarning(
                    ProblemKind.LOST_COMMUNICATION,
                    rank,
                    graph.locate(position),
                    "is communication on a CPU, for which the converter created no "
                    "communication node; no other node of the set communicates",
                    hint=(
                        "replay the host traces (JSON) that the set was converted from"
                    ),
                )
                return


def _node_problems(
    graph: TraceGraph,
    node: TraceNode,
    groups: Mapping[str, ProcessGroup],
    nranks: int,
) -> Iterator[TraceWarning]:
    def problem(kind: ProblemKind, found: str, hint: str) -> TraceWarning:
        return warning_at(kind, graph, node.position, found, hint=hint)

    name = node.group or WORLD
    group = groups.get(name)
    if group is None and name != WORLD:
        yield problem(
            ProblemKind.UNKNOWN_GROUP,
            f"names process group {name!r}, which is not defined",
            "define it in comm_group.json next to the traces, or name the group file "
            "(--comm-groups)",
        )
    elif group is not None and graph.rank not in group:
        yield problem(
            ProblemKind.NOT_A_MEMBER,
            f"uses process group {name!r}, whose ranks are {list(group.ranks)[:16]}",
            f"add rank {graph.rank} to the group",
        )
    if node.kind is NodeKind.COLLECTIVE:
        if node.comm_bytes < 0:
            yield problem(
                ProblemKind.NO_SIZE,
                f"is {node.op} without a size",
                "convert the trace again: its producer dropped comm_size",
            )
        return
    if node.peer is None:
        yield problem(
            ProblemKind.NO_PEER,
            "is a message without a peer",
            "set comm_dst of a send, and comm_src of a receive",
        )
    elif node.peer >= nranks:
        yield problem(
            ProblemKind.RANK_OUT_OF_RANGE,
            f"is a message with rank {node.peer}, but the set has {nranks} ranks",
            "check that the set has the files of all ranks",
        )
    elif node.peer == graph.rank:
        yield problem(
            ProblemKind.SELF_MESSAGE,
            "is a message of a rank with itself",
            "remove it: such a message does not use the network",
        )
    if node.comm_bytes < 0:
        yield problem(
            ProblemKind.NO_SIZE,
            "is a message without a size",
            "do not replay the body of a custom collective: it is not a workload",
        )


def _cycle(graph: TraceGraph) -> Iterator[TraceWarning]:
    try:
        graph.topological_order()
    except TraceError as error:
        yield TraceWarning(
            ProblemKind.CYCLE,
            graph.rank,
            error.where,
            error.found,
            hint=error.hint or "",
        )


def _group_problems(
    groups: Mapping[str, ProcessGroup], used: set[str], nranks: int
) -> Iterator[TraceWarning]:
    for name in sorted(used & groups.keys()):
        beyond = [rank for rank in groups[name].ranks if rank >= nranks]
        if beyond:
            yield TraceWarning(
                ProblemKind.RANK_OUT_OF_RANGE,
                None,
                f"process group {name!r}",
                f"has rank {beyond[0]}, but the set has {nranks} ranks",
                hint="check that the set has the files of all ranks",
            )
