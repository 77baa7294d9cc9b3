"""In which order the collectives of a process group run, so that nobody waits for ever.

Collectives of one process group run one at a time, in one order, on every member,
whatever edges the trace lacks.  The order is the one they are counted in: k before
k + 1.  Adding that chain to what the trace demands could make a cycle across ranks, so
all ranks are merged into one graph, in which the nodes of one collective are one node
and a receive follows its send; a replay that waits for nothing but the edges of an
acyclic graph cannot deadlock.

Only where the chains of some groups make a cycle are those groups counted anew, in one
order of the merged graph that respects all the rest: the collective that comes first in
the order of one of its ranks goes first, then the group's name, then the rank.

Two collectives of different groups are ordered by nothing but the trace's dependencies,
unless a rank has one communication slot (``communication_order``).
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chakram.program.matching import CollectiveId, Matching
from chakram.program.merged_graph import MergedGraph

if TYPE_CHECKING:
    from chakram.trace.graph import TraceGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """The order of collectives within their groups.

    Attributes:
        collectives: Of every rank, by position, what its collectives are; the numbers
            are the order.
        chained: Whether k + 1 of a group waits for k.
        warnings: Which groups had to be counted anew, in sentences.
    """

    collectives: Mapping[int, Mapping[int, CollectiveId]]
    chained: bool
    warnings: tuple[str, ...]


def order_collectives(
    graphs: Mapping[int, TraceGraph], matching: Matching, *, overlap: bool = False
) -> Ordering:
    """Return the order of the collectives of every group.

    Args:
        graphs: The trace of every rank.
        matching: What belongs together in them.
        overlap: Do not order: collectives of one group may overlap, too.

    Raises:
        MatchingError: If the ranks would wait for one another for ever even without
            any order; it shows the nodes of the cycle.
    """
    merged = MergedGraph(graphs, matching)
    chains = {} if overlap else merged.chains()
    left = merged.on_cycles(chains.values())
    if not left:
        return Ordering(
            collectives=matching.collectives, chained=not overlap, warnings=()
        )
    broken = {
        group
        for group, chain in chains.items()
        if any(left[a] and left[b] for a, b in itertools.pairwise(chain))
    }
    kept = [chain for group, chain in chains.items() if group not in broken]
    order = merged.order(kept)
    rank_of = array("i", bytes(4 * len(order)))
    for place, node in enumerate(order):
        rank_of[node] = place
    renumbered = {
        CollectiveId(group, number): CollectiveId(group, place)
        for group in broken
        for place, number in enumerate(
            sorted(range(len(chains[group])), key=lambda k: rank_of[chains[group][k]])
        )
    }
    return Ordering(
        collectives={
            rank: {
                position: renumbered.get(identity, identity)
                for position, identity in collectives.items()
            }
            for rank, collectives in matching.collectives.items()
        },
        chained=True,
        warnings=tuple(
            f"process group {group!r}: its collectives cannot run in the order of "
            "their node ids without a deadlock; they run in one merged order of all "
            "ranks"
            for group in sorted(broken)
        ),
    )


def communication_order(
    graphs: Mapping[int, TraceGraph], matching: Matching, ordering: Ordering
) -> dict[int, list[int]]:
    """Return by rank in which order its nodes may have its one communication slot.

    Every rank starts whatever communicates in an order of its own, as soon as it is
    ready: so does ASTRA-sim, and ranks that computed a little longer than others can
    then wait for one another for ever.  Here all ranks follow one order, the earliest
    in its rank first, in which nobody waits for anything later.

    Args:
        graphs: The trace of every rank.
        matching: What belongs together in them.
        ordering: In which order the collectives of every group run.

    Raises:
        MatchingError: If there is no such order.
    """
    merged = MergedGraph(graphs, replace(matching, collectives=ordering.collectives))
    chains = merged.chains() if ordering.chained else {}
    return merged.issue_order(chains.values())
