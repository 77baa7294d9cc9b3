"""Schedules: how a collective becomes transfers of chunks, step by step.

A collective is a pre- and a postcondition on chunks; an algorithm says which chunks
go from which position of the group to which other one, in which step.  A transfer
may start when everything its source received of those chunks in earlier steps is
there; nothing else orders transfers, so a rank needs no clock and no controller.  Only
two kinds wait for more: a transfer that names chunks to come ``after``, and those of a
stepwise algorithm, which wait for all that the last step before brings their source.

What is added up (``reduce``) goes through a buffer of its own, so two positions may
exchange a chunk within one step.

An ``Algorithm`` yields the transfers of *one* position.  So a rank of a group of 1,024
expands its own 1,023 transfers of an all-to-all and never the million of all ranks.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chakram.core.collectives import CollectiveOp
    from chakram.core.splits import Splits


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What one position sends another in one step of a schedule: one message.

    It carries ``chunk`` and the ``further`` ones.  ``reduce`` tells that the
    destination adds the chunks to what it has instead of storing them.  ``after`` are
    further chunks that its source waits for without sending them on.
    """

    step: int
    src: int
    dst: int
    chunk: int
    reduce: bool = False
    channel: int = 0
    further: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.src == self.dst:
            raise ValueError(f"step {self.step}: position {self.src} sends to itself")

    @property
    def chunks(self) -> tuple[int, ...]:
        """All chunks of the message."""
        return (self.chunk, *self.further)

    @property
    def awaited(self) -> tuple[int, ...]:
        """All chunks that the source waits for, if earlier steps bring them."""
        return (self.chunk, *self.further, *self.after)


class Algorithm(Protocol):
    """How one collective is done; stateless, one instance serves all sizes."""

    def __hash__(self) -> int:
        """Return a hash: algorithms are keys of caches."""

    @property
    def name(self) -> str:
        """Name in experiment files and plans, e.g. ``ring`` or ``ring(chunks=4)``."""

    @property
    def op(self) -> CollectiveOp:
        """The collective that it does."""

    @property
    def stepwise(self) -> bool:
        """Whether a step's sends wait for all that the step before brings."""

    def unfit(self, nranks: int) -> str | None:
        """Return why it cannot serve a group of *nranks* ranks, None if it can."""

    def nchunks(self, nranks: int) -> int:
        """Return how many chunks there are.

        Where every position has a part of its own (gather, scatter, all_gather,
        reduce_scatter, send_recv) the chunks are those of position 0, then those of
        position 1, and so on, the same number each.  In an all_to_all every pair of
        source and destination has its chunks, by source, then by destination.
        """

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what *position* sends, steps ascending."""

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what *position* receives, steps ascending."""

    def peers(self, position: int, *, nranks: int, root: int) -> set[tuple[int, int]]:
        """Return (channel, position) of all whom *position* sends to."""

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of one chunk.

        Together they are the buffer, exactly; all send buffers in an all_to_all and
        a send_recv.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTransfer:
    """A transfer as one of its two ranks sees it.

    ``message`` is its number among the transfers of this collective from the same
    source to the same destination on the same channel, in order of (step, chunk):
    both ends count alike.  ``needs`` are the indices of the receives that must have
    arrived before it may be sent (empty for a receive).
    """

    step: int
    peer: int
    chunk: int
    channel: int
    message: int
    needs: tuple[int, ...] = ()
    further: tuple[int, ...] = ()

    @property
    def chunks(self) -> tuple[int, ...]:
        """All chunks of the message."""
        return (self.chunk, *self.further)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSchedule:
    """What one position of a group sends and receives in one collective."""

    sends: tuple[LocalTransfer, ...]
    receives: tuple[LocalTransfer, ...]


@lru_cache(maxsize=4096)
def rank_schedule(
    algorithm: Algorithm, *, position: int, nranks: int, root: int = 0
) -> RankSchedule:
    """Return the share of *position* in a collective of *nranks* ranks."""
    return _share(
        algorithm.sends(position, nranks=nranks, root=root),
        algorithm.receives(position, nranks=nranks, root=root),
        stepwise=algorithm.stepwise,
    )


