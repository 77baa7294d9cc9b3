# cython: language_level=3, annotation_typing=False
"""Expands a collective into one rank's messages, when it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.core.algorithms import algorithm
from chakram.core.plan import POINT_TO_POINT, RankPlan
from chakram.core.program import (
    CollectiveOperation,
    ReceiveOperation,
    SendOperation,
)
from chakram.core.schedule import rank_schedule
from chakram.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGES_PER_PAIR = 1 << 16
"""Messages of one collective from one rank to one other that immediates can name."""

_CACHED_EXPANSIONS = 64


class Expansion:
    """One rank's messages of one kind of collective, ready to post and to match.

    Parallel lists over the sends: queue pair, number, size, step, channel, rank number
    of the peer, how many arrivals each needs; over the receives: size, and which sends
    each one releases.  ``receive_index`` maps ``qpn << 16 | message`` to a receive.
    """

    __slots__ = (
        "dependents",
        "needs",
        "receive_index",
        "receive_peers",
        "receive_sizes",
        "receive_steps",
        "send_channels",
        "send_messages",
        "send_peers",
        "send_qpns",
        "send_sizes",
        "send_steps",
    )

    def __init__(self) -> None:
        self.send_qpns: list[int] = []
        self.send_messages: list[int] = []
        self.send_sizes: list[int] = []
        self.send_steps: list[int] = []
        self.send_channels: list[int] = []
        self.send_peers: list[int] = []
        self.needs: list[int] = []
        self.receive_index: dict[int, int] = {}
        self.receive_sizes: list[int] = []
        self.receive_steps: list[int] = []
        self.receive_peers: list[int] = []
        self.dependents: list[list[int]] = []


class Expander:
    """Makes expansions for one rank and keeps the last ones, which tend to come again.

    Args:
        plan: The rank with its program and queue pairs.
        rank_numbers: Number in the plan of every (job, rank).

    Raises:
        PlanError: If the program needs a queue pair that the plan does not have.
    """

    def __init__(
        self, *, plan: RankPlan, rank_numbers: Mapping[tuple[str, int], int]
    ) -> None:
        self._job = plan.program.job
        self._rank = plan.program.rank
        self._numbers = rank_numbers
        self._groups = {group.name: group for group in plan.program.groups}
        self._qpn_of = {
            (pair.group, pair.channel, pair.peer_rank): pair.qpn
            for pair in plan.queue_pairs
        }
        self._expansions: dict[tuple[object, ...], Expansion] = {}
        # Missing queue pairs are found now rather than in the middle of a run.
        for operation in plan.program.operations:
            if isinstance(operation, CollectiveOperation):
                self.expansion(operation)
            elif isinstance(operation, SendOperation | ReceiveOperation):
                self.qpn(POINT_TO_POINT, 0, operation.peer)

    def expansion(self, operation: CollectiveOperation) -> Expansion:
        """Return this rank's messages of one collective."""
        key = (
            operation.group,
            operation.op,
            operation.algorithm,
            operation.root,
            operation.input_bytes,
        )
        expansion = self._expansions.get(key)
        if expansion is None:
            if len(self._expansions) >= _CACHED_EXPANSIONS:
                del self._expansions[next(iter(self._expansions))]
            expansion = self._expansions[key] = self._expand(operation)
        return expansion

    def _expand(self, operation: CollectiveOperation) -> Expansion:
        group = self._groups[operation.group]
        nranks = len(group.ranks)
        how = algorithm(operation.op, operation.algorithm)
        schedule = rank_schedule(
            how,
            position=group.position(self._rank),
            nranks=nranks,
            root=operation.root,
        )
        expansion = Expansion()
        for receive in schedule.receives:
            peer = group.ranks[receive.peer]
            qpn = self.qpn(operation.group, receive.channel, peer)
            size_bytes = how.chunk_bytes(
                receive.chunk, nranks=nranks, input_bytes=operation.input_bytes
            )
            key = (qpn << 16) | receive.message
            expansion.receive_index[key] = len(expansion.receive_sizes)
            expansion.receive_sizes.append(size_bytes)
            expansion.receive_steps.append(receive.step)
            expansion.receive_peers.append(self._numbers[self._job, peer])
            expansion.dependents.append([])
        for index, send in enumerate(schedule.sends):
            if send.message >= MESSAGES_PER_PAIR:
                raise PlanError(
                    f"job {self._job} rank {self._rank} {operation.name!r}",
                    f"has over {MESSAGES_PER_PAIR} messages to one rank",
                    "choose larger chunks",
                )
            peer = group.ranks[send.peer]
            expansion.send_qpns.append(self.qpn(operation.group, send.channel, peer))
            expansion.send_messages.append(send.message)
            expansion.send_sizes.append(
                how.chunk_bytes(
                    send.chunk, nranks=nranks, input_bytes=operation.input_bytes
                )
            )
            expansion.send_steps.append(send.step)
            expansion.send_channels.append(send.channel)
            expansion.send_peers.append(self._numbers[self._job, peer])
            expansion.needs.append(len(send.needs))
            for need in send.needs:
                expansion.dependents[need].append(index)
        return expansion

    def qpn(self, group: str, channel: int, peer: int) -> int:
        """Return the local queue pair to rank *peer*.

        Raises:
            PlanError: If the plan has none.
        """
        qpn = self._qpn_of.get((group, channel, peer))
        if qpn is None:
            raise PlanError(
                f"job {self._job} rank {self._rank}",
                f"has no queue pair to rank {peer} for group {group!r}",
                "the plan does not belong to this program",
            )
        return qpn
