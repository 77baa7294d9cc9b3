"""Ring algorithms: every position sends only to the next one.

With n ranks, reduce_scatter and all_gather take n - 1 steps. An all_reduce runs both in
sequence, in 2(n - 1) steps. In every step each position sends one n-th of the buffer.
No position idles, and every port carries the minimum number of bytes. The cost is a
latency that grows with n.

The buffer may be divided among several *channels*. Each channel is a separate ring with
its own rank order. Two rings in opposite directions form the bidirectional ring. The
data of one step may be divided into *chunks* (slices), so that one chunk is forwarded
while the next arrives.

Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of
workstations, 2009. NCCL's ring uses the same chunk order.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from chakram.collectives.algorithms.family import (
    CHANNELS,
    CHUNKS,
    MAX_CHANNELS,
    ORDER,
    Family,
    over_rings,
    whole,
)
from chakram.collectives.algorithms.parameters import (
    ASCENDING,
    DESCENDING,
    OverRings,
    RankOrder,
)
from chakram.collectives.ops import CollectiveOp, buffer_bytes
from chakram.collectives.schedule import Algorithm, Transfer, part_bytes

BOTH_WAYS: tuple[RankOrder, ...] = (ASCENDING, DESCENDING)
"""Rank orders of a bidirectional ring."""


@dataclass(frozen=True, slots=True)
class RingAlgorithm(OverRings):
    """Base of the ring collectives: all_reduce, all_gather and reduce_scatter.

    Attributes:
        channels: Number of rings. Each carries its share of every position's part.
        chunks: Slices of the data of one step on one channel.
        shifts: For each pass around the ring, the offset from a position's place to the
            place whose part it sends first.
    """

    shifts: ClassVar[tuple[int, ...]]

    def nchunks(self, nranks: int) -> int:
        """Return the number of chunks, ordered by rank, channel and slice."""
        return nranks * self.channels * self.chunks

    def turns_by(self, nranks: int) -> int | None:
        """Return the chunks per position if every ring is in rank order, else None."""
        if set(self.orders) <= {ASCENDING, DESCENDING}:
            return self.channels * self.chunks
        return None

    def peers(self, position: int, *, nranks: int, root: int) -> set[tuple[int, int]]:
        """Return the next position of every channel."""
        if nranks == 1:
            return set()
        return {
            (channel, self._neighbor(position, channel, nranks, ahead=1))
            for channel in range(self.channels)
        }

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the sends of *position* to its next position on every channel."""
        return self._transfers([position] * self.channels, nranks)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the receives of *position* from its predecessor on every channel."""
        sources = [
            self._neighbor(position, channel, nranks, ahead=-1)
            for channel in range(self.channels)
        ]
        return self._transfers(sources, nranks)

    def sent_sizes(
        self, position: int, *, nranks: int, root: int, input_bytes: int
    ) -> Mapping[int, int]:
        """Return the number of messages that *position* sends, by size.

        In each pass around a ring, a position sends the parts of all positions but one.
        Part sizes are the floor or the ceiling of their mean. The counts therefore
        follow without iterating over the transfers. In a group of a thousand positions,
        there are millions of transfers.
        """
        if nranks == 1:
            return {}
        total_bytes = buffer_bytes(self.op, input_bytes=input_bytes, nranks=nranks)
        nparts = self.nchunks(nranks)
        size, larger = divmod(total_bytes, nparts)
        counts: Counter[int] = Counter()
        for shift in self.shifts:
            counts[size] += nparts - larger
            counts[size + 1] += larger
            for channel in range(self.channels):
                left_out = self._neighbor(position, channel, nranks, ahead=shift + 1)
                first = (left_out * self.channels + channel) * self.chunks
                for chunk in range(first, first + self.chunks):
                    counts[part_bytes(total_bytes, nparts=nparts, part=chunk)] -= 1
        return +counts

    @abstractmethod
    def _transfers(self, sources: list[int], nranks: int) -> Iterator[Transfer]:
        """Yield the sends of one source per channel, as listed in *sources*."""

    def _neighbor(self, position: int, channel: int, nranks: int, *, ahead: int) -> int:
        ring = self.ring(channel, nranks)
        return ring.places[(ring.index_of[position] + ahead) % nranks]

    def _around(
        self,
        sources: list[int],
        nranks: int,
        *,
        shift: int,
        reduce: bool,
        first: int = 0,
    ) -> Iterator[Transfer]:
        """Yield the n - 1 steps of one pass around each ring.

        In step s, the source at place p sends the part of place p + shift - s.
        """
        # Precompute the values that are equal in all steps: a rank in a group of a
        # thousand has two thousand transfers.
        lanes = []
        for channel, source in enumerate(sources):
            ring = self.ring(channel, nranks)
            index = ring.index_of[source]
            destination = ring.places[(index + 1) % nranks]
            lanes.append((channel, source, destination, ring.places, index + shift))
        for step in range(nranks - 1):
            for channel, source, destination, places, begin in lanes:
                owner = places[(begin - step) % nranks]
                chunk = (owner * self.channels + channel) * self.chunks
                for part in range(chunk, chunk + self.chunks):
                    yield Transfer(
                        first + step, source, destination, part, reduce, channel
                    )


@dataclass(frozen=True, slots=True)
class RingReduceScatter(RingAlgorithm):
    """A reduce_scatter. After step s, a partial sum has s + 2 contributions."""

    op: ClassVar[CollectiveOp] = CollectiveOp.REDUCE_SCATTER
    shifts: ClassVar[tuple[int, ...]] = (-1,)

    def _transfers(self, sources: list[int], nranks: int) -> Iterator[Transfer]:
        return self._around(sources, nranks, shift=self.shifts[0], reduce=True)


@dataclass(frozen=True, slots=True)
class RingAllGather(RingAlgorithm):
    """An all_gather. In step s, each position forwards the part from step s - 1."""

    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_GATHER
    shifts: ClassVar[tuple[int, ...]] = (0,)

    def _transfers(self, sources: list[int], nranks: int) -> Iterator[Transfer]:
        return self._around(sources, nranks, shift=self.shifts[0], reduce=False)


@dataclass(frozen=True, slots=True)
class RingAllReduce(RingAlgorithm):
    """A reduce_scatter that ends one position further, then an all_gather."""

    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_REDUCE
    shifts: ClassVar[tuple[int, ...]] = (0, 1)

    def _transfers(self, sources: list[int], nranks: int) -> Iterator[Transfer]:
        # After the first half, each place has the complete part of the next place.
        first, second = self.shifts
        yield from self._around(sources, nranks, shift=first, reduce=True)
        yield from self._around(
            sources, nranks, shift=second, reduce=False, first=nranks - 1
        )


_RING = (CHANNELS, CHUNKS, ORDER)
_TWO_RINGS = (whole("channels", len(BOTH_WAYS), MAX_CHANNELS), CHUNKS)


def _both_ways(kind: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    def make(*, name: str, channels: int, chunks: int) -> Algorithm:
        return kind(name=name, channels=channels, chunks=chunks, orders=BOTH_WAYS)

    return make


FAMILIES = tuple(
    family
    for kind in (RingAllReduce, RingAllGather, RingReduceScatter)
    for family in (
        Family("ring", kind.op, over_rings(kind), _RING, is_default=True),
        Family("bidirectional_ring", kind.op, _both_ways(kind), _TWO_RINGS),
    )
)
