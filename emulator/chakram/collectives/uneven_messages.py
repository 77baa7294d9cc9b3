"""Messages of an uneven all_to_all (all_to_all_v): which there are, and their sizes.

Our own algorithms send every part straight from its source to its destination: one
message for each pair of positions that has any bytes.

A user's algorithm was written for equal parts.  It serves unequal ones where what each
source has for each destination is a number of whole chunks, which is so in every list
for an all_to_all: the bytes of a pair are cut into the chunks of that pair, as equal as
can be.  All its messages stay, those without bytes as empty ones, because what follows
them in the list waits for them.  Such an algorithm may let a member pass on what is not
its own; the sizes of these pairs travel with its splits (``passed_bytes`` of
``chakram.program.operations.CollectiveOperation``), for its own row does not have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm
from chakram.collectives.schedule import (
    Algorithm,
    LocalTransfer,
    RankSchedule,
    Transfer,
    rank_schedule,
    uneven_schedule,
)

if TYPE_CHECKING:
    from chakram.collectives.split_sizes import Matrix, Splits

    PairBytes = Callable[[int, int], int]
    """Bytes that one position has for another one, as far as they are known."""


def uneven_share(how: Algorithm, splits: Splits, *, position: int) -> RankSchedule:
    """Return what *position* sends and receives in an all_to_all_v with *splits*."""
    if isinstance(how, ListedAlgorithm):
        return rank_schedule(how, position=position, nranks=how.nranks, root=how.root)
    return uneven_schedule(how, splits, position=position)


def uneven_messages(
    how: Algorithm, *, position: int, nranks: int, pair_bytes: PairBytes
) -> Iterator[tuple[int, int]]:
    """Yield (destination, size) of every message that *position* sends."""
    if not isinstance(how, ListedAlgorithm):
        for peer in range(nranks):
            size_bytes = pair_bytes(position, peer)
            if size_bytes and peer != position:
                yield peer, size_bytes
        return
    for transfer in how.sends(position, nranks=nranks, root=how.root):
        yield transfer.dst, how.uneven_bytes(transfer.chunk, pair_bytes)


def uneven_message_bytes(
    how: Algorithm,
    transfer: Transfer | LocalTransfer,
    *,
    src: int,
    dst: int,
    pair_bytes: PairBytes,
) -> int:
    """Return the size of one message from *src* to *dst*."""
    if isinstance(how, ListedAlgorithm):
        return how.uneven_bytes(transfer.chunk, pair_bytes)
    return pair_bytes(src, dst)


@lru_cache(maxsize=4096)
def passed_pairs(how: Algorithm, position: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs, ascending, of which *position* passes on what is not its own.

    Neither is it their source, nor their destination.
    """
    if not isinstance(how, ListedAlgorithm):
        return ()
    sends = how.sends(position, nranks=how.nranks, root=how.root)
    pairs = {pair for send in sends for pair in how.pairs(send.chunk)}
    return tuple(sorted(pair for pair in pairs if position not in pair))


def passed_bytes(
    how: Algorithm, pair_bytes: PairBytes, *, position: int
) -> tuple[int, ...]:
    """Return the sizes of ``passed_pairs``."""
    return tuple(pair_bytes(src, dst) for src, dst in passed_pairs(how, position))


def matrix_bytes(matrix: Matrix) -> PairBytes:
    """Return what finds the bytes of every pair, by the whole matrix."""

    def pair_bytes(src: int, dst: int) -> int:
        return matrix[src][dst]

    return pair_bytes


def splits_bytes(
    how: Algorithm, splits: Splits, passed: Sequence[int], *, position: int
) -> PairBytes:
    """Return what finds the bytes of all pairs that a member has to do with.

    *passed* are the sizes of its ``passed_pairs``.
    """
    of_others = dict(zip(passed_pairs(how, position), passed, strict=True))

    def pair_bytes(src: int, dst: int) -> int:
        if src == position:
            return splits.sent_bytes[dst]
        if dst == position:
            return splits.received_bytes[src]
        return of_others[src, dst]

    return pair_bytes
