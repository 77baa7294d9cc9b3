"""Hierarchical algorithms for groups with several ranks per node, one on each rail.

M is ``ranks_per_node``. Positions 0 to M - 1 are the first node, the next M are the
second, and so on. The last node may have fewer positions. The i-th position of every
node is on rail i. If a node has fewer positions, its position i mod (node size) serves
rail i. With J nodes, hierarchical all_reduce takes 2J steps and PXN takes two.

Source: NCCL's PXN (NVIDIA, Doubling all2all performance with NVIDIA Collective
Communication Library 2.12, 2022). The hierarchical all_reduce is that of Jia et al.,
Highly scalable deep learning training system with mixed-precision, 2018.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from chakram.collectives.algorithms.base import OnePartPerPair, PairedGenerator, Parted
from chakram.collectives.algorithms.family import Family, whole
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Transfer

RANKS_PER_NODE = 8
"""Default number of ranks per node."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """A group divided into nodes of up to *rails* positions."""

    nranks: int
    rails: int

    @property
    def count(self) -> int:
        """Number of nodes."""
        return -(-self.nranks // self.rails)

    def node(self, position: int) -> int:
        """Return the node of a position."""
        return position // self.rails

    def members(self, node: int) -> range:
        """Return the positions of a node."""
        return range(node * self.rails, min((node + 1) * self.rails, self.nranks))

    def keeper(self, node: int, rail: int) -> int:
        """Return the position in a node that serves a rail."""
        members = self.members(node)
        return members[rail % len(members)]

    def kept_by(self, position: int) -> range:
        """Return the rails that a position serves."""
        members = self.members(self.node(position))
        rails = min(self.rails, self.nranks)
        return range(position - members.start, rails, len(members))


@dataclass(frozen=True, slots=True)
class HierarchicalAllReduce(PairedGenerator, Parted):
    """Reduce_scatter in each node, all_reduce on each rail, all_gather in each node.

    The all_reduce is a ring. Within a node, every position sends to all others. There
    is one chunk per rail and node.
    """

    name: str = "hierarchical"
    ranks_per_node: int = RANKS_PER_NODE
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_REDUCE

    def nchunks(self, nranks: int) -> int:
        """Return the number of rails times the number of nodes."""
        return min(self.ranks_per_node, nranks) * self._nodes(nranks).count

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        """Yield transfers within the node, then between nodes, then within it again."""
        nodes = self._nodes(nranks)
        node = nodes.node(position)
        others = list(_others(nodes.members(node), position))
        ends = [(position, peer) if sending else (peer, position) for peer in others]
        for src, dst in ends:
            yield self._share(nodes, src, dst, owner=dst, step=0)
        source = node if sending else (node - 1) % nodes.count
        yield from self._ring(nodes, position, source, sending=sending)
        for src, dst in ends:
            yield self._share(nodes, src, dst, owner=src, step=2 * nodes.count - 1)

    def _nodes(self, nranks: int) -> Nodes:
        return Nodes(nranks, self.ranks_per_node)

    def _share(
        self, nodes: Nodes, src: int, dst: int, *, owner: int, step: int
    ) -> Transfer:
        """Return the message with all chunks that *owner* sums or has summed."""
        first, *further = (
            rail * nodes.count + part
            for rail in nodes.kept_by(owner)
            for part in range(nodes.count)
        )
        return Transfer(
            step=step,
            src=src,
            dst=dst,
            chunk=first,
            further=tuple(further),
            reduce=step == 0,
        )

    def _ring(
        self, nodes: Nodes, position: int, source: int, *, sending: bool
    ) -> Iterator[Transfer]:
        """Yield *position*'s ring transfers from node *source* to the next node."""
        count = nodes.count
        rails = min(self.ranks_per_node, nodes.nranks)
        after = (source + 1) % count
        ends = [
            (rail, nodes.keeper(source, rail), nodes.keeper(after, rail))
            for rail in range(rails)
        ]
        mine = [
            (rail, src, dst)
            for rail, src, dst in ends
            if position == (src if sending else dst)
        ]
        for step in range(2 * (count - 1)):
            # As in a ring of ranks, the second half starts one node further.
            shift = 0 if step < count - 1 else 1
            part = (source + shift - step % (count - 1)) % count
            for rail, src, dst in mine:
                yield Transfer(
                    step=1 + step,
                    src=src,
                    dst=dst,
                    chunk=rail * count + part,
                    reduce=step < count - 1,
                )


