"""What algorithms share: how the buffer is cut, and what is so for most of them."""

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
    """Serves groups of any size, and a send waits for its own chunks only."""

    __slots__ = ()

    @property
    def stepwise(self) -> bool:
        """Return False: nothing waits for a whole step."""
        return False

    def unfit(self, nranks: int) -> str | None:
        """Return None: no group is too large or too small."""
        return None

    def turns_by(self, nranks: int) -> int | None:
        """Return by how many chunks schedules of neighbours differ, None if by more.

        With t, position p sends what position 0 does, in the same order, with p added
        to all positions; and of its chunks, counted round *nranks* x t of them, the
        sizes are those of p x t further ones.  Whoever simulates thousands of ranks
        needs one schedule then.
        """
        return None

    def peers(self, position: int, *, nranks: int, root: int) -> set[tuple[int, int]]:
        """Return (channel, position) of all whom *position* sends to."""
        return {
            (transfer.channel, transfer.dst)
            for transfer in self.sends(position, nranks=nranks, root=root)
        }

    def sent_sizes(
        self, position: int, *, nranks: int, root: int, input_bytes: int
    ) -> Mapping[int, int]:
        """Return how many messages of each size *position* sends."""
        return counted_sizes(
            self, position, nranks=nranks, root=root, input_bytes=input_bytes
        )

    @abstractmethod
    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of one chunk."""

    @abstractmethod
    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what *position* sends."""


def turns_by(how: Algorithm, nranks: int) -> int | None:
    """Return by how many chunks the schedules of neighbours differ.

    None: by more than that; see ``Scheduled.turns_by``.
    """
    return how.turns_by(nranks) if isinstance(how, Scheduled) else None


class BothWays(Scheduled):
    """Says in one what a position sends and what it receives."""

    __slots__ = ()

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what *position* sends, steps ascending."""
        return self._all(position, nranks, root, sending=True)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what *position* receives, steps ascending."""
        return self._all(position, nranks, root, sending=False)

    @abstractmethod
    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        """Yield what *position* sends, or else what it receives."""


class Shifted(BothWays):
    """In every step a position sends twice as far as in the one before."""

    __slots__ = ()

    forward: ClassVar[bool] = True
    """Whether to later positions."""

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
        """Return what goes from one to the other."""


class Parted(Scheduled):
    """Chunks are parts of the buffer that differ by at most one byte."""

    __slots__ = ()

    op: ClassVar[CollectiveOp]
    """The collective whose buffer is cut."""

    @abstractmethod
    def nchunks(self, nranks: int) -> int:
        """Return the number of chunks."""

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of one chunk."""
        total_bytes = buffer_bytes(self.op, input_bytes=input_bytes, nranks=nranks)
        return part_bytes(total_bytes, nparts=self.nchunks(nranks), part=chunk)


class OnePartPerRank(Parted):
    """Chunk *c* is the part of the buffer that belongs to position *c*."""

    __slots__ = ()

    def nchunks(self, nranks: int) -> int:
        """Return the number of chunks: one per rank."""
        return nranks


class OnePartPerPair(Scheduled):
    """Chunk ``source x n + destination`` is what the one has for the other."""

    __slots__ = ()

    def nchunks(self, nranks: int) -> int:
        """Return the number of chunks: one per pair of ranks."""
        return nranks * nranks

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of one chunk; they differ by at most one byte."""
        return part_bytes(input_bytes, nparts=nranks, part=chunk % nranks)


class WholeBuffer(Parted):
    """The buffer is one chunk."""

    __slots__ = ()

    def nchunks(self, nranks: int) -> int:
        """Return 1."""
        return 1


class OneBufferPerRank(Scheduled):
    """Chunk *c* is the buffer of position *c*."""

    __slots__ = ()

    def nchunks(self, nranks: int) -> int:
        """Return the number of chunks: one per rank."""
        return nranks

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of a whole buffer."""
        return input_bytes


def all_others(position: int, nranks: int) -> set[tuple[int, int]]:
    """Return (channel, position) of everybody else, who gets something directly."""
    return {(0, peer) for peer in range(nranks) if peer != position}
