# cython: language_level=3, annotation_typing=False
"""One port with its queue pairs and the replays of its ranks.

The same endpoint runs in data-plane processes and in virtual time. The caller passes in
packets and the current time, and receives packets and the next deadline. The caller's
loop is::

    engine.receive_...(...)              # packets that have arrived
    endpoint.advance(now_ns)             # handle completions and timers
    while (burst := engine.next_burst(now_ns)) is not None:
        ...                              # send the burst
    wait until endpoint.next_wakeup_ns() or the next packet

The loop continues until *all* endpoints of the run have finished, because a finished
endpoint still answers retransmissions of its peers.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from chakram.collectives.groups import POINT_TO_POINT
from chakram.foundation.errors import PlanError
from chakram.foundation.ip_addresses import address_of_halves, family_of, is_ipv6
from chakram.plan.plan import CREDIT_CHANNELS
from chakram.plan.wire_cost import overhead_bytes_of
from chakram.records.row_layout import RecordRows
from chakram.replay.endpoint_builder import (
    CongestionSettings,
    burst_time_ns,
    make_engine,
    make_queue_pair,
)
from chakram.replay.queue_pair_bundle import bundles_of
from chakram.replay.rank import Replay
from chakram.replay.rank_queue_pair import Pair
from chakram.replay.same_host_messages import Lane, LocalLink
from chakram.replay.status_text import failure_words, foreign_words
from chakram.roce.constants import NEVER
from chakram.roce.events import MessageReceived, SendCompleted
from chakram.roce.packet_verification import PacketVerifier
from chakram.roce.send_order import SendOrder

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from chakram.plan.nic_queue_pairs import BoundQueuePair
    from chakram.plan.plan import QueuePairPlan, RankPlan, RunSettings
    from chakram.plan.port_plan import PortPlan
    from chakram.plan.transport import TransportPlan
    from chakram.replay.queue_pair_bundle import Bundle
    from chakram.replay.rank_progress import Flow
    from chakram.roce.cross_process_pacing import SharedLine
    from chakram.roce.events import Event
    from chakram.roce.port import PortEngine
    from chakram.roce.queue_pair import QueuePair
    from chakram.roce.receive_memory import MemoryRegion

__all__ = ["Endpoint"]

_NEVER = NEVER


class Endpoint:
    """A port's engine and the replays of its ranks.

    Args:
        port: Port that the endpoint uses.
        ranks: All ranks that the plan places on the port in this process.
        transport: Settings of the queue pairs.
        settings: Settings of the run, such as iterations, faults and seed.
        rank_numbers: Plan number of every (job, rank).
        line: Shared link of the port, if other processes also send through the port.
        engine: Engine of the port, without queue pairs; None: an engine for sockets.
        has_arrivals: Whether to record when messages are complete at the receiver. In
            virtual time, the rows of flows already contain this time.

    Attributes:
        port: Port that the endpoint uses.
        engine: The port's engine.
        destinations: (address, UDP port) by ``Burst.destination``.
        records: Rows recorded since the caller last took them.
        replays: One replay per rank.
        local_pairs: Queue pairs whose messages stay within the host.
        dscps: DSCP of data by QPN, for queue pairs with a separate traffic class.
        events: (QPN, event) of queue pairs that belong to no rank, oldest first. The
            code that posts on these queue pairs takes the events.
        woken: Endpoints of this process that received messages within the host. The
            caller clears the list.

    Raises:
        PlanError: If the plan contradicts itself.
    """

    __slots__ = (
        "_arrivals",
        "_awaited",
        "_bundle_of_qpn",
        "_burst_ns",
        "_computing_calls",
        "_congestion_settings",
        "_destination_of",
        "_failure",
        "_finished",
        "_lanes",
        "_links",
        "_overhead_bytes",
        "_pair_of_qpn",
        "_queue_pairs",
        "_replay_of_place",
        "_timer_ns",
        "_turn",
        "_verifier",
        "destinations",
        "dscps",
        "engine",
        "events",
        "local_pairs",
        "port",
        "records",
        "replays",
        "woken",
    )

    def __init__(
        self,
        *,
        port: PortPlan,
        ranks: Sequence[RankPlan],
        transport: TransportPlan,
        settings: RunSettings,
        rank_numbers: Mapping[tuple[str, int], int],
        line: SharedLine | None = None,
        engine: PortEngine | None = None,
        has_arrivals: bool = False,
    ) -> None:
        self.port = port
        self.records = RecordRows()
        self._failure: str | None = None
        # Earliest timer of the replays, and number of finished replays in `_awaited`.
        self._timer_ns = NEVER
        self._finished = 0
        self._computing_calls = 0
        # Events within the host: a heap of (time, sequence number, event).
        self._arrivals: list[tuple[int, int, Event]] = []
        self._turn = 0
        self._links: dict[int, LocalLink] = {}
        self._lanes: dict[int, Lane] = {}
        self.local_pairs: list[QueuePairPlan] = []
        self.dscps = {
            pair.qpn: pair.dscp
            for rank in ranks
            for pair in rank.queue_pairs
            if pair.dscp is not None
        }
        self.woken: list[Endpoint] = []
        self.replays: list[Replay] = []
        # Replays that the run waits for, which excludes background jobs.
        self._awaited: list[Replay] = []
        self._pair_of_qpn: dict[int, Pair] = {}
        # The place of a pair is its index in both lists. For pairs within the host, the
        # queue pair is None.
        self._replay_of_place: list[Replay] = []
        self._queue_pairs: list[QueuePair | None] = []
        # Empty if every message is posted whole on a single queue pair.
        self._bundle_of_qpn: dict[int, Bundle] = {}
        self.events: deque[tuple[int, Event]] = deque()
        self.destinations: list[tuple[str, int]] = []
        self._destination_of: dict[tuple[str, int], int] = {}
        self._overhead_bytes = overhead_bytes_of(family_of(port.address))
        self._burst_ns = burst_time_ns(
            port, transport, overhead_bytes=self._overhead_bytes
        )
        try:
            self._congestion_settings = CongestionSettings(transport, line)
            self._verifier = (
                PacketVerifier(
                    local_address=port.address,
                    path_mtu=transport.path_mtu,
                    every=transport.verify_every,
                    udp_port=port.udp_port,
                    has_icrcs=transport.icrc != "off",
                )
                if transport.verify_every
                else None
            )
            self.engine = engine or make_engine(
                port, ranks, transport, settings, self._verifier, line
            )
            for rank in ranks:
                self._add_rank(rank, transport, settings, rank_numbers, has_arrivals)
        except (ValueError, TypeError) as error:
            raise PlanError(f"plan: port {port.number}", str(error)) from error

    def _add_rank(
        self,
        rank: RankPlan,
        transport: TransportPlan,
        settings: RunSettings,
        rank_numbers: Mapping[tuple[str, int], int],
        has_arrivals: bool,
    ) -> None:
        """Create the replay of a rank, and its queue pairs."""
        replay = Replay(
            plan=rank,
            settings=settings,
            rank_numbers=rank_numbers,
            records=self.records,
            has_arrivals=has_arrivals,
            first_place=len(self._queue_pairs),
        )
        self._pair_of_qpn |= replay.pairs
        self.replays.append(replay)
        if not replay.is_background:
            self._awaited.append(replay)
        send_orders: dict[str, SendOrder] = {}
        lane = Lane()
        for pair in rank.queue_pairs:
            self._replay_of_place.append(replay)
            if pair.local_rate_bps is not None:
                self.local_pairs.append(pair)
                self._lanes[pair.qpn] = lane
                self._queue_pairs.append(None)
                continue
            queue_pair = make_queue_pair(
                pair,
                self._destination(pair),
                transport,
                self._congestion_settings,
                overhead_bytes=self._overhead_bytes,
                burst_ns=self._burst_ns,
                verifier=self._verifier,
            )
            queue_pair.belong_to(replay.pairs[pair.qpn])
            self._queue_pairs.append(queue_pair)
            self.engine.add_queue_pair(
                queue_pair,
                # Point-to-point messages and grants have no steps that define an order.
                None
                if pair.group == POINT_TO_POINT or pair.channel >= CREDIT_CHANNELS
                else send_orders.setdefault(pair.group, SendOrder()),
            )
        self._bundle_of_qpn |= bundles_of(rank, transport)

    def add_queue_pair(
        self,
        pair: QueuePairPlan,
        transport: TransportPlan,
        *,
        remote_memory: tuple[int, int] = (0, 0),
        memory: MemoryRegion | None = None,
    ) -> None:
        """Add a queue pair without a rank, for example a connection to a peer's NIC.

        Post its messages through `engine`, and take its events from `events`. Call this
        method before the port is opened.

        Args:
            pair: Numbers of the queue pair. Its group and peer rank are ignored.
            transport: Settings of the queue pair, except congestion control. The
                congestion control of the port applies.
            remote_memory: Remote address and key for WRITEs.
            memory: Memory that stores received data; None: data are discarded.

        Raises:
            PlanError: If the QPN is taken, or a value is out of range.
        """
        try:
            self.engine.add_queue_pair(
                make_queue_pair(
                    pair,
                    self._destination(pair),
                    transport,
                    self._congestion_settings,
                    overhead_bytes=self._overhead_bytes,
                    burst_ns=self._burst_ns,
                    remote_memory=remote_memory,
                    memory=memory,
                    verifier=self._verifier,
                )
            )
        except (ValueError, TypeError) as error:
            raise PlanError(f"plan: port {self.port.number}", str(error)) from error

    def connect_to_device(self, qpn: int, remote: BoundQueuePair) -> None:
        """Connect a queue pair to an RDMA NIC, which may send any payload."""
        queue_pair = self.engine.queue_pair(qpn)
        queue_pair.connect_to(remote.device_qpn, remote.address, remote.key)
        if self._verifier is not None:
            address = address_of_halves(
                queue_pair.peer_high,
                queue_pair.peer_low,
                is_ipv6=is_ipv6(self.port.address),
            )
            queue_pair.flow = self._verifier.flow(address, is_ours=False)

    def _destination(self, pair: QueuePairPlan) -> int:
        """Return the destination index of the peer of *pair*."""
        address = (pair.remote_address, pair.remote_udp_port)
        index = self._destination_of.get(address)
        if index is None:
            index = self._destination_of[address] = len(self.destinations)
            self.destinations.append(address)
        return index

    def arm(self, start_ns: int) -> None:
        """Schedule the start of all ranks at *start_ns*."""
        self._timer_ns = _NEVER
        for replay in self.replays:
            replay.arm(start_ns)
            self._timer_ns = min(self._timer_ns, replay.next_timer_ns())
        if self._timer_ns == _NEVER:
            self._timer_ns = start_ns

    def choose(self, jobs: Collection[str], now_ns: int) -> None:
        """Begin iterations of *jobs* only. An empty collection means all jobs."""
        for replay in self.replays:
            replay.hold(len(jobs) > 0 and replay.job not in jobs, now_ns)
        self._timer_ns = now_ns

    def advance(self, now_ns: int) -> None:
        """Process everything that is due: timers, completions, new messages."""
        engine = self.engine
        engine.handle_timers(now_ns)
        event = engine.take_event()
        if event is None and self._timer_ns > now_ns:
            return
        while event is not None:
            self._dispatch(event, now_ns)
            event = engine.take_event()
        self._serve(now_ns)
        arrivals = self._arrivals
        while arrivals and arrivals[0][0] <= now_ns:
            while arrivals and arrivals[0][0] <= now_ns:
                self._dispatch(heappop(arrivals)[2], now_ns)
            self._serve(now_ns)
        if arrivals and arrivals[0][0] < self._timer_ns:
            self._timer_ns = arrivals[0][0]

    def _serve(self, now_ns: int) -> None:
        """Handle the due timers of all replays and post their messages."""
        engine = self.engine
        bundles = self._bundle_of_qpn
        timer_ns = _NEVER
        for replay in self.replays:
            if replay.next_timer_ns() <= now_ns:
                replay.handle_timers(now_ns)
            next_ns = replay.next_timer_ns()
            if next_ns < timer_ns:
                timer_ns = next_ns
            post = replay.next_post()
            while post is not None:
                queue_pair = self._queue_pairs[post.pair.place]
                if queue_pair is None:
                    self._links[post.pair.qpn].carry(post, now_ns)
                elif not bundles or post.pair.qpn not in bundles:
                    engine.post_on(
                        queue_pair,
                        post.immediate,
                        post.size_bytes,
                        now_ns,
                        post.order,
                        None,
                        0,
                        post,
                    )
                else:
                    self._post_parts(bundles[post.pair.qpn], post, now_ns)
                post = replay.next_post()
        self._timer_ns = timer_ns

    def _post_parts(self, bundle: Bundle, post: Flow, now_ns: int) -> None:
        """Post a message on the queue pairs of a bundle."""
        for qpn, immediate, size_bytes in bundle.post(post.immediate, post.size_bytes):
            self.engine.post_send(
                qpn, immediate, size_bytes, now_ns, post.order, None, 0, post
            )

    def link(self, pair: QueuePairPlan, other: Endpoint) -> None:
        """Connect a queue pair within the host to *other*, possibly this endpoint."""
        self._links[pair.qpn] = LocalLink(self, other, pair, self._lanes[pair.qpn])

    def expect(self, due_ns: int, qpn: int, event: Event) -> None:
        """Schedule an event of a queue pair within the host for *due_ns*."""
        self._turn += 1
        event.owner = self._pair_of_qpn[qpn]
        heappush(self._arrivals, (due_ns, self._turn, event))
        if due_ns < self._timer_ns:
            self._timer_ns = due_ns

    def _dispatch(self, event: Event, now_ns: int) -> None:
        """Pass an event to the replay of its rank, or to `events` if it has no rank."""
        owner = event.owner
        if not isinstance(owner, Pair):
            self.events.append((owner, event))
            return
        pair = owner
        replay = self._replay_of_place[pair.place]
        if isinstance(event, MessageReceived):
            received: MessageReceived | None = event
            if self._bundle_of_qpn and pair.qpn in self._bundle_of_qpn:
                bundle = self._bundle_of_qpn[pair.qpn]
                received = bundle.received(pair.qpn, event)
                pair = self._pair_of_qpn[bundle.qpn]
            if received is not None:
                replay.message_received(pair, received, now_ns)
        elif isinstance(event, SendCompleted):
            completed: SendCompleted | None = event
            recorded = pair.qpn
            if self._bundle_of_qpn and pair.qpn in self._bundle_of_qpn:
                bundle = self._bundle_of_qpn[pair.qpn]
                completed = bundle.acknowledged(pair.qpn, event)
                recorded = bundle.recorded_qpn(pair.qpn)
            if completed is not None:
                replay.message_acknowledged(
                    completed.context, completed, now_ns, recorded
                )
        elif self._failure is None:
            self._failure = failure_words(
                replay.job, replay.rank, pair.peer, event.reason, event.retried_for
            )

    def next_timer_ns(self) -> int:
        """Return the next deadline of a replay timer or local event, or NEVER."""
        return self._timer_ns

    def next_wakeup_ns(self) -> int:
        """Return when ``advance`` or ``next_burst`` next has work, or NEVER."""
        wakeup_ns = self.engine.next_wakeup_ns()
        return wakeup_ns if wakeup_ns < self._timer_ns else self._timer_ns

    def finished(self) -> bool:
        """Return whether all ranks except background ones have finished."""
        replays = self._awaited
        while self._finished < len(replays):
            replay = replays[self._finished]
            if not replay.finished():
                break
            self._finished += 1
        return self._finished == len(replays)

    def is_measuring(self) -> bool:
        """Return whether any rank communicates in a measured iteration."""
        for replay in self.replays:  # noqa: SIM110 - compiled, this is a loop in C
            if replay.is_measuring():
                return True
        return False

    def failed(self) -> str | None:
        """Return why the endpoint cannot finish, or None."""
        return self._failure

    def iterations_done(self) -> int:
        """Return the number of iterations that every unfinished rank has completed.

        Finished ranks and background ranks count only if there are no other ranks.
        """
        unfinished = [each for each in self._awaited if not each.finished()]
        return min(
            (replay.iteration for replay in unfinished or self.replays), default=0
        )

    def progress_counter(self) -> int:
        """Return a number that grows as long as the endpoint makes progress.

        The number grows when a message or operation completes, when new payload is
        accepted, and with every call while a rank computes or pauses. Packets without
        effect, such as duplicates, do not count. Background ranks do not count, either.
        If the number stays constant for a long time, the endpoint hangs.
        """
        if any(each.next_timer_ns() != _NEVER for each in self._awaited):
            self._computing_calls += 1
        return (
            self._computing_calls
            + sum(
                self.engine.received_bytes(pair.qpn)
                for pair in self.engine.queue_pairs()
                if not self._is_of_background(pair.qpn)
            )
            + sum(
                replay.completed_messages + replay.completed_operations
                for replay in self._awaited
            )
        )

    def _is_of_background(self, qpn: int) -> bool:
        """Return whether a queue pair belongs to a background rank."""
        pair = self._pair_of_qpn.get(qpn)
        return pair is not None and self._replay_of_place[pair.place].is_background

    def foreign(self) -> list[str]:
        """Return a sentence for every queue pair that received only foreign packets.

        This happens if addresses are translated (NAT) between two ports.
        """
        engine = self.engine
        if not engine.foreign_packets():
            return []
        address = self.port.address
        return [
            foreign_words(
                *self._ends_of(pair.qpn),
                packets=pair.foreign_packets,
                expected=address_of_halves(
                    pair.peer_high, pair.peer_low, is_ipv6=is_ipv6(address)
                ),
                seen=address_of_halves(
                    pair.foreign_high, pair.foreign_low, is_ipv6=is_ipv6(address)
                ),
            )
            for pair in engine.queue_pairs()
            if pair.foreign_packets
            and not pair.is_heard
            and pair.qpn in self._pair_of_qpn
        ]

    def _ends_of(self, qpn: int) -> tuple[str, int, int]:
        """Return the job, the rank and the peer rank of a queue pair."""
        pair = self._pair_of_qpn[qpn]
        replay = self._replay_of_place[pair.place]
        return replay.job, replay.rank, pair.peer

    def waiting_for(self) -> list[str]:
        """Return what each unfinished rank waits for, as sentences."""
        return [
            sentence
            for replay in self._awaited
            if not replay.finished()
            for sentence in replay.waiting_for()
        ]


def connect_local(endpoints: Sequence[Endpoint]) -> None:
    """Connect the queue pairs within hosts among all *endpoints* of a process.

    Raises:
        PlanError: If the other end of such a queue pair is in another process.
    """
    by_port = {endpoint.port.number: endpoint for endpoint in endpoints}
    for endpoint in endpoints:
        for pair in endpoint.local_pairs:
            other = by_port.get(pair.remote_port)
            if other is None:
                raise PlanError(
                    f"plan: port {endpoint.port.number}",
                    f"port {pair.remote_port} of the same host is in another process",
                    "put the ports of a host with same_host: skip into one shard",
                )
            endpoint.link(pair, other)
