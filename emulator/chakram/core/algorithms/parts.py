"""What most algorithms share: the buffer is cut into one nearly equal part per rank."""

from __future__ import annotations

from abc import ABC, abstractmethod

from chakram.core.collectives import CollectiveOp, buffer_bytes
from chakram.core.schedule import part_bytes


class OnePartPerRank(ABC):
    """Chunk *c* is the part of the buffer that belongs to position *c*."""

    __slots__ = ()

    @property
    @abstractmethod
    def op(self) -> CollectiveOp:
        """The collective whose buffer is cut."""

    def nchunks(self, nranks: int) -> int:
        """Return the number of chunks: one per rank."""
        return nranks

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of one chunk; they differ by at most one byte."""
        total_bytes = buffer_bytes(self.op, input_bytes=input_bytes, nranks=nranks)
        return part_bytes(total_bytes, nparts=nranks, part=chunk)


class WholeBuffer:
    """The buffer is one chunk."""

    __slots__ = ()

    def nchunks(self, nranks: int) -> int:
        """Return 1."""
        return 1

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of the whole buffer."""
        return input_bytes
