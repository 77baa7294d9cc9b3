"""Recursive doubling and halving: partners at distances 1, 2, 4 ...

Two positions exchange what they have, then they are one of two that do; with P = 2**m
positions all is done in m steps.

=====================  ===========================  ==================  ==============
algorithm              a message of step k          steps               bytes of each
=====================  ===========================  ==================  ==============
all_reduce, doubling   the buffer                   m                   m S
all_gather, doubling   2**k shards                  m                   (P - 1) S
reduce_scatter         the half that is left        m                   (P - 1)/P S
all_reduce, halving    halves, then shards          2m                  2(P - 1)/P S
=====================  ===========================  ==================  ==============

If n is not a power of two, P is the next lower one, and of the first 2(n - P) positions
the even ones *fold*: they give what they have to the next position before the first
step and get the result from it after the last one.

Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication
operations in MPICH, 2005 (sections 3.1 and 4.2 to 4.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from chakram.collectives.algorithms.base import OnePartPerRank, Scheduled, WholeBuffer
from chakram.collectives.algorithms.family import Family
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Transfer, part_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True)
class Fold:
    """A group as a power of two of *virtual* positions, some of which stand for two."""

    nranks: int

    @property
    def doublings(self) -> int:
        """Steps among virtual positions: m, where there are 2**m of them."""
        return self.nranks.bit_length() - 1

    @property
    def folded(self) -> int:
        """How many positions do not take part themselves."""
        return self.nranks - (1 << self.doublings)

    @property
    def first(self) -> int:
        """The step in which virtual positions begin."""
        return 1 if self.folded else 0

    def virtual(self, position: int) -> int | None:
        """Return the virtual position that *position* acts as; None if it folds."""
        if position >= 2 * self.folded:
            return position - self.folded
        return position // 2 if position % 2 else None

    def actor(self, virtual: int) -> int:
        """Return the position that acts as *virtual*."""
        if virtual < self.folded:
            return 2 * virtual + 1
        return virtual + self.folded

    def stands_for_two(self, position: int) -> bool:
        """Return whether *position* acts for the one before it too."""
        return position < 2 * self.folded and position % 2 == 1

    def positions(self, begin: int, end: int) -> range:
        """Return the positions that virtual ones from *begin* to before *end* are."""
        return range(begin + min(begin, self.folded), end + min(end, self.folded))


@dataclass(frozen=True, slots=True)
class DoublingAllReduce(WholeBuffer):
    """Both partners send the buffer and add what comes: few steps, many bytes."""

    name: str = "recursive_doubling"
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_REDUCE

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the buffer to every partner."""
        return self._all(position, nranks, sending=True)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the buffer of every partner."""
        return self._all(position, nranks, sending=False)

    def _all(self, position: int, nranks: int, *, sending: bool) -> Iterator[Transfer]:
        fold = Fold(nranks)
        yield from _folding(fold, position, (0,), sending=sending, reduce=True)
        virtual = fold.virtual(position)
        if virtual is not None:
            for step in range(fold.doublings):
                yield _message(
                    fold.first + step,
                    position,
                    fold.actor(virtual ^ 1 << step),
                    (0,),
                    sending=sending,
                    reduce=True,
                )
        last = fold.first + fold.doublings
        yield from _unfolding(fold, position, (0,), sending=sending, step=last)


@dataclass(frozen=True, slots=True)
class DoublingAllGather(OnePartPerRank):
    """What a position has doubles in every step."""

    name: str = "recursive_doubling"
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_GATHER

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield all shards there are to every partner."""
        return self._all(position, nranks, sending=True)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield all shards of every partner."""
        return self._all(position, nranks, sending=False)

    def _all(self, position: int, nranks: int, *, sending: bool) -> Iterator[Transfer]:
        fold = Fold(nranks)
        folding = position if position % 2 == 0 else position - 1
        yield from _folding(fold, position, (folding,), sending=sending, reduce=False)
        virtual = fold.virtual(position)
        if virtual is not None:
            for step in range(fold.doublings):
                partner = virtual ^ 1 << step
                begin = (virtual if sending else partner) >> step << step
                yield _message(
                    fold.first + step,
                    position,
                    fold.actor(partner),
                    fold.positions(begin, begin + (1 << step)),
                    sending=sending,
                )
        others = [chunk for chunk in range(nranks) if chunk != folding]
        last = fold.first + fold.doublings
        yield from _unfolding(fold, position, others, sending=sending, step=last)


@dataclass(frozen=True, slots=True)
class HalvingReduceScatter(OnePartPerRank):
    """Partners part the range that both have sums of, the farthest partner first."""

    name: str = "recursive_halving"
    op: ClassVar[CollectiveOp] = CollectiveOp.REDUCE_SCATTER

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the partner's half of the range to every partner."""
        return self._all(position, nranks, sending=True)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the own half of the range from every partner."""
        return self._all(position, nranks, sending=False)

    def _all(self, position: int, nranks: int, *, sending: bool) -> Iterator[Transfer]:
        fold = Fold(nranks)
        everything = range(nranks)
        yield from _folding(fold, position, everything, sending=sending, reduce=True)
        virtual = fold.virtual(position)
        if virtual is not None:
            for step in range(fold.doublings):
                distance = 1 << fold.doublings - 1 - step
                partner = virtual ^ distance
                kept = partner if sending else virtual
                begin = kept // distance * distance
                yield _message(
                    fold.first + step,
                    position,
                    fold.actor(partner),
                    fold.positions(begin, begin + distance),
                    sending=sending,
                    reduce=True,
                )
        folding = position if position % 2 == 0 else position - 1
        last = fold.first + fold.doublings
        yield from _unfolding(fold, position, (folding,), sending=sending, step=last)


@dataclass(frozen=True, slots=True)
class HalvingDoublingAllReduce(Scheduled):
    """A reduce_scatter by halving, the nearest partner first, and the way back.

    So the largest messages go to neighbours.  There are P chunks.
    """

    name: str = "halving_doubling"
    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_REDUCE

    def nchunks(self, nranks: int) -> int:
        """Return the power of two that is not above the number of ranks."""
        return 1 << Fold(nranks).doublings

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of one chunk; they differ by at most one byte."""
        return part_bytes(input_bytes, nparts=self.nchunks(nranks), part=chunk)

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield halves to every partner, then sums back to them."""
        return self._all(position, nranks, sending=True)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield halves of every partner, then sums."""
        return self._all(position, nranks, sending=False)

    def _all(self, position: int, nranks: int, *, sending: bool) -> Iterator[Transfer]:
        fold = Fold(nranks)
        everything = range(self.nchunks(nranks))
        yield from _folding(fold, position, everything, sending=sending, reduce=True)
        virtual = fold.virtual(position)
        if virtual is not None:
            ranges = list(_halvings(virtual, fold.doublings))
            for step, (kept, given) in enumerate(ranges):
                yield _message(
                    fold.first + step,
                    position,
                    fold.actor(virtual ^ 1 << step),
                    given if sending else kept,
                    sending=sending,
                    reduce=True,
                )
            for back, (kept, given) in enumerate(reversed(ranges)):
                yield _message(
                    fold.first + fold.doublings + back,
                    position,
                    fold.actor(virtual ^ 1 << fold.doublings - 1 - back),
                    kept if sending else given,
                    sending=sending,
                )
        last = fold.first + 2 * fold.doublings
        yield from _unfolding(fold, position, everything, sending=sending, step=last)


