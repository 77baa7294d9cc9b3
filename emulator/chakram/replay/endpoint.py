# cython: language_level=3, annotation_typing=False
"""One port with its queue pairs and the replays of the ranks on it.

This is what a shell drives, in every world: packets and the time go in, packets and
the next deadline come out.  A shell's loop is::

    engine.receive_...(...)              # whatever came
    endpoint.advance(now_ns)             # completions release operations, timers end
    while (burst := engine.next_burst(now_ns)) is not None:
        ...                              # whatever may leave now
    wait until endpoint.next_wakeup_ns() or the next packet
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.core.records import RecordRows
from chakram.replay.rank import Replay
from chakram.roce import congestion
from chakram.roce.constants import Verb
from chakram.roce.events import MessageReceived, SendCompleted
from chakram.roce.faults import PacketFaults
from chakram.roce.port import PortEngine
from chakram.roce.queue_pair import QueuePair

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from chakram.core.plan import PortPlan, RankPlan, RunSettings, TransportPlan

_VERBS = {"write": Verb.WRITE, "send": Verb.SEND}


class Endpoint:
    """A port's engine and the replays of its ranks.

    Args:
        port: The port.
        ranks: All ranks that the plan places on it.
        transport: Settings of the queue pairs.
        settings: Iterations, faults, seed.
        rank_numbers: Number in the plan of every (job, rank) of the plan.
        rng: For random faults; seeded by the shell, so that a run can be repeated.

    Raises:
        PlanError: If a program needs a queue pair that the plan does not have.
    """

    def __init__(
        self,
        *,
        port: PortPlan,
        ranks: Sequence[RankPlan],
        transport: TransportPlan,
        settings: RunSettings,
        rank_numbers: Mapping[tuple[str, int], int],
        rng: Random,
    ) -> None:
        self.port = port
        self.records = RecordRows()
        self.destinations: list[tuple[str, int]] = []
        self.engine = PortEngine(
            rate_bps=port.rate_bps,
            burst_bound_ns=transport.burst_bound_ns,
            max_burst_packets=transport.max_burst_packets,
            faults=(
                PacketFaults(drop_ratio=settings.drop_ratio, rng=rng)
                if settings.drop_ratio > 0
                else None
            ),
        )
        self._failure: str | None = None
        self.replays: list[Replay] = []
        self._replay_of_qpn: dict[int, Replay] = {}
        self._peer_of_qpn: dict[int, tuple[str, int, int]] = {}
        destination_of: dict[tuple[str, int], int] = {}
        for rank in ranks:
            replay = Replay(
                plan=rank,
                settings=settings,
                rank_numbers=rank_numbers,
                records=self.records,
            )
            self.replays.append(replay)
            for pair in rank.queue_pairs:
                address = (pair.remote_address, port.udp_port)
                destination = destination_of.setdefault(address, len(destination_of))
                self._replay_of_qpn[pair.qpn] = replay
                self._peer_of_qpn[pair.qpn] = (
                    rank.program.job,
                    rank.program.rank,
                    pair.peer_rank,
                )
                self.engine.add_queue_pair(
                    QueuePair(
                        qpn=pair.qpn,
                        remote_qpn=pair.remote_qpn,
                        source_port=pair.source_port,
                        destination=destination,
                        path_mtu=transport.path_mtu,
                        send_psn=pair.send_psn,
                        receive_psn=pair.receive_psn,
                        window_bytes=transport.window_bytes,
                        congestion_control=congestion.make(
                            transport.congestion_control,
                            **dict(transport.congestion_parameters),
                        ),
                        retransmit_timeout_ns=transport.retransmit_timeout_ns,
                        retry_limit=transport.retry_limit,
                        ack_interval_packets=transport.ack_interval_packets,
                        verb=_VERBS[transport.verb],
                    )
                )
        self.destinations = list(destination_of)

    def arm(self, start_ns: int) -> None:
        """Let all ranks start their first iteration at *start_ns*."""
        for replay in self.replays:
            replay.arm(start_ns)

    def advance(self, now_ns: int) -> None:
        """Carry out everything that is due: timers, completions, new messages."""
        engine = self.engine
        engine.handle_timers(now_ns)
        self._dispatch_events(now_ns)
        # What a timer starts may end at once and set a timer that is due already
        # (an iteration of no work), hence the loop; each turn ends an iteration.
        busy = True
        while busy:
            busy = False
            for replay in self.replays:
                if replay.next_timer_ns() <= now_ns:
                    replay.handle_timers(now_ns)
                    busy = True
                self._post_all(replay, now_ns)

    def _dispatch_events(self, now_ns: int) -> None:
        while (entry := self.engine.next_event()) is not None:
            qpn, event = entry
            replay = self._replay_of_qpn[qpn]
            if isinstance(event, MessageReceived):
                if event.message_id is not None:
                    replay.message_received(qpn, event.message_id, event.ce, now_ns)
            elif isinstance(event, SendCompleted):
                replay.message_acknowledged(
                    qpn,
                    event.message_id,
                    posted_ns=event.posted_ns,
                    first_sent_ns=event.first_sent_ns,
                    last_acked_ns=event.last_acked_ns,
                    rate_at_start_bps=event.rate_at_start_bps or 0,
                    packets=event.packets,
                    retransmitted=event.retransmitted,
                    cnp=event.cnps,
                    generator_wait_ns=event.generator_wait_ns,
                )
            elif self._failure is None:
                job, rank, peer = self._peer_of_qpn[qpn]
                self._failure = (
                    f"job {job} rank {rank}: the queue pair to rank {peer} gave up: "
                    f"{event.reason}"
                )

    def _post_all(self, replay: Replay, now_ns: int) -> None:
        while (post := replay.next_post()) is not None:
            qpn, immediate, size_bytes = post
            self.engine.post_send(qpn, immediate, size_bytes, now_ns)

    def next_wakeup_ns(self) -> int:
        """Return when ``advance`` or ``next_burst`` has work; NEVER if none."""
        earliest = self.engine.next_wakeup_ns()
        for replay in self.replays:
            earliest = min(earliest, replay.next_timer_ns())
        return earliest

    def finished(self) -> bool:
        """Tell whether all ranks have done all their iterations."""
        return all(replay.finished() for replay in self.replays)

    def failed(self) -> str | None:
        """Return why the endpoint cannot finish, or None."""
        return self._failure

    def iterations_done(self) -> int:
        """Return the number of iterations that every rank has done."""
        return min((replay.iteration for replay in self.replays), default=0)

    def progress_counter(self) -> int:
        """Return a number that grows whenever a message or an operation ends."""
        return sum(
            replay.completed_messages + replay.completed_operations
            for replay in self.replays
        )

    def waiting_for(self) -> list[str]:
        """Return for every unfinished rank what it waits for, as sentences."""
        return [
            sentence
            for replay in self.replays
            if not replay.finished()
            for sentence in replay.waiting_for()
        ]
