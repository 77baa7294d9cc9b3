"""Schedules: the transfers of a collective's chunks, step by step.

A precondition and a postcondition on chunks define a collective. An algorithm defines
which chunks move between which positions of the group in each step.

A transfer may start once its source has completed every receive of those chunks in
earlier steps. Nothing else orders transfers, so a rank needs no clock and no
controller. There are two exceptions:

- a transfer with ``after`` also waits for the chunks listed there
- in a stepwise algorithm, a transfer waits for all receives of the latest earlier step

A reduction (``reduce``) goes through a separate receive buffer, so two positions may
exchange a chunk within one step.

An ``Algorithm`` yields the transfers of *one* position. A rank in a group of 1,024
therefore expands its own 1,023 transfers of an all-to-all, not the million transfers of
all ranks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from chakram.collectives.ops import CollectiveOp


class Transfer(NamedTuple):
    """One message that one position sends to another in one step of a schedule.

    Transfers are tuples because a rank creates thousands of them when a collective
    starts.

    A transfer carries ``chunk`` and the chunks in ``further``. With ``reduce``, the
    destination adds the chunks to its own data instead of storing them. The source also
    waits for the chunks in ``after``, but does not send them. If the chunks are
    neighbors, ``further`` is a range to save memory: a message in a group of n ranks
    may carry n / 2 chunks.
    """

    step: int
    src: int
    dst: int
    chunk: int
    reduce: bool = False
    channel: int = 0
    further: tuple[int, ...] | range = ()
    after: tuple[int, ...] = ()

    @property
    def chunks(self) -> tuple[int, ...]:
        """All chunks of the message."""
        return (self.chunk, *self.further)

    @property
    def awaited(self) -> tuple[int, ...]:
        """All chunks that the source waits for if earlier steps deliver them."""
        return (self.chunk, *self.further, *self.after)


class Sending(Protocol):
    """The part of an algorithm that determines message sizes."""

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the sends of *position* in ascending order of step."""

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of one chunk in bytes.

        The sizes of all chunks sum exactly to the size of the buffer. In an all_to_all
        and a send_recv, they sum to the size of all send buffers.
        """

    def span_bytes(self, begin: int, end: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of neighboring chunks, *begin* to *end* - 1."""


class Algorithm(Sending, Protocol):
    """A stateless algorithm for one collective. One instance serves all group sizes."""

    def __hash__(self) -> int:
        """Return a hash, because algorithms are cache keys."""

    @property
    def name(self) -> str:
        """Name in experiment files and plans, e.g. ``ring`` or ``ring(chunks=4)``."""

    @property
    def op(self) -> CollectiveOp:
        """The collective that the algorithm implements."""

    @property
    def stepwise(self) -> bool:
        """Whether the sends of a step wait for all receives of the previous step."""

    def unfit(self, nranks: int) -> str | None:
        """Return why the algorithm cannot serve *nranks* ranks, or None if it can."""

    def nchunks(self, nranks: int) -> int:
        """Return the number of chunks.

        If every position has its own part, the chunks of position 0 come first, then
        those of position 1, and so on. Each position has the same number. This applies
        to gather, scatter, all_gather, reduce_scatter and send_recv. In an all_to_all,
        every pair of source and destination has its own chunks, ordered by source, then
        by destination.
        """

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the receives of *position* in ascending order of step."""

    def peers(self, position: int, *, nranks: int, root: int) -> set[tuple[int, int]]:
        """Return (channel, position) of every destination of *position*."""

    def sent_sizes(
        self, position: int, *, nranks: int, root: int, input_bytes: int
    ) -> Mapping[int, int]:
        """Return the number of messages that *position* sends, by size."""


class LocalTransfer(NamedTuple):
    """A transfer from the viewpoint of one of its two ranks.

    ``message`` is the transfer's index, in order of (step, chunk), among the transfers
    of this collective with the same source, destination and channel. Both ends compute
    the same index. ``needs`` has the indices of the receives that must complete before
    the send. It is empty for a receive.
    """

    step: int
    peer: int
    chunk: int
    channel: int
    message: int
    needs: tuple[int, ...] = ()
    further: tuple[int, ...] | range = ()

    @property
    def chunks(self) -> tuple[int, ...]:
        """All chunks of the message."""
        return (self.chunk, *self.further)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSchedule:
    """The sends and receives of one position in one collective: its share."""

    sends: tuple[LocalTransfer, ...]
    receives: tuple[LocalTransfer, ...]

    @property
    def transfers(self) -> int:
        """Number of messages that the position sends and receives."""
        return len(self.sends) + len(self.receives)


CACHED_TRANSFERS = 1 << 18
"""Maximum total transfers of the cached shares, about 40 MiB."""


class ShareCache:
    """A least-recently-used cache of shares, limited by their total transfers.

    Most shares are small, so thousands fit. The cache evicts the shares of large groups
    soon.

    Args:
        limit: Maximum total transfers of the cached shares. The cache always keeps the
            latest share, regardless of its size.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._shares: dict[tuple[Algorithm, int, int, int], RankSchedule] = {}
        self.transfers = 0

    def share(
        self, algorithm: Algorithm, *, position: int, nranks: int, root: int
    ) -> RankSchedule:
        """Return the share of *position*, from the cache if possible."""
        key = (algorithm, position, nranks, root)
        share = self._shares.pop(key, None)
        if share is None:
            share = build_share(algorithm, position=position, nranks=nranks, root=root)
            # Add 1, because a share without transfers also takes memory.
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
    """Compute the share of *position* without the cache."""
    return share_of_transfers(
        algorithm.sends(position, nranks=nranks, root=root),
        algorithm.receives(position, nranks=nranks, root=root),
        stepwise=algorithm.stepwise,
    )


