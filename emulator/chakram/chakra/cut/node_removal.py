"""Removal of graph nodes that preserves the order of the remaining nodes.

The dependents of a removed node inherit its dependencies. Without limits, removing a
node with m dependencies and n dependents would create m * n edges. Two measures prevent
that:

* Edges that other edges imply are left out if a short search finds them.
* A node whose removal would add edges stays as an empty node, called a join.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from chakram.trace.graph import TraceGraph


_WIDEST = 64
"""Number of dependencies above which a removed node always becomes a join.

Without this limit, a chain in which every node adds one dependency would copy its
growing list of dependencies at every node.
"""

_SEARCH = 256
"""Maximum number of edges examined per node to find implied edges."""


class Bridged(NamedTuple):
    """The dependencies of the remaining nodes by position, and which nodes are joins.

    The nodes are in topological order. Ties are in the order of the original graph.
    """

    dependencies: Mapping[int, Sequence[int]]
    joins: frozenset[int]


def bridge(graph: TraceGraph, kept: Sequence[int]) -> Bridged:
    """Return the dependencies among the kept nodes.

    One kept node is reachable from another if and only if it was reachable in *graph*.
    There are at most as many joins as removed nodes.

    Args:
        graph: The graph of one rank.
        kept: By position, whether the node is kept.

    Raises:
        TraceError: If the dependencies form a cycle.
    """
    order = graph.topological_order()
    dependents = _dependents(graph, kept, order)
    place = {position: number for number, position in enumerate(order)}
    left: dict[int, Sequence[int]] = {}
    # The nodes that replace a dependency on each node, by its position.
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
    """Return, by node, how many dependents are kept or lead to a kept node."""
    dependents = [0] * len(graph)
    for position in reversed(order):
        if kept[position] or dependents[position]:
            for each in graph.dependencies(position):
                dependents[each] += 1
    return dependents


def _reduced(
    found: Iterable[int], left: Mapping[int, Sequence[int]], place: Mapping[int, int]
) -> Sequence[int]:
    """Return *found* without the implied positions that a bounded search finds."""
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
            # No node before *first* depends on a wanted node.
            if each not in seen and place[each] > first:
                seen.add(each)
                ahead.append(each)
    return tuple(each for each in found if each not in implied)


def _drop_idle(left: dict[int, Sequence[int]], kept: Sequence[int]) -> None:
    """Drop joins on which no node depends.

    Such joins occur because other edges can imply all edges to a join.
    """
    needed: set[int] = set()
    for position in reversed(list(left)):
        if kept[position] or position in needed:
            needed.update(left[position])
        else:
            del left[position]
