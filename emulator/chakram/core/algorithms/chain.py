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
from typing import TYPE_CHECKING

from chakram.core.algorithms.parts import Scheduled
from chakram.core.algorithms.rank_order import (
    ASCENDING,
    RankOrder,
    ring_of,
    unfit_order,
)
from chakram.core.collectives import CollectiveOp
from chakram.core.schedule import Transfer, part_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

CHAIN_CHUNKS = 8
"""Chunks of a pipelined ring where nothing else is said."""


@dataclass(frozen=True, slots=True)
class ChainAlgorithm(Scheduled):
    """What both directions share.

    Attributes:
        name: Its canonical name, parameters included.
        chunks: Pieces of the buffer.
        order: Rank order; the row begins with the root, or with who follows it.
    """

    name: str = "ring"
    chunks: int = CHAIN_CHUNKS
    order: RankOrder = ASCENDING

    @property
    @abstractmethod
    def op(self) -> CollectiveOp:
        """The collective that it does."""

    def unfit(self, nranks: int) -> str | None:
        """Return why an order that is written out does not fit the group."""
        return unfit_order(self.order, nranks)

    def nchunks(self, nranks: int) -> int:
        """Return the number of pieces."""
        return self.chunks

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of one chunk; they differ by at most one byte."""
        return part_bytes(input_bytes, nparts=self.chunks, part=chunk)

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield all chunks to the next in the row, unless *position* is its last."""
        return self._link(self._index(position, nranks, root), nranks, root)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield all chunks of the one before, unless *position* is the first."""
        return self._link(self._index(position, nranks, root) - 1, nranks, root)

    @abstractmethod
    def _start(self) -> int:
        """Return how many places after the root the row begins."""

    def _index(self, position: int, nranks: int, root: int) -> int:
        ring = ring_of(self.order, nranks)
        behind = ring.index_of[position] - ring.index_of[root] - self._start()
        return behind % nranks

    def _link(self, index: int, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what the one at *index* of the row sends to the one after it."""
        if not 0 <= index < nranks - 1:
            return
        ring = ring_of(self.order, nranks)
        place = ring.index_of[root] + self._start() + index
        for chunk in range(self.chunks):
            yield Transfer(
                step=index + chunk,
                src=ring.places[place % nranks],
                dst=ring.places[(place + 1) % nranks],
                chunk=chunk,
                reduce=self.op == CollectiveOp.REDUCE,
            )


@dataclass(frozen=True, slots=True)
class ChainBroadcast(ChainAlgorithm):
    """From the root along the row."""

    @property
    def op(self) -> CollectiveOp:
        """Return the collective that it does."""
        return CollectiveOp.BROADCAST

    def _start(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class ChainReduce(ChainAlgorithm):
    """Along the row, which ends at the root; each adds its own."""

    @property
    def op(self) -> CollectiveOp:
        """Return the collective that it does."""
        return CollectiveOp.REDUCE

    def _start(self) -> int:
        return 1
