"""Warnings about traces that can be replayed but give misleading results.

Examples are computation that takes no time, communication that no node waits for, and
traffic that was never recorded. Tests check with real traces that a healthy trace
triggers no warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from chakram.chakra.trace_warning import TraceWarning, warning_at
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.units import format_time
from chakram.trace.node import NodeKind
from chakram.trace.shared_columns import once_per_shape, once_per_work

if TYPE_CHECKING:
    from chakram.trace.graph import TraceGraph


_LEAST_EQUAL = 16
"""Number of equal computation times in one rank that rules out a coincidence."""

_SHORTEST_NS = 1_000
"""The shortest duration that the schema can express. It is common in small models."""

_OF_GRADIENTS = frozenset({CollectiveOp.ALL_REDUCE, CollectiveOp.REDUCE_SCATTER})


class LintWarningKind(StrEnum):
    """Properties of a trace that make the results of a replay misleading."""

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


def check_computation(graphs: Mapping[int, TraceGraph]) -> list[TraceWarning]:
    """Return the warnings about computation times and dependencies.

    Args:
        graphs: The trace of every rank. The dependencies must not form a cycle.
    """
    return [
        *_nothing_waits(graphs),
        *_costs(graphs),
        *chain.from_iterable(map(_time_backwards, graphs.values())),
    ]


def _nothing_waits(graphs: Mapping[int, TraceGraph]) -> Iterator[TraceWarning]:
    """Yield a warning if no computation of any rank waits for a collective.

    A step of pure data parallelism ends with the reduction of its gradients, and
    nothing in the same step needs to wait for the reduction. Sets of such steps trigger
    no warning. Barriers have no result and are ignored.
    """
    if not any(NodeKind.COMPUTE in graph.kinds() for graph in graphs.values()):
        return
    first: tuple[TraceGraph, int] | None = None
    count = 0
    only_gradients = True
    collectives_of = once_per_shape(_collectives)
    for graph in graphs.values():
        own, position, are_gradients = collectives_of(graph)
        only_gradients &= are_gradients
        count += own
        if position is not None:
            first = first or (graph, position)
    waits = once_per_shape(_waits)
    if first is None or only_gradients or any(map(waits, graphs.values())):
        return
    graph, position = first
    yield warning_at(
        LintWarningKind.NOTHING_WAITS,
        graph,
        position,
        f"is the first of {count} collectives; no computation of any rank waits for "
        "any of them, so they take time only if they outlast all computation",
        count,
    )


def _collectives(graph: TraceGraph) -> tuple[int, int | None, bool]:
    """Count the collectives except barriers, and find the first of them.

    Returns:
        The number of collectives, the position of the first one or None, and whether
        all communication of the rank can be the reduction of gradients.
    """
    positions = graph.communication()
    ops = [(graph.op(each), each) for each in positions]
    ops = [each for each in ops if each[0] is not CollectiveOp.BARRIER]
    collectives = [position for op, position in ops if op is not None]
    first = collectives[0] if collectives else None
    return len(collectives), first, {op for op, _ in ops} <= _OF_GRADIENTS


def _waits(graph: TraceGraph) -> bool:
    """Return whether a computation waits for a collective, directly or indirectly."""
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


def _costs(graphs: Mapping[int, TraceGraph]) -> Iterator[TraceWarning]:
    """Yield warnings about the duration of computations."""
    firsts: list[tuple[TraceGraph, int]] = []
    timed: list[tuple[TraceGraph, int]] = []
    computations = all_stated = 0
    any_cost = any_communication = False
    durations_ns: set[int] = set()
    operations: set[int] = set()
    most_stated = 0

    def of_rank(graph: TraceGraph) -> _Costs:
        kinds = graph.kinds()
        own = [at for at, kind in enumerate(kinds) if kind == NodeKind.COMPUTE]
        stated = [at for at in own if graph.duration_ns(at)]
        durations_ns.update(map(graph.duration_ns, stated))
        operations.update(map(graph.num_ops, stated))
        return _Costs(
            bool(graph.communication()),
            len(own),
            own[0] if own else None,
            len(stated),
            stated[0] if stated else None,
            any(map(graph.num_ops, own)) or any(map(graph.tensor_bytes, own)),
        )

    costs_of = once_per_work(of_rank)
    for graph in graphs.values():
        costs = costs_of(graph)
        any_communication |= costs.communicates
        if costs.first is None:
            continue
        firsts.append((graph, costs.first))
        computations += costs.number
        most_stated = max(most_stated, costs.stated)
        all_stated += costs.stated
        if costs.first_stated is not None:
            timed.append((graph, costs.first_stated))
        any_cost |= bool(costs.stated) or costs.is_estimated
        unstated = costs.number - costs.stated
        if costs.stated and unstated > costs.stated and not costs.is_estimated:
            yield _partial(graph, costs.number, unstated)
    if not firsts or not any_communication:
        return
    graph, position = firsts[0]
    if not any_cost:
        yield warning_at(
            LintWarningKind.NO_COSTS,
            graph,
            position,
            f"is the first of {computations} computations, none of which states a "
            "duration, operations or tensor sizes: they take no time, and only "
            "communication does",
            computations,
        )
    # Equal times are plausible if all computations have the same nonzero operation
    # count.
    if (
        len(durations_ns) == 1
        and (len(operations) > 1 or operations == {0})
        and max(durations_ns) > _SHORTEST_NS
        and most_stated >= _LEAST_EQUAL
    ):
        which = "" if all_stated == computations else " that state a duration"
        yield warning_at(
            LintWarningKind.EQUAL_DURATIONS,
            *timed[0],
            f"takes {format_time(min(durations_ns))}, like all computations of the "
            f"set{which}, so the time was not measured",
            all_stated,
        )


class _Costs(NamedTuple):
    """Computations of one rank, and whether they state their costs.

    ``first`` and ``first_stated`` are positions. ``stated`` counts the computations
    with a duration. ``is_estimated`` is true if any computation has operations or a
    tensor size.
    """

    communicates: bool
    number: int
    first: int | None
    stated: int
    first_stated: int | None
    is_estimated: bool


def _partial(graph: TraceGraph, computations: int, unstated: int) -> TraceWarning:
    first = next(
        at
        for at, kind in enumerate(graph.kinds())
        if kind == NodeKind.COMPUTE and not graph.duration_ns(at)
    )
    return warning_at(
        LintWarningKind.PARTIAL_DURATIONS,
        graph,
        first,
        f"is one of {unstated} computations without a duration, of {computations} in "
        "this rank: they take no time, but the others do",
        unstated,
    )


def _time_backwards(graph: TraceGraph) -> Iterator[TraceWarning]:
    """Yield a warning if a node started before one of its dependencies."""
    if not graph.columns.starts_ns:
        return
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
    yield warning_at(
        LintWarningKind.TIME_BACKWARDS,
        graph,
        position,
        f"started before node {graph.node_id(before)} {graph.name(before)!r}, for "
        "which it waits",
        count,
    )
