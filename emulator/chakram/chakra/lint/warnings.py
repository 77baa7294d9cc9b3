"""What can be replayed, and yet misleads: a warning is no problem.

A warning is told where a result would not mean what it seems to: computation that takes
no time, communication that nothing waits for, traffic that nobody recorded.  Each is
held to real traces: a healthy one gives none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING

from chakram.chakra.trace_warning import Remark, remark_at
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.units import format_time
from chakram.trace.node import NodeKind

if TYPE_CHECKING:
    from chakram.trace.graph import TraceGraph


_LEAST_EQUAL = 16
"""So many computations of one rank do not all take the same time by chance."""

_SHORTEST_NS = 1_000
"""The schema has microseconds: many a small model takes the least of all."""

_OF_GRADIENTS = frozenset({CollectiveOp.ALL_REDUCE, CollectiveOp.REDUCE_SCATTER})


class LintWarningKind(StrEnum):
    """What makes the result of a replay mean less than it seems to."""

    NOTHING_WAITS = "nothing-waits"
    NO_COSTS = "no-costs"
    PARTIAL_DURATIONS = "partial-durations"
    EQUAL_DURATIONS = "equal-durations"
    TIME_BACKWARDS = "time-backwards"
    IMPLAUSIBLE_SIZE = "implausible-size"
    EMPTY_COLLECTIVE = "empty-collective"
    AMBIGUOUS_MESSAGES = "ambiguous-messages"
    ROOTLESS = "rootless"
    LONE_RANK = "lone-rank"
    UNUSED_GROUPS = "unused-groups"
    LOST_GROUPS = "lost-groups"
    UNSORTED_GROUP = "unsorted-group"


def check_computation(graphs: Mapping[int, TraceGraph]) -> list[Remark]:
    """Return what is doubtful about times, and about what waits for what.

    Args:
        graphs: The trace of every rank, of which no dependencies form a cycle.
    """
    return [
        *_nothing_waits(graphs),
        *_costs(graphs),
        *chain.from_iterable(map(_time_backwards, graphs.values())),
    ]


def _nothing_waits(graphs: Mapping[int, TraceGraph]) -> Iterator[Remark]:
    """Yield a warning where no computation of any rank waits for a collective.

    A step of pure data parallelism ends with the sums of its gradients, for which
    nothing in the same step need wait: such sets are left out.  Barriers have no
    result.
    """
    if not any(NodeKind.COMPUTE in graph.kinds() for graph in graphs.values()):
        return
    first: tuple[TraceGraph, int] | None = None
    count = 0
    only_gradients = True
    for graph in graphs.values():
        for position in graph.communication():
            op = graph.op(position)
            if op is CollectiveOp.BARRIER:
                continue
            only_gradients &= op in _OF_GRADIENTS
            if op is not None:
                count += 1
                first = first or (graph, position)
    if first is None or only_gradients or any(map(_waits, graphs.values())):
        return
    graph, position = first
    yield remark_at(
        LintWarningKind.NOTHING_WAITS,
        graph,
        position,
        f"is the first of {count} collectives; no computation of any rank waits "
        "for one of them, so they take time only where they outlast all computation",
        count,
    )


def _waits(graph: TraceGraph) -> bool:
    """Say whether a computation waits for a collective, over whatever nodes."""
    kinds = graph.kinds()
    if NodeKind.COLLECTIVE not in kinds:
        return False
    dependencies, ends = graph.edges()
    waits = bytearray(len(kinds))
    for position in graph.topological_order():
        for edge in range(ends[position], ends[position + 1]):
            before = dependencies[edge]
            if waits[before] or kinds[before] == NodeKind.COLLECTIVE:
                if kinds[position] == NodeKind.COMPUTE:
                    return True
                waits[position] = 1
                break
    return False


def _costs(graphs: Mapping[int, TraceGraph]) -> Iterator[Remark]:
    """Yield warnings about how long computations take."""
    firsts: list[tuple[TraceGraph, int]] = []
    computations = 0
    any_cost = any_communication = False
    durations_ns: set[int] = set()
    operations: set[int] = set()
    most_stated = 0
    for graph in graphs.values():
        kinds = graph.kinds()
        any_communication |= not {
            NodeKind.COLLECTIVE,
            NodeKind.SEND,
            NodeKind.RECEIVE,
        }.isdisjoint(kinds)
        own = [at for at, kind in enumerate(kinds) if kind == NodeKind.COMPUTE]
        if not own:
            continue
        firsts.append((graph, own[0]))
        computations += len(own)
        stated = [at for at in own if graph.duration_ns(at)]
        most_stated = max(most_stated, len(stated))
        durations_ns.update(map(graph.duration_ns, stated))
        operations.update(map(graph.num_ops, stated))
        estimated = any(map(graph.num_ops, own)) or any(map(graph.tensor_bytes, own))
        any_cost |= bool(stated) or estimated
        unstated = len(own) - len(stated)
        if stated and unstated > len(stated) and not estimated:
            yield _partial(graph, own, unstated)
    if not firsts or not any_communication:
        return
    graph, position = firsts[0]
    if not any_cost:
        yield remark_at(
            LintWarningKind.NO_COSTS,
            graph,
            position,
            f"is the first of {computations} computations, of which none states "
            "a duration, operations or sizes of tensors: they take no time, and "
            "communication follows communication",
            computations,
        )
    # As many operations everywhere may well take the same time.
    if (
        len(durations_ns) == 1
        and (len(operations) > 1 or operations == {0})
        and max(durations_ns) > _SHORTEST_NS
        and most_stated >= _LEAST_EQUAL
    ):
        yield remark_at(
            LintWarningKind.EQUAL_DURATIONS,
            graph,
            position,
            f"takes {format_time(min(durations_ns))}, as do all computations of "
            "the set: nobody measured that",
            computations,
        )


def _partial(graph: TraceGraph, computations: list[int], unstated: int) -> Remark:
    first = next(at for at in computations if not graph.duration_ns(at))
    return remark_at(
        LintWarningKind.PARTIAL_DURATIONS,
        graph,
        first,
        f"states no duration, as {unstated} of {len(computations)} computations "
        "of this rank: they take no time, the others do",
        unstated,
    )


def _time_backwards(graph: TraceGraph) -> Iterator[Remark]:
    """Yield a warning where a node started before one that it waits for."""
    starts_ns = list(map(graph.start_ns, range(len(graph))))
    if not any(starts_ns):
        return
    dependencies, ends = graph.edges()
    first: tuple[int, int] | None = None
    count = 0
    for position, start_ns in enumerate(starts_ns):
        if start_ns is None:
            continue
        for edge in range(ends[position], ends[position + 1]):
            before_ns = starts_ns[dependencies[edge]]
            if before_ns is not None and before_ns > start_ns:
                count += 1
                first = first or (position, dependencies[edge])
                break
    if first is None:
        return
    position, before = first
    yield remark_at(
        LintWarningKind.TIME_BACKWARDS,
        graph,
        position,
        f"was recorded as starting before node {graph.node_id(before)} "
        f"{graph.name(before)!r}, for which it waits",
        count,
    )