def uneven_schedule(
    algorithm: Algorithm, splits: Splits, *, position: int
) -> RankSchedule:
    """Return the share of *position* in an all_to_all_v.

    A part of no bytes is no message: what waits for a step waits for the last one
    before it that brings anything.
    """
    nranks = len(splits.sent_bytes)
    return _share(
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


def _share(
    sends: Iterator[Transfer], receives: Iterator[Transfer], *, stepwise: bool
) -> RankSchedule:
    expected = [
        LocalTransfer(
            step=transfer.step,
            peer=transfer.src,
            chunk=transfer.chunk,
            channel=transfer.channel,
            message=message,
            further=transfer.further,
        )
        for transfer, message in _numbered(receives, by_source=True)
    ]
    arrivals = _Arrivals(expected, stepwise=stepwise)
    sent = tuple(
        LocalTransfer(
            step=transfer.step,
            peer=transfer.dst,
            chunk=transfer.chunk,
            channel=transfer.channel,
            message=message,
            needs=arrivals.needed(transfer),
            further=transfer.further,
        )
        for transfer, message in _numbered(sends, by_source=False)
    )
    return RankSchedule(sends=sent, receives=tuple(expected))


class _Arrivals:
    """What one position receives, by chunk and by step."""

    __slots__ = ("_by_chunk", "_by_step", "_steps")

    def __init__(self, receives: Sequence[LocalTransfer], *, stepwise: bool) -> None:
        self._by_chunk: dict[int, list[tuple[int, int]]] = {}
        self._by_step: dict[int, list[int]] = {}
        for index, receive in enumerate(receives):
            at = (receive.step, index)
            self._by_chunk.setdefault(receive.chunk, []).append(at)
            for chunk in receive.further:
                self._by_chunk.setdefault(chunk, []).append(at)
            if stepwise:
                self._by_step.setdefault(receive.step, []).append(index)
        self._steps = sorted(self._by_step)

    def needed(self, send: Transfer) -> tuple[int, ...]:
        """Return the receives that *send* waits for, ascending."""
        before = bisect_left(self._steps, send.step)
        if not (send.further or send.after or before):
            return tuple(
                index
                for step, index in self._by_chunk.get(send.chunk, ())
                if step < send.step
            )
        found = {
            index
            for chunk in send.awaited
            for step, index in self._by_chunk.get(chunk, ())
            if step < send.step
        }
        if before:
            found.update(self._by_step[self._steps[before - 1]])
        return tuple(sorted(found))


def transfer_bytes(
    algorithm: Algorithm,
    transfer: Transfer | LocalTransfer,
    *,
    nranks: int,
    input_bytes: int,
) -> int:
    """Return the payload of one message."""
    size_bytes = algorithm.chunk_bytes(
        transfer.chunk, nranks=nranks, input_bytes=input_bytes
    )
    for chunk in transfer.further:
        size_bytes += algorithm.chunk_bytes(
            chunk, nranks=nranks, input_bytes=input_bytes
        )
    return size_bytes


def _numbered(
    transfers: Iterator[Transfer], *, by_source: bool
) -> Iterator[tuple[Transfer, int]]:
    """Number the messages of each peer and channel.

    Both ends count by step and chunk.  The order of the transfers stays that of the
    algorithm, which knows whom to begin with.
    """
    ordered = list(transfers)
    numbers = [0] * len(ordered)
    counts: dict[tuple[int, int], int] = {}
    for index in sorted(
        range(len(ordered)), key=lambda at: (ordered[at].step, ordered[at].chunk)
    ):
        transfer = ordered[index]
        key = (transfer.src if by_source else transfer.dst, transfer.channel)
        numbers[index] = counts.get(key, 0)
        counts[key] = numbers[index] + 1
    yield from zip(ordered, numbers, strict=True)


def part_bytes(total_bytes: int, *, nparts: int, part: int) -> int:
    """Return the size of one of *nparts* nearly equal parts; they sum to the total."""
    return total_bytes * (part + 1) // nparts - total_bytes * part // nparts
