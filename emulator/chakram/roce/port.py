# cython: annotation_typing=False, language_level=3, cdivision=True
"""All queue pairs of one port.

What leaves, and when: `chakram.roce.scheduler`. Who gets what arrives:
`chakram.roce.receiver`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chakram.records.counter_definitions import PortStatistics, gather, row_reader
from chakram.roce.fifo import Fifo
from chakram.roce.histogram import Histogram
from chakram.roce.pacing import Line
from chakram.roce.queue_pairs import QueuePairs
from chakram.roce.receiver import Receiver
from chakram.roce.scheduler import Scheduler

if TYPE_CHECKING:
    from chakram.roce.burst import Burst
    from chakram.roce.events import Event
    from chakram.roce.packet_verification import PacketVerifier
    from chakram.roce.queue_pair import QueuePair
    from chakram.roce.send_turns import SendOrder

__all__ = ["PortEngine"]

_columns = row_reader(PortStatistics)


class PortEngine:
    """The queue pairs of one port, without I/O and without a clock.

    Drive it like a queue pair, at the time *now_ns* of one clock that never runs back:
    after `post_send`, `receive_burst`, `receive_datagrams` and `handle_timers` take
    `next_burst` until None and `next_event` until None; come back at `next_wakeup_ns`.

    Attributes:
        round_trips: See `PortStatistics`.
        pacing_errors: Likewise.
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
        """Make a port without queue pairs.

        Args:
            rate_bps: What may leave, in wire bits per second; None: no limit.
            burst_bound_ns: How late the shell may be without loss of rate.
            max_burst_packets: Packets in one burst at most.
            verifier: Looks at packets that arrive as bytes; None: nobody does.
            line: Its line, where others send through the port, too; None: its own.

        Raises:
            ValueError: If one of them is out of range.
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

    # The user.

    def add_queue_pair(
        self, queue_pair: QueuePair, send_order: SendOrder | None = None
    ) -> None:
        """Take over *queue_pair*: from now on only the port is to be driven.

        Args:
            queue_pair: The one.
            send_order: Shared with those whose messages are to be sent in one order
                with its own; None: it goes by nobody's.

        Raises:
            ValueError: If its QPN is taken.
        """
        self._queue_pairs.add(queue_pair)
        queue_pair.redirect_events(self._events)
        queue_pair.send_order = send_order
        queue_pair.requester.measure_round_trips(self.round_trips)
        self._scheduler.admit(queue_pair)

    def queue_pair(self, qpn: int) -> QueuePair:
        """Return the queue pair *qpn*, to look at.

        Raises:
            KeyError: If there is none.
        """
        return self._queue_pairs.of(qpn)

    def queue_pairs(self) -> tuple[QueuePair, ...]:
        """Return all queue pairs, in the order in which they were added."""
        return self._queue_pairs.all()

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
        """Send a message on queue pair *qpn*: see `QueuePair.post_send`.

        Of messages of queue pairs that share a `SendOrder` those of a lower *order* go
        first; messages of one queue pair go in the order in which they are posted.
        `SendCompleted` has the *context*, which must not lead to the port.

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
        """Send a message on one of the port's queue pairs: see `post_send`."""
        queue_pair.fetch_sender()
        queue_pair.requester.post_send(
            message_id, size_bytes, now_ns, order, contents, remote_offset, context
        )
        if not queue_pair.is_in_ring:
            self._scheduler.update(queue_pair, now_ns, now_ns)

    def next_event(self) -> tuple[Any, Event] | None:
        """Return what has happened and to whom, oldest first, or None.

        To whom says the QPN, or whatever the queue pair has been told to belong to.
        """
        event = self.take_event()
        return None if event is None else (event.owner, event)

    def take_event(self) -> Event | None:
        """Return what has happened, oldest first, or None; `owner` says to whom."""
        return self._events.take() if self._events.count > 0 else None

    def faults_disturbed(self) -> dict[int, int]:
        """Return by fault of the run how many packets it has disturbed; here none."""
        return {}

    def statistics(self) -> PortStatistics:
        """Return the counters as they are now."""
        return gather(
            PortStatistics,
            self._parts(),
            round_trips=self.round_trips.snapshot(),
            pacing_errors=self.pacing_errors.snapshot(),
        )

    def sampled(self) -> tuple[tuple[int, ...], int]:
        """Return the counters that have columns, and how many packets were disturbed.

        The first are in the order of `columns_of`; drops are among them, and not among
        the second.
        """
        return _columns(self._parts()), 0

    def _parts(self) -> dict[str, object]:
        """Return what counts, by the names that `PortStatistics` has for it."""
        return {
            "sent": self._scheduler,
            "received": self._receiver,
            "line": self._line,
        }

    # The network: out.

    def next_burst(self, now_ns: int) -> Burst | None:
        """Return what leaves now, and count it as sent; None: nothing may.

        For wires that refuse nothing; else `peek_burst` and `commit_burst`.
        """
        burst = self.peek_burst(now_ns)
        if burst is not None:
            self.commit_burst(burst, now_ns)
        return burst

    def peek_burst(self, now_ns: int) -> Burst | None:
        """Return what would leave now; None: nothing may.

        Nothing is sent by that. If the socket takes the burst, call `commit_burst`
        before anything else; if it does not, forget the burst and peek again later:
        perhaps another one has become more urgent.
        """
        return self._scheduler.peek_burst(now_ns)

    def commit_burst(self, burst: Burst, now_ns: int) -> None:
        """Note that *burst*, which `peek_burst` has just returned, has left.

        Raises:
            ValueError: If it is another one, or something else has happened since.
        """
        self._scheduler.commit_burst(burst, now_ns)

    def pause(self, data: bool, answers: bool, until_ns: int, now_ns: int) -> None:
        """Let what leaves rest until *until_ns*: the network has paused its class.

        A later call says anew until when; *now_ns* or earlier ends the pause.  Nobody
        waits for the data plane meanwhile.

        Args:
            data: Whether data rests.
            answers: Whether ACKs, NAKs and CNPs do.
            until_ns: As long as nothing else is said.
            now_ns: The time.
        """
        self._scheduler.pause(data, answers, until_ns, now_ns)

    def rest(self, now_ns: int) -> None:
        """Note that its owner sends nothing: the network has paused the port."""
        self._line.pause(now_ns)

    def resume(self, now_ns: int) -> None:
        """Go on after the network has paused the port.

        That what was due has not left meanwhile is not the data plane's fault.
        """
        self._line.resume(now_ns)

    # The clock.

    def next_wakeup_ns(self) -> int:
        """Return when there is something to send or a timer is due; `NEVER`: not yet.

        A time in the past means now.
        """
        return self._scheduler.next_wakeup_ns()

    def handle_timers(self, now_ns: int) -> None:
        """Act on the timers that are due: retransmission, pacing, congestion control.

        `peek_burst` and `next_burst` do that too.
        """
        self._scheduler.handle_timers(now_ns)

    # The network: in.

    def receive_burst(
        self,
        burst: Burst,
        now_ns: int,
        first: int = 0,
        count: int | None = None,
        ce: int = 0,
    ) -> None:
        """Take *count* packets (None: the rest) of a peer's *burst* from *first* on.

        What the network dropped is left out by calling for parts.

        Args:
            burst: Made by a `PortEngine`; it is not changed.
            now_ns: When they arrive.
            first: Position of the first packet in the burst.
            count: How many.
            ce: How many of them are marked "congestion experienced".
        """
        packets = burst.count - first if count is None else count
        self._receiver.receive_burst(burst, now_ns, first, packets, ce)

    def foresee(self, qpn: int) -> None:
        """Fetch a queue pair that something will arrive for soon."""
        self._queue_pairs.foresee(qpn)

    def has_news(self) -> bool:
        """Tell whether its owner is to look at it before the time that it was told.

        That time is what `next_wakeup_ns` said last.
        """
        return self._scheduler.has_news or self._events.count > 0

    def be_not_ready(self, qpn: int, psn: int, now_ns: int, ce: int = 0) -> bool:
        """Let queue pair *qpn* refuse the packet *psn* for now.

        See `Responder.be_not_ready`; False as well if there is no such queue pair.
        """
        return self._receiver.be_not_ready(qpn, psn, now_ns, ce)

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
        """Take what a UDP socket has received: one datagram, or equal segments.

        Whatever the bytes are, this raises nothing: what is no packet is counted.

        Args:
            buffer: Begins with the received bytes.
            length: How many they are.
            segment_size: Of each packet but the last, which may be shorter; 0: all is
                one packet.
            now_ns: When they arrived.
            ce: Whether they are marked "congestion experienced": all of them, as the
                kernel does not join packets that differ in that.
            source_port: UDP port of the sender; 0: not known, so no ICRC is checked.
            source_high: The address that it came from, see `QueuePair.bind_to`.
            source_low: Likewise.
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
        """Tell whether queue pair *qpn* is there, and not for what that address sends.

        The address is in the form of `QueuePair.bind_to`.
        """
        return self._receiver.is_foreign(qpn, high, low)

    def foreign_packets(self) -> int:
        """Return how many packets came from other addresses than their peers'."""
        return self._receiver.foreign_address
