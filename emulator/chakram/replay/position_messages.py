"""What one position of a group does in a collective, without the names of its peers.

In many algorithms all positions do the same, each counted from itself
(``Scheduled.turns_by``): these have one share, made once, which all ranks of the
process read and none changes.  Only peers and sizes of messages are a rank's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from chakram.collectives.algorithms.base import turns_by
from chakram.collectives.schedule import build_share
from chakram.replay.integer_map import NumberTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.collectives.schedule import (
        Algorithm,
        LocalTransfer,
        RankSchedule,
    )

Lane = tuple[int, int]
"""Channel and peer of messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Sends and receives in parallel lists; see ``Expansion``.

    Attributes:
        send_lanes: Whom anything is sent to.
        send_lane: By send, the number of its lane.
        send_chunks: By send, its first chunk.
        receive_lanes: Whom anything comes from.
        receive_lane: By receive, the number of its lane.
        receives: By number of the lane << 16 | number of the message: which receive.
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
    """Return a schedule as a share of its own."""
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
def turned_share(how: Algorithm, *, nranks: int, root: int) -> Share | None:
    """Return the share of position 0 where it is that of all, peers counted from it.

    None: positions differ by more.
    """
    turn = turns_by(how, nranks)
    if turn is None:
        return None
    schedule = build_share(how, position=0, nranks=nranks, root=root)
    transfers = (*schedule.sends, *schedule.receives)
    # Messages of a step are numbered by their chunks: in the same order at all
    # positions if those are of one part.
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


def turned_sizes(
    share: Share, how: Algorithm, *, position: int, nranks: int, input_bytes: int
) -> list[int]:
    """Return the sizes of what a position sends, by a share that is that of all."""
    sizes = _chunk_sizes(how, nranks=nranks, input_bytes=input_bytes)
    ahead = position * (turns_by(how, nranks) or 0)
    count = len(sizes)
    return _same(tuple([sizes[(chunk + ahead) % count] for chunk in share.send_chunks]))


@lru_cache(maxsize=64)
def _same(values: tuple[int, ...]) -> list[int]:
    """Return a list that is the same one for equal values, as long as it is kept."""
    return list(values)
