"""Messages of an uneven all_to_all (all_to_all_v) and their sizes.

The built-in algorithms send every part directly from its source to its destination.
They send one message for each pair of positions with a nonzero byte count.

A user's algorithm is written for equal parts. It also supports unequal parts if the
data of each pair of source and destination consists of whole chunks. Every transfer
list that implements an all_to_all meets this condition. The bytes of a pair are divided
into its chunks as equally as possible. Messages without bytes are sent empty, because
later entries in the list wait for them.

Such an algorithm may make a member forward data of other pairs. The member's own splits
do not contain the sizes of these pairs. ``passed_bytes`` of
``chakram.program.operations.CollectiveOperation`` contains these sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from chakram.collectives import schedule
from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm
from chakram.collectives.split_sizes import Matrix, Splits

if TYPE_CHECKING:
    PairBytes = Callable[[int, int], int]
    """Function from (source, destination) to the bytes of that pair."""


def uneven_schedule(
    algorithm: schedule.Algorithm, splits: Splits, *, position: int
) -> schedule.RankSchedule:
    """Return the share of *position* in an all_to_all_v.

    A part of zero bytes is not sent. If a transfer waits for a step, it waits for the
    last earlier step that delivers data.
    """
    nranks = len(splits.sent_bytes)
    return schedule.share_of_transfers(
        (
            transfer
            for transfer in algorithm.sends(position, nranks=nranks, root=0)
            if splits.sent_bytes[transfer.dst]
        ),
        (
            transfer
            for transfer in algorithm.receives(position, nranks=nranks, root=0)
            if splits.received_bytes[transfer.src]
        ),
        stepwise=algorithm.stepwise,
    )


def uneven_share(
    how: schedule.Algorithm, splits: Splits, *, position: int
) -> schedule.RankSchedule:
    """Return the sends and receives of *position* in an all_to_all_v with *splits*."""
    if isinstance(how, ListedAlgorithm):
        return schedule.rank_schedule(
            how, position=position, nranks=how.nranks, root=how.root
        )
    return uneven_schedule(how, splits, position=position)


def uneven_messages(
    how: schedule.Algorithm, *, position: int, nranks: int, pair_bytes: PairBytes
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
    how: schedule.Algorithm,
    transfer: schedule.Transfer | schedule.LocalTransfer,
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
def passed_pairs(how: schedule.Algorithm, position: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs, ascending, whose data *position* forwards.

    The position is neither the source nor the destination of these pairs.
    """
    if not isinstance(how, ListedAlgorithm):
        return ()
    sends = how.sends(position, nranks=how.nranks, root=how.root)
    pairs = {pair for send in sends for pair in how.pairs(send.chunk)}
    return tuple(sorted(pair for pair in pairs if position not in pair))


def passed_bytes(
    how: schedule.Algorithm, pair_bytes: PairBytes, *, position: int
) -> tuple[int, ...]:
    """Return the bytes of each pair in ``passed_pairs``."""
    return tuple(pair_bytes(src, dst) for src, dst in passed_pairs(how, position))


def matrix_bytes(matrix: Matrix) -> PairBytes:
    """Return a function that looks up the bytes of a pair in the whole matrix."""

    def pair_bytes(src: int, dst: int) -> int:
        return matrix[src][dst]

    return pair_bytes


def splits_bytes(
    how: schedule.Algorithm, splits: Splits, passed: Sequence[int], *, position: int
) -> PairBytes:
    """Return a function that looks up the bytes of the pairs that a member handles.

    *passed* has the sizes of the member's ``passed_pairs``.
    """
    of_others = dict(zip(passed_pairs(how, position), passed, strict=True))

    def pair_bytes(src: int, dst: int) -> int:
        if src == position:
            return splits.sent_bytes[dst]
        if dst == position:
            return splits.received_bytes[src]
        return of_others[src, dst]

    return pair_bytes
