"""Direct algorithms: whoever has a chunk sends it to who needs it, all in one step.

A position begins with the one after itself and goes round, so that in a fabric without
contention no two positions begin with the same receiver.  All messages are there at
once; how they share the port is the transport's matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from chakram.collectives.algorithms.base import (
    OneBufferPerRank,
    OnePartPerPair,
    OnePartPerRank,
    all_others,
)
from chakram.collectives.algorithms.family import Family, plain, straight
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Transfer

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class DirectAllToAll(OnePartPerPair):
    """Every position sends every other one its part, whether or not all are even."""

    op: CollectiveOp = CollectiveOp.ALL_TO_ALL

    name: ClassVar[str] = "direct"

    def peers(self, position: int, *, nranks: int, root: int) -> set[tuple[int, int]]:
        """Return all other positions."""
        return all_others(position, nranks)

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield one transfer to every other position."""
        for peer in _others(position, nranks):
            chunk = position * nranks + peer
            yield Transfer(step=0, src=position, dst=peer, chunk=chunk)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield one transfer from every other position."""
        for peer in _others(position, nranks):
            chunk = peer * nranks + position
            yield Transfer(step=0, src=peer, dst=position, chunk=chunk)


@dataclass(frozen=True, slots=True)
class DirectReduceScatter(OnePartPerRank):
    """As an all_to_all; the receiver adds what comes."""

    name: ClassVar[str] = "direct"
    op: ClassVar[CollectiveOp] = CollectiveOp.REDUCE_SCATTER

    def peers(self, position: int, *, nranks: int, root: int) -> set[tuple[int, int]]:
        """Return all other positions."""
        return all_others(position, nranks)

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield one transfer to every other position."""
        for peer in _others(position, nranks):
            yield Transfer(step=0, src=position, dst=peer, chunk=peer, reduce=True)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield one transfer from every other position."""
        for peer in _others(position, nranks):
            yield Transfer(step=0, src=peer, dst=position, chunk=position, reduce=True)


@dataclass(frozen=True, slots=True)
class DirectAllGather(OnePartPerRank):
    """Every position sends its shard to all others."""

    name: ClassVar[str] = "direct"
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_GATHER

    def peers(self, position: int, *, nranks: int, root: int) -> set[tuple[int, int]]:
        """Return all other positions."""
        return all_others(position, nranks)

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield one transfer to every other position."""
        for peer in _others(position, nranks):
            yield Transfer(step=0, src=position, dst=peer, chunk=position)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield one transfer from every other position."""
        for peer in _others(position, nranks):
            yield Transfer(step=0, src=peer, dst=position, chunk=peer)


@dataclass(frozen=True, slots=True)
class DirectGather(OnePartPerRank):
    """All send their shard to the root: an incast."""

    name: ClassVar[str] = "direct"
    op: ClassVar[CollectiveOp] = CollectiveOp.GATHER

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the shard, unless *position* is the root."""
        if position != root:
            yield Transfer(step=0, src=position, dst=root, chunk=position)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield all shards if *position* is the root."""
        if position == root:
            for peer in _others(root, nranks):
                yield Transfer(step=0, src=peer, dst=root, chunk=peer)


@dataclass(frozen=True, slots=True)
class DirectScatter(OnePartPerRank):
    """The root sends every position its part."""

    name: ClassVar[str] = "direct"
    op: ClassVar[CollectiveOp] = CollectiveOp.SCATTER

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield all parts if *position* is the root."""
        if position == root:
            for peer in _others(root, nranks):
                yield Transfer(step=0, src=root, dst=peer, chunk=peer)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the part of *position*, unless it is the root."""
        if position != root:
            yield Transfer(step=0, src=root, dst=position, chunk=position)


@dataclass(frozen=True, slots=True)
class DirectSendReceive(OneBufferPerRank):
    """Every position sends its buffer to the next one, as nccl-tests' sendrecv."""

    name: ClassVar[str] = "direct"
    op: ClassVar[CollectiveOp] = CollectiveOp.SEND_RECV

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the one message, if there is anybody to send to."""
        if nranks > 1:
            peer = (position + 1) % nranks
            yield Transfer(step=0, src=position, dst=peer, chunk=position)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the one message of the position before."""
        return self.sends((position - 1) % nranks, nranks=nranks, root=root)


def _others(position: int, nranks: int) -> Iterator[int]:
    """Yield all other positions, beginning with the next one."""
    return ((position + distance) % nranks for distance in range(1, nranks))


FAMILIES = (
    Family("direct", CollectiveOp.ALL_TO_ALL, plain(DirectAllToAll), is_default=True),
    Family(
        "direct", CollectiveOp.ALL_TO_ALL_V, straight(DirectAllToAll), is_default=True
    ),
    Family("direct", CollectiveOp.ALL_GATHER, plain(DirectAllGather)),
    Family("direct", CollectiveOp.REDUCE_SCATTER, plain(DirectReduceScatter)),
    Family("direct", CollectiveOp.GATHER, plain(DirectGather), is_default=True),
    Family("direct", CollectiveOp.SCATTER, plain(DirectScatter), is_default=True),
    Family("direct", CollectiveOp.SEND_RECV, plain(DirectSendReceive), is_default=True),
)