def _halvings(virtual: int, doublings: int) -> Iterator[tuple[range, range]]:
    """Yield, by step, the range that *virtual* keeps and the one that it gives."""
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
    """Return what *position* sends to *peer*, or gets from it."""
    first, *further = chunks
    return Transfer(
        step=step,
        src=position if sending else peer,
        dst=peer if sending else position,
        chunk=first,
        further=tuple(further),
        reduce=reduce,
    )


def _folding(
    fold: Fold, position: int, chunks: Iterable[int], *, sending: bool, reduce: bool
) -> Iterator[Transfer]:
    """Yield the message by which a position folds, if this is one end of it."""
    if sending and fold.virtual(position) is None:
        peer = position + 1
    elif not sending and fold.stands_for_two(position):
        peer = position - 1
    else:
        return
    yield _message(0, position, peer, chunks, sending=sending, reduce=reduce)


def _unfolding(
    fold: Fold, position: int, chunks: Iterable[int], *, sending: bool, step: int
) -> Iterator[Transfer]:
    """Yield the message by which a folded position gets the result."""
    if sending and fold.stands_for_two(position):
        peer = position - 1
    elif not sending and fold.virtual(position) is None:
        peer = position + 1
    else:
        return
    yield _message(step, position, peer, chunks, sending=sending)


FAMILIES = (
    Family("halving_doubling", CollectiveOp.ALL_REDUCE, HalvingDoublingAllReduce),
    Family("recursive_doubling", CollectiveOp.ALL_REDUCE, DoublingAllReduce),
    Family("recursive_doubling", CollectiveOp.ALL_GATHER, DoublingAllGather),
    Family("recursive_halving", CollectiveOp.REDUCE_SCATTER, HalvingReduceScatter),
)
