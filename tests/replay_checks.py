"""Replays of a plan over a network of whole messages in virtual time.

Nothing is lost here and nothing is slow, but messages of different queue pairs overtake
each other at will, and the one who drives a rank may look late.  What a replay does
with that can be checked without a packet.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from chakram.records.row_layout import RecordRows
from chakram.replay.rank import Replay
from chakram.replay.rank_progress import Flow
from chakram.roce.constants import NEVER
from chakram.roce.events import MessageReceived, SendCompleted

if TYPE_CHECKING:
    from collections.abc import Callable

    from chakram.plan.plan import Plan


def received(message_id: int | None, size_bytes: int, now_ns: int) -> MessageReceived:
    """Return the event of a message that is complete at *now_ns*."""
    return MessageReceived(message_id, size_bytes, 1, 0, now_ns, now_ns)


def acknowledged(
    message_id: int,
    size_bytes: int,
    posted_ns: int,
    now_ns: int,
    generator_wait_ns: int = 0,
) -> SendCompleted:
    """Return the event of a message that is acknowledged at *now_ns*."""
    return SendCompleted(
        message_id,
        size_bytes,
        posted_ns,
        posted_ns,
        now_ns,
        1,
        0,
        0,
        None,
        generator_wait_ns,
    )


class MessageFabric:
    """All replays of a plan and the messages between them.

    Args:
        plan: What is replayed.
        delay_ns: How long the next message, or the news of its arrival, is in flight;
            those of one queue pair keep their order.
        lateness_ns: How late a rank is looked at after something happened to it.

    Attributes:
        replays: By number of the rank.
        records: What they recorded.
        delivered: Messages that arrived, as (qpn of the sender, sender, immediate).
        now_ns: The virtual time.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        delay_ns: Callable[[], int] = lambda: 1_000,
        lateness_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self.records = RecordRows()
        self.replays: list[Replay] = []
        self.delivered: list[tuple[int, int, int]] = []
        self.now_ns = 0
        self._delay_ns = delay_ns
        self._lateness_ns = lateness_ns
        self._rank_of: dict[tuple[int, int], int] = {}
        self._port_of: list[int] = []
        # By (rank, qpn): (rank, qpn) at the other end, when the last message comes
        # there, and when that is known here.
        self._other_end: dict[tuple[int, int], tuple[int, int]] = {}
        self._arrival_ns: dict[tuple[int, int], int] = {}
        self._acked_ns: dict[tuple[int, int], int] = {}
        self._looks: list[tuple[int, int, int]] = []
        self._inbox: list[list[tuple[int, int, MessageReceived | SendCompleted]]] = []
        self._number = count()
        settings = {agent.agent: agent.settings for agent in plan.agents}
        agent_of = {port.number: port.agent for port in plan.ports()}
        numbers = {
            (rank.program.job, rank.program.rank): rank.number for rank in plan.ranks()
        }
        for rank in plan.ranks():
            self.replays.append(
                Replay(
                    plan=rank,
                    settings=settings[agent_of[rank.port]],
                    rank_numbers=numbers,
                    records=self.records,
                )
            )
            self._port_of.append(rank.port)
            self._inbox.append([])
            for pair in rank.queue_pairs:
                self._rank_of[rank.port, pair.qpn] = rank.number
        for rank in plan.ranks():
            for pair in rank.queue_pairs:
                other = self._rank_of[pair.remote_port, pair.remote_qpn]
                self._other_end[rank.number, pair.qpn] = (other, pair.remote_qpn)

    def run(self, *, start_ns: int = 0) -> bool:
        """Start all ranks; return whether all of them finish."""
        for number, replay in enumerate(self.replays):
            replay.arm(start_ns)
            self._look_at(number, start_ns)
        while self._looks:
            self.now_ns, _, number = heappop(self._looks)
            self._look(number)
        return all(replay.finished() for replay in self.replays)

    def _look_at(self, number: int, time_ns: int) -> None:
        look_ns = max(time_ns + self._lateness_ns(), self.now_ns)
        heappush(self._looks, (look_ns, next(self._number), number))

    def _look(self, number: int) -> None:
        """Process events, timers and posts of a rank, like its driver."""
        replay, inbox, now_ns = self.replays[number], self._inbox[number], self.now_ns
        while inbox and inbox[0][0] <= now_ns:
            _, _, event = heappop(inbox)
            if isinstance(event, MessageReceived):
                replay.message_received(event.owner, event, now_ns)
            else:
                replay.message_acknowledged(event.context, event, now_ns)
        replay.handle_timers(now_ns)
        while (flow := replay.next_post()) is not None:
            self._carry(number, flow)
        timer_ns = replay.next_timer_ns()
        if timer_ns != NEVER:
            self._look_at(number, timer_ns)

    def _carry(self, number: int, flow: Flow) -> None:
        qpn, immediate, size_bytes = flow.pair.qpn, flow.immediate, flow.size_bytes
        end = number, qpn
        other, other_qpn = self._other_end[end]
        arrival_ns = self.now_ns + self._delay_ns()
        arrival_ns = max(arrival_ns, self._arrival_ns.get(end, 0))
        self._arrival_ns[end] = arrival_ns
        acked_ns = max(arrival_ns + self._delay_ns(), self._acked_ns.get(end, 0))
        self._acked_ns[end] = acked_ns
        self.delivered.append((qpn, number, immediate))
        arrived = received(immediate, size_bytes, arrival_ns)
        arrived.owner = self.replays[other].pairs[other_qpn]
        self._happen(other, arrived)
        completed = acknowledged(immediate, size_bytes, self.now_ns, acked_ns)
        completed.context = flow
        self._happen(number, completed)

    def _happen(self, number: int, event: MessageReceived | SendCompleted) -> None:
        time_ns = (
            event.received_ns
            if isinstance(event, MessageReceived)
            else event.last_acked_ns
        )
        heappush(self._inbox[number], (time_ns, next(self._number), event))
        self._look_at(number, time_ns)