def rank_schedule(
    algorithm: Algorithm, *, position: int, nranks: int, root: int = 0
) -> RankSchedule:
    """Return the share of *position* in a collective of *nranks* ranks."""
    return _SHARES.share(algorithm, position=position, nranks=nranks, root=root)


def share_of_transfers(
    sends: Iterator[Transfer], receives: Iterator[Transfer], *, stepwise: bool
) -> RankSchedule:
    """Return the share of one position from its sends and receives."""
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
    """The receives of one position, indexed by chunk and by step."""

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
        """Return the indices of the receives that *send* waits for, ascending."""
        last = send.step
        before = bisect_left(self._steps, last) if self._steps else 0
        if not (send.further or send.after or before):
            arrivals = self._by_chunk.get(send.chunk, ())
            # Use a list, because a generator would double the time for large groups.
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
    """Return the payload bytes of one message."""
    further = transfer.further
    if isinstance(further, range):
        return algorithm.span_bytes(
            transfer.chunk, further.stop, nranks=nranks, input_bytes=input_bytes
        )
    size_bytes = algorithm.chunk_bytes(
        transfer.chunk, nranks=nranks, input_bytes=input_bytes
    )
    for chunk in further:
        size_bytes += algorithm.chunk_bytes(
            chunk, nranks=nranks, input_bytes=input_bytes
        )
    return size_bytes


def counted_sizes(
    algorithm: Sending, position: int, *, nranks: int, root: int, input_bytes: int
) -> Mapping[int, int]:
    """Count the messages that *position* sends, by size, by visiting every transfer."""
    counts: Counter[int] = Counter()
    sizes: dict[int, int] = {}
    for transfer in algorithm.sends(position, nranks=nranks, root=root):
        # A position in a group of a thousand ranks may send one chunk a thousand times.
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

    The numbers are in order of step and chunk, so both ends agree. The transfers keep
    the algorithm's order, so the algorithm determines the first peer.
    """
    ordered = list(transfers)
    numbers: list[int] = []
    # By peer and channel: the count so far, and the last step and chunk.
    seen: dict[tuple[int, int], tuple[int, int, int]] = {}
    for step, src, dst, chunk, _, channel, _, _ in ordered:
        key = (src if by_source else dst, channel)
        count, last_step, last_chunk = seen.get(key, _NONE_SEEN)
        if step < last_step or (step == last_step and chunk < last_chunk):
            # Rare: the algorithm's order is not ascending by step and chunk.
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
    """Return the size of one of *nparts* nearly equal parts, which sum to the total."""
    return total_bytes * (part + 1) // nparts - total_bytes * part // nparts
