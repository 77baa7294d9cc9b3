# cython: language_level=3, annotation_typing=False
"""Expands an operation into the messages of one rank when it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.collectives.algorithms import algorithm_of
from chakram.collectives.groups import POINT_TO_POINT
from chakram.collectives.schedule import (
    LocalTransfer,
    RankSchedule,
    rank_schedule,
    transfer_bytes,
)
from chakram.collectives.uneven_messages import (
    splits_bytes,
    uneven_message_bytes,
    uneven_share,
)
from chakram.foundation.errors import PlanError
from chakram.program.columns import COLLECTIVE, COMPUTE, RECEIVE
from chakram.replay.integer_map import NumberTable
from chakram.replay.position_messages import rotated_share, rotated_sizes, share_of
from chakram.roce.constants import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chakram.plan.plan import RankPlan
    from chakram.replay.position_messages import Share
    from chakram.replay.rank_queue_pair import Pair

__all__ = ["CACHED_MESSAGES", "MESSAGES_PER_PAIR", "Expander", "Expansion"]

MESSAGES_PER_PAIR = 1 << 16
"""Maximum number of messages from one rank to another in one collective.

The immediate data contains the message number.
"""

_ONLY_MESSAGE = LocalTransfer(step=0, peer=0, chunk=0, channel=0, message=0)
"""The message of a point-to-point operation."""
_ONLY_SEND = share_of(RankSchedule(sends=(_ONLY_MESSAGE,), receives=()))
_ONLY_RECEIVE = share_of(RankSchedule(sends=(), receives=(_ONLY_MESSAGE,)))

CACHED_MESSAGES = 1 << 16
"""Maximum number of messages in all cached expansions of a rank: about 10 MiB."""


class Expansion:
    """One rank's messages in an operation, ready to post and to match.

    Parallel lists describe the sends: queue pair, message number, size, step, channel,
    rank number of the peer, and number of arrivals that each send needs. Further lists
    describe the receives: step, channel, rank number of the peer, and the sends that
    each receive releases. ``first_sends`` lists the sends that need no arrival. Ranks
    may share these lists, so do not modify them.
    """

    __slots__ = (
        "_lanes",
        "_receives",
        "dependents",
        "first_sends",
        "needs",
        "receive_channels",
        "receive_peers",
        "receive_steps",
        "send_channels",
        "send_messages",
        "send_pairs",
        "send_peers",
        "send_sizes",
        "send_steps",
    )

    def __init__(self) -> None:
        self.send_pairs: list[Pair] = []
        self.send_messages: list[int] = []
        self.send_sizes: list[int] = []
        self.send_steps: list[int] = []
        self.send_channels: list[int] = []
        self.send_peers: list[int] = []
        self.needs: list[int] = []
        self.first_sends: list[int] = []
        # Lane number by place of the queue pair.
        self._lanes = NumberTable()
        # Receive index by lane number << 16 | message number.
        self._receives = NumberTable()
        self.receive_steps: list[int] = []
        self.receive_channels: list[int] = []
        self.receive_peers: list[int] = []
        self.dependents: list[tuple[int, ...]] = []

    def messages(self) -> int:
        """Return the number of messages that the rank sends and receives."""
        return len(self.send_pairs) + len(self.receive_steps)

    def receive(self, pair: Pair, message: int) -> int:
        """Return the index of the receive that a message belongs to, or -1."""
        lane = self._lanes.find(pair.place)
        return -1 if lane < 0 else self._receives.find(lane << 16 | message)


class Expander:
    """Creates expansions for one rank and caches them, because operations repeat.

    Args:
        plan: The rank with its program and queue pairs.
        pairs: The queue pairs by QPN, as used in the replay.
        rank_numbers: Plan number of every (job, rank).
        cached_messages: Maximum total number of messages in cached expansions.

    Raises:
        PlanError: If the program needs something that the plan lacks, or sends a
            message that no queue pair can carry.
    """

    __slots__ = (
        "_cache_limit",
        "_cached_messages",
        "_expansions",
        "_job",
        "_numbers",
        "_pair_of",
        "_program",
        "_row_of",
    )

    def __init__(
        self,
        *,
        plan: RankPlan,
        pairs: Mapping[int, Pair],
        rank_numbers: Mapping[tuple[str, int], int],
        cached_messages: int = CACHED_MESSAGES,
    ) -> None:
        self._program = plan.program
        self._job = plan.program.job
        self._numbers = rank_numbers
        self._pair_of = {
            (pair.group, pair.channel, pair.peer_rank): pairs[pair.qpn]
            for pair in plan.queue_pairs
            if pair.index == 0
        }
        # For each operation, the first operation with the same messages, which is the
        # cache key.
        self._row_of = self._first_alike()
        self._expansions: dict[int, Expansion] = {}
        self._cached_messages = 0
        self._cache_limit = cached_messages
        # Detect missing queue pairs here rather than in the middle of a run.
        for index, first in enumerate(self._row_of):
            if index == first and plan.program.columns.kinds[index] != COMPUTE:
                self.expansion(index)

    def _first_alike(self) -> list[int]:
        columns = self._program.columns
        splits = self._program.splits
        first: dict[tuple[object, ...], int] = {}
        return [
            first.setdefault(
                (
                    kind,
                    columns.targets[row],
                    # The size of a received message follows from its packets.
                    0 if kind == RECEIVE else columns.amounts[row],
                    columns.algorithms[row],
                    columns.details[row] if kind == COLLECTIVE else 0,
                    None if (place := columns.split(row)) is None else splits[place],
                ),
                row,
            )
            for row, kind in enumerate(columns.kinds)
        ]

    def expansion(self, index: int) -> Expansion:
        """Return this rank's messages in a communication operation."""
        row = self._row_of[index]
        expansion = self._expansions.get(row)
        if expansion is None:
            expansion = self._expand(row)
            self._keep(row, expansion)
        return expansion

    def _expand(self, row: int) -> Expansion:
        columns = self._program.columns
        kind = columns.kinds[row]
        if kind == COLLECTIVE:
            return self._collective(row)
        is_receive = kind == RECEIVE
        return self._bound(
            _ONLY_RECEIVE if is_receive else _ONLY_SEND,
            [] if is_receive else [columns.amounts[row]],
            POINT_TO_POINT,
            (self._program.peers[columns.targets[row]],),
        )

    def _keep(self, row: int, expansion: Expansion) -> None:
        """Cache an expansion, and evict the oldest expansions if the cache is full.

        An operation that still uses an evicted expansion keeps a reference to it.
        """
        expansions = self._expansions
        self._cached_messages += expansion.messages()
        while self._cached_messages > self._cache_limit and expansions:
            oldest = expansions.pop(next(iter(expansions)))
            self._cached_messages -= oldest.messages()
        expansions[row] = expansion

    def _collective(self, row: int) -> Expansion:
        program, columns = self._program, self._program.columns
        group = program.groups[columns.targets[row]]
        ranks = group.ranks
        nranks, root = len(ranks), columns.details[row]
        op, algorithm = columns.all_algorithms[columns.algorithms[row]]
        how = algorithm_of(
            op, algorithm, nranks=nranks, root=root, listed=program.algorithms
        )
        position = group.position(program.rank)
        place, input_bytes = columns.split(row), columns.amounts[row]
        if place is None:
            share = rotated_share(how, nranks=nranks, root=root)
            if share is not None:
                sizes = rotated_sizes(
                    share,
                    how,
                    position=position,
                    nranks=nranks,
                    input_bytes=input_bytes,
                )
                ahead = (*ranks[position:], *ranks[:position])
                return self._bound(share, sizes, group.name, ahead)
            schedule = rank_schedule(how, position=position, nranks=nranks, root=root)
            sizes = [
                transfer_bytes(how, send, nranks=nranks, input_bytes=input_bytes)
                for send in schedule.sends
            ]
        else:
            splits, passed_bytes = program.splits[place]
            pair_bytes = splits_bytes(how, splits, passed_bytes, position=position)
            schedule = uneven_share(how, splits, position=position)
            sizes = [
                uneven_message_bytes(
                    how, send, src=position, dst=send.peer, pair_bytes=pair_bytes
                )
                for send in schedule.sends
            ]
        return self._bound(share_of(schedule), sizes, group.name, ranks)

    def _bound(
        self, share: Share, sizes: list[int], group: str, ranks: Sequence[int]
    ) -> Expansion:
        """Bind a share to the queue pairs of this rank, with the peers in *ranks*."""
        expansion = Expansion()
        numbers: list[int] = []
        for channel, position in share.receive_lanes:
            peer = ranks[position]
            pair = self._pair(group, channel, peer)
            expansion._lanes.put(pair.place, len(numbers))
            numbers.append(self._number(peer))
        expansion.receive_peers = [numbers[lane] for lane in share.receive_lane]
        expansion.receive_steps = share.receive_steps
        expansion.receive_channels = share.receive_channels
        expansion.dependents = share.dependents
        expansion._receives = share.receives
        pairs, numbers = [], []
        for channel, position in share.send_lanes:
            peer = ranks[position]
            pairs.append(self._pair(group, channel, peer))
            numbers.append(self._number(peer))
        self._check_sends(share, sizes, group, ranks)
        expansion.send_pairs = [pairs[lane] for lane in share.send_lane]
        expansion.send_peers = [numbers[lane] for lane in share.send_lane]
        expansion.send_messages = share.send_messages
        expansion.send_sizes = sizes
        expansion.send_steps = share.send_steps
        expansion.send_channels = share.send_channels
        expansion.needs = share.needs
        expansion.first_sends = share.first_sends
        return expansion

    def _check_sends(
        self, share: Share, sizes: list[int], group: str, ranks: Sequence[int]
    ) -> None:
        """Refuse messages that no queue pair can carry."""
        if not sizes:
            return
        longest, last = max(sizes), max(share.send_messages)
        if last >= MESSAGES_PER_PAIR:
            _, position = share.send_lanes[
                share.send_lane[share.send_messages.index(MESSAGES_PER_PAIR)]
            ]
            raise PlanError(
                f"job {self._job} rank {self._program.rank} group {group!r}",
                f"has more than {MESSAGES_PER_PAIR} messages to rank {ranks[position]} "
                "in one collective",
                "choose another algorithm",
            )
        if longest > MAX_MESSAGE_BYTES:
            _, position = share.send_lanes[share.send_lane[sizes.index(longest)]]
            raise PlanError(
                f"job {self._job} rank {self._program.rank} group {group!r}",
                f"has a message of {longest} bytes to rank {ranks[position]}, but a "
                f"queue pair carries at most {MAX_MESSAGE_BYTES}",
                "set size_scale, or choose another algorithm",
            )

    def _number(self, peer: int) -> int:
        number = self._numbers.get((self._job, peer))
        if number is None:
            raise PlanError(
                f"job {self._job} rank {self._program.rank}",
                f"the plan has no number for its peer, rank {peer}",
                "use the plan of this program",
            )
        return number

    def _pair(self, group: str, channel: int, peer: int) -> Pair:
        pair = self._pair_of.get((group, channel, peer))
        if pair is None:
            raise PlanError(
                f"job {self._job} rank {self._program.rank}",
                f"has no queue pair to rank {peer} for group {group!r}"
                + (f" on channel {channel}" if channel else ""),
                "use the plan of this program",
            )
        return pair
