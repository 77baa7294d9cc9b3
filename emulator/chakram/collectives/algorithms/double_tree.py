"""The double binary tree: two concurrent trees, each for half of the buffer.

In a binary tree, half of the positions are leaves, which contribute data but do not
forward it. The second tree mirrors the positions if their number is even, and shifts
them by one if it is odd. The leaves of one tree are then inner nodes of the other.
Every port carries about the whole buffer once in each direction. The depth is ceil(log2
n). With K chunks per tree, the algorithm takes 2 ceil(log2 n) + K - 1 steps.

A single tree with the buffer in one piece is the *binary tree*. ASTRA-sim uses it for
every chunk of its double binary tree.

Source: Sanders, Speck and Traeff, Two-tree algorithms for full bandwidth broadcast,
reduction and scan, 2009. The trees are those of NCCL, ``src/graph/trees.cc``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from chakram.collectives.algorithms.base import PairedGenerator, Parted, WholeBuffer
from chakram.collectives.algorithms.family import MAX_CHUNKS, Family, whole
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Transfer

TREES = 2

TREE_CHUNKS = 4
"""Default number of chunks of each half."""


@dataclass(frozen=True, slots=True)
class DoubleBinaryTreeAllReduce(PairedGenerator, Parted):
    """A reduce up both trees and a broadcast down, with ``chunks`` pieces per half.

    Each tree is a channel, so its messages have separate queue pairs.
    """

    name: str = "double_binary_tree"
    chunks: int = TREE_CHUNKS
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_REDUCE

    def nchunks(self, nranks: int) -> int:
        """Return the number of chunks: one per tree and piece."""
        return TREES * self.chunks

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        found: list[Transfer] = []
        for tree in range(TREES):
            node = _node_of(position, tree, nranks)
            above = parent(node, nranks)
            if above is not None:
                found += self._edge(tree, node, above, nranks, up=sending)
            for below in children(node, nranks):
                found += self._edge(tree, below, node, nranks, up=not sending)
        yield from sorted(found, key=_by_step)

    def _edge(
        self, tree: int, below: int, above: int, nranks: int, *, up: bool
    ) -> Iterator[Transfer]:
        """Yield all chunks of a tree from a node to its parent, or the reverse."""
        depth = _depth(nranks)
        first = level(below, nranks) if up else 2 * depth - level(above, nranks)
        ends = (below, above) if up else (above, below)
        src, dst = (_position_of(node, tree, nranks) for node in ends)
        for part in range(self.chunks):
            yield Transfer(
                step=first + part,
                src=src,
                dst=dst,
                chunk=tree * self.chunks + part,
                reduce=up,
                channel=tree,
            )


@dataclass(frozen=True, slots=True)
class BinaryTreeAllReduce(PairedGenerator, WholeBuffer):
    """A reduce up one of the two trees and a broadcast down it, in one piece.

    Attributes:
        name: Canonical name.
        tree: Number of the tree, 1 or 2.
    """

    name: str = "binary_tree"
    tree: int = 1
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_REDUCE

    def is_leaf(self, position: int, nranks: int) -> bool:
        """Return whether *position* has no children."""
        return not any(
            True for _ in children(_node_of(position, self.tree - 1, nranks), nranks)
        )

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        tree, depth = self.tree - 1, _depth(nranks)
        node = _node_of(position, tree, nranks)
        above = parent(node, nranks)
        edges = [] if above is None else [(node, above, sending)]
        edges += [(below, node, not sending) for below in children(node, nranks)]
        found = []
        for low, high, is_up in edges:
            ends = (low, high) if is_up else (high, low)
            src, dst = (_position_of(each, tree, nranks) for each in ends)
            step = level(low, nranks) if is_up else 2 * depth - level(high, nranks)
            found.append(Transfer(step=step, src=src, dst=dst, chunk=0, reduce=is_up))
        yield from sorted(found, key=_by_step)


def _by_step(transfer: Transfer) -> tuple[int, int]:
    return transfer.step, transfer.chunk


def _depth(nranks: int) -> int:
    return (nranks - 1).bit_length()


def _node_of(position: int, tree: int, nranks: int) -> int:
    """Return the node of *position* in a tree."""
    if tree == 0:
        return position
    return (position - 1) % nranks if nranks % 2 else nranks - 1 - position


def _position_of(node: int, tree: int, nranks: int) -> int:
    if tree == 0:
        return node
    return (node + 1) % nranks if nranks % 2 else nranks - 1 - node


def level(node: int, nranks: int) -> int:
    """Return the height of a node, which is the index of its lowest set bit.

    Node 0 is the root.
    """
    return (node & -node).bit_length() - 1 if node else _depth(nranks)


def parent(node: int, nranks: int) -> int | None:
    """Return the parent of a node, or None for the root."""
    if not node:
        return None
    bit = node & -node
    above = (node ^ bit) | bit << 1
    return above if above < nranks else node ^ bit


def children(node: int, nranks: int) -> Iterator[int]:
    """Yield the children of a node."""
    distance = 1 << level(node, nranks) >> 1
    if node and distance:
        yield node - distance
    while distance:
        if node + distance < nranks:
            yield node + distance
            return
        distance >>= 1


FAMILIES = (
    Family(
        "double_binary_tree",
        CollectiveOp.ALL_REDUCE,
        DoubleBinaryTreeAllReduce,
        (whole("chunks", TREE_CHUNKS, MAX_CHUNKS),),
    ),
    Family(
        "binary_tree",
        CollectiveOp.ALL_REDUCE,
        BinaryTreeAllReduce,
        (whole("tree", 1, TREES),),
    ),
)
