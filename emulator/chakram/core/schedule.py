"""Schedules: how a collective becomes transfers of chunks, step by step.

A collective is a pre- and a postcondition on chunks; an algorithm says which chunk
goes from which position of the group to which other one, in which step.  A transfer
may start when everything its source received of that chunk in earlier steps is
there; nothing else orders transfers, so a rank needs no clock and no controller.

An ``Algorithm`` yields the transfers of *one* position.  So a rank of a group of 1,024
expands its own 1,023 transfers of an all-to-all and never the million of all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chakram.core.collectives import CollectiveOp


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One chunk sent from one position to another in one step of a schedule.

    ``reduce`` tells that the destination adds the chunk to what it has instead of
    storing it.
    """

    step: int
    src: int
    dst: int
    chunk: int
    reduce: bool = False
    channel: int = 0

    def __post_init__(self) -> None:
        if self.src == self.dst:
            raise ValueError(f"step {self.step}: position {self.src} sends to itself")


class Algorithm(Protocol):
    """How one collective is done; stateless, one instance serves all sizes."""

    def __hash__(self) -> int:
        """Return a hash: algorithms are keys of caches."""

    @property
    def name(self) -> str:
        """Name in experiment files, e.g. ``ring``."""

    @property
    def op(self) -> CollectiveOp:
        """The collective that it does."""

    def nchunks(self, nranks: int) -> int:
        """Return how many chunks the buffer is divided into."""

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what *position* sends, steps ascending."""

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what *position* receives, steps ascending."""

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of one chunk; together they are the buffer, exactly."""


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
    receives = [
        LocalTransfer(
            step=transfer.step,
            peer=transfer.src,
            chunk=transfer.chunk,
            channel=transfer.channel,
            message=message,
        )
        for transfer, message in _numbered(
            algorithm.receives(position, nranks=nranks, root=root), by_source=True
        )
    ]
    arrivals: dict[int, list[tuple[int, int]]] = {}
    for index, receive in enumerate(receives):
        arrivals.setdefault(receive.chunk, []).append((receive.step, index))
    sends = tuple(
        LocalTransfer(
            step=transfer.step,
            peer=transfer.dst,
            chunk=transfer.chunk,
            channel=transfer.channel,
            message=message,
            needs=tuple(
                index
                for step, index in arrivals.get(transfer.chunk, ())
                if step < transfer.step
            ),
        )
        for transfer, message in _numbered(
            algorithm.sends(position, nranks=nranks, root=root), by_source=False
        )
    )
    return RankSchedule(sends=sends, receives=tuple(receives))


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
