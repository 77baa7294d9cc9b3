"""Pipelined rings for broadcast and reduce: the buffer passes along in chunks.

Positions stand in a row that begins (broadcast) or ends (reduce) at the root.  With n
ranks and K chunks it takes n - 2 + K steps; every port carries the buffer once in each
direction, so for large buffers the time is that of the buffer alone.

Source: NCCL's ring broadcast and reduce; Thakur, Rabenseifner and Gropp, 2005, call it
the pipelined algorithm.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from chakram.collectives.algorithms.family import (
    CHANNELS,
    MAX_CHUNKS,
    ORDER,
    Family,
    over_rings,
    whole,
)
from chakram.collectives.algorithms.rank_order import OverRings, Ring
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Transfer, part_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

CHAIN_CHUNKS = 8
"""Chunks of a pipelined ring where nothing else is said."""


@dataclass(frozen=True, slots=True)
class ChainAlgorithm(OverRings):
    """What both directions share.

    Attributes:
        channels: Rows; each carries its share of the buffer.
        chunks: Pieces of a channel's share.
        orders: A row begins with the root, or with who follows it.
    """

    chunks: int = CHAIN_CHUNKS

    def nchunks(self, nranks: int) -> int:
        """Return the number of pieces, those of channel 0 first."""
        return self.channels * self.chunks

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of one chunk; they differ by at most one byte."""
        return part_bytes(input_bytes, nparts=self.nchunks(nranks), part=chunk)

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield all chunks to the next in each row, unless *position* is its last."""
        return self._links(position, nranks, root, back=0)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield all chunks of the one before, unless *position* is the first."""
        return self._links(position, nranks, root, back=1)

    @abstractmethod
    def _start(self) -> int:
        """Return how many places after the root a row begins."""

    def _links(
        self, position: int, nranks: int, root: int, *, back: int
    ) -> Iterator[Transfer]:
        """Yield what *position*, or who is *back* before it, hands on in each row."""
        found: list[tuple[Ring, int, int]] = []
        for channel in range(self.channels):
            ring = self.ring(channel, nranks)
            first = ring.index_of[root] + self._start()
            index = (ring.index_of[position] - first) % nranks - back
            if 0 <= index < nranks - 1:
                found.append((ring, channel, index))
        # All channels take turns, and steps ascend whatever a channel's index is.
        for step in range(nranks - 1 + self.chunks):
            for ring, channel, index in found:
                chunk = step - index
                if 0 <= chunk < self.chunks:
                    place = ring.index_of[root] + self._start() + index
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

    def _start(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class ChainReduce(ChainAlgorithm):
    """Along the row, which ends at the root; each adds its own."""

    op: ClassVar[CollectiveOp] = CollectiveOp.REDUCE

    def _start(self) -> int:
        return 1


_PARAMETERS = (CHANNELS, whole("chunks", CHAIN_CHUNKS, MAX_CHUNKS), ORDER)
FAMILIES = (
    Family("ring", CollectiveOp.BROADCAST, over_rings(ChainBroadcast), _PARAMETERS),
    Family("ring", CollectiveOp.REDUCE, over_rings(ChainReduce), _PARAMETERS),
)
