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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from chakram.collectives.ops import CollectiveOp
    from chakram.collectives.split_sizes import Splits


class Transfer(NamedTuple):
    """What one position sends another in one step of a schedule: one message.

    A tuple, since a rank makes thousands of them when a collective starts.

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

    @property
    def chunks(self) -> tuple[int, ...]:
        """All chunks of the message."""
        return (self.chunk, *self.further)

    @property
    def awaited(self) -> tuple[int, ...]:
        """All chunks that the source waits for, if earlier steps bring them."""
        return (self.chunk, *self.further, *self.after)


class Sending(Protocol):
    """What sizes of messages follow from."""

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what *position* sends, steps ascending."""

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of one chunk.

        Together they are the buffer, exactly; all send buffers in an all_to_all and
        a send_recv.
        """


class Algorithm(Sending, Protocol):
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

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what *position* receives, steps ascending."""

    def peers(self, position: int, *, nranks: int, root: int) -> set[tuple[int, int]]:
        """Return (channel, position) of all whom *position* sends to."""

    def sent_sizes(
        self, position: int, *, nranks: int, root: int, input_bytes: int
    ) -> Mapping[int, int]:
        """Return how many messages of each size *position* sends."""


class LocalTransfer(NamedTuple):
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

    @property
    def transfers(self) -> int:
        """How many messages it sends and receives."""
        return len(self.sends) + len(self.receives)


CACHED_TRANSFERS = 1 << 18
"""Transfers of all shares that are kept: some 40 MiB."""


class ShareCache:
    """The shares that were asked for last, as many as their transfers allow.

    Most are small, so that thousands fit; those of large groups are soon let go.

    Args:
        limit: How many transfers the shares that are kept may have; the latest share
            is kept whatever it has.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._shares: dict[tuple[Algorithm, int, int, int], RankSchedule] = {}
        self.transfers = 0

    def share(
        self, algorithm: Algorithm, *, position: int, nranks: int, root: int
    ) -> RankSchedule:
        """Return the share of *position*, one that is kept or a new one."""
        key = (algorithm, position, nranks, root)
        share = self._shares.pop(key, None)
        if share is None:
            share = build_share(algorithm, position=position, nranks=nranks, root=root)
            # One more, for a share without any takes room, too.
            self.transfers += share.transfers + 1
        self._shares[key] = share
        while self.transfers > self._limit and len(self._shares) > 1:
            oldest = self._shares.pop(next(iter(self._shares)))
            self.transfers -= oldest.transfers + 1
        return share


_SHARES = ShareCache(CACHED_TRANSFERS)


def build_share(
    algorithm: Algorithm, *, position: int, nranks: int, root: int
) -> RankSchedule:
    """Return the share of *position*, made anew: nothing of it is kept."""
    return _share(
        algorithm.sends(position, nranks=nranks, root=root),
        algorithm.receives(position, nranks=nranks, root=root),
        stepwise=algorithm.stepwise,
    )


def rank_schedule(
    algorithm: Algorithm, *, position: int, nranks: int, root: int = 0
) -> RankSchedule:
    """Return the share of *position* in a collective of *nranks* ranks."""
    return _SHARES.share(algorithm, position=position, nranks=nranks, root=root)


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
        LocalTransfer(step, src, chunk, channel, message, (), further)
        for (step, src, _, chunk, _, channel, further, _), message in _numbered(
            receives, by_source=True
        )
    ]
    arrivals = _Arrivals(expected, stepwise=stepwise)
    sent = [
        LocalTransfer(
            transfer.step,
            transfer.dst,
            transfer.chunk,
            transfer.channel,
            message,
            arrivals.needed(transfer),
            transfer.further,
        )
        for transfer, message in _numbered(sends, by_source=False)
    ]
    return RankSchedule(sends=tuple(sent), receives=tuple(expected))


class _Arrivals:
    """What one position receives, by chunk and by step."""

    __slots__ = ("_by_chunk", "_by_step", "_steps")

    def __init__(self, receives: Sequence[LocalTransfer], *, stepwise: bool) -> None:
        self._by_chunk: dict[int, list[tuple[int, int]]] = {}
        self._by_step: dict[int, list[int]] = {}
        by_chunk = self._by_chunk
        for index, (step, _, first, _, _, _, further) in enumerate(receives):
            at = (step, index)
            if first in by_chunk:
                by_chunk[first].append(at)
            else:
                by_chunk[first] = [at]
            for chunk in further:
                by_chunk.setdefault(chunk, []).append(at)
            if stepwise:
                self._by_step.setdefault(step, []).append(index)
        self._steps = sorted(self._by_step)

    def needed(self, send: Transfer) -> tuple[int, ...]:
        """Return the receives that *send* waits for, ascending."""
        last = send.step
        before = bisect_left(self._steps, last) if self._steps else 0
        if not (send.further or send.after or before):
            arrivals = self._by_chunk.get(send.chunk, ())
            # A list first: a thousand small generators cost as much as all the rest.
            return tuple([index for step, index in arrivals if step < last])
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
    algorithm: Sending,
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


def counted_sizes(
    algorithm: Sending, position: int, *, nranks: int, root: int, input_bytes: int
) -> Mapping[int, int]:
    """Return how many messages of each size *position* sends, one after the other."""
    counts: Counter[int] = Counter()
    sizes: dict[int, int] = {}
    for transfer in algorithm.sends(position, nranks=nranks, root=root):
        # A position of a group of a thousand may send one chunk a thousand times.
        size = sizes.get(transfer.chunk) if not transfer.further else None
        if size is None:
            size = transfer_bytes(
                algorithm, transfer, nranks=nranks, input_bytes=input_bytes
            )
            if not transfer.further:
                sizes[transfer.chunk] = size
        counts[size] += 1
    return counts


_NONE_SEEN = (0, 0, -1)


def _numbered(
    transfers: Iterator[Transfer], *, by_source: bool
) -> Iterator[tuple[Transfer, int]]:
    """Number the messages of each peer and channel.

    Both ends count by step and chunk.  The order of the transfers stays that of the
    algorithm, which knows whom to begin with.
    """
    ordered = list(transfers)
    numbers: list[int] = []
    # By peer and channel: how many so far, and step and chunk of the last.
    seen: dict[tuple[int, int], tuple[int, int, int]] = {}
    for step, src, dst, chunk, _, channel, _, _ in ordered:
        key = (src if by_source else dst, channel)
        count, last_step, last_chunk = seen.get(key, _NONE_SEEN)
        if step < last_step or (step == last_step and chunk < last_chunk):
            # Rare: an algorithm begins with another one than the lowest.
            return zip(
                ordered, _numbers_by_step(ordered, by_source=by_source), strict=True
            )
        numbers.append(count)
        seen[key] = (count + 1, step, chunk)
    return zip(ordered, numbers, strict=True)


def _numbers_by_step(ordered: Sequence[Transfer], *, by_source: bool) -> list[int]:
    numbers = [0] * len(ordered)
    counts: dict[tuple[int, int], int] = {}
    for index in sorted(
        range(len(ordered)), key=lambda at: (ordered[at].step, ordered[at].chunk)
    ):
        transfer = ordered[index]
        key = (transfer.src if by_source else transfer.dst, transfer.channel)
        numbers[index] = counts.get(key, 0)
        counts[key] = numbers[index] + 1
    return numbers


def part_bytes(total_bytes: int, *, nparts: int, part: int) -> int:
    """Return the size of one of *nparts* nearly equal parts; they sum to the total."""
    return total_bytes * (part + 1) // nparts - total_bytes * part // nparts
