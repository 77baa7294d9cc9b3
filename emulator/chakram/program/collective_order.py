"""Deadlock-free order of the collectives of each process group.

Collectives of one process group run one at a time, in the same order on every member,
even if the trace lacks such edges. The order is that of their numbers: k before k + 1.
Adding these chains to the dependencies of the trace could create a cycle across ranks.
So all ranks are merged into one graph, in which each collective is one node and each
receive follows its send. A replay that waits only for the edges of an acyclic graph
cannot deadlock.

Only groups whose chains create a cycle are renumbered. Their new order respects all
other edges of the merged graph. Among collectives that are ready, the one with the
smallest index in any of its ranks comes first. Ties are broken by group name, then by
rank.

Collectives of different groups are ordered only by the trace's dependencies, unless a
rank has one communication slot (``communication_order``).
"""

from __future__ import annotations

import itertools
import operator
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise, repeat
from typing import NoReturn, TypeAlias

from chakram.foundation.errors import MatchingError
from chakram.program.matching import CollectiveId, Collectives, Matching
from chakram.trace.graph import TraceGraph
from chakram.trace.graph_index import grouped, topological_order
from chakram.trace.node import NodeKind

_LEAST_ALIKE = 4
"""Minimum average number of ranks per shape for checking equal ranks together."""

_SHOWN_NODES = 6
"""Maximum number of nodes of a cycle that an error shows."""

Edges: TypeAlias = "tuple[array[int], array[int]]"
"""Two parallel arrays: nodes that come first, and nodes that wait for them."""


class MergedGraph:
    """The graphs of all ranks, merged into one with a single node per collective.

    The graph may have millions of nodes, so it stores only edges, as two arrays. The
    properties of nodes are looked up only when needed.

    Nodes are numbered: first the collectives, then all positions of each rank. The
    positions of collectives are unused and have no edges.
    """

    def __init__(self, graphs: Mapping[int, TraceGraph], matching: Matching) -> None:
        self._graphs = graphs
        self._matching = matching
        self._identities: list[CollectiveId] = sorted(
            set().union(*(each.values() for each in matching.collectives.values()))
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
        for send, receive in _message_nodes(self._graphs, self._matching, base_of):
            self._messages.append((send, receive))
            self._before.append(send)
            self._after.append(receive)

    def chains(self) -> dict[str, list[int]]:
        """Return the nodes of the collectives of every group, in order."""
        chains: dict[str, list[int]] = {}
        for node, identity in enumerate(self._identities):
            chains.setdefault(identity.group, []).append(node)
        return chains

    def on_cycles(self, chains: Iterable[Sequence[int]]) -> bytearray:
        """Return for each node whether it is on a cycle, or between cycles.

        Args:
            chains: Sequences in which each node waits for the previous one, in addition
                to the edges of the graphs.

        Returns:
            One flag per node, or no flags if there is no cycle.
        """
        before, after = self._with(chains)
        missing = self._unmet(before, after)
        if missing is None:
            return bytearray()
        # Also drop nodes that only wait for cycles: in the reversed graph, they do not
        # wait for any cycle.
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
        group, then the rank. The place of a collective is the first of its places on
        all members.

        Raises:
            MatchingError: If there is still a cycle.
        """
        edges = self._with(chains)
        order, missing = self._sorted(*edges, self._places())
        if len(order) < self._count:
            self._refuse(edges, missing)
        return order

    def issue_order(self, chains: Iterable[Sequence[int]]) -> dict[int, list[int]]:
        """Return each rank's positions, sorted by one common order of all ranks.

        In this order, a send comes after everything that its receive waits for. So
        operations that wait only for earlier ones never deadlock, even if sends block
        until the receiver is ready.

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
                "remove resources: astra-sim, which lets a rank communicate one thing "
                "at a time and can cause this deadlock",
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
        """Return the number of unmet edges by node, or None if all are met."""
        order, missing = self._sorted(before, after, array("Q", range(self._count)))
        return None if len(order) == self._count else missing

    def _sorted(
        self, before: array[int], after: array[int], places: array[int]
    ) -> tuple[array[int], array[int]]:
        return topological_order(places, *grouped(after, before, self._count))

    def _places(self) -> array[int]:
        groups = {name: n for n, name in enumerate(sorted(self._matching.groups), 1)}
        number_of = {identity: n for n, identity in enumerate(self._identities)}
        # One number that compares like (index, group, rank). Nodes without a group come
        # first.
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
        hint: str = "check that the traces belong together: these ranks would deadlock",
    ) -> NoReturn:
        """Follow unmet edges backward, and raise an error that shows the cycle."""
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