@dataclass(frozen=True, slots=True)
class PxnAllToAll(PairedGenerator, OnePartPerPair):
    """An all_to_all over PXN: data for rail i of other nodes leaves from local rail i.

    Each position first sends its data to the local *rail keeper*: the position on the
    destination's rail. The keeper then sends one message per destination, with the
    parts of all sources of its node. No message changes rails in the fabric. There are
    M times fewer messages between nodes, each M times larger. Step 0 starts with the
    data for the next node.
    """

    name: str = "pxn"
    ranks_per_node: int = RANKS_PER_NODE
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_TO_ALL

    def peers(self, position: int, *, nranks: int, root: int) -> set[tuple[int, int]]:
        """Return the local positions, and those on the same rails of other nodes."""
        nodes = Nodes(nranks, self.ranks_per_node)
        node = nodes.node(position)
        return {(0, peer) for peer in _others(nodes.members(node), position)} | {
            (0, away * nodes.rails + rail)
            for away in _after(node, nodes.count)
            for rail in nodes.kept_by(position)
            if away * nodes.rails + rail < nranks
        }

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        """Yield transfers to or from rail keepers, then the keepers' transfers."""
        nodes = Nodes(nranks, self.ranks_per_node)
        node = nodes.node(position)
        others = list(_others(nodes.members(node), position))
        ends = [(position, peer) if sending else (peer, position) for peer in others]
        for away in _after(node, nodes.count):
            for src, dst in ends:
                yield from _handed(nodes, src, dst, nodes.kept_by(dst), away)
        for src, dst in ends:
            yield _within(nodes, src, dst)
        for away in _after(node, nodes.count):
            if not sending:
                keeper = nodes.keeper(away, position % nodes.rails)
                yield _crossing(nodes, keeper, position)
                continue
            for rail in nodes.kept_by(position):
                peer = away * nodes.rails + rail
                if peer < nranks:
                    yield _crossing(nodes, position, peer)


def _handed(
    nodes: Nodes, src: int, keeper: int, rails: range, away: int
) -> Iterator[Transfer]:
    """Yield the message from *src* to a rail keeper with parts for node *away*."""
    begin = src * nodes.nranks + away * nodes.rails
    # The last node may lack some rails.
    end = (src + 1) * nodes.nranks
    chunks = [begin + rail for rail in rails if begin + rail < end]
    if chunks:
        yield Transfer(
            step=0, src=src, dst=keeper, chunk=chunks[0], further=tuple(chunks[1:])
        )


def _within(nodes: Nodes, src: int, dst: int) -> Transfer:
    """Return the message to another position of the same node."""
    return Transfer(step=0, src=src, dst=dst, chunk=src * nodes.nranks + dst)


def _crossing(nodes: Nodes, keeper: int, dst: int) -> Transfer:
    """Return the keeper's message to *dst*, with the parts of its whole node."""
    sources = nodes.members(nodes.node(keeper))
    first, *further = (source * nodes.nranks + dst for source in sources)
    return Transfer(step=1, src=keeper, dst=dst, chunk=first, further=tuple(further))


def _others(members: range, position: int) -> Iterator[int]:
    """Yield the other members, starting with the one after *position*."""
    own = position - members.start
    return (
        members[(own + distance) % len(members)] for distance in range(1, len(members))
    )


def _after(node: int, count: int) -> Iterator[int]:
    """Yield the other nodes, starting with the next one."""
    return ((node + distance) % count for distance in range(1, count))


MAX_RANKS_PER_NODE = 1024
_NODE = (whole("ranks_per_node", RANKS_PER_NODE, MAX_RANKS_PER_NODE),)
FAMILIES = (
    Family("hierarchical", CollectiveOp.ALL_REDUCE, HierarchicalAllReduce, _NODE),
    Family("pxn", CollectiveOp.ALL_TO_ALL, PxnAllToAll, _NODE),
)
