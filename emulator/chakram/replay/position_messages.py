"""Messages of one position in a collective, independent of the actual ranks.

In many algorithms, all positions have the same messages relative to their own position
(``Scheduled.turns_by``). All ranks of a process then use the same `Share`, which is
created once and never modified. Only the peers and message sizes differ between ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from chakram.collectives.algorithms.base import turns_by
from chakram.collectives.schedule import (
    Algorithm,
    LocalTransfer,
    RankSchedule,
    build_share,
)
from chakram.replay.integer_map import NumberTable

if TYPE_CHECKING:
    from collections.abc import Sequence

Lane = tuple[int, int]
"""Channel and peer of messages. The peer is a position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Sends and receives in parallel lists: see ``Expansion``.

    Attributes:
        send_lanes: Lanes of the sends.
        send_lane: Lane number by send.
        send_chunks: First chunk by send.
        receive_lanes: Lanes of the receives.
        receive_lane: Lane number by receive.
        receives: Receive index by lane number << 16 | message number.
    """

    send_lanes: list[Lane]
    send_lane: list[int]
    send_messages: list[int]
    send_steps: list[int]
    send_channels: list[int]
    send_chunks: list[int]
    needs: list[int]
    first_sends: list[int]
    receive_lanes: list[Lane]
    receive_lane: list[int]
    receives: NumberTable
    receive_steps: list[int]
    receive_channels: list[int]
    dependents: list[tuple[int, ...]]


def share_of(schedule: RankSchedule) -> Share:
    """Convert a schedule to a new share."""
    sends, receives = schedule.sends, schedule.receives
    send_lanes, send_lane = _lanes(sends)
    receive_lanes, receive_lane = _lanes(receives)
    table = NumberTable()
    for index, (lane, receive) in enumerate(zip(receive_lane, receives, strict=True)):
        table.put(lane << 16 | receive.message, index)
    dependents: list[list[int]] = [[] for _ in receives]
    for index, send in enumerate(sends):
        for need in send.needs:
            dependents[need].append(index)
    return Share(
        send_lanes=send_lanes,
        send_lane=send_lane,
        send_messages=[send.message for send in sends],
        send_steps=[send.step for send in sends],
        send_channels=[send.channel for send in sends],
        send_chunks=[send.chunk for send in sends],
        needs=[len(send.needs) for send in sends],
        first_sends=[index for index, send in enumerate(sends) if not send.needs],
        receive_lanes=receive_lanes,
        receive_lane=receive_lane,
        receives=table,
        receive_steps=[receive.step for receive in receives],
        receive_channels=[receive.channel for receive in receives],
        dependents=[tuple(indices) for indices in dependents],
    )


def _lanes(transfers: Sequence[LocalTransfer]) -> tuple[list[Lane], list[int]]:
    numbers: dict[Lane, int] = {}
    of_transfer = [
        numbers.setdefault((each.channel, each.peer), len(numbers))
        for each in transfers
    ]
    return list(numbers), of_transfer


@lru_cache(maxsize=32)
def rotated_share(how: Algorithm, *, nranks: int, root: int) -> Share | None:
    """Return one share for all positions, with peers relative to each position.

    Return None if the messages of positions differ by more than a rotation.
    """
    turn = turns_by(how, nranks)
    if turn is None:
        return None
    schedule = build_share(how, position=0, nranks=nranks, root=root)
    transfers = (*schedule.sends, *schedule.receives)
    # Messages of a step are numbered in the order of their chunks. This order is the
    # same at all positions only if the chunks are in one part.
    parts: dict[tuple[int, int, int], int] = {}
    for each in transfers:
        key = (each.step, each.channel, each.peer)
        part = each.chunk // turn
        if each.further or parts.setdefault(key, part) != part:
            return None
    return share_of(schedule)


@lru_cache(maxsize=32)
def _chunk_sizes(how: Algorithm, *, nranks: int, input_bytes: int) -> tuple[int, ...]:
    return tuple(
        how.chunk_bytes(chunk, nranks=nranks, input_bytes=input_bytes)
        for chunk in range(nranks * (turns_by(how, nranks) or 0))
    )


def rotated_sizes(
    share: Share, how: Algorithm, *, position: int, nranks: int, input_bytes: int
) -> list[int]:
    """Return the sizes of a position's sends in a share that all positions use."""
    sizes = _chunk_sizes(how, nranks=nranks, input_bytes=input_bytes)
    ahead = position * (turns_by(how, nranks) or 0)
    count = len(sizes)
    return _same(tuple([sizes[(chunk + ahead) % count] for chunk in share.send_chunks]))


@lru_cache(maxsize=64)
def _same(values: tuple[int, ...]) -> list[int]:
    """Return one list object for all equal values, as long as it is cached."""
    return list(values)
