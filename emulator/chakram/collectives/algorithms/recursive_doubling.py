"""Recursive doubling and halving: partners at distances 1, 2, 4 ...

In each step, pairs of positions exchange their data, so the amount of data per position
doubles or halves. With P = 2**m positions, the exchange takes m steps per pass. In this
table, S is the ``input_bytes`` of one rank.

=====================  ===========================  ==================  ===============
algorithm              message in step k            steps               bytes per rank
=====================  ===========================  ==================  ===============
all_reduce, doubling   the buffer                   m                   m S
all_gather, doubling   2**k shards                  m                   (P - 1) S
reduce_scatter         half of the remaining range  m                   (P - 1)/P S
all_reduce, halving    halves, then shards          2m                  2(P - 1)/P S
=====================  ===========================  ==================  ===============

If n is not a power of two, P is the largest power of two below n. The even positions
among the first 2(n - P) *fold*. They send their data to the next position before the
first step and receive the result from it after the last step.

Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication
operations in MPICH, 2005 (sections 3.1 and 4.2 to 4.5).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from chakram.collectives.algorithms.base import (
    OnePartPerRank,
    PairedGenerator,
    Parted,
    WholeBuffer,
)
from chakram.collectives.algorithms.family import Family
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Transfer


@dataclass(frozen=True, slots=True)
class Fold:
    """A group as a power of two of *virtual* positions.

    Some positions act for two: themselves and the folded position before them.

    Attributes:
        nranks: Number of positions.
        doublings: Number m of steps among the 2**m virtual positions.
        folded: Number of folded positions.
    """

    nranks: int
    doublings: int = field(init=False)
    folded: int = field(init=False)

    def __post_init__(self) -> None:
        doublings = self.nranks.bit_length() - 1
        object.__setattr__(self, "doublings", doublings)
        object.__setattr__(self, "folded", self.nranks - (1 << doublings))

    @property
    def first(self) -> int:
        """First step of the virtual positions."""
        return 1 if self.folded else 0

    def virtual(self, position: int) -> int | None:
        """Return the virtual position of *position*, or None if it folds."""
        if position >= 2 * self.folded:
            return position - self.folded
        return position // 2 if position % 2 else None

    def actor(self, virtual: int) -> int:
        """Return the position that acts as *virtual*."""
        if virtual < self.folded:
            return 2 * virtual + 1
        return virtual + self.folded

    def stands_for_two(self, position: int) -> bool:
        """Return whether *position* also acts for the position before it."""
        return position < 2 * self.folded and position % 2 == 1

    def positions(self, begin: int, end: int) -> range:
        """Return positions represented by virtual positions *begin* to *end* - 1."""
        return range(begin + min(begin, self.folded), end + min(end, self.folded))


_fold_of = lru_cache(maxsize=16)(Fold)


class _Folded(PairedGenerator, Parted):
    """Base of exchanges among virtual positions, with folding before and after."""

    __slots__ = ()

    rounds: ClassVar[int] = 1
    """Number of exchanges with every partner."""

    def _all(
        self, position: int, nranks: int, root: int, *, sending: bool
    ) -> Iterator[Transfer]:
        fold = _fold_of(nranks)
        result: Iterable[int] = ()
        if is_folding := position < 2 * fold.folded:
            given, result = self._folding(position - position % 2, nranks)
            adds = self.op != CollectiveOp.ALL_GATHER
            yield from _end(fold, position, given, 0, sending=sending, reduce=adds)
        virtual = fold.virtual(position)
        if virtual is not None:
            exchanges = self._exchanges(fold, virtual, sending=sending)
            for step, (partner, chunks, reduce) in enumerate(exchanges, fold.first):
                peer = fold.actor(partner)
                yield _message(
                    step, position, peer, chunks, sending=sending, reduce=reduce
                )
        if is_folding:
            last = fold.first + self.rounds * fold.doublings
            yield from _end(fold, position, result, last, sending=sending, back=True)

    def peers(self, position: int, *, nranks: int, root: int) -> set[tuple[int, int]]:
        """Return (channel, position) of every destination of *position*."""
        fold = _fold_of(nranks)
        if fold.folded:
            return super().peers(position, nranks=nranks, root=root)
        return {(0, position ^ 1 << step) for step in range(fold.doublings)}

    def _folding(
        self, folding: int, nranks: int
    ) -> tuple[Iterable[int], Iterable[int]]:
        """Return the chunks that a folding position sends first and receives last."""
        everything = range(self.nchunks(nranks))
        if self.op == CollectiveOp.REDUCE_SCATTER:
            return everything, (folding,)
        if self.op == CollectiveOp.ALL_GATHER:
            return (folding,), [chunk for chunk in everything if chunk != folding]
        return everything, everything

    @abstractmethod
    def _exchanges(
        self, fold: Fold, virtual: int, *, sending: bool
    ) -> Iterator[tuple[int, Iterable[int], bool]]:
        """Yield, per step, the virtual partner, the chunks, and whether to add them."""


class _Shards(_Folded, OnePartPerRank):
    """Base of exchanges in which a position's shards double or halve in every step."""

    __slots__ = ()

    is_nearest_first: ClassVar[bool]

    def _exchanges(
        self, fold: Fold, virtual: int, *, sending: bool
    ) -> Iterator[tuple[int, Iterable[int], bool]]:
        gathers = self.op == CollectiveOp.ALL_GATHER
        steps = range(fold.doublings)
        for step in steps if self.is_nearest_first else reversed(steps):
            partner = virtual ^ 1 << step
            whose = virtual if sending == gathers else partner
            yield partner, self._shards(fold, whose, step), not gathers

    def _shards(self, fold: Fold, virtual: int, step: int) -> Iterable[int]:
        """Return the shards in *virtual*'s block of 2**step virtual positions.

        In an all_gather, *virtual* has these shards before the step. In a
        reduce_scatter, it keeps the partial sums of these shards after the step.
        """
        begin = virtual >> step << step
        return fold.positions(begin, begin + (1 << step))


