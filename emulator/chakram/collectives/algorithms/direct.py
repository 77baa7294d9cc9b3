"""Direct algorithms: whoever has a chunk sends it to who needs it, all in one step.

An all_reduce takes two: parts to whoever sums them up, and the sums to everybody.

A position begins with the one after itself and goes round, so that in a fabric without
contention no two positions begin with the same receiver.  All messages are there at
once; how they share the port is the transport's matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from chakram.collectives.algorithms.base import (
    BothWays,
    OneBufferPerRank,
    OnePartPerPair,
    OnePartPerRank,
)
from chakram.collectives.algorithms.family import Family, plain, straight
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Transfer


class _Direct(BothWays):
    """Whoever has a chunk, to whoever needs it."""

    __slots__ = ()

    name: ClassVar[str] = "direct"
    adds: ClassVar[bool] = False
    """Whether the receiver adds what comes."""
    turns: ClassVar[int | None] = 1
    """By how many chunks schedules of neighbours differ."""

    def turns_by(self, nranks: int) -> int | None:
        """Return one chunk where all do the same."""
        return self.turns

    def peers(self, position: int, *, nranks: int, root: int) -> set[tuple[int, int]]:
        """Return (channel, position) of all whom *position* sends to."""
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
        """Yield all others, beginning with the next one."""
        return ((position + distance) % nranks for distance in range(1, nranks))

    def _chunk(self, src: int, dst: int, nranks: int) -> int:
        """Return what *src* has for *dst*: by default its own chunk."""
        return src


@dataclass(frozen=True, slots=True)
class DirectAllToAll(_Direct, OnePartPerPair):
    """Every position sends every other one its part, whether or not all are even."""

    op: CollectiveOp = CollectiveOp.ALL_TO_ALL

    def _chunk(self, src: int, dst: int, nranks: int) -> int:
        return src * nranks + dst


@dataclass(frozen=True, slots=True)
class DirectReduceScatter(_Direct, OnePartPerRank):
    """As an all_to_all; the receiver adds what comes."""

    op: ClassVar[CollectiveOp] = CollectiveOp.REDUCE_SCATTER
    adds: ClassVar[bool] = True

    def _chunk(self, src: int, dst: int, nranks: int) -> int:
        return dst


@dataclass(frozen=True, slots=True)
class DirectAllGather(_Direct, OnePartPerRank):
    """Every position sends its shard to all others."""

    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_GATHER


@dataclass(frozen=True, slots=True)
class DirectAllReduce(_Direct, OnePartPerRank):
    """A reduce_scatter, then an all_gather: every part is summed up by its position."""

    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_REDUCE

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        for step, adds in enumerate((True, False)):
            for peer in self._partners(position, nranks, root, sending=sending):
                src, dst = (position, peer) if sending else (peer, position)
                yield Transfer(step, src, dst, dst if adds else src, adds)


class _Rooted(_Direct, OnePartPerRank):
    """Between the root and all others."""

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
    """All send their shard to the root: an incast."""

    op: ClassVar[CollectiveOp] = CollectiveOp.GATHER


@dataclass(frozen=True, slots=True)
class DirectScatter(_Rooted):
    """The root sends every position its part."""

    op: ClassVar[CollectiveOp] = CollectiveOp.SCATTER
    from_root: ClassVar[bool] = True

    def _chunk(self, src: int, dst: int, nranks: int) -> int:
        return dst


@dataclass(frozen=True, slots=True)
class DirectSendReceive(_Direct, OneBufferPerRank):
    """Every position sends its buffer to the next one, as nccl-tests' sendrecv."""

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
