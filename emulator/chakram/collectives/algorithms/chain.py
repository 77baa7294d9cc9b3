"""Pipelined rings for broadcast and reduce: the buffer passes along in chunks.

Positions stand in a row that begins (broadcast) or ends (reduce) at the root.  With n
ranks and K chunks it takes n - 2 + K steps; every port carries the buffer once in each
direction, so for large buffers the time is that of the buffer alone.

Source: NCCL's ring broadcast and reduce; Thakur, Rabenseifner and Gropp, 2005, call it
the pipelined algorithm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from chakram.collectives.algorithms.base import BothWays
from chakram.collectives.algorithms.family import (
    CHANNELS,
    MAX_CHUNKS,
    ORDER,
    Family,
    over_rings,
    whole,
)
from chakram.collectives.algorithms.parameters import OverRings, Ring
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Transfer

CHAIN_CHUNKS = 8
"""Chunks of a pipelined ring where nothing else is said."""


@dataclass(frozen=True, slots=True)
class ChainAlgorithm(OverRings, BothWays):
    """What both directions share.

    Attributes:
        channels: Rows; each carries its share of the buffer.
        chunks: Pieces of a channel's share.
        orders: A row begins with the root, or with who follows it.
        start: How many places after the root a row begins.
    """

    chunks: int = CHAIN_CHUNKS
    start: ClassVar[int]

    def nchunks(self, nranks: int) -> int:
        """Return the number of pieces, those of channel 0 first."""
        return self.channels * self.chunks

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        """Yield what *position*, or who is before it, hands on in each row."""
        back = 0 if sending else 1
        found: list[tuple[Ring, int, int]] = []
        for channel in range(self.channels):
            ring = self.ring(channel, nranks)
            first = ring.index_of[root] + self.start
            index = (ring.index_of[position] - first) % nranks - back
            if 0 <= index < nranks - 1:
                found.append((ring, channel, index))
        # All channels take turns, and steps ascend whatever a channel's index is.
        for step in range(nranks - 1 + self.chunks):
            for ring, channel, index in found:
                chunk = step - index
                if 0 <= chunk < self.chunks:
                    place = ring.index_of[root] + self.start + index
                    yield Transfer(
                        step=step,
                        src=ring.places[place % nranks],
                        dst=ring.places[(place + 1) % nranks],
                        chunk=channel * self.chunks + chunk,
                        reduce=self.op == CollectiveOp.REDUCE,
                        channel=channel,
                    )


@dataclass(frozen=True, slots=True)
class ChainBroadcast(ChainAlgorithm):
    """From the root along the row."""

    op: ClassVar[CollectiveOp] = CollectiveOp.BROADCAST
    start: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class ChainReduce(ChainAlgorithm):
    """Along the row, which ends at the root; each adds its own."""

    op: ClassVar[CollectiveOp] = CollectiveOp.REDUCE
    start: ClassVar[int] = 1


_PARAMETERS = (CHANNELS, whole("chunks", CHAIN_CHUNKS, MAX_CHUNKS), ORDER)
FAMILIES = (
    Family("ring", CollectiveOp.BROADCAST, over_rings(ChainBroadcast), _PARAMETERS),
    Family("ring", CollectiveOp.REDUCE, over_rings(ChainReduce), _PARAMETERS),
)
