"""Binomial trees: the number of positions with the data doubles in every step.

Positions are counted from the root. In step s of a broadcast, every position below 2**s
sends to the position that is 2**s places ahead, so n ranks take ceil(log2 n) steps. A
reduce is the reverse. The whole buffer moves as one chunk. This suits small buffers,
where latency per step outweighs serialization delay.

In a scatter, each position sends each child the parts of that child's subtree, the
largest subtree first. A gather is the reverse. Both need few messages, but parts deep
in the tree are transferred more than once.

Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication
operations in MPICH, 2005.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from chakram.collectives.algorithms.base import (
    OneBufferPerRank,
    OnePartPerRank,
    PairedGenerator,
    WholeBuffer,
)
from chakram.collectives.algorithms.family import Family, plain
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Transfer


@dataclass(frozen=True, slots=True)
class TreeBroadcast(PairedGenerator, WholeBuffer):
    """A broadcast from the root to all positions."""

    name: ClassVar[str] = "tree"
    op: ClassVar[CollectiveOp] = CollectiveOp.BROADCAST

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        found = _downwards if sending else _from_parent
        return found(position, nranks, root)


@dataclass(frozen=True, slots=True)
class TreeReduce(PairedGenerator, WholeBuffer):
    """A reduce from all positions to the root: the reverse of the broadcast."""

    name: ClassVar[str] = "tree"
    op: ClassVar[CollectiveOp] = CollectiveOp.REDUCE

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        found = _from_parent if sending else _downwards
        return _mirrored(found(position, nranks, root), nranks)


@dataclass(frozen=True, slots=True)
class TreeAllReduce(PairedGenerator, WholeBuffer):
    """A reduce to position 0, then a broadcast from it."""

    name: ClassVar[str] = "tree"
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_REDUCE

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        up, down = _from_parent, _downwards
        if not sending:
            up, down = down, up
        yield from _mirrored(up(position, nranks, 0), nranks)
        yield from down(position, nranks, 0, first=_nsteps(nranks))


@dataclass(frozen=True, slots=True)
class TreeScatter(PairedGenerator, OnePartPerRank):
    """A scatter in which each message carries the parts of a whole subtree."""

    name: ClassVar[str] = "tree"
    op: ClassVar[CollectiveOp] = CollectiveOp.SCATTER

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        found = _handed_down if sending else _handed_by_parent
        return found(position, nranks, root)


@dataclass(frozen=True, slots=True)
class TreeGather(PairedGenerator, OneBufferPerRank):
    """A gather in which each message carries the shards of a whole subtree."""

    name: ClassVar[str] = "tree"
    op: ClassVar[CollectiveOp] = CollectiveOp.GATHER

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        found = _handed_by_parent if sending else _handed_down
        return _mirrored(found(position, nranks, root), nranks, reduce=False)


def _handed_down(position: int, nranks: int, root: int) -> Iterator[Transfer]:
    """Yield the sends of *position* in a scatter.

    Let b be the lowest set bit of a position, counted from the root. The subtree of the
    position is the position itself and the b - 1 positions after it.
    """
    relative = (position - root) % nranks
    steps = _nsteps(nranks)
    reach = (relative & -relative).bit_length() - 1 if relative else steps
    for level in range(reach - 1, -1, -1):
        below = relative + (1 << level)
        if below < nranks:
            yield _handed(position, below, level, nranks, root)


def _handed_by_parent(position: int, nranks: int, root: int) -> Iterator[Transfer]:
    relative = (position - root) % nranks
    if relative:
        level = (relative & -relative).bit_length() - 1
        parent = (relative - (1 << level) + root) % nranks
        yield _handed(parent, relative, level, nranks, root)


def _handed(src: int, below: int, level: int, nranks: int, root: int) -> Transfer:
    """Return the transfer with the parts of the subtree of *below*."""
    parts = [
        (part + root) % nranks
        for part in range(below, min(below + (1 << level), nranks))
    ]
    return Transfer(
        step=_nsteps(nranks) - 1 - level,
        src=src,
        dst=(below + root) % nranks,
        chunk=parts[0],
        further=tuple(parts[1:]),
    )


def _nsteps(nranks: int) -> int:
    return (nranks - 1).bit_length()


def _downwards(
    position: int, nranks: int, root: int, *, first: int = 0
) -> Iterator[Transfer]:
    relative = (position - root) % nranks
    for step in range(relative.bit_length(), _nsteps(nranks)):
        child = relative + (1 << step)
        if child < nranks:
            yield Transfer(
                step=first + step, src=position, dst=(child + root) % nranks, chunk=0
            )


def _from_parent(
    position: int, nranks: int, root: int, *, first: int = 0
) -> Iterator[Transfer]:
    relative = (position - root) % nranks
    if relative:
        step = relative.bit_length() - 1
        parent = relative - (1 << step)
        yield Transfer(
            step=first + step, src=(parent + root) % nranks, dst=position, chunk=0
        )


def _mirrored(
    transfers: Iterator[Transfer], nranks: int, *, reduce: bool = True
) -> Iterator[Transfer]:
    """Yield the reversed transfers: broadcast to reduce, or scatter to gather."""
    last = _nsteps(nranks) - 1
    for transfer in reversed(list(transfers)):
        yield Transfer(
            step=last - transfer.step,
            src=transfer.dst,
            dst=transfer.src,
            chunk=transfer.chunk,
            reduce=reduce,
            further=transfer.further,
        )


FAMILIES = (
    Family("tree", CollectiveOp.ALL_REDUCE, plain(TreeAllReduce)),
    Family("tree", CollectiveOp.BROADCAST, plain(TreeBroadcast), is_default=True),
    Family("tree", CollectiveOp.REDUCE, plain(TreeReduce), is_default=True),
    Family("tree", CollectiveOp.GATHER, plain(TreeGather)),
    Family("tree", CollectiveOp.SCATTER, plain(TreeScatter)),
)
