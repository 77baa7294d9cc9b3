"""Leave nodes out of a graph, so that what came after what still does.

What depended on a node that is left out depends on what that one depended on.  Done
blindly, a node that joins m others before n becomes m * n edges.  So an edge that
others imply is not written, where a short search shows it; and a node that would cost
more edges than it has stays, as one that does nothing: a join.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from chakram.trace.graph import TraceGraph


_WIDEST = 64
"""Dependencies above which a node becomes a join in any case.

A chain that gathers one more at every node would be copied over and over otherwise.
"""

_SEARCH = 256
"""Edges that are looked at for one that is implied, per node."""


class Bridged(NamedTuple):
    """The dependencies, by position, of the nodes that are left; and which are joins.

    They stand in topological order, ties as in the graph they come from.
    """

    dependencies: Mapping[int, Sequence[int]]
    joins: frozenset[int]


def bridge(graph: TraceGraph, kept: Sequence[int]) -> Bridged:
    """Return the dependencies among the nodes that are kept.

    One of them is reachable from another exactly if it was in *graph*.  There are at
    most as many joins as nodes that are left out.

    Args:
        graph: The graph.
        kept: By position, whether the node is kept.

    Raises:
        TraceError: If the dependencies form a cycle.
    """
    order = graph.topological_order()
    dependents = _dependents(graph, kept, order)
    place = {position: number for number, position in enumerate(order)}
    left: dict[int, Sequence[int]] = {}
    # By position: what stands for the node among the dependencies of others.
    stands_for: list[Sequence[int]] = [()] * len(graph)
    for position in order:
        if not kept[position] and not dependents[position]:
            continue
        own = graph.dependencies(position)
        merged: Sequence[int] = tuple(own)
        if not all(kept[each] for each in own):
            merged = _reduced(
                dict.fromkeys(far for each in own for far in stands_for[each]),
                left,
                place,
            )
        outs = dependents[position]
        if kept[position] or (
            len(merged) * outs > len(merged) + outs or len(merged) > _WIDEST
        ):
            left[position] = merged
            stands_for[position] = (position,)
        else:
            stands_for[position] = merged
    _drop_idle(left, kept)
    return Bridged(left, frozenset(each for each in left if not kept[each]))


def _dependents(
    graph: TraceGraph, kept: Sequence[int], order: Sequence[int]
) -> list[int]:
    """Return how many dependents a node has that are kept or lead to one that is."""
    dependents = [0] * len(graph)
    for position in reversed(order):
        if kept[position] or dependents[position]:
            for each in graph.dependencies(position):
                dependents[each] += 1
    return dependents


def _reduced(
    found: Iterable[int], left: Mapping[int, Sequence[int]], place: Mapping[int, int]
) -> Sequence[int]:
    """Return *found* without what the rest of it depends on, as far as looked."""
    found = tuple(found)
    if len(found) < 2:
        return found
    first = min(place[each] for each in found)
    implied: set[int] = set()
    wanted, seen = set(found), set(found)
    ahead = deque(sorted(found, key=place.__getitem__, reverse=True))
    budget = _SEARCH
    while ahead and budget > 0:
        for each in left[ahead.popleft()]:
            budget -= 1
            if each in wanted:
                implied.add(each)
            # Nothing of what is looked for comes before the first of it.
            if each not in seen and place[each] > first:
                seen.add(each)
                ahead.append(each)
    return tuple(each for each in found if each not in implied)


def _drop_idle(left: dict[int, Sequence[int]], kept: Sequence[int]) -> None:
    """Drop joins that nothing depends on: others implied all edges to them."""
    needed: set[int] = set()
    for position in reversed(list(left)):
        if kept[position] or position in needed:
            needed.update(left[position])
        else:
            del left[position]
