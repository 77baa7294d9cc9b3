"""Pipelined rings for broadcast and reduce: the buffer moves along in chunks.

The positions form a chain that starts (broadcast) or ends (reduce) at the root. With n
ranks and K chunks, the chain takes n - 2 + K steps. Every port carries the buffer once
in each direction. For large buffers, the time therefore approaches one serialization
delay of the buffer.

Source: NCCL's ring broadcast and reduce. Thakur, Rabenseifner and Gropp, 2005, call it
the pipelined algorithm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from chakram.collectives.algorithms.base import PairedGenerator
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
"""Default number of chunks of a pipelined ring."""


@dataclass(frozen=True, slots=True)
class ChainAlgorithm(OverRings, PairedGenerator):
    """Base of the pipelined broadcast and reduce.

    Attributes:
        channels: Number of chains. Each carries its share of the buffer.
        chunks: Number of pieces of a channel's share.
        orders: Rank order of each chain, rotated to start ``start`` places after the
            root.
        start: Offset of the first position of a chain from the root.
    """

    chunks: int = CHAIN_CHUNKS
    start: ClassVar[int]

    def nchunks(self, nranks: int) -> int:
        """Return the number of pieces. The pieces of channel 0 come first."""
        return self.channels * self.chunks

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        """Yield the sends of *position*, or of its predecessor, in each chain."""
        back = 0 if sending else 1
        found: list[tuple[Ring, int, int]] = []
        for channel in range(self.channels):
            ring = self.ring(channel, nranks)
            first = ring.index_of[root] + self.start
            index = (ring.index_of[position] - first) % nranks - back
            if 0 <= index < nranks - 1:
                found.append((ring, channel, index))
        # Interleave the channels, so that steps ascend regardless of the index in each
        # channel.
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
    """A broadcast from the root along the chain."""

    op: ClassVar[CollectiveOp] = CollectiveOp.BROADCAST
    start: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class ChainReduce(ChainAlgorithm):
    """A reduce along the chain to the root, to which each position contributes."""

    op: ClassVar[CollectiveOp] = CollectiveOp.REDUCE
    start: ClassVar[int] = 1


_PARAMETERS = (CHANNELS, whole("chunks", CHAIN_CHUNKS, MAX_CHUNKS), ORDER)
FAMILIES = (
    Family("ring", CollectiveOp.BROADCAST, over_rings(ChainBroadcast), _PARAMETERS),
    Family("ring", CollectiveOp.REDUCE, over_rings(ChainReduce), _PARAMETERS),
)
