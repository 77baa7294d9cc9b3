"""Warnings about traces that can be replayed but give misleading results.

Examples are computation that takes no time, communication that no node waits for, and
traffic that was never recorded. Tests check with real traces that a healthy trace
triggers no warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING

from chakram.chakra.trace_warning import TraceWarning, warning_at
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.units import format_time
from chakram.trace.node import NodeKind

if TYPE_CHECKING:
    from chakram.trace.graph import TraceGraph


_LEAST_EQUAL = 16
"""Smallest number of computations per rank whose equal times cannot be chance."""

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
    yield warning_at(
        LintWarningKind.NOTHING_WAITS,
        graph,
        position,
        f"is the first of {count} collectives; no computation of any rank waits for "
        "any of them, so they take time only if they outlast all computation",
        count,
    )


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
        all_stated += len(stated)
        timed += [(graph, at) for at in stated[:1]]
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
        yield warning_at(
            LintWarningKind.NO_COSTS,
            graph,
            position,
            f"is the first of {computations} computations, none of which states a "
            "duration, operations or tensor sizes: they take no time, and only "
            "communication does",
            computations,
        )
    # Computations with equal operation counts may well take equal times.
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


def _partial(graph: TraceGraph, computations: list[int], unstated: int) -> TraceWarning:
    first = next(at for at in computations if not graph.duration_ns(at))
    return warning_at(
        LintWarningKind.PARTIAL_DURATIONS,
        graph,
        first,
        f"is one of {unstated} computations without a duration, of {len(computations)} "
        "in this rank: they take no time, but the others do",
        unstated,
    )


def _time_backwards(graph: TraceGraph) -> Iterator[TraceWarning]:
    """Yield a warning if a node started before one of its dependencies."""
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