def _message_nodes(
    graphs: Mapping[int, TraceGraph], matching: Matching, base_of: Mapping[int, int]
) -> Iterator[tuple[int, int]]:
    """Yield the nodes of each send and its receive, given each rank's first node."""
    receives: dict[tuple[int, int, int], int] = {}
    for rank, messages in matching.messages.items():
        for position, (peer, number) in messages.items():
            if graphs[rank].kind(position) == NodeKind.RECEIVE:
                receives[peer, rank, number] = base_of[rank] + position
    for rank, messages in matching.messages.items():
        for position, (peer, number) in messages.items():
            if graphs[rank].kind(position) == NodeKind.SEND:
                yield base_of[rank] + position, receives[rank, peer, number]


def _never_circular(graphs: Mapping[int, TraceGraph], matching: Matching) -> bool:
    """Return True if ranks never wait in a circle, or False if this is unclear.

    The check merges the nodes at the same position of all ranks of a shape. Every cycle
    of the original nodes is also a cycle of the merged nodes.
    """
    firsts = {graph.shape(): graph for graph in graphs.values()}
    collectives = matching.collectives
    if _LEAST_ALIKE * len(firsts) > len(graphs) or not isinstance(
        collectives, Collectives
    ):
        return False
    base_of_shape: dict[bytes, int] = {}
    before, after, count = array("i"), array("i"), 0
    for shape, graph in firsts.items():
        base_of_shape[shape] = count
        for position in range(len(graph)):
            for dependency in graph.dependencies(position):
                before.append(count + dependency)
                after.append(count + position)
        count += len(graph)
    base_of = {rank: base_of_shape[graph.shape()] for rank, graph in graphs.items()}
    merged_into = list(range(count))

    def merged(node: int) -> int:
        while merged_into[node] != node:
            merged_into[node] = node = merged_into[merged_into[node]]
        return node

    known: set[frozenset[tuple[int, int]]] = set()
    for positions_of in collectives.positions.values():
        lists = {(base_of[rank], id(own)): own for rank, own in positions_of.items()}
        if (key := frozenset(lists)) in known:
            continue
        known.add(key)
        nodes = [[base + at for at in own] for (base, _), own in lists.items()]
        for own in nodes[1:]:
            for node, first in zip(own, nodes[0], strict=True):
                merged_into[merged(node)] = merged(first)
        before.extend(nodes[0][:-1])
        after.extend(nodes[0][1:])
    for send, receive in set(_message_nodes(graphs, matching, base_of)):
        before.append(send)
        after.append(receive)
    edges = array("i", map(merged, after)), array("i", map(merged, before))
    order, _ = topological_order(array("Q", range(count)), *grouped(*edges, count))
    return len(order) == count


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """The order of collectives within their groups.

    Attributes:
        collectives: Identities of every rank's collectives, by position. The numbers
            define the order.
        chained: Whether collective k + 1 of a group waits for collective k.
        warnings: Sentences about the groups that were renumbered.
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
        matching: Matched collectives and messages of the graphs.
        overlap: Whether collectives of one group may overlap. If so, they get no order.

    Raises:
        MatchingError: If the ranks would deadlock even without any order. The error
            shows the nodes of the cycle.
    """
    in_order = Ordering(
        collectives=matching.collectives, chained=not overlap, warnings=()
    )
    if _never_circular(graphs, matching):
        return in_order
    merged = MergedGraph(graphs, matching)
    chains = {} if overlap else merged.chains()
    left = merged.on_cycles(chains.values())
    if not left:
        return in_order
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
            f"process group {group!r}: its collectives would deadlock in the order of "
            "their node ids; they run in one merged order of all ranks"
            for group in sorted(broken)
        ),
    )


def communication_order(
    graphs: Mapping[int, TraceGraph], matching: Matching, ordering: Ordering
) -> dict[int, list[int]]:
    """Return the order in which nodes take the communication slot, by rank.

    In ASTRA-sim, every rank starts communication as soon as it is ready. Ranks with
    slightly different compute times can then choose different orders and wait for each
    other forever. Here, all ranks follow one common order, in which no node waits for a
    later one.

    Args:
        graphs: The trace of every rank.
        matching: Matched collectives and messages of the graphs.
        ordering: The order of the collectives of every group.

    Raises:
        MatchingError: If there is no such order.
    """
    merged = MergedGraph(graphs, replace(matching, collectives=ordering.collectives))
    chains = merged.chains() if ordering.chained else {}
    return merged.issue_order(chains.values())
