# cython: annotation_typing=False, language_level=3, cdivision=True
"""A port: its queue pairs, with their scheduler and receiver.

`chakram.roce.scheduler` decides what leaves and when.
`chakram.roce.port_receiver` delivers arriving packets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chakram.records.counter_definitions import PortStatistics, gather, row_reader
from chakram.roce.fifo import Fifo
from chakram.roce.histogram import Histogram
from chakram.roce.pacing import Line
from chakram.roce.port_receiver import Receiver
from chakram.roce.queue_pairs import QueuePairs
from chakram.roce.scheduler import Scheduler

if TYPE_CHECKING:
    from chakram.roce.burst import Burst
    from chakram.roce.events import Event
    from chakram.roce.packet_verification import PacketVerifier
    from chakram.roce.queue_pair import QueuePair
    from chakram.roce.send_order import SendOrder

__all__ = ["PortEngine"]

_columns = row_reader(PortStatistics)


class PortEngine:
    """The queue pairs of one port, without I/O and without a clock.

    Drive the port like a queue pair, with *now_ns* from one monotonic clock. After
    `post_send`, `receive_burst`, `receive_datagrams` and `handle_timers`, call
    `next_burst` until it returns None, then `next_event` until it returns None. Call
    `next_burst` again at `next_wakeup_ns`.

    Attributes:
        round_trips: See `PortStatistics`.
        pacing_errors: See `PortStatistics`.
    """

    __slots__ = (
        "_events",
        "_line",
        "_queue_pairs",
        "_receiver",
        "_scheduler",
        "pacing_errors",
        "round_trips",
    )

    def __init__(
        self,
        *,
        rate_bps: int | None,
        burst_bound_ns: int,
        max_burst_packets: int,
        verifier: PacketVerifier | None = None,
        line: Line | None = None,
    ) -> None:
        """Create a port without queue pairs.

        Args:
            rate_bps: Rate of the port, in wire bits per second; None: no limit.
            burst_bound_ns: How late the data plane may be without loss of rate.
            max_burst_packets: Maximum number of packets in one burst.
            verifier: Verifies packets that arrive as bytes; None: they are not
                verified.
            line: Link of the port, if it is shared with other senders; None: a separate
                link.

        Raises:
            ValueError: If an argument is out of range.
        """
        if rate_bps is not None and rate_bps <= 0:
            raise ValueError(f"a rate of {rate_bps} bit/s is not positive")
        if burst_bound_ns < 0:
            raise ValueError(f"a burst bound of {burst_bound_ns} ns is negative")
        if not 1 <= max_burst_packets <= 128:
            raise ValueError(
                f"{max_burst_packets} packets in a burst are not in 1..128"
            )
        self._line = line or Line(rate_bps=rate_bps or 0, burst_bound_ns=burst_bound_ns)
        self._queue_pairs = QueuePairs()
        self._events = Fifo()
        self._scheduler = Scheduler(
            queue_pairs=self._queue_pairs,
            line=self._line,
            max_burst_packets=max_burst_packets,
        )
        self._receiver = Receiver(
            queue_pairs=self._queue_pairs,
            scheduler=self._scheduler,
            verifier=verifier,
        )
        self.round_trips = Histogram()
        self.pacing_errors = self._scheduler.pacing_errors

    # User.

    def add_queue_pair(
        self, queue_pair: QueuePair, send_order: SendOrder | None = None
    ) -> None:
        """Add *queue_pair*, which from now on only the port may drive.

        Args:
            queue_pair: Queue pair to add.
            send_order: Message order that it shares with other queue pairs, or None.

        Raises:
            ValueError: If the QPN of the queue pair is already in use.
        """
        self._queue_pairs.add(queue_pair)
        queue_pair.redirect_events(self._events)
        queue_pair.send_order = send_order
        queue_pair.requester.measure_round_trips(self.round_trips)
        self._scheduler.admit(queue_pair)

    def queue_pair(self, qpn: int) -> QueuePair:
        """Return the queue pair *qpn*, for inspection.

        Raises:
            KeyError: If there is no such queue pair.
        """
        return self._queue_pairs.of(qpn)

    def queue_pairs(self) -> tuple[QueuePair, ...]:
        """Return all queue pairs, in the order in which they were added."""
        return self._queue_pairs.all()

    def received_bytes(self, qpn: int) -> int:
        """Return how many payload bytes queue pair *qpn* has accepted.

        Raises:
            KeyError: If there is no such queue pair.
        """
        return self._queue_pairs.of(qpn).responder.bytes_received

    def post_send(
        self,
        qpn: int,
        message_id: int,
        size_bytes: int,
        now_ns: int,
        order: int = 0,
        contents: bytes | None = None,
        remote_offset: int = 0,
        context: object = None,
    ) -> None:
        """Post a message on queue pair *qpn*: see `QueuePair.post_send`.

        Among queue pairs that share a `SendOrder`, messages with a lower *order* go
        first. Messages of one queue pair are sent in the order of posting.
        `SendCompleted` returns the *context*, which must not refer to the port.

        Raises:
            KeyError: If there is no such queue pair.
            ValueError: If the message is out of range.
        """
        self.post_on(
            self._queue_pairs.of(qpn),
            message_id,
            size_bytes,
            now_ns,
            order,
            contents,
            remote_offset,
            context,
        )

    def post_on(
        self,
        queue_pair: QueuePair,
        message_id: int,
        size_bytes: int,
        now_ns: int,
        order: int = 0,
        contents: bytes | None = None,
        remote_offset: int = 0,
        context: object = None,
    ) -> None:
        """Post a message on one of the port's queue pairs: see `post_send`."""
        queue_pair.fetch_sender()
        queue_pair.requester.post_send(
            message_id, size_bytes, now_ns, order, contents, remote_offset, context
        )
        if not queue_pair.is_in_ring:
            self._scheduler.update(queue_pair, now_ns, now_ns)

    def next_event(self) -> tuple[Any, Event] | None:
        """Return the oldest pending event with its owner, or None.

        The owner is the QPN, or the object set with `QueuePair.belong_to`.
        """
        event = self.take_event()
        return None if event is None else (event.owner, event)

    def take_event(self) -> Event | None:
        """Return the oldest pending event, whose `owner` is set, or None."""
        return self._events.take() if self._events.count > 0 else None

    def faults_disturbed(self) -> dict[int, int]:
        """Return how many packets each fault disturbed, by index of the fault."""
        return {}

    def statistics(self) -> PortStatistics:
        """Return the current counters."""
        return gather(
            PortStatistics,
            self._parts(),
            round_trips=self.round_trips.snapshot(),
            pacing_errors=self.pacing_errors.snapshot(),
        )

    def sampled(self) -> tuple[tuple[int, ...], int]:
        """Return the sampled counters, and how many packets faults have disturbed.

        The counters are in the order of `columns_of`. Packets that faults dropped are
        part of the counters, but not of the second value.
        """
        return _columns(self._parts()), 0

    def _parts(self) -> dict[str, object]:
        """Return the objects with counters, by their names in `PortStatistics`."""
        return {
            "sent": self._scheduler,
            "received": self._receiver,
            "line": self._line,
        }

    # Network output.

    def next_burst(self, now_ns: int) -> Burst | None:
        """Return the burst that leaves now and count it as sent, or return None.

        Use this method if the network accepts every burst. Otherwise, use `peek_burst`
        and `commit_burst`.
        """
        burst = self.peek_burst(now_ns)
        if burst is not None:
            self.commit_burst(burst, now_ns)
        return burst

    def peek_burst(self, now_ns: int) -> Burst | None:
        """Return the burst that would leave now, or None if nothing may leave.

        This sends nothing. If the socket accepts the burst, call `commit_burst` before
        anything else. If not, discard the burst and peek again later, because another
        burst may have become more urgent.
        """
        return self._scheduler.peek_burst(now_ns)

    def commit_burst(self, burst: Burst, now_ns: int) -> None:
        """Record that *burst*, which `peek_burst` has just returned, has left.

        Raises:
            ValueError: If `peek_burst` returned a different burst, or the state has
                changed since that call.
        """
        self._scheduler.commit_burst(burst, now_ns)

    def pause(self, data: bool, answers: bool, until_ns: int, now_ns: int) -> None:
        """Pause data or responses, because the network has paused their class.

        A later call replaces *until_ns*. An *until_ns* that is not after *now_ns* ends
        the pause. A pause does not count as data plane delay.

        Args:
            data: Whether data is paused.
            answers: Whether ACKs, NAKs and CNPs are paused.
            until_ns: End of the pause, unless a later call changes it.
            now_ns: Current time.
        """
        self._scheduler.pause(data, answers, until_ns, now_ns)

    def lead_with_short_data(self) -> None:
        """Let short data leave before responses, unless data was sent last."""
        self._scheduler.short_data_leads = True

    def rest(self, now_ns: int) -> None:
        """Record that the network has paused the port, so that nothing is sent."""
        self._line.pause(now_ns)

    def resume(self, now_ns: int) -> None:
        """Continue after the network has paused the port.

        The pause does not count as data plane delay.
        """
        self._line.resume(now_ns)

    # Clock.

    def next_wakeup_ns(self) -> int:
        """Return when there is something to send or a timer is due, or `NEVER`.

        A time in the past means now.
        """
        return self._scheduler.next_wakeup_ns()

    def handle_timers(self, now_ns: int) -> None:
        """Run the timers that are due: retransmission, pacing, congestion control.

        `peek_burst` and `next_burst` run these timers, too.
        """
        self._scheduler.handle_timers(now_ns)

    # Network input.

    def receive_burst(
        self,
        burst: Burst,
        now_ns: int,
        first: int = 0,
        count: int | None = None,
        ce: int = 0,
    ) -> None:
        """Receive *count* packets of a peer's *burst*, starting at position *first*.

        If the network dropped packets, call this method for each remaining part of the
        burst.

        Args:
            burst: Burst of another `PortEngine`, which is not changed.
            now_ns: When the packets arrive.
            first: Position of the first packet in the burst.
            count: Number of packets; None: all remaining packets.
            ce: How many of these packets are marked "congestion experienced".
        """
        packets = burst.count - first if count is None else count
        self._receiver.receive_burst(burst, now_ns, first, packets, ce)

    def foresee_packet(self, stage: int, qpn: int, is_data: bool) -> None:
        """Prefetch a queue pair for which a packet will arrive soon, in stages 0 to 3.

        The memory of a stage must be in the cache before the next stage.
        """
        if stage < 2:
            self._queue_pairs.foresee(stage, qpn)
            return
        queue_pair = self._queue_pairs.find(qpn)
        if queue_pair is None:
            return
        if stage == 3:
            queue_pair.requester.queue.fetch_oldest()
        elif is_data:
            queue_pair.fetch_receiver()
        else:
            queue_pair.fetch_sender()

    def foresee_send(self, stage: int) -> None:
        """Prefetch the queue pair that will probably send next, in stages 0 to 2."""
        self._scheduler.foresee_send(stage)

    def has_news(self) -> bool:
        """Return whether the port needs a call before its wakeup time.

        The wakeup time is the last result of `next_wakeup_ns`.
        """
        return self._scheduler.has_news or self._events.count > 0

    def set_not_ready(self, qpn: int, psn: int, now_ns: int, ce: int = 0) -> bool:
        """Make queue pair *qpn* refuse the packet *psn* for now.

        See `Responder.set_not_ready`. Also return False if there is no such queue pair.
        """
        return self._receiver.set_not_ready(qpn, psn, now_ns, ce)

    def receive_datagrams(
        self,
        buffer: bytes | bytearray | memoryview,
        length: int,
        segment_size: int,
        now_ns: int,
        ce: bool = False,
        source_port: int = 0,
        source_high: int = 0,
        source_low: int = 0,
    ) -> None:
        """Receive bytes from a UDP socket: one datagram, or segments of equal size.

        Invalid packets are counted and raise no exception.

        Args:
            buffer: Buffer that begins with the received bytes.
            length: Number of received bytes.
            segment_size: Size of each packet except the last, which may be shorter; 0:
                there is only one packet.
            now_ns: When the bytes arrived.
            ce: Whether all packets are marked "congestion experienced". The kernel does
                not join marked with unmarked packets.
            source_port: UDP port of the sender; 0: unknown, so packets are not
                verified.
            source_high: First half of the source address (see `QueuePair.bind_to`).
            source_low: Second half of the source address.
        """
        self._receiver.receive_datagrams(
            buffer,
            length,
            segment_size,
            now_ns,
            ce,
            source_port,
            source_high,
            source_low,
        )

    def is_foreign(self, qpn: int, high: int, low: int) -> bool:
        """Return whether queue pair *qpn* exists but rejects packets from an address.

        The address has the format of `QueuePair.bind_to`.
        """
        return self._receiver.is_foreign(qpn, high, low)

    def foreign_packets(self) -> int:
        """Return how many packets did not come from the address of their peer."""
        return self._receiver.foreign_address
