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
import operator
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise, repeat
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from chakram.foundation.errors import MatchingError
from chakram.program.matching import CollectiveId, Matching
from chakram.trace.graph_index import grouped, topological_order
from chakram.trace.node import NodeKind

if TYPE_CHECKING:
    from chakram.trace.graph import TraceGraph


_SHOWN_NODES = 6
"""How many nodes of a cycle an error shows."""

Edges: TypeAlias = "tuple[array[int], array[int]]"
"""Nodes that come first, and those that wait for them, one by one."""


class MergedGraph:
    """The graphs of all ranks in one, in columns: one node per collective.

    Millions of nodes make it, so it holds edges as two arrays and nothing else; what a
    node is, and where it stands, is looked up for the few that are asked for.

    Nodes are numbers: first the collectives, then all positions of each rank.  Those of
    its collectives are not used, and have no edges.
    """

    def __init__(self, graphs: Mapping[int, TraceGraph], matching: Matching) -> None:
        self._graphs = graphs
        self._matching = matching
        self._identities: list[CollectiveId] = sorted(
            {
                identity
                for collectives in matching.collectives.values()
                for identity in collectives.values()
            }
        )
        self._ranks = list(matching.orders)
        # By index of a rank: the node of its position 0.
        self._bases: list[int] = []
        self._count = len(self._identities)
        self._before = array("i")
        self._after = array("i")
        number_of = {identity: n for n, identity in enumerate(self._identities)}
        for rank, order in matching.orders.items():
            self._bases.append(self._count)
            nodes = array("i", range(self._count, self._count + len(order)))
            self._count += len(order)
            for position, identity in matching.collectives[rank].items():
                nodes[position] = number_of[identity]
            self._add_dependencies(graphs[rank], nodes)
        # Node of the send, node of the receive.
        self._messages: list[tuple[int, int]] = []
        self._add_messages()

    def _add_dependencies(self, graph: TraceGraph, nodes: array[int]) -> None:
        dependencies, ends = graph.edges()
        counts = map(operator.sub, islice(ends, 1, None), ends)
        self._before.extend(map(nodes.__getitem__, dependencies))
        self._after.extend(chain.from_iterable(map(repeat, nodes, counts)))

    def _add_messages(self) -> None:
        base_of = dict(zip(self._ranks, self._bases, strict=True))
        receives: dict[tuple[int, int, int], int] = {}
        for rank, messages in self._matching.messages.items():
            for position, (peer, number) in messages.items():
                if self._graphs[rank].kind(position) == NodeKind.RECEIVE:
                    receives[peer, rank, number] = base_of[rank] + position
        for rank, messages in self._matching.messages.items():
            for position, (peer, number) in messages.items():
                if self._graphs[rank].kind(position) == NodeKind.SEND:
                    send = base_of[rank] + position
                    receive = receives[rank, peer, number]
                    self._messages.append((send, receive))
                    self._before.append(send)
                    self._after.append(receive)

    def chains(self) -> dict[str, list[int]]:
        """Return the nodes of the collectives of every group, in their order."""
        chains: dict[str, list[int]] = {}
        for node, identity in enumerate(self._identities):
            chains.setdefault(identity.group, []).append(node)
        return chains

    def on_cycles(self, chains: Iterable[Sequence[int]]) -> bytearray:
        """Return by node whether it is on a cycle, or between cycles.

        Args:
            chains: Nodes each of which waits for the one before it, besides the edges
                of the graphs.

        Returns:
            Nothing where there is no cycle.
        """
        before, after = self._with(chains)
        missing = self._unmet(before, after)
        if missing is None:
            return bytearray()
        # What only waits for cycles goes, too: seen from behind, it waits for none.
        within = bytearray(map(bool, missing))
        selected = array(
            "b", (within[a] & within[b] for a, b in zip(before, after, strict=True))
        )
        before = array(
            "i", (a for a, kept in zip(before, selected, strict=True) if kept)
        )
        after = array("i", (b for b, kept in zip(after, selected, strict=True) if kept))
        missing = self._unmet(after, before)
        return bytearray() if missing is None else bytearray(map(bool, missing))

    def order(self, chains: Iterable[Sequence[int]]) -> array[int]:
        """Return all nodes in topological order, the earliest place first.

        The place of a node is its index in the order of its rank, then the name of its
        group, then the rank; that of a collective is its members' first.

        Raises:
            MatchingError: If there is a cycle even so.
        """
        edges = self._with(chains)
        order, missing = self._sorted(*edges, self._places())
        if len(order) < self._count:
            self._refuse(edges, missing)
        return order

    def issue_order(self, chains: Iterable[Sequence[int]]) -> dict[int, list[int]]:
        """Return by rank its positions in one order of all ranks, the earliest first.

        In it a message also leaves no earlier than its receiver can take it up.  So
        whatever waits only for what comes before it here waits for nothing for ever,
        even if messages wait for their receivers.

        Raises:
            MatchingError: If there is no such order.
        """
        before, after = self._with(chains)
        lists, ends = grouped(after, before, self._count)
        for send, receive in self._messages:
            for waits_for in lists[ends[receive] : ends[receive + 1]]:
                if waits_for != send:
                    before.append(waits_for)
                    after.append(send)
        edges = before, after
        order, missing = self._sorted(*edges, self._places())
        if len(order) < self._count:
            self._refuse(
                edges,
                missing,
                "a rank that communicates one thing at a time could wait for ever "
                "here: do without resources: astra-sim",
            )
        place = array("i", bytes(4 * self._count))
        for at, node in enumerate(order):
            place[node] = at
        number_of = {identity: n for n, identity in enumerate(self._identities)}
        found: dict[int, list[int]] = {}
        for base, (rank, positions) in zip(
            self._bases, self._matching.orders.items(), strict=True
        ):
            collectives = self._matching.collectives[rank]
            place_of = {
                position: place[
                    number_of[collectives[position]]
                    if position in collectives
                    else base + position
                ]
                for position in positions
            }
            found[rank] = sorted(positions, key=place_of.__getitem__)
        return found

    def _with(self, chains: Iterable[Sequence[int]]) -> Edges:
        before, after = self._before[:], self._after[:]
        for nodes in chains:
            for node, following in pairwise(nodes):
                before.append(node)
                after.append(following)
        return before, after

    def _unmet(self, before: array[int], after: array[int]) -> array[int] | None:
        """Return how many edges to each node are never met; None if all are."""
        order, missing = self._sorted(before, after, array("Q", range(self._count)))
        return None if len(order) == self._count else missing

    def _sorted(
        self, before: array[int], after: array[int], places: array[int]
    ) -> tuple[array[int], array[int]]:
        return topological_order(places, *grouped(after, before, self._count))

    def _places(self) -> array[int]:
        groups = {name: n for n, name in enumerate(sorted(self._matching.groups), 1)}
        number_of = {identity: n for n, identity in enumerate(self._identities)}
        # One number that compares like (index, group, rank); no group comes first.
        of_index = (len(groups) + 1) * (max(self._ranks, default=0) + 1)
        of_group = max(self._ranks, default=0) + 1
        places = array("Q", bytes(8 * self._count))
        unset = bytearray(b"\1" * len(self._identities))
        for base, (rank, order) in zip(
            self._bases, self._matching.orders.items(), strict=True
        ):
            collectives = self._matching.collectives[rank]
            for index, position in enumerate(order):
                identity = collectives.get(position)
                if identity is None:
                    places[base + position] = index * of_index + rank
                    continue
                node = number_of[identity]
                place = index * of_index + groups[identity.group] * of_group + rank
                if unset[node] or place < places[node]:
                    places[node] = place
                    unset[node] = 0
        return places

    def _refuse(
        self,
        edges: Edges,
        missing: Sequence[int],
        hint: str = "these ranks would deadlock; their traces do not belong together",
    ) -> NoReturn:
        """Walk back over unmet edges until a node comes again; show that cycle."""
        waits_for: dict[int, int] = {}
        for before, after in zip(*edges, strict=True):
            if missing[before] and missing[after]:
                waits_for[after] = min(before, waits_for.get(after, before))
        node = next(node for node, count in enumerate(missing) if count)
        path: dict[int, None] = {}
        while node not in path:
            path[node] = None
            node = waits_for[node]
        cycle = list(path)[list(path).index(node) :]
        shown = "; which waits for ".join(
            self._describe(each) for each in cycle[:_SHOWN_NODES]
        )
        more = len(cycle) - _SHOWN_NODES
        raise MatchingError(
            self._describe(cycle[0]),
            f"waits for itself across ranks: {shown}"
            f"{f'; and {more} more' if more > 0 else ''}; which waits for the first",
            hint,
        )

    def _describe(self, node: int) -> str:
        if node >= len(self._identities):
            index = bisect_right(self._bases, node) - 1
            return self._graphs[self._ranks[index]].locate(node - self._bases[index])
        identity = self._identities[node]
        _, rank, position = min(
            (self._matching.orders[rank].index(position), rank, position)
            for rank, collectives in self._matching.collectives.items()
            for position, each in collectives.items()
            if each == identity
        )
        text = self._graphs[rank].locate(position)
        group, number = identity
        return f"collective {number} of process group {group!r} ({text})"


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
