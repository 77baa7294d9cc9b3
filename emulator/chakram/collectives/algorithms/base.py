"""Base classes of algorithms: division of the buffer and common defaults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar

from chakram.collectives.ops import CollectiveOp, buffer_bytes
from chakram.collectives.schedule import (
    Algorithm,
    Transfer,
    counted_sizes,
    part_bytes,
)


class Scheduled(ABC):
    """Base of algorithms that serve any group size and are not stepwise."""

    __slots__ = ()

    @property
    def stepwise(self) -> bool:
        """Return False: no send waits for a whole step."""
        return False

    def unfit(self, nranks: int) -> str | None:
        """Return None: the algorithm serves groups of any size."""
        return None

    def turns_by(self, nranks: int) -> int | None:
        """Return the chunk offset between schedules of adjacent positions, or None.

        With offset t, position p sends the same messages as position 0, in the same
        order, with p added to all positions. If position 0 sends chunk c, the message
        of position p has the size of chunk (c + p x t) mod (*nranks* x t). A simulation
        of thousands of ranks then needs only one schedule. None means that the
        schedules differ in other ways.
        """
        return None

    def peers(self, position: int, *, nranks: int, root: int) -> set[tuple[int, int]]:
        """Return (channel, position) of every destination of *position*."""
        return {
            (transfer.channel, transfer.dst)
            for transfer in self.sends(position, nranks=nranks, root=root)
        }

    def span_bytes(self, begin: int, end: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of chunks *begin* to *end* - 1 in bytes."""
        return sum(
            self.chunk_bytes(chunk, nranks=nranks, input_bytes=input_bytes)
            for chunk in range(begin, end)
        )

    def sent_sizes(
        self, position: int, *, nranks: int, root: int, input_bytes: int
    ) -> Mapping[int, int]:
        """Return the number of messages that *position* sends, by size."""
        return counted_sizes(
            self, position, nranks=nranks, root=root, input_bytes=input_bytes
        )

    @abstractmethod
    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of one chunk in bytes."""

    @abstractmethod
    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the sends of *position*."""


def turns_by(how: Algorithm, nranks: int) -> int | None:
    """Return the chunk offset between schedules of adjacent positions, or None.

    See ``Scheduled.turns_by``.
    """
    return how.turns_by(nranks) if isinstance(how, Scheduled) else None


class PairedGenerator(Scheduled):
    """Base of algorithms that generate sends and receives with the same code."""

    __slots__ = ()

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the sends of *position* in ascending order of step."""
        return self._all(position, nranks, root, sending=True)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the receives of *position* in ascending order of step."""
        return self._all(position, nranks, root, sending=False)

    @abstractmethod
    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        """Yield the sends of *position* if *sending*, else its receives."""


class Shifted(PairedGenerator):
    """Base of algorithms that send at distance 2**k in step k."""

    __slots__ = ()

    forward: ClassVar[bool] = True
    """Whether positions send to higher positions, modulo the group size."""

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        for step in range((nranks - 1).bit_length()):
            away = 1 << step if self.forward == sending else -(1 << step)
            peer = (position + away) % nranks
            src, dst = (position, peer) if sending else (peer, position)
            yield self._message(step, src, dst, nranks)

    @abstractmethod
    def _message(self, step: int, src: int, dst: int, nranks: int) -> Transfer:
        """Return the message from *src* to *dst* in *step*."""


class Parted(Scheduled):
    """Base of algorithms whose chunks are buffer parts of nearly equal size.

    The sizes differ by at most one byte.
    """

    __slots__ = ()

    op: ClassVar[CollectiveOp]
    """The collective whose buffer is divided."""

    @abstractmethod
    def nchunks(self, nranks: int) -> int:
        """Return the number of chunks."""

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of one chunk in bytes."""
        return self.span_bytes(chunk, chunk + 1, nranks=nranks, input_bytes=input_bytes)

    def span_bytes(self, begin: int, end: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of chunks *begin* to *end* - 1 in bytes."""
        total_bytes = buffer_bytes(self.op, input_bytes=input_bytes, nranks=nranks)
        nparts = self.nchunks(nranks)
        return total_bytes * end // nparts - total_bytes * begin // nparts


class OnePartPerRank(Parted):
    """Base of algorithms where chunk *c* is the part of position *c*."""

    __slots__ = ()

    def nchunks(self, nranks: int) -> int:
        """Return the number of chunks: one per rank."""
        return nranks


class OnePartPerPair(Scheduled):
    """Base of algorithms with one chunk per pair: ``source x n + destination``."""

    __slots__ = ()

    def nchunks(self, nranks: int) -> int:
        """Return the number of chunks: one per pair of ranks."""
        return nranks * nranks

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of one chunk in bytes. Sizes differ by at most one byte."""
        return part_bytes(input_bytes, nparts=nranks, part=chunk % nranks)


class WholeBuffer(Parted):
    """Base of algorithms that move the buffer as one chunk."""

    __slots__ = ()

    def nchunks(self, nranks: int) -> int:
        """Return 1."""
        return 1


class OneBufferPerRank(Scheduled):
    """Base of algorithms where chunk *c* is the whole buffer of position *c*."""

    __slots__ = ()

    def nchunks(self, nranks: int) -> int:
        """Return the number of chunks: one per rank."""
        return nranks

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of a whole buffer."""
        return input_bytes


def all_others(position: int, nranks: int) -> set[tuple[int, int]]:
    """Return (channel, position) of all other positions, on channel 0."""
    return {(0, peer) for peer in range(nranks) if peer != position}
