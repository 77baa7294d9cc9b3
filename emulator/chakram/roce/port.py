# cython: annotation_typing=False, language_level=3, cdivision=True
"""All queue pairs of one port: who sends next, when, and who gets what arrives.

Sending. Answers (ACK, NAK, CNP) go first. Data is shared out by deficit round robin
over wire bytes, among the queue pairs that may send now: at its turn a queue pair is
given a quantum (the wire bytes of one full burst) and sends while it has any of it
left; what the last burst takes too much is taken off the next turn. So two queue pairs
that always have something to send never differ by more than a quantum and a burst. A
queue pair with nothing to send, or stopped by its window or its rate, is in no list and
costs nothing. Queue pairs may be given a common order, in which the earlier messages of
all of them go before the later ones: `chakram.roce.turns`.

Pacing, and the account of how late the data plane was: `chakram.roce.pacing`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from chakram.roce.constants import NEVER, BurstKind
from chakram.roce.datagrams import MALFORMED, Run, SegmentParser
from chakram.roce.histogram import Histogram
from chakram.roce.opcodes import Opcode
from chakram.roce.pacing import Line
from chakram.roce.statistics import PortStatistics
from chakram.roce.timers import Timers
from chakram.roce.turns import Turns

if TYPE_CHECKING:
    from chakram.roce.burst import Burst
    from chakram.roce.events import Event
    from chakram.roce.queue_pair import QueuePair
    from chakram.roce.turns import SendOrder
    from chakram.roce.verify import IcrcVerifier

__all__ = ["PortEngine"]

_NEVER = NEVER
_DATA = int(BurstKind.DATA)
_MALFORMED = MALFORMED
_CNP = int(Opcode.CNP)
_ACKNOWLEDGE = int(Opcode.ACKNOWLEDGE)
# Requests of the reliable connection service that a responder has to answer, but here
# cannot: READ, atomics, SEND with invalidate.
_REFUSED_OPCODES = frozenset(
    (Opcode.READ_REQUEST, Opcode.COMPARE_SWAP, Opcode.FETCH_ADD, 0x16, 0x17)
)


class PortEngine:
    """The queue pairs of one port, without I/O and without a clock.

    Drive it like a queue pair, at the time *now_ns* of one clock that never runs back:
    after `post_send`, `receive_burst`, `receive_datagrams` and `handle_timers` take
    `next_burst` until None and `next_event` until None; come back at `next_wakeup_ns`.
    """

    __slots__ = (
        "_answering",
        "_events",
        "_line",
        "_max_burst_packets",
        "_offered",
        "_offered_queue_pair",
        "_parser",
        "_quantum_bytes",
        "_queue_pairs",
        "_run",
        "_timers",
        "_turns",
        "_verifier",
        "bursts_sent",
        "bytes_sent",
        "control_sent",
        "icrc_checked",
        "icrc_errors",
        "malformed",
        "pacing_errors",
        "packets_received",
        "packets_sent",
        "partition_key_errors",
        "round_trips",
        "unknown_queue_pair",
        "unsupported",
    )

    def __init__(
        self,
        *,
        rate_bps: int | None,
        burst_bound_ns: int,
        max_burst_packets: int,
        verifier: IcrcVerifier | None = None,
    ) -> None:
        """Make a port without queue pairs.

        Args:
            rate_bps: What may leave, in wire bits per second; None: no limit.
            burst_bound_ns: How late the shell may be without loss of rate.
            max_burst_packets: Packets in one burst at most.
            verifier: Which packets to check, of those that arrive as bytes.

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
        self._line = Line(rate_bps=rate_bps or 0, burst_bound_ns=burst_bound_ns)
        self._max_burst_packets = max_burst_packets
        self._verifier = verifier
        # The packet looked at, and those before it that are not handed over yet.
        self._parser = SegmentParser()
        self._run = Run()
        self._queue_pairs: dict[int, QueuePair] = {}
        self._events: deque[tuple[int, Event]] = deque()
        self._answering: deque[QueuePair] = deque()
        self._turns = Turns()
        # An entry counts only if its queue pair has that wake_ns.
        self._timers = Timers()
        self._quantum_bytes = 0
        # The burst that `peek_burst` returned last, and whose it is.
        self._offered: Burst | None = None
        self._offered_queue_pair: QueuePair | None = None
        self.packets_sent = 0
        self.bytes_sent = 0
        self.bursts_sent = 0
        self.control_sent = 0
        self.packets_received = 0
        self.unknown_queue_pair = 0
        self.malformed = 0
        self.partition_key_errors = 0
        self.unsupported = 0
        self.round_trips = Histogram()
        self.pacing_errors = Histogram()
        self.icrc_checked = 0
        self.icrc_errors = 0

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
        if queue_pair.qpn in self._queue_pairs:
            raise ValueError(f"there is a queue pair {queue_pair.qpn} already")
        self._queue_pairs[queue_pair.qpn] = queue_pair
        queue_pair.redirect_events(self._events)
        queue_pair.send_order = send_order
        queue_pair.requester.measure_round_trips(self.round_trips)
        packet_bytes = queue_pair.path_mtu + queue_pair.overhead_bytes
        quantum_bytes = self._max_burst_packets * packet_bytes
        if quantum_bytes > self._quantum_bytes:
            self._quantum_bytes = quantum_bytes

    def queue_pair(self, qpn: int) -> QueuePair:
        """Return the queue pair *qpn*, to look at.

        Raises:
            KeyError: If there is none.
        """
        return self._queue_pairs[qpn]

    def queue_pairs(self) -> tuple[QueuePair, ...]:
        """Return all queue pairs, in the order in which they were added."""
        return tuple(self._queue_pairs.values())

    def post_send(
        self,
        qpn: int,
        message_id: int,
        size_bytes: int,
        now_ns: int,
        order: int = 0,
        contents: bytes | None = None,
        remote_offset: int = 0,
    ) -> None:
        """Send a message on queue pair *qpn*: see `QueuePair.post_send`.

        Of messages of queue pairs that share a `SendOrder` those of a lower *order* go
        first; messages of one queue pair go in the order in which they are posted.

        Raises:
            KeyError: If there is no such queue pair.
            ValueError: If the message is out of range.
        """
        queue_pair = self._queue_pairs[qpn]
        queue_pair.requester.post_send(
            message_id, size_bytes, now_ns, order, contents, remote_offset
        )
        if not queue_pair.is_in_ring:
            self._update(queue_pair, now_ns, now_ns)

    def next_event(self) -> tuple[int, Event] | None:
        """Return what has happened and the QPN to whom, oldest first, or None."""
        return self._events.popleft() if self._events else None

    def statistics(self) -> PortStatistics:
        """Return the counters as they are now."""
        return PortStatistics(
            packets_sent=self.packets_sent,
            bytes_sent=self.bytes_sent,
            bursts_sent=self.bursts_sent,
            control_sent=self.control_sent,
            packets_received=self.packets_received,
            unknown_queue_pair=self.unknown_queue_pair,
            malformed=self.malformed,
            partition_key_errors=self.partition_key_errors,
            unsupported=self.unsupported,
            icrc_checked=self.icrc_checked,
            icrc_errors=self.icrc_errors,
            generator_waits=self._line.generator_waits,
            generator_wait_ns=self._line.generator_wait_ns,
            round_trips=self.round_trips.snapshot(),
            pacing_errors=self.pacing_errors.snapshot(),
        )

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
        if self._timers.first_ns <= now_ns:
            self.handle_timers(now_ns)
        if now_ns < self._line.free_ns:
            return None
        while self._answering:
            queue_pair = self._answering[0]
            burst = queue_pair.make_answer()
            if burst is not None:
                self._offer(burst, queue_pair, now_ns)
                return burst
            # Nothing is to be answered any more: the gap has closed.
            self._answering.popleft()
            queue_pair.is_answering = False
        while self._turns.ring:
            queue_pair = self._turns.ring[0]
            burst = None
            if queue_pair.requester.ready_ns() <= now_ns:
                burst = queue_pair.make_burst(self._max_burst_packets)
            if burst is None:
                self._leave_ring(queue_pair)
                continue
            if queue_pair.deficit_bytes <= 0:
                queue_pair.deficit_bytes += self._quantum_bytes
                if queue_pair.deficit_bytes <= 0:
                    # Deep in debt: its turn is over before it begins.
                    self._turns.ring.rotate(-1)
                    continue
            self._offer(burst, queue_pair, now_ns)
            return burst
        return None

    def commit_burst(self, burst: Burst, now_ns: int) -> None:
        """Note that *burst*, which `peek_burst` has just returned, has left.

        Raises:
            ValueError: If it is another one, or something else has happened since.
        """
        queue_pair = self._offered_queue_pair
        if queue_pair is None or burst is not self._offered:
            raise ValueError(f"{burst!r} is not the burst that was offered last")
        if burst.kind == _DATA:
            # The message is credited before the queue pair moves on to the next.
            self._credit_wait(queue_pair)
            queue_pair.requester.commit(burst, now_ns)
        else:
            queue_pair.responder.commit(burst)
            self.control_sent += 1
        self._offered = None
        self._offered_queue_pair = None
        self.packets_sent += burst.count
        self.bytes_sent += burst.wire_bytes
        self.bursts_sent += 1
        self._line.occupy(burst.wire_bytes, now_ns)
        if burst.kind != _DATA:
            if not queue_pair.responder.has_answer():
                self._answering.popleft()
                queue_pair.is_answering = False
            return
        queue_pair.deficit_bytes -= burst.wire_bytes
        if queue_pair.requester.ready_ns() > now_ns:
            self._leave_ring(queue_pair)
        elif self._turns.has_other_order(queue_pair):
            self._turns.leave(queue_pair)
            self._turns.enter(queue_pair)
        elif queue_pair.deficit_bytes <= 0:
            self._turns.ring.rotate(-1)
        self._schedule(queue_pair)

    # The clock.

    def next_wakeup_ns(self) -> int:
        """Return when there is something to send or a timer is due; `NEVER`: not yet.

        A time in the past means now.
        """
        wakeup_ns = _NEVER
        if self._answering or self._turns.ring:
            wakeup_ns = self._line.free_ns
        while self._timers.first_ns < wakeup_ns:
            time_ns = self._timers.first_ns
            queue_pair = self._queue_pairs[self._timers.first_qpn]
            if time_ns != queue_pair.wake_ns:
                self._timers.drop_first()
                continue
            if self._wake_ns(queue_pair) > time_ns:
                # Its deadline has moved on since; the entry stayed behind.
                self._timers.drop_first()
                queue_pair.wake_ns = _NEVER
                self._schedule(queue_pair)
                continue
            return time_ns
        return wakeup_ns

    def handle_timers(self, now_ns: int) -> None:
        """Act on the timers that are due: retransmission, pacing, congestion control.

        `peek_burst` and `next_burst` do that too.
        """
        while self._timers.first_ns <= now_ns:
            time_ns = self._timers.first_ns
            queue_pair = self._queue_pairs[self._timers.first_qpn]
            self._timers.drop_first()
            if time_ns != queue_pair.wake_ns:
                continue
            queue_pair.wake_ns = _NEVER
            if queue_pair.requester.next_timeout_ns() <= now_ns:
                queue_pair.handle_timeout(now_ns)
            self._update(queue_pair, time_ns, now_ns)

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
        self.packets_received += packets
        queue_pair = self._queue_pairs.get(burst.destination_qpn)
        if queue_pair is None:
            self.unknown_queue_pair += packets
            return
        if burst.kind == _DATA:
            queue_pair.receive_part(burst, first, packets, ce, now_ns)
        else:
            queue_pair.receive_burst(burst, now_ns)
        self._update(queue_pair, now_ns, now_ns)

    def be_not_ready(self, qpn: int, psn: int, now_ns: int) -> bool:
        """Let queue pair *qpn* refuse the packet *psn* for now.

        See `Responder.be_not_ready`; False as well if there is no such queue pair.
        """
        queue_pair = self._queue_pairs.get(qpn)
        if queue_pair is None or not queue_pair.responder.be_not_ready(psn):
            return False
        self._update(queue_pair, now_ns, now_ns)
        return True

    def receive_datagrams(
        self,
        buffer: bytes | bytearray | memoryview,
        length: int,
        segment_size: int,
        now_ns: int,
        ce: bool = False,
        source_port: int = 0,
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
        """
        run = self._run
        queue_pair: QueuePair | None = None
        if length > len(buffer):
            length = len(buffer)
        if length <= 0:
            self.packets_received += 1
            self.malformed += 1
            return
        if segment_size <= 0 or segment_size > length:
            segment_size = length
        offset = 0
        while offset < length:
            size = segment_size if segment_size < length - offset else length - offset
            if self._admits(buffer, offset, size, source_port):
                qpn = self._parser.qpn
                if queue_pair is None or queue_pair.qpn != qpn:
                    if queue_pair is not None:
                        self._deliver(queue_pair, run, ce, now_ns)
                        self._update(queue_pair, now_ns, now_ns)
                    queue_pair = self._queue_pairs.get(qpn)
                if queue_pair is None:
                    self.unknown_queue_pair += 1
                elif queue_pair.memory is not None and self._parser.is_data:
                    self._keep(queue_pair, buffer, ce, now_ns)
                elif not run.extend(self._parser):
                    self._deliver(queue_pair, run, ce, now_ns)
                    if self._parser.is_data:
                        run.begin(self._parser, queue_pair.path_mtu)
                    else:
                        self._receive_control(queue_pair, now_ns)
            offset += size
        if queue_pair is not None:
            self._deliver(queue_pair, run, ce, now_ns)
            self._update(queue_pair, now_ns, now_ns)

    # Inside.

    def _admits(
        self,
        buffer: bytes | bytearray | memoryview,
        offset: int,
        size: int,
        source_port: int,
    ) -> bool:
        """Parse a received packet; tell whether it is one and is to be taken."""
        self.packets_received += 1
        if self._parser.parse(buffer, offset, size) == _MALFORMED:
            self.malformed += 1
            return False
        if self._parser.partition_key & 0x7FFF != 0x7FFF:
            # All are full members of the default partition, so its limited members
            # may send, too (IBA volume 1, 10.9.3).
            self.partition_key_errors += 1
            return False
        if self._verifier is None or source_port <= 0:
            return True
        return self._is_intact(buffer, offset, size, source_port)

    def _deliver(self, queue_pair: QueuePair, run: Run, ce: bool, now_ns: int) -> None:
        """Hand over the packets that were collected, if there are any."""
        if run.count == 0:
            return
        queue_pair.receive_run(
            run.psn,
            run.count,
            run.verb,
            run.is_first,
            run.is_last,
            run.payload_bytes,
            run.dma_length_bytes,
            run.immediate,
            run.ack_request,
            run.count if ce else 0,
            now_ns,
        )
        run.count = 0

    def _keep(
        self,
        queue_pair: QueuePair,
        buffer: bytes | bytearray | memoryview,
        ce: bool,
        now_ns: int,
    ) -> None:
        """Hand over the packet that was parsed last with its payload, from *buffer*."""
        parser = self._parser
        start = parser.payload_at
        queue_pair.receive_contents(
            parser.psn,
            parser.verb,
            parser.is_first,
            parser.is_last,
            bytes(buffer[start : start + parser.payload_bytes]),
            parser.dma_length_bytes,
            parser.address,
            parser.key,
            parser.immediate,
            parser.ack_request,
            ce,
            now_ns,
        )

    def _receive_control(self, queue_pair: QueuePair, now_ns: int) -> None:
        """Hand over the packet that was parsed last, which is not data."""
        opcode = self._parser.opcode
        if opcode == _ACKNOWLEDGE:
            queue_pair.receive_ack(self._parser.syndrome, self._parser.psn, now_ns)
        elif opcode == _CNP:
            queue_pair.receive_cnp(now_ns)
        else:
            self.unsupported += 1
            if opcode in _REFUSED_OPCODES:
                problem = f"opcode {opcode:#04x} is not supported"
                queue_pair.refuse(self._parser.psn, problem, now_ns)

    def _is_intact(
        self,
        buffer: bytes | bytearray | memoryview,
        offset: int,
        size: int,
        source_port: int,
    ) -> bool:
        """Tell whether the ICRC of a packet is right, or is not looked at."""
        verifier = self._verifier
        queue_pair = self._queue_pairs.get(self._parser.qpn)
        if verifier is None or queue_pair is None or not verifier.is_due():
            return True
        self.icrc_checked += 1
        if verifier.is_valid(
            bytes(buffer[offset : offset + size]),
            peer=queue_pair.destination,
            source_port=source_port,
        ):
            return True
        self.icrc_errors += 1
        return False

    def _wake_ns(self, queue_pair: QueuePair) -> int:
        """Return when a queue pair is to be looked at again, come what may."""
        wake_ns = queue_pair.requester.next_timeout_ns()
        if not queue_pair.is_in_ring:
            ready_ns = queue_pair.requester.ready_ns()
            if ready_ns < wake_ns:
                return ready_ns
        return wake_ns

    def _schedule(self, queue_pair: QueuePair) -> None:
        """See that a timer stands for *queue_pair*, early enough.

        Deadlines mostly move on: an entry that has become too early is left where it is
        and looked at when its time comes.
        """
        wake_ns = self._wake_ns(queue_pair)
        if wake_ns < queue_pair.wake_ns:
            queue_pair.wake_ns = wake_ns
            self._timers.add(wake_ns, queue_pair.qpn)

    def _update(self, queue_pair: QueuePair, since_ns: int, now_ns: int) -> None:
        """Take note of what a queue pair may do after something happened to it.

        Args:
            queue_pair: The one.
            since_ns: Since when it may, if it may now: before *now_ns* if a timer that
                made it ready is handled late.
            now_ns: The time.
        """
        is_busy = len(self._answering) + len(self._turns.ring) > 0
        if not queue_pair.is_in_ring and queue_pair.requester.ready_ns() <= now_ns:
            if not is_busy:
                is_busy = True
                self._line.demand(since_ns)
            queue_pair.ready_since_ns = since_ns
            # What the line has lost so far, it has lost without this queue pair.
            queue_pair.wait_before_ns = (
                self._line.generator_wait_ns + self._line.lost_ns(since_ns)
            )
            self._turns.enter(queue_pair)
        elif queue_pair.is_in_ring and self._turns.has_other_order(queue_pair):
            # It has gone back, or skipped what had arrived after all.
            self._turns.leave(queue_pair)
            self._turns.enter(queue_pair)
        if not queue_pair.is_answering and queue_pair.responder.has_answer():
            if not is_busy:
                self._line.demand(now_ns)
            queue_pair.is_answering = True
            self._answering.append(queue_pair)
        self._schedule(queue_pair)

    def _leave_ring(self, queue_pair: QueuePair) -> None:
        """Take the first queue pair out of the ring: it may not send now."""
        self._turns.leave(queue_pair)
        self._schedule(queue_pair)

    def _offer(self, burst: Burst, queue_pair: QueuePair, now_ns: int) -> None:
        """Remember what is offered, and account for how late that is."""
        self._offered = burst
        self._offered_queue_pair = queue_pair
        if burst.kind == _DATA and self._line.is_first_offer():
            self._note_pacing(queue_pair, now_ns)
        self._line.offer(now_ns)

    def _note_pacing(self, queue_pair: QueuePair, now_ns: int) -> None:
        """Count how much later than its pace allowed a burst of data is offered."""
        paced_ns = queue_pair.requester.ready_ns()
        if not self._line.has_rate() and paced_ns <= 0:
            return
        due_ns = self._line.due_ns()
        if due_ns < queue_pair.ready_since_ns:
            due_ns = queue_pair.ready_since_ns
        if due_ns < paced_ns:
            due_ns = paced_ns
        self.pacing_errors.add(now_ns - due_ns)

    def _credit_wait(self, queue_pair: QueuePair) -> None:
        """Add to its message what the port lost while *queue_pair* was ready."""
        total_ns = self._line.generator_wait_ns
        wait_ns = total_ns - queue_pair.wait_before_ns
        queue_pair.wait_before_ns = total_ns
        if wait_ns > 0:
            queue_pair.requester.add_generator_wait(wait_ns)
