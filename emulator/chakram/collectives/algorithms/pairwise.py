"""All_to_all in steps, one partner at a time; and Bruck's, in a logarithm of steps.

Pairwise exchange takes n - 1 steps, in each of which every position sends one message
and receives one: no port is ever asked for twice its rate.  Bruck's algorithms take
ceil(log2 n) steps for any n: few messages, but in an all_to_all every byte crosses up
to log2 n ports.  A block that must go d positions further moves in the steps of the
bits that are set in d.  The ring passes everything on to the next position.

Source: Bruck, Ho, Kipnis, Upfal and Weathersby, Efficient algorithms for all-to-all
communications in multiport message-passing systems, 1997; Thakur, Rabenseifner and
Gropp, 2005, section 4.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from chakram.collectives.algorithms.base import (
    BothWays,
    OnePartPerPair,
    OnePartPerRank,
    Shifted,
    all_others,
)
from chakram.collectives.algorithms.family import Family, plain, straight
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Transfer


@dataclass(frozen=True, slots=True)
class PairwiseAllToAll(BothWays, OnePartPerPair):
    """One partner after the other: p xor s for powers of two, else p + s and p - s."""

    name: str = "pairwise"
    op: CollectiveOp = CollectiveOp.ALL_TO_ALL

    @property
    def stepwise(self) -> bool:
        """Return True: the next partner is due when the last one's part is there."""
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
class RingAllToAll(BothWays, OnePartPerPair):
    """Everything goes round in order, a part at a time, until it is where it belongs.

    n(n - 1)/2 steps, and every port carries half the buffer n times: what a ring of
    hosts that pass on can do, and nothing for a switch.
    """

    name: ClassVar[str] = "ring"
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_TO_ALL

    @property
    def stepwise(self) -> bool:
        """Return True: a part is sent on when the one before has come."""
        return True

    def turns_by(self, nranks: int) -> int | None:
        """Return one chunk."""
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
    """In step k all that has bit k of its way left moves 2**k positions further."""

    name: str = "bruck"
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_TO_ALL

    def _message(self, step: int, src: int, dst: int, nranks: int) -> Transfer:
        bit = 1 << step
        first, *further = (
            # It has gone the lower bits of its way already.
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
    """In step k the first 2**k shards, from the own one on, go 2**k positions back."""

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
