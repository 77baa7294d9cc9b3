# cython: language_level=3, annotation_typing=False
"""Expands an operation into one rank's messages, when it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.collectives.algorithms import algorithm_of
from chakram.collectives.schedule import (
    LocalTransfer,
    rank_schedule,
    transfer_bytes,
)
from chakram.collectives.uneven import splits_bytes, uneven_message_bytes, uneven_share
from chakram.errors import PlanError
from chakram.program.columns import COLLECTIVE, COMPUTE, RECEIVE
from chakram.program.operations import POINT_TO_POINT
from chakram.replay.numbers import NumberTable
from chakram.roce.constants import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chakram.plan.plan import RankPlan
    from chakram.replay.pairs import Pair

__all__ = ["CACHED_MESSAGES", "MESSAGES_PER_PAIR", "Expander", "Expansion"]

MESSAGES_PER_PAIR = 1 << 16
"""Messages of one collective from one rank to one other that immediates can name."""

_ONLY_MESSAGE = LocalTransfer(step=0, peer=0, chunk=0, channel=0, message=0)
"""The message of a point-to-point operation."""

CACHED_MESSAGES = 1 << 16
"""Messages of all cached expansions of a rank: about 10 MiB."""


class Expansion:
    """One rank's messages of one kind of operation, ready to post and to match.

    Parallel lists over the sends: queue pair, number, size, step, channel, rank number
    of the peer, how many arrivals each needs; over the receives: step, channel, rank
    number of the peer, and which sends each one releases.  ``first_sends`` need no
    arrival.
    """

    __slots__ = (
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
        # By place of the queue pair << 16 | number of the message.
        self._receives = NumberTable()
        self.receive_steps: list[int] = []
        self.receive_channels: list[int] = []
        self.receive_peers: list[int] = []
        self.dependents: list[tuple[int, ...]] = []

    def messages(self) -> int:
        """Return how many messages the rank sends and receives."""
        return len(self.send_pairs) + len(self.receive_steps)

    def receive(self, pair: Pair, message: int) -> int:
        """Return which receive a message of a queue pair is; -1: none."""
        return self._receives.find(pair.place << 16 | message)

    def add_receive(
        self, pair: Pair, message: int, *, step: int, channel: int, peer: int
    ) -> None:
        """Expect one message more, which no send waits for."""
        self._receives.put(pair.place << 16 | message, len(self.receive_steps))
        self.receive_steps.append(step)
        self.receive_channels.append(channel)
        self.receive_peers.append(peer)
        self.dependents.append(())


class Expander:
    """Makes expansions for one rank and keeps the last ones, which tend to come again.

    Args:
        plan: The rank with its program and queue pairs.
        pairs: These by QPN, as replay sees them.
        rank_numbers: Number in the plan of every (job, rank).
        cached_messages: How many messages the expansions that are kept may have.

    Raises:
        PlanError: If the program needs something that the plan does not have, or sends
            what no queue pair can carry.
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
        # By operation, the first one with the same messages: what it is known by.
        self._row_of = self._first_alike()
        self._expansions: dict[int, Expansion] = {}
        self._cached_messages = 0
        self._cache_limit = cached_messages
        # What is missing is found now rather than in the middle of a run.
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
                    # The size of a message that arrives says its packets.
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
        """Return this rank's messages of one operation, which is no computation."""
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
        expansion = Expansion()
        peer = self._program.peers[columns.targets[row]]
        if kind == RECEIVE:
            self._add_receive(expansion, _ONLY_MESSAGE, POINT_TO_POINT, peer)
        else:
            self._add_send(
                expansion, _ONLY_MESSAGE, POINT_TO_POINT, peer, columns.amounts[row]
            )
        return expansion

    def _keep(self, row: int, expansion: Expansion) -> None:
        """Cache an expansion, at the expense of the oldest ones.

        Whoever still uses one of those holds it.
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
        place, splits, sizes = columns.split(row), None, None
        if place is not None:
            splits, passed_bytes = program.splits[place]
            sizes = splits_bytes(how, splits, passed_bytes, position=position)
        schedule = (
            rank_schedule(how, position=position, nranks=nranks, root=root)
            if splits is None
            else uneven_share(how, splits, position=position)
        )
        expansion = Expansion()
        for receive in schedule.receives:
            self._add_receive(expansion, receive, group.name, ranks[receive.peer])
        dependents: list[list[int]] = [[] for _ in schedule.receives]
        for index, send in enumerate(schedule.sends):
            size_bytes = (
                transfer_bytes(
                    how, send, nranks=nranks, input_bytes=columns.amounts[row]
                )
                if sizes is None
                else uneven_message_bytes(
                    how, send, src=position, dst=send.peer, pair_bytes=sizes
                )
            )
            self._add_send(expansion, send, group.name, ranks[send.peer], size_bytes)
            for need in send.needs:
                dependents[need].append(index)
        expansion.dependents = [tuple(sends) for sends in dependents]
        return expansion

    def _add_receive(
        self, expansion: Expansion, receive: LocalTransfer, group: str, peer: int
    ) -> None:
        expansion.add_receive(
            self._pair(group, receive.channel, peer),
            receive.message,
            step=receive.step,
            channel=receive.channel,
            peer=self._number(peer),
        )

    def _add_send(
        self,
        expansion: Expansion,
        send: LocalTransfer,
        group: str,
        peer: int,
        size_bytes: int,
    ) -> None:
        if send.message >= MESSAGES_PER_PAIR:
            raise PlanError(
                f"job {self._job} rank {self._program.rank} group {group!r}",
                f"more than {MESSAGES_PER_PAIR} messages to rank {peer} in one "
                "collective",
                "choose another algorithm",
            )
        if size_bytes > MAX_MESSAGE_BYTES:
            raise PlanError(
                f"job {self._job} rank {self._program.rank} group {group!r}",
                f"a message of {size_bytes} bytes to rank {peer}, but a queue pair "
                f"carries at most {MAX_MESSAGE_BYTES}",
                "set size_scale, or choose another algorithm",
            )
        if not send.needs:
            expansion.first_sends.append(len(expansion.send_pairs))
        expansion.send_pairs.append(self._pair(group, send.channel, peer))
        expansion.send_messages.append(send.message)
        expansion.send_sizes.append(size_bytes)
        expansion.send_steps.append(send.step)
        expansion.send_channels.append(send.channel)
        expansion.send_peers.append(self._number(peer))
        expansion.needs.append(len(send.needs))

    def _number(self, peer: int) -> int:
        number = self._numbers.get((self._job, peer))
        if number is None:
            raise PlanError(
                f"job {self._job} rank {self._program.rank}",
                f"the plan has no number for its peer, rank {peer}",
                "the plan does not belong to this program",
            )
        return number

    def _pair(self, group: str, channel: int, peer: int) -> Pair:
        pair = self._pair_of.get((group, channel, peer))
        if pair is None:
            raise PlanError(
                f"job {self._job} rank {self._program.rank}",
                f"has no queue pair to rank {peer} for group {group!r}"
                + (f" on channel {channel}" if channel else ""),
                "the plan does not belong to this program",
            )
        return pair
