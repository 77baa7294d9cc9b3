"""Stepwise all_to_all: pairwise exchange, ring and Bruck, plus Bruck's all_gather.

Pairwise exchange takes n - 1 steps. In each step every position sends one message and
receives one, so no port is oversubscribed. The ring forwards everything to the next
position.

Bruck's algorithms take ceil(log2 n) steps for any n. They need few messages, but in an
all_to_all every byte crosses up to log2 n ports. A block that must move d positions
moves in step k if bit k of d is set.

Source: Bruck, Ho, Kipnis, Upfal and Weathersby, Efficient algorithms for all-to-all
communications in multiport message-passing systems, 1997; Thakur, Rabenseifner and
Gropp, 2005, section 4.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from chakram.collectives.algorithms.base import (
    OnePartPerPair,
    OnePartPerRank,
    PairedGenerator,
    Shifted,
    all_others,
)
from chakram.collectives.algorithms.family import Family, plain, straight
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Transfer


@dataclass(frozen=True, slots=True)
class PairwiseAllToAll(PairedGenerator, OnePartPerPair):
    """An all_to_all with one partner per step.

    In step s (from 1), the partner of position p is p xor s if n is a power of two.
    Otherwise p sends to p + s and receives from p - s.
    """

    name: str = "pairwise"
    op: CollectiveOp = CollectiveOp.ALL_TO_ALL

    @property
    def stepwise(self) -> bool:
        """Return True: a send waits for the part received in the previous step."""
        return True

    def peers(self, position: int, *, nranks: int, root: int) -> set[tuple[int, int]]:
        """Return all other positions."""
        return all_others(position, nranks)

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        for step in range(nranks - 1):
            peer = _partner(position, step + 1 if sending else -step - 1, nranks)
            src, dst = (position, peer) if sending else (peer, position)
            yield Transfer(step, src, dst, src * nranks + dst)


@dataclass(frozen=True, slots=True)
class RingAllToAll(PairedGenerator, OnePartPerPair):
    """An all_to_all in which each part travels around the ring to its destination.

    It takes n(n - 1)/2 steps of one part each, so every port carries (n - 1)/2 times
    the buffer. It suits hosts that are wired as a ring, not a switched fabric.
    """

    name: ClassVar[str] = "ring"
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_TO_ALL

    @property
    def stepwise(self) -> bool:
        """Return True: a send waits for the part received in the previous step."""
        return True

    def turns_by(self, nranks: int) -> int | None:
        """Return 1."""
        return 1

    def peers(self, position: int, *, nranks: int, root: int) -> set[tuple[int, int]]:
        """Return the next position."""
        return {(0, (position + 1) % nranks)} if nranks > 1 else set()

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        src = position if sending else (position - 1) % nranks
        step = 0
        for gone in range(nranks - 1):
            source = (src - gone) % nranks
            for way in range(gone + 1, nranks):
                chunk = source * nranks + (source + way) % nranks
                yield Transfer(step, src, (src + 1) % nranks, chunk)
                step += 1


def _partner(position: int, distance: int, nranks: int) -> int:
    if nranks & nranks - 1:
        return (position + distance) % nranks
    return position ^ abs(distance)


@dataclass(frozen=True, slots=True)
class BruckAllToAll(Shifted, OnePartPerPair):
    """Bruck's all_to_all: step k moves blocks with bit k set in their distance.

    Each of these blocks moves 2**k positions further.
    """

    name: str = "bruck"
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_TO_ALL

    def _message(self, step: int, src: int, dst: int, nranks: int) -> Transfer:
        bit = 1 << step
        first, *further = (
            # The block has already moved by the lower bits of its distance.
            (source := (src - (way & bit - 1)) % nranks) * nranks
            + (source + way) % nranks
            for way in range(bit, nranks)
            if way & bit
        )
        return Transfer(
            step=step, src=src, dst=dst, chunk=first, further=tuple(further)
        )


@dataclass(frozen=True, slots=True)
class BruckAllGather(Shifted, OnePartPerRank):
    """Bruck's all_gather: step k sends up to 2**k shards 2**k positions back.

    The first shard is the sender's own.
    """

    name: str = "bruck"
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_GATHER
    forward: ClassVar[bool] = False

    def _message(self, step: int, src: int, dst: int, nranks: int) -> Transfer:
        count = min(1 << step, nranks - (1 << step))
        further = tuple((src + index) % nranks for index in range(1, count))
        return Transfer(step=step, src=src, dst=dst, chunk=src, further=further)


FAMILIES = (
    Family("pairwise", CollectiveOp.ALL_TO_ALL, PairwiseAllToAll),
    Family("bruck", CollectiveOp.ALL_TO_ALL, BruckAllToAll),
    Family("ring", CollectiveOp.ALL_TO_ALL, plain(RingAllToAll)),
    Family("pairwise", CollectiveOp.ALL_TO_ALL_V, straight(PairwiseAllToAll)),
    Family("bruck", CollectiveOp.ALL_GATHER, BruckAllGather),
)
