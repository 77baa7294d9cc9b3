# cython: annotation_typing=False, language_level=3, cdivision=True
"""The sending half of a queue pair: packetization, go-back-N, window and pacing.

Internally, packets have 64-bit sequence numbers that start at 0 and never wrap. A PSN
is the low 24 bits of a sequence number plus the first PSN. Three marks divide the
sequence::

    0 ... unacknowledged ... next ... highest ... end
          acked up to here   to send  ever sent   posted

A loss moves *next* back to *unacknowledged* (go-back-N). An ACK moves *unacknowledged*
forward. If *next* is then behind *unacknowledged*, it moves forward as well.

A peer with a reordering window reports in a NAK how many packets in a row are missing.
Only the missing packets are retransmitted. Then *next* skips to the first packet beyond
the peer's window, because the peer has dropped all packets beyond its window. Further
gaps within the window cause further NAKs.

The requester requests an ACK:

* at the end of a message
* with the first burst that completes `ack_interval_packets` since the last request
* when the window has no room for one more packet

An ACK request is thus in flight whenever the window blocks the requester. The
retransmission timer needs to run only while a request is in flight (IBA volume 1,
9.7.6.1.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.roce.congestion import hook_failed, negative_limit, timer_stands
from chakram.roce.constants import MAX_OUTSTANDING_PACKETS, NEVER, NO_IMMEDIATE, Verb
from chakram.roce.events import QueuePairFailed
from chakram.roce.opcodes import RNR_TIMER_NS, NakCode
from chakram.roce.pacing import Pace
from chakram.roce.retries import FOR_NAK, FOR_RNR, FOR_TIMEOUT, Retries
from chakram.roce.send_queue import SendQueue

if TYPE_CHECKING:
    from chakram.plan.plan import QueuePairPlan
    from chakram.plan.transport import TransportPlan
    from chakram.roce.burst import Burst
    from chakram.roce.congestion.base import CongestionControl
    from chakram.roce.fifo import Fifo
    from chakram.roce.histogram import Histogram
    from chakram.roce.message import Message
    from chakram.roce.pacing import Line

__all__ = ["Requester"]

_NEVER = NEVER
_WRITE = int(Verb.WRITE)
_MAX_OUTSTANDING = MAX_OUTSTANDING_PACKETS
_SEQUENCE_ERROR = int(NakCode.PSN_SEQUENCE_ERROR)
_NO_IMMEDIATE = NO_IMMEDIATE
_FOR_NAK = FOR_NAK
_FOR_TIMEOUT = FOR_TIMEOUT
_FOR_RNR = FOR_RNR
# States: idle; waiting for the port; waiting for the window; waiting for the pace.
_IDLE, _TURN, _WINDOW, _PACE = range(4)
# A message with at most this many unsent bytes may go before a response.
_SHORT_BYTES = 512

NAK_REASONS: dict[int, str] = {
    NakCode.INVALID_REQUEST: "the peer refused a packet as an invalid request",
    NakCode.REMOTE_ACCESS_ERROR: "the peer refused access to its memory",
    NakCode.REMOTE_OPERATIONAL_ERROR: "the peer could not carry out a request",
}


class Requester:
    """The sending half of a queue pair, created with the parameters of `QueuePair`.

    Attributes:
        pace: Pacer at the rate that congestion control sets.
        queue: Messages to send.
        retries: Retry state and ACK timeout.
    """

    __slots__ = (
        "_ack_interval_packets",
        "_ack_sequence",
        "_asked_sequence",
        "_attempt",
        "_congestion_control",
        "_events",
        "_first_psn",
        "_highest",
        "_hole_end",
        "_is_piece",
        "_is_repairing",
        "_line",
        "_most_outstanding",
        "_next",
        "_next_byte",
        "_overhead_bytes",
        "_owner",
        "_pace_ns",
        "_path_mtu",
        "_pause_ns",
        "_paused_ns",
        "_port_ns",
        "_qpn",
        "_reordering_packets",
        "_repair_ns",
        "_resume",
        "_round_trips",
        "_sample_sent_ns",
        "_sample_sequence",
        "_since_ns",
        "_since_request",
        "_state",
        "_transfer_ns",
        "_unacknowledged",
        "_unacknowledged_byte",
        "_until_ns",
        "_verb",
        "_went_back_to",
        "_window_bytes",
        "_window_ns",
        "acks_invalid",
        "acks_received",
        "bytes_retransmitted",
        "bytes_sent",
        "cnps_received",
        "failed",
        "failure",
        "messages_completed",
        "messages_flushed",
        "messages_posted",
        "naks_overtaken",
        "naks_received",
        "naks_stale",
        "pace",
        "packets_retransmitted",
        "packets_sent",
        "queue",
        "receiver_not_ready",
        "retries",
        "timeouts",
        "wire_bytes_sent",
    )

    def __init__(
        self,
        pair: QueuePairPlan,
        settings: TransportPlan,
        *,
        events: Fifo,
        overhead_bytes: int,
        congestion_control: CongestionControl,
        burst_ns: int,
    ) -> None:
        self._events = events
        self._owner: object = pair.qpn
        self._qpn = pair.qpn
        self._path_mtu = settings.path_mtu
        self._overhead_bytes = overhead_bytes
        self._first_psn = pair.send_psn
        self._window_bytes = settings.window_bytes
        self._congestion_control = congestion_control
        self.retries = Retries(settings, seed=pair.qpn)
        # The requester decides once per burst whether to request an ACK. The actual
        # interval is therefore rounded up to whole bursts.
        self._ack_interval_packets = settings.ack_interval_packets
        self.pace = Pace(
            congestion_control=congestion_control,
            burst_ns=burst_ns,
            # Data plane delays affect the rate of a queue pair as much as that of its
            # port.
            burst_bound_ns=settings.burst_bound_ns,
            packet_bytes=settings.path_mtu + overhead_bytes,
            saves_up=settings.saves_up,
        )
        self._verb = int(Verb[settings.verb.upper()])
        self.queue = SendQueue(settings.path_mtu)
        self._unacknowledged = 0
        self._unacknowledged_byte = 0
        self._next = 0
        self._next_byte = 0
        self._highest = 0
        # The sequence number of the last go-back, and the number of the attempt.
        self._went_back_to = -1
        self._attempt = 0
        # The end of the gap that is being filled, and where to continue after it. Both
        # are -1 if there is no such gap.
        self._reordering_packets = settings.reordering_packets
        self._hole_end = -1
        self._resume = -1
        # Maximum number of unacknowledged packets.
        self._most_outstanding = _MAX_OUTSTANDING
        # The last packet in flight that requested an ACK, and how many packets followed
        # it.
        self._ack_sequence = -1
        self._since_request = 0
        # The packet that the last NAK requested, until there is progress, a timeout or
        # another NAK; -1: none.
        self._asked_sequence = -1
        # Current state, its start, and the total time in each state (`_settle`).
        self._line: Line | None = None
        self._state = _IDLE
        self._since_ns = 0
        self._until_ns = 0
        self._is_repairing = False
        self._is_piece = False
        self._paused_ns = 0
        self._port_ns = 0
        self._window_ns = 0
        self._pace_ns = 0
        self._pause_ns = 0
        self._transfer_ns = 0
        self._repair_ns = 0
        self._round_trips: Histogram | None = None
        self._sample_sequence = -1
        self._sample_sent_ns = 0
        self.failed = False
        self.failure = ""
        self.messages_posted = 0
        self.messages_completed = 0
        self.messages_flushed = 0
        self.packets_sent = 0
        self.bytes_sent = 0
        self.wire_bytes_sent = 0
        self.packets_retransmitted = 0
        self.bytes_retransmitted = 0
        self.acks_received = 0
        self.acks_invalid = 0
        self.naks_received = 0
        self.naks_stale = 0
        self.naks_overtaken = 0
        self.receiver_not_ready = 0
        self.cnps_received = 0
        self.timeouts = 0

    def redirect_events(self, events: Fifo, owner: object) -> None:
        """Report to *events* from now on, with *owner* as the owner of the events."""
        self._events = events
        self._owner = owner

    def measure_round_trips(self, round_trips: Histogram) -> None:
        """Count round-trip times in *round_trips* from now on."""
        self._round_trips = round_trips

    # Sending.

    def post_send(
        self,
        message_id: int,
        size_bytes: int,
        now_ns: int,
        order: int = 0,
        contents: bytes | None = None,
        remote_offset: int = 0,
        context: object = None,
    ) -> None:
        """Post a message: see `QueuePair.post_send` for arguments and errors."""
        self.queue.check(message_id, size_bytes, contents)
        self.messages_posted += 1
        if self.failed:
            self.messages_flushed += 1
            return
        message = self.queue.append(
            message_id, size_bytes, now_ns, order, contents, remote_offset
        )
        message.context = context
        self._settle(now_ns)
        self._begin_parts(message)
        # The timer of congestion control does not run while there is nothing to send.
        if (
            message is self.queue.sending
            and self._congestion_control.next_timer_ns <= now_ns
        ):
            self._control_timer(now_ns)

    def ready_ns(self) -> int:
        """Return when a packet may leave; `NEVER`: nothing to send, or window full.

        A time in the past means "now".
        """
        message = self.queue.sending
        if message is None:
            return _NEVER
        outstanding = self._next - self._unacknowledged
        if outstanding >= _MAX_OUTSTANDING:
            return _NEVER
        if outstanding > 0 and self._ack_sequence >= self._unacknowledged:
            payload = message.first_byte + message.size_bytes - self._next_byte
            if payload > self._path_mtu:
                payload = self._path_mtu
            in_flight = self._next_byte - self._unacknowledged_byte
            if in_flight + payload > self._window():
                return _NEVER
        ready_ns = self.pace.ready_ns()
        hold_until_ns = self.retries.hold_until_ns
        return ready_ns if ready_ns > hold_until_ns else hold_until_ns

    def is_idle(self) -> bool:
        """Return whether the queue pair was idle at the last update by its port."""
        return self._state == _IDLE

    def demand(self, since_ns: int) -> None:
        """Record that only the rate or the port has delayed packets since *since_ns*.

        Before that, there were no packets, the window was full, or a timer ran. The
        pacer accumulates no credit during such a pause.
        """
        self.pace.demand(since_ns)

    def sending_order(self) -> int:
        """Return the order of the message with the next packet, or 0 without one."""
        return 0 if self.queue.sending is None else self.queue.sending.order

    def is_nearly_done(self) -> bool:
        """Return whether the message with the next packet has few unsent bytes."""
        message = self.queue.sending
        return (
            message is not None
            and message.first_byte + message.size_bytes - self._next_byte
            <= _SHORT_BYTES
        )

    def fill(self, burst: Burst, max_packets: int) -> bool:
        """Fill *burst* with the next packets, or return False if there are none.

        This ignores the pace and does not change the state. `commit` changes it.
        """
        message = self.queue.sending
        if message is None:
            return False
        path_mtu = self._path_mtu
        outstanding = self._next - self._unacknowledged
        index = self._next - message.first_sequence
        remaining = message.packets - index
        left_bytes = message.first_byte + message.size_bytes - self._next_byte
        count = max_packets if max_packets < remaining else remaining
        paced = self.pace.packets()
        if count > paced:
            count = paced
        if count > self._most_outstanding - outstanding:
            count = self._most_outstanding - outstanding
        if count > 1:
            if index == 0 and self._verb == _WRITE:
                count = 2
            elif (
                count == remaining
                and left_bytes - (count - 1) * path_mtu > path_mtu - 4
            ):
                count -= 1
        window_bytes = self._window()
        in_flight = self._next_byte - self._unacknowledged_byte
        payload_bytes = left_bytes if count == remaining else count * path_mtu
        if in_flight + payload_bytes > window_bytes:
            count = (
                (window_bytes - in_flight) // path_mtu
                if (window_bytes > in_flight)
                else 0
            )
            if count == 0:
                # A window smaller than a packet admits single packets. So does a window
                # that congestion control has shrunk while no ACK is requested.
                if outstanding > 0 and self._ack_sequence >= self._unacknowledged:
                    return False
                count = 1
            payload_bytes = left_bytes if count == remaining else count * path_mtu
        if count <= 0:
            return False
        wire_bytes = payload_bytes + count * self._overhead_bytes
        if index == 0 and self._verb == _WRITE:
            wire_bytes += 16
        if count == remaining:
            wire_bytes += (4 - (payload_bytes & 3)) % 4
            if message.message_id != _NO_IMMEDIATE:
                wire_bytes += 4
        if message.packets == 1:
            most = max_packets if max_packets < paced else paced
            if most > self._most_outstanding - outstanding:
                most = self._most_outstanding - outstanding
            if payload_bytes > 0 and in_flight + most * payload_bytes > window_bytes:
                most = (window_bytes - in_flight) // payload_bytes
            count = self.queue.share(burst, most)
            remaining = count
            payload_bytes *= count
            wire_bytes *= count
        burst.verb = self._verb
        burst.psn = (self._first_psn + self._next) & 0xFFFFFF
        burst.count = count
        burst.path_mtu = path_mtu
        burst.overhead_bytes = self._overhead_bytes
        burst.message_id = message.message_id
        burst.message_bytes = message.size_bytes
        burst.message_packets = message.packets
        burst.packet_index = index
        burst.payload_bytes = payload_bytes
        burst.wire_bytes = wire_bytes
        burst.contents = message.contents
        if burst.message_ids is None:
            burst.parts = message
        burst.remote_address = message.remote_offset
        burst.ack_request = (
            count == remaining
            or self._since_request + count >= self._ack_interval_packets
            or in_flight + payload_bytes + path_mtu > window_bytes
            or outstanding + count >= self._most_outstanding
        )
        if self._next < self._highest:
            burst.resent_packets = self._highest - self._next
            burst.attempt = self._attempt
        burst.sequence = self._next
        return True

    def commit(self, burst: Burst, now_ns: int, due_ns: int = _NEVER) -> None:
        """Record that *burst*, the last burst filled, has left.

        *due_ns* is the time from which the port could have sent the burst, or `NEVER`
        if it is unknown.

        Raises:
            ValueError: If the state has changed since the burst was filled.
        """
        message = self.queue.sending
        if message is None or burst.sequence != self._next:
            raise ValueError(f"{burst!r} is not the next burst of qpn {self._qpn}")
        count = burst.count
        again = self._highest - self._next
        if again > count:
            again = count
        rate_bps = self._congestion_control.rate_bps
        self._settle(now_ns)
        self._is_repairing = again > 0
        if burst.message_ids is None:
            self._note_parts(message, self._next + count, now_ns)
            message.note_sent(again, now_ns, rate_bps, self.cnps_received)
        else:
            for i in range(count):
                message = self.queue.following(i)
                self._note_parts(message, self._next + i + 1, now_ns)
                message.note_sent(
                    1 if i < again else 0, now_ns, rate_bps, self.cnps_received
                )
        if again > 0:
            self.packets_retransmitted += again
            self.retries.note_again(again)
            again_bytes = again * self._path_mtu
            if burst.message_ids is not None:
                again_bytes = again * burst.message_bytes
            if again_bytes > burst.payload_bytes:
                again_bytes = burst.payload_bytes
            self.bytes_retransmitted += again_bytes
        self.packets_sent += count
        self.bytes_sent += burst.payload_bytes
        self.wire_bytes_sent += burst.wire_bytes
        self._next += count
        self._next_byte += burst.payload_bytes
        if self._next > self._highest:
            self._highest = self._next
        if burst.ack_request:
            self._ack_sequence = self._next - 1
            self._since_request = 0
            if self._sample_sequence < 0 and again <= 0:
                self._sample_sequence = self._ack_sequence
                self._sample_sent_ns = now_ns
            if self.retries.timeout_ns == _NEVER:
                self.retries.await_ack(now_ns)
        else:
            self._since_request += count
        if self._next == message.first_sequence + message.packets:
            self.queue.advance(1 if burst.message_ids is None else count)
        if again > 0 and 0 <= self._hole_end <= self._next:
            self._leap()
        self.pace.advance(
            burst.wire_bytes, now_ns, due_ns if due_ns < now_ns else now_ns
        )
        try:
            self._congestion_control.on_sent(burst.wire_bytes, now_ns)
        except (Exception, SystemExit) as error:
            raise hook_failed(self._congestion_control, "on_sent", error) from error

    def add_generator_wait(self, wait_ns: int) -> None:
        """Record that the message with the next packet waited for the data plane."""
        if self.queue.sending is not None:
            self.queue.sending.generator_wait_ns += wait_ns

    # Time accounting.

    def use_line(self, line: Line) -> None:
        """Set the link of the port."""
        self._line = line

    def note_line(self, until_ns: int) -> None:
        """Record until when the last burst occupies the link."""
        self._until_ns = until_ns

    def begin_turn(self, now_ns: int) -> None:
        """Record that the queue pair may send as soon as the port allows it."""
        self._settle(now_ns)
        self._state = _TURN
        if self._line is not None:
            self._paused_ns = self._line.paused_ns(now_ns)

    def end_turn(self, now_ns: int) -> None:
        """Record that the queue pair may not send now."""
        self._settle(now_ns)
        if self.queue.sending is None:
            self._state = _IDLE
        else:
            ready_ns = self.ready_ns()
            self._state = _PACE if now_ns < ready_ns < _NEVER else _WINDOW

    def _settle(self, now_ns: int) -> None:
        """Account for the time since the last call.

        While packets of the queue pair occupy the link, the time counts as transfer in
        any state, or as repair for retransmissions. While packets remain to be
        retransmitted, all time counts as repair.
        """
        since_ns = self._since_ns
        elapsed_ns = now_ns - since_ns
        if elapsed_ns <= 0:
            return
        self._since_ns = now_ns
        if self._state == _IDLE:
            return
        if self._next < self._highest:
            self._repair_ns += elapsed_ns
            return
        own_ns = self._until_ns - since_ns
        if own_ns > 0:
            if own_ns > elapsed_ns:
                own_ns = elapsed_ns
            if self._is_repairing:
                self._repair_ns += own_ns
            else:
                self._transfer_ns += own_ns
            elapsed_ns -= own_ns
        if self._state == _WINDOW:
            self._window_ns += elapsed_ns
        elif self._state == _PACE:
            self._pace_ns += elapsed_ns
        else:
            if self._line is not None:
                total_ns = self._line.paused_ns(now_ns)
                paused_ns = total_ns - self._paused_ns
                self._paused_ns = total_ns
                if paused_ns > elapsed_ns:
                    paused_ns = elapsed_ns
                self._pause_ns += paused_ns
                elapsed_ns -= paused_ns
            self._port_ns += elapsed_ns

    def _begin_parts(self, message: Message) -> None:
        """Store the current totals of all states in a message when it is posted."""
        message.own_port_ns = self._port_ns
        message.window_ns = self._window_ns
        message.pace_ns = self._pace_ns
        message.pause_ns = self._pause_ns
        message.transfer_ns = self._transfer_ns
        message.repair_ns = self._repair_ns
        message.continues = self._is_piece
        self._is_piece = message.message_id == _NO_IMMEDIATE

    def _note_parts(self, message: Message, end: int, now_ns: int) -> None:
        """Record that packets of a message leave, up to the sequence *end*."""
        if message.first_sent_ns < 0 and not message.continues:
            # The port sent other messages until now.
            message.own_port_ns -= self._transfer_ns - message.transfer_ns
            message.transfer_ns = self._transfer_ns
        if end < message.first_sequence + message.packets:
            return
        if message.left_ns < 0:
            message.left_ns = now_ns
            message.own_port_ns = self._port_ns - message.own_port_ns
            message.window_ns = self._window_ns - message.window_ns
            message.pace_ns = self._pace_ns - message.pace_ns
            message.pause_ns = self._pause_ns - message.pause_ns
            message.transfer_ns = self._transfer_ns - message.transfer_ns
            message.repair_ns = self._repair_ns - message.repair_ns
        if message.received_ns < 0:
            message.departed_ns = now_ns

    # Responses.

    def handle_ack(self, psn: int, now_ns: int) -> None:
        """Handle an ACK of all packets up to *psn*."""
        if self.failed:
            return
        self.acks_received += 1
        acknowledged = self._sequence_of(psn) + 1
        if acknowledged > self._highest:
            self.acks_invalid += 1
        elif acknowledged > self._unacknowledged:
            self._acknowledge(acknowledged, now_ns)

    def handle_nak(
        self, syndrome: int, psn: int, now_ns: int, missing: int = 0
    ) -> None:
        """Handle a NAK, or a receiver-not-ready NAK, for the packet *psn*.

        The NAK acknowledges all packets before *psn*. *missing* is the MSN field. A
        peer with a reordering window reports there how many packets in a row are
        missing.

        A NAK for a packet that is already acknowledged counts as stale. A NAK for a
        packet that was never sent counts as invalid.
        """
        if self.failed:
            return
        self.naks_received += 1
        expected = self._sequence_of(psn)
        if expected >= self._highest:
            self.acks_invalid += 1
            return
        if expected < self._unacknowledged:
            self.naks_stale += 1
            return
        is_progress = expected > self._unacknowledged
        if is_progress:
            self._acknowledge(expected, now_ns)
        if syndrome == _SEQUENCE_ERROR:
            if not is_progress:
                if self._next == self._unacknowledged:
                    self.naks_stale += 1
                    return
                if not self.retries.may_go_back():
                    self.fail(
                        f"gave up after {self.retries.limit} retries: the peer "
                        f"repeatedly requests PSN {psn}",
                        now_ns,
                        _FOR_NAK,
                    )
                    return
            self._go_back(_FOR_NAK, now_ns)
            self._asked_sequence = expected
            if 0 < missing < self._reordering_packets:
                resume = expected + self._reordering_packets
                self._hole_end = expected + missing
                self._resume = resume if resume < self._highest else self._highest
                self._most_outstanding = missing
            try:
                self._congestion_control.on_nak(now_ns)
            except (Exception, SystemExit) as error:
                raise hook_failed(self._congestion_control, "on_nak", error) from error
        elif syndrome >> 5 == 1:
            if (
                now_ns < self.retries.hold_until_ns
                and self._next == self._unacknowledged
            ):
                # Nothing has left since the last NAK, so this NAK is a duplicate.
                self.naks_stale += 1
                return
            self.receiver_not_ready += 1
            if not self.retries.may_wait():
                self.fail(
                    f"gave up after {self.retries.rnr_limit} RNR retries: the peer is "
                    f"not ready to receive PSN {psn}",
                    now_ns,
                    _FOR_RNR,
                )
                return
            self._go_back(_FOR_RNR, now_ns)
            self.retries.hold_until_ns = now_ns + RNR_TIMER_NS[syndrome & 0x1F]
        else:
            self.fail(
                NAK_REASONS.get(syndrome, f"the peer sent NAK {syndrome:#04x}"), now_ns
            )

    def handle_cnp(self, now_ns: int) -> None:
        """Handle a congestion notification packet."""
        if self.failed:
            return
        self.cnps_received += 1
        try:
            self._congestion_control.on_cnp(now_ns)
        except (Exception, SystemExit) as error:
            raise hook_failed(self._congestion_control, "on_cnp", error) from error

    def handle_timeout(self, now_ns: int) -> None:
        """Run the timers that are due."""
        if self.failed:
            return
        if self._congestion_control.next_timer_ns <= now_ns:
            self._control_timer(now_ns)
        if self.retries.timeout_ns > now_ns:
            return
        self.timeouts += 1
        if not self.retries.may_go_back():
            psn = (self._first_psn + self._unacknowledged) & 0xFFFFFF
            self.fail(
                f"gave up after {self.retries.limit} retries: no ACK for PSN {psn}",
                now_ns,
                _FOR_TIMEOUT,
            )
            return
        self._go_back(_FOR_TIMEOUT, now_ns)
        try:
            self._congestion_control.on_timeout(now_ns)
        except (Exception, SystemExit) as error:
            raise hook_failed(self._congestion_control, "on_timeout", error) from error

    def next_timeout_ns(self) -> int:
        """Return when `handle_timeout` is due."""
        timer_ns = self.control_timer_ns()
        timeout_ns = self.retries.timeout_ns
        return timer_ns if timer_ns < timeout_ns else timeout_ns

    def control_timer_ns(self) -> int:
        """Return when the timer of congestion control is due, or `NEVER`.

        If there is nothing to send, the timer can wait for the next message.
        """
        if self.queue.sending is None:
            return _NEVER
        return self._congestion_control.next_timer_ns

    def fail(self, reason: str, now_ns: int, retried_for: int | None = None) -> None:
        """Enter the error state, in which posted messages never complete."""
        flushed = self.queue.count
        self.failed = True
        self.failure = reason
        self.messages_flushed += flushed
        self.queue.clear()
        self.retries.timeout_ns = _NEVER
        failed = QueuePairFailed(reason, flushed, now_ns, retried_for)
        failed.owner = self._owner
        self._events.append(failed)

    def unacknowledged_bytes(self) -> int:
        """Return how many payload bytes are in flight."""
        return self._next_byte - self._unacknowledged_byte

    def unfinished_messages(self) -> int:
        """Return how many messages are posted and not completely acknowledged."""
        return self.queue.count

    def _control_timer(self, now_ns: int) -> None:
        """Run the timer hook of congestion control, which must set a later time."""
        try:
            self._congestion_control.on_timer(now_ns)
        except (Exception, SystemExit) as error:
            raise hook_failed(self._congestion_control, "on_timer", error) from error
        if self._congestion_control.next_timer_ns <= now_ns:
            raise timer_stands(self._congestion_control, now_ns)

    def _window(self) -> int:
        """Return the maximum payload that may be in flight."""
        dynamic = self._congestion_control.window_bytes
        if 0 < dynamic < self._window_bytes:
            return dynamic
        if dynamic < 0:
            raise negative_limit(self._congestion_control, "window_bytes", dynamic)
        return self._window_bytes

    def _sequence_of(self, psn: int) -> int:
        """Return the sequence number of *psn* that is nearest to *unacknowledged*."""
        distance = (psn - self._first_psn - self._unacknowledged) & 0xFFFFFF
        if distance >= 0x800000:
            distance -= 0x1000000
        return self._unacknowledged + distance

    def _acknowledge(self, acknowledged: int, now_ns: int) -> None:
        """Move the *unacknowledged* mark to *acknowledged*, and complete messages."""
        byte = self._unacknowledged_byte
        message = self.queue.take_done(acknowledged)
        while message is not None:
            self.messages_completed += 1
            event = message.completion(now_ns, self.cnps_received)
            event.owner = self._owner
            self._events.append(event)
            message = self.queue.take_done(acknowledged)
        self._unacknowledged_byte = self.queue.bytes_before(acknowledged)
        self._unacknowledged = acknowledged
        self.retries.forgive()
        if self._next < acknowledged:
            self._settle(now_ns)
            # The peer already has packets that were to be retransmitted.
            if self._next == self._asked_sequence:
                # The packet that a NAK requested arrived before its retransmission.
                self.naks_overtaken += 1
            self._next = acknowledged
            self._next_byte = self._unacknowledged_byte
            self.queue.go_back()
        if self._hole_end >= 0:
            self._most_outstanding = self._hole_end - acknowledged
            if self._hole_end <= self._next:
                self._leap()
        self._asked_sequence = -1
        round_trip_ns = 0
        if 0 <= self._sample_sequence < acknowledged:
            round_trip_ns = now_ns - self._sample_sent_ns
            self._sample_sequence = -1
            if self._round_trips is not None:
                self._round_trips.add(round_trip_ns)
        if self._ack_sequence >= acknowledged:
            self.retries.await_ack(now_ns)
        else:
            self.retries.timeout_ns = _NEVER
        try:
            self._congestion_control.on_ack(
                self._unacknowledged_byte - byte, round_trip_ns, now_ns
            )
        except (Exception, SystemExit) as error:
            raise hook_failed(self._congestion_control, "on_ack", error) from error

    def _go_back(self, reason: int, now_ns: int) -> None:
        """Restart from the first unacknowledged packet."""
        if self._state == _WINDOW and self._next >= self._highest:
            # The window stayed full because of a loss.
            self._repair_ns += now_ns - self._since_ns
            self._since_ns = now_ns
        self._settle(now_ns)
        self._asked_sequence = -1
        self._hole_end = -1
        self._most_outstanding = _MAX_OUTSTANDING
        self.retries.reason = reason
        if self._went_back_to < self._unacknowledged:
            self._went_back_to = self._unacknowledged
            self._attempt = (self._unacknowledged + 1) << 20
        self._attempt += 1
        self._next = self._unacknowledged
        self._next_byte = self._unacknowledged_byte
        self.queue.go_back()
        self._ack_sequence = -1
        self._since_request = 0
        self._sample_sequence = -1
        self.retries.timeout_ns = _NEVER

    def _leap(self) -> None:
        """Continue beyond the peer's window after sending the missing packets."""
        self._hole_end = -1
        self._most_outstanding = _MAX_OUTSTANDING
        if self._next >= self._resume:
            return
        self._next = self._resume
        self._next_byte = self.queue.leap(self._resume)
        # If no more packets are sent, another gap may cause no NAK. Therefore await the
        # ACK of the last packet, as if it had requested one.
        self._ack_sequence = self._resume - 1
