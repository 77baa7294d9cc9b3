"""Ring algorithms: every position sends to the next one only.

With n ranks, reduce_scatter and all_gather take n - 1 steps and all_reduce is the one
after the other, 2(n - 1) steps.  In every step each position sends one n-th of the
buffer: nobody idles and every port carries the least that is possible, at the price of
a latency that grows with n.

Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of
workstations, 2009; NCCL's ring uses the same order of chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.core.algorithms.parts import OnePartPerRank
from chakram.core.collectives import CollectiveOp
from chakram.core.schedule import Transfer

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class RingReduceScatter(OnePartPerRank):
    """After step s the partial sum of a chunk has met s + 2 contributions."""

    @property
    def name(self) -> str:
        """Return ``ring``."""
        return "ring"

    @property
    def op(self) -> CollectiveOp:
        """Return the collective that it does."""
        return CollectiveOp.REDUCE_SCATTER

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what *position* sends to the next one."""
        return _around(position, nranks, shift=-1, reduce=True)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what the position before sends."""
        return _around((position - 1) % nranks, nranks, shift=-1, reduce=True)


@dataclass(frozen=True, slots=True)
class RingAllGather(OnePartPerRank):
    """Every position passes on in step s what it got in step s - 1."""

    @property
    def name(self) -> str:
        """Return ``ring``."""
        return "ring"

    @property
    def op(self) -> CollectiveOp:
        """Return the collective that it does."""
        return CollectiveOp.ALL_GATHER

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what *position* sends to the next one."""
        return _around(position, nranks, shift=0, reduce=False)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what the position before sends."""
        return _around((position - 1) % nranks, nranks, shift=0, reduce=False)


@dataclass(frozen=True, slots=True)
class RingAllReduce(OnePartPerRank):
    """A reduce_scatter that ends one position further, then an all_gather."""

    @property
    def name(self) -> str:
        """Return ``ring``."""
        return "ring"

    @property
    def op(self) -> CollectiveOp:
        """Return the collective that it does."""
        return CollectiveOp.ALL_REDUCE

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what *position* sends to the next one."""
        # The first half leaves chunk p + 1 complete at position p.
        yield from _around(position, nranks, shift=0, reduce=True)
        yield from _around(position, nranks, shift=1, reduce=False, first=nranks - 1)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what the position before sends."""
        return self.sends((position - 1) % nranks, nranks=nranks, root=root)


def _around(
    position: int, nranks: int, *, shift: int, reduce: bool, first: int = 0
) -> Iterator[Transfer]:
    """Yield n - 1 transfers to the next position; step s moves chunk p + shift - s."""
    for step in range(nranks - 1):
        yield Transfer(
            step=first + step,
            src=position,
            dst=(position + 1) % nranks,
            chunk=(position + shift - step) % nranks,
            reduce=reduce,
        )