@dataclass(frozen=True, slots=True)
class DoublingAllReduce(_Folded, WholeBuffer):
    """An all_reduce in which partners exchange and add the whole buffer.

    It takes few steps but transfers many bytes.
    """

    name: str = "recursive_doubling"
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_REDUCE

    def _exchanges(
        self, fold: Fold, virtual: int, *, sending: bool
    ) -> Iterator[tuple[int, Iterable[int], bool]]:
        for step in range(fold.doublings):
            yield virtual ^ 1 << step, (0,), True


@dataclass(frozen=True, slots=True)
class DoublingAllGather(_Shards):
    """An all_gather in which the data of a position doubles in every step."""

    name: str = "recursive_doubling"
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_GATHER
    is_nearest_first: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class HalvingReduceScatter(_Shards):
    """A reduce_scatter by halving, the farthest partner first.

    In each step, two partners divide the range for which both have partial sums.
    """

    name: str = "recursive_halving"
    op: ClassVar[CollectiveOp] = CollectiveOp.REDUCE_SCATTER
    is_nearest_first: ClassVar[bool] = False


class _Alike(_Shards):
    """Base of exchanges of shards whose virtual positions share their low bits."""

    __slots__ = ()

    def _shards(self, fold: Fold, virtual: int, step: int) -> Iterable[int]:
        bits = 2 << step
        return [
            position
            for other in range(virtual % bits, 1 << fold.doublings, bits)
            for position in fold.positions(other, other + 1)
        ]


@dataclass(frozen=True, slots=True)
class HalvingDoublingReduceScatter(_Alike):
    """A reduce_scatter by halving, the nearest partner first.

    It is the first half of the halving-doubling all_reduce.
    """

    name: str = "halving_doubling"
    op: ClassVar[CollectiveOp] = CollectiveOp.REDUCE_SCATTER
    is_nearest_first: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class HalvingDoublingAllGather(_Alike):
    """An all_gather by doubling, the farthest partner first.

    It is the second half of the halving-doubling all_reduce.
    """

    name: str = "halving_doubling"
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_GATHER
    is_nearest_first: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class HalvingDoublingAllReduce(_Folded):
    """A reduce_scatter by halving, the nearest partner first, then an all_gather.

    The all_gather reverses the steps of the reduce_scatter. The largest messages
    therefore go to neighbors. There are P chunks.
    """

    name: str = "halving_doubling"
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_REDUCE
    rounds: ClassVar[int] = 2

    def nchunks(self, nranks: int) -> int:
        """Return the largest power of two up to the number of ranks."""
        return 1 << nranks.bit_length() - 1

    def _exchanges(
        self, fold: Fold, virtual: int, *, sending: bool
    ) -> Iterator[tuple[int, Iterable[int], bool]]:
        ranges = list(enumerate(_halvings(virtual, fold.doublings)))
        for step, (kept, given) in ranges:
            yield virtual ^ 1 << step, given if sending else kept, True
        for step, (kept, given) in reversed(ranges):
            yield virtual ^ 1 << step, kept if sending else given, False


def _halvings(virtual: int, doublings: int) -> Iterator[tuple[range, range]]:
    """Yield, by step, the ranges that *virtual* keeps and sends."""
    begin, end = 0, 1 << doublings
    for step in range(doublings):
        middle = (begin + end) // 2
        low, high = range(begin, middle), range(middle, end)
        kept, given = (high, low) if virtual >> step & 1 else (low, high)
        yield kept, given
        begin, end = kept.start, kept.stop


def _message(
    step: int,
    position: int,
    peer: int,
    chunks: Iterable[int],
    *,
    sending: bool,
    reduce: bool = False,
) -> Transfer:
    """Return the message from *position* to *peer* if *sending*, else the reverse."""
    further: tuple[int, ...] | range
    if isinstance(chunks, range) and len(chunks) > 1 and chunks.step == 1:
        first, further = chunks[0], chunks[1:]
    else:
        first, *others = chunks
        further = tuple(others)
    return Transfer(
        step=step,
        src=position if sending else peer,
        dst=peer if sending else position,
        chunk=first,
        further=further,
        reduce=reduce,
    )


def _end(
    fold: Fold,
    position: int,
    chunks: Iterable[int],
    step: int,
    *,
    sending: bool,
    back: bool = False,
    reduce: bool = False,
) -> Iterator[Transfer]:
    """Yield the message with which a position folds, or receives the result (*back*).

    Yield nothing unless *position* folds or acts for a folded one.
    """
    folds = fold.virtual(position) is None
    if (folds or fold.stands_for_two(position)) and sending == (folds != back):
        peer = position + 1 if folds else position - 1
        yield _message(step, position, peer, chunks, sending=sending, reduce=reduce)


FAMILIES = (
    Family("halving_doubling", CollectiveOp.ALL_REDUCE, HalvingDoublingAllReduce),
    Family(
        "halving_doubling", CollectiveOp.REDUCE_SCATTER, HalvingDoublingReduceScatter
    ),
    Family("halving_doubling", CollectiveOp.ALL_GATHER, HalvingDoublingAllGather),
    Family("recursive_doubling", CollectiveOp.ALL_REDUCE, DoublingAllReduce),
    Family("recursive_doubling", CollectiveOp.ALL_GATHER, DoublingAllGather),
    Family("recursive_halving", CollectiveOp.REDUCE_SCATTER, HalvingReduceScatter),
)
