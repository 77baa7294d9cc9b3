"""Direct algorithms: each chunk goes straight from its source to its destination.

All algorithms except all_reduce take one step. An all_reduce takes two: the parts go to
the positions that sum them, then the sums go to all positions.

A position sends to the next position first and proceeds around the group. No two
positions therefore start with the same receiver. All messages of a step start at the
same time. The transport determines how these messages share the port.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from chakram.collectives.algorithms.base import (
    OneBufferPerRank,
    OnePartPerPair,
    OnePartPerRank,
    PairedGenerator,
)
from chakram.collectives.algorithms.family import Family, plain, straight
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Transfer


class _Direct(PairedGenerator):
    """Base of direct algorithms. By default, every position sends to all others."""

    __slots__ = ()

    name: ClassVar[str] = "direct"
    adds: ClassVar[bool] = False
    """Whether the receiver adds the chunk to its own data."""
    turns: ClassVar[int | None] = 1
    """Chunk offset between schedules of adjacent positions, as in ``turns_by``."""

    def turns_by(self, nranks: int) -> int | None:
        """Return 1 if all positions have the same role, else None."""
        return self.turns

    def peers(self, position: int, *, nranks: int, root: int) -> set[tuple[int, int]]:
        """Return (channel, position) of every destination of *position*."""
        found = self._partners(position, nranks, root, sending=True)
        return {(0, peer) for peer in found}

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        for peer in self._partners(position, nranks, root, sending=sending):
            src, dst = (position, peer) if sending else (peer, position)
            yield Transfer(0, src, dst, self._chunk(src, dst, nranks), self.adds)

    def _partners(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterable[int]:
        """Yield all other positions, starting with the next one."""
        return ((position + distance) % nranks for distance in range(1, nranks))

    def _chunk(self, src: int, dst: int, nranks: int) -> int:
        """Return the chunk that *src* sends to *dst*: by default the chunk of *src*."""
        return src


@dataclass(frozen=True, slots=True)
class DirectAllToAll(_Direct, OnePartPerPair):
    """An all_to_all, even or uneven: every position sends all others their parts."""

    op: CollectiveOp = CollectiveOp.ALL_TO_ALL

    def _chunk(self, src: int, dst: int, nranks: int) -> int:
        return src * nranks + dst


@dataclass(frozen=True, slots=True)
class DirectReduceScatter(_Direct, OnePartPerRank):
    """A reduce_scatter: messages as in an all_to_all, added by the receiver."""

    op: ClassVar[CollectiveOp] = CollectiveOp.REDUCE_SCATTER
    adds: ClassVar[bool] = True

    def _chunk(self, src: int, dst: int, nranks: int) -> int:
        return dst


@dataclass(frozen=True, slots=True)
class DirectAllGather(_Direct, OnePartPerRank):
    """An all_gather: every position sends its shard to all others."""

    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_GATHER


@dataclass(frozen=True, slots=True)
class DirectAllReduce(_Direct, OnePartPerRank):
    """A reduce_scatter, where each position sums its own part, then an all_gather."""

    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_REDUCE

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        for step, adds in enumerate((True, False)):
            for peer in self._partners(position, nranks, root, sending=sending):
                src, dst = (position, peer) if sending else (peer, position)
                yield Transfer(step, src, dst, dst if adds else src, adds)


class _Rooted(_Direct, OnePartPerRank):
    """Base of direct algorithms between the root and all other positions."""

    __slots__ = ()

    from_root: ClassVar[bool] = False
    turns: ClassVar[int | None] = None

    def _partners(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterable[int]:
        if (position == root) != (self.from_root == sending):
            return ()
        if position != root:
            return (root,)
        return _Direct._partners(self, root, nranks, root, sending=sending)


@dataclass(frozen=True, slots=True)
class DirectGather(_Rooted):
    """A gather: all positions send their shards to the root, which is an incast."""

    op: ClassVar[CollectiveOp] = CollectiveOp.GATHER


@dataclass(frozen=True, slots=True)
class DirectScatter(_Rooted):
    """A scatter: the root sends each position its part."""

    op: ClassVar[CollectiveOp] = CollectiveOp.SCATTER
    from_root: ClassVar[bool] = True

    def _chunk(self, src: int, dst: int, nranks: int) -> int:
        return dst


@dataclass(frozen=True, slots=True)
class DirectSendReceive(_Direct, OneBufferPerRank):
    """Every position sends to the next position, like sendrecv in nccl-tests."""

    op: ClassVar[CollectiveOp] = CollectiveOp.SEND_RECV
    turns: ClassVar[int | None] = None

    def _partners(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterable[int]:
        if nranks > 1:
            yield (position + (1 if sending else -1)) % nranks


FAMILIES = (
    Family("direct", CollectiveOp.ALL_TO_ALL, plain(DirectAllToAll), is_default=True),
    Family(
        "direct", CollectiveOp.ALL_TO_ALL_V, straight(DirectAllToAll), is_default=True
    ),
    Family("direct", CollectiveOp.ALL_GATHER, plain(DirectAllGather)),
    Family("direct", CollectiveOp.REDUCE_SCATTER, plain(DirectReduceScatter)),
    Family("direct", CollectiveOp.ALL_REDUCE, plain(DirectAllReduce)),
    Family("direct", CollectiveOp.GATHER, plain(DirectGather), is_default=True),
    Family("direct", CollectiveOp.SCATTER, plain(DirectScatter), is_default=True),
    Family("direct", CollectiveOp.SEND_RECV, plain(DirectSendReceive), is_default=True),
)
