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

Two collectives of different groups are ordered by nothing but the trace's dependencies.
"""

from __future__ import annotations

import itertools
from array import array
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NoReturn

from chakram.core.matching import CollectiveId
from chakram.core.trace import NodeKind
from chakram.errors import MatchingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from chakram.core.matching import Matching
    from chakram.core.trace import TraceGraph

__all__ = ["Ordering", "order_collectives"]

_LAST_PLACE: tuple[int, str, int] = (2**62, "", 0)

_SHOWN_NODES = 6
"""How many nodes of a cycle an error shows."""


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
    merged = _MergedGraph(graphs, matching)
    chains = {} if overlap else merged.chains()
    left = merged.on_cycles(_edges(chains.values()))
    if not left:
        return Ordering(
            collectives=matching.collectives, chained=not overlap, warnings=()
        )
    broken = {
        group
        for group, chain in chains.items()
        if any(a in left and b in left for a, b in _pairs(chain))
    }
    kept = _edges(chain for group, chain in chains.items() if group not in broken)
    rank_of = {node: place for place, node in enumerate(merged.order(kept))}
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


class _MergedGraph:
    """The graphs of all ranks in one, one node per collective.

    Nodes are numbers: first the collectives, then all other nodes of each rank in its
    topological order.
    """

    def __init__(self, graphs: Mapping[int, TraceGraph], matching: Matching) -> None:
        self._graphs = graphs
        self._matching = matching
        self._identities = sorted(
            {
                identity
                for collectives in matching.collectives.values()
                for identity in collectives.values()
            }
        )
        number_of = {identity: n for n, identity in enumerate(self._identities)}
        self._place = [_LAST_PLACE] * len(self._identities)
        self._member: list[tuple[int, int]] = [(0, 0)] * len(self._identities)
        node_of: dict[int, array[int]] = {}
        for rank, order in matching.orders.items():
            nodes = node_of[rank] = array("q", bytes(8 * len(order)))
            collectives = matching.collectives[rank]
            for index, position in enumerate(order):
                identity = collectives.get(position)
                if identity is None:
                    nodes[position] = len(self._place)
                    self._place.append((index, "", rank))
                    self._member.append((rank, position))
                else:
                    node = nodes[position] = number_of[identity]
                    place = (index, identity.group, rank)
                    if place < self._place[node]:
                        self._place[node] = place
                        self._member[node] = (rank, position)
        self._successors: list[list[int]] = [[] for _ in self._place]
        self._add_dependencies(node_of)
        self._add_messages(node_of)

    def _add_dependencies(self, node_of: Mapping[int, Sequence[int]]) -> None:
        for rank, nodes in node_of.items():
            graph = self._graphs[rank]
            for position, node in enumerate(nodes):
                for dependency in graph.dependencies(position):
                    self._successors[nodes[dependency]].append(node)

    def _add_messages(self, node_of: Mapping[int, Sequence[int]]) -> None:
        receives: dict[tuple[int, int, int], int] = {}
        for rank, messages in self._matching.messages.items():
            for position, (peer, number) in messages.items():
                if self._graphs[rank].kind(position) == NodeKind.RECEIVE:
                    receives[peer, rank, number] = node_of[rank][position]
        for rank, messages in self._matching.messages.items():
            for position, (peer, number) in messages.items():
                if self._graphs[rank].kind(position) == NodeKind.SEND:
                    self._successors[node_of[rank][position]].append(
                        receives[rank, peer, number]
                    )

    def chains(self) -> dict[str, list[int]]:
        """Return the nodes of the collectives of every group, in their order."""
        chains: dict[str, list[int]] = {}
        for node, identity in enumerate(self._identities):
            chains.setdefault(identity.group, []).append(node)
        return chains

    def on_cycles(self, more: Mapping[int, Sequence[int]]) -> set[int]:
        """Return the nodes on cycles, or between cycles, if *more* edges are added."""
        forward = [
            [*successors, *more.get(node, ())]
            for node, successors in enumerate(self._successors)
        ]
        backward: list[list[int]] = [[] for _ in forward]
        for node, successors in enumerate(forward):
            for successor in successors:
                backward[successor].append(node)
        left = _peel(forward, backward, set())
        return _peel(backward, forward, left) if left else left

    def order(self, more: Mapping[int, Sequence[int]]) -> list[int]:
        """Return all nodes in topological order, the earliest place first.

        Raises:
            MatchingError: If there is a cycle even so.
        """
        missing = [0] * len(self._successors)
        forward = [
            [*successors, *more.get(node, ())]
            for node, successors in enumerate(self._successors)
        ]
        for successors in forward:
            for successor in successors:
                missing[successor] += 1
        ready = [
            (self._place[node], node) for node, count in enumerate(missing) if not count
        ]
        heapify(ready)
        order: list[int] = []
        while ready:
            _, node = heappop(ready)
            order.append(node)
            for successor in forward[node]:
                missing[successor] -= 1
                if not missing[successor]:
                    heappush(ready, (self._place[successor], successor))
        if len(order) < len(forward):
            self._refuse(forward, missing)
        return order

    def _refuse(self, forward: list[list[int]], missing: list[int]) -> NoReturn:
        """Walk back over unmet edges until a node comes again; show that cycle."""
        waits_for: dict[int, int] = {}
        for node, successors in enumerate(forward):
            if missing[node]:
                for successor in successors:
                    waits_for.setdefault(successor, node)
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
            "these ranks would deadlock; their traces do not belong together",
        )

    def _describe(self, node: int) -> str:
        rank, position = self._member[node]
        text = self._graphs[rank].locate(position)
        if node < len(self._identities):
            group, number = self._identities[node]
            return f"collective {number} of process group {group!r} ({text})"
        return text


def _peel(
    forward: Sequence[Sequence[int]],
    backward: Sequence[Sequence[int]],
    within: set[int],
) -> set[int]:
    """Return what is left when nodes without predecessors are taken off, repeatedly.

    Only nodes *within* the set count; an empty set stands for all nodes.
    """
    nodes: Iterable[int] = within or range(len(forward))
    missing = {
        node: sum(not within or other in within for other in backward[node])
        for node in nodes
    }
    ready = [node for node, count in missing.items() if not count]
    left = set(missing)
    while ready:
        node = ready.pop()
        left.remove(node)
        for successor in forward[node]:
            if successor in left:
                missing[successor] -= 1
                if not missing[successor]:
                    ready.append(successor)
    return left


def _pairs(chain: Sequence[int]) -> Iterable[tuple[int, int]]:
    return itertools.pairwise(chain)


def _edges(chains: Iterable[Sequence[int]]) -> dict[int, list[int]]:
    edges: dict[int, list[int]] = {}
    for chain in chains:
        for node, following in _pairs(chain):
            edges.setdefault(node, []).append(following)
    return edges
