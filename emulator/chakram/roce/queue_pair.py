# cython: annotation_typing=False, language_level=3, cdivision=True
"""A reliable-connected queue pair, without I/O and without a clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.foundation.field_bounds import check_fields
from chakram.native.prefetch import prefetch
from chakram.records.counter_definitions import QueuePairStatistics, gather
from chakram.roce.burst import Burst
from chakram.roce.constants import (
    IPV4_OVERHEAD_BYTES,
    NEVER,
    BurstKind,
)
from chakram.roce.fifo import Fifo
from chakram.roce.packet_dispatch import Arrivals
from chakram.roce.requester import Requester
from chakram.roce.responder import Responder

if TYPE_CHECKING:
    from chakram.plan.plan import QueuePairPlan
    from chakram.plan.transport import TransportPlan
    from chakram.roce.congestion.base import CongestionControl
    from chakram.roce.events import Event
    from chakram.roce.headers import Packet
    from chakram.roce.notification_point import CnpLimiter
    from chakram.roce.packet_verification import ArrivingFlow
    from chakram.roce.receive_memory import MemoryRegion
    from chakram.roce.send_order import SendOrder

__all__ = ["LONGEST_BURST_NS", "QueuePair"]

_NEVER = NEVER
_DATA = int(BurstKind.DATA)
_CNP = int(BurstKind.CNP)
# A literal would be a Python integer, even in compiled code.
_ADDRESS_MASK = 0xFFFFFFFFFFFFFFFF
_AETH_BYTES = 4
_CNP_BYTES = 16
LONGEST_BURST_NS = 1 << 23
"""Longest burst time, in ns. Its product with 1 Tbit/s fits into 64 bits."""


def _check_range(pair: QueuePairPlan, name: str, value: int, maximum: int) -> None:
    if not 0 <= value <= maximum:
        raise ValueError(f"qpn {pair.qpn}: {name} {value} is not in 0..{maximum}")


class QueuePair:
    """One end of a reliable connection: a requester and a responder.

    Three sources of input drive it:

    * the user (`post_send`)
    * the network (`receive_burst`, `receive_packet`)
    * the clock (`handle_timeout`, at `next_timeout_ns`)

    All calls pass the time in ns of one monotonic clock. After each input, call
    `next_burst` until it returns None, then `next_event` until it returns None.

    A queue pair usually belongs to a `PortEngine`, which makes these calls. In that
    case, use the port to post messages and to take events.

    Attributes:
        qpn: Queue pair number, 24 bits.
        remote_qpn: QPN of the peer.
        owner: See `belong_to`.
        source_port: UDP source port of sent packets.
        destination: Index of the peer's address, which only the I/O layer uses.
        memory: Memory for received payload; None: payload is not kept.
        is_bound: Whether packets must come from one address: see `bind_to`.
        peer_high: First half of that address, as `ip_addresses.address_halves` returns
            it.
        peer_low: Second half of that address.
        is_heard: Whether any packet has come from that address.
        foreign_packets: Number of packets to this queue pair from other addresses.
        foreign_high: First half of the source address of the last foreign packet.
        foreign_low: Second half of that source address.
        flow: Cache for the verification of arriving packets; None: no verification.
    """

    __slots__ = (
        "_congestion_control",
        "_events",
        "_pace",
        "_queue",
        "_remote_address",
        "_remote_key",
        "_retries",
        "arrivals",
        "control_entry_ns",
        "deficit_bytes",
        "destination",
        "flow",
        "foreign_high",
        "foreign_low",
        "foreign_packets",
        "is_answering",
        "is_bound",
        "is_heard",
        "is_in_ring",
        "memory",
        "order",
        "overhead_bytes",
        "owner",
        "path_mtu",
        "peer_high",
        "peer_low",
        "qpn",
        "ready_entry_ns",
        "ready_since_ns",
        "remote_qpn",
        "requester",
        "responder",
        "send_order",
        "source_port",
        "timeout_entry_ns",
        "turn_behind",
        "wait_before_ns",
    )

    def __init__(
        self,
        pair: QueuePairPlan,
        settings: TransportPlan,
        *,
        destination: int,
        congestion_control: CongestionControl,
        burst_ns: int = 15_000,
        cnp_limiter: CnpLimiter | None = None,
        overhead_bytes: int = IPV4_OVERHEAD_BYTES,
        remote_address: int = 0,
        remote_key: int = 0,
        memory: MemoryRegion | None = None,
    ) -> None:
        """Create a queue pair that is ready to send and to receive.

        Args:
            pair: QPN and PSN of both ends, and the source port.
            settings: Settings of all queue pairs.
            destination: See the attributes of the class.
            congestion_control: Congestion control, not shared with other queue pairs.
            burst_ns: Maximum duration of a burst, at the rate that congestion control
                sets. One packet may always leave.
            cnp_limiter: Limits the CNPs for marked packets; None: no CNPs are sent.
            overhead_bytes: `IPV4_OVERHEAD_BYTES`; 20 more for IPv6.
            remote_address: Target address of WRITEs. Chakram peers without memory
                ignore it.
            remote_key: Key for that address. Chakram peers without memory ignore it.
            memory: Memory for received payload; None: payload is only counted, and any
                WRITE is accepted.

        Raises:
            ValueError: If an argument is out of range.
        """
        check_fields(pair)
        _check_range(pair, "remote_address", remote_address, (1 << 64) - 1)
        _check_range(pair, "remote_key", remote_key, (1 << 32) - 1)
        _check_range(pair, "burst_ns", burst_ns, LONGEST_BURST_NS)
        self.qpn = pair.qpn
        self.remote_qpn = pair.remote_qpn
        self.source_port = pair.source_port
        self.destination = destination
        self.path_mtu = settings.path_mtu
        self.overhead_bytes = overhead_bytes
        self._remote_address = remote_address
        self._remote_key = remote_key
        self.memory = memory
        self._congestion_control = congestion_control
        self._events = Fifo()
        self.owner: object = pair.qpn
        self.requester = Requester(
            pair,
            settings,
            events=self._events,
            overhead_bytes=overhead_bytes,
            congestion_control=congestion_control,
            burst_ns=burst_ns,
        )
        self.responder = Responder(
            pair,
            settings,
            events=self._events,
            cnp_limiter=cnp_limiter,
            memory=memory,
        )
        # These references exist to prefetch the objects, which are always used
        # together.
        self._pace = self.requester.pace
        self._queue = self.requester.queue
        self._retries = self.requester.retries
        self.arrivals = Arrivals(
            qpn=pair.qpn,
            requester=self.requester,
            responder=self.responder,
            memory=memory,
        )
        self.is_bound = False
        self.peer_high = 0
        self.peer_low = 0
        self.is_heard = False
        self.foreign_packets = 0
        self.foreign_high = 0
        self.foreign_low = 0
        self.flow: ArrivingFlow | None = None
        # The fields that follow belong to the port. Only `PortEngine` and its parts use
        # them.
        self.is_in_ring = False
        self.send_order: SendOrder | None = None
        self.order = 0
        self.turn_behind = 0
        self.is_answering = False
        self.deficit_bytes = 0
        self.ready_since_ns = 0
        self.wait_before_ns = 0
        self.timeout_entry_ns = _NEVER
        self.control_entry_ns = _NEVER
        self.ready_entry_ns = _NEVER

    def redirect_events(self, events: Fifo) -> None:
        """Report events to *events*, a port's queue. Pending events move there."""
        while self._events.count:
            events.append(self._events.take())
        self._events = events
        self.requester.redirect_events(events, self.owner)
        self.responder.redirect_events(events, self.owner)

    def belong_to(self, owner: object) -> None:
        """Set the `owner` attribute of future events, which is the QPN by default.

        Users can then find their own state for the queue pair without a lookup.
        """
        self.owner = owner
        self.requester.redirect_events(self._events, owner)
        self.responder.redirect_events(self._events, owner)

    def connect_to(self, remote_qpn: int, remote_address: int, remote_key: int) -> None:
        """Replace the QPN of the peer and the memory to which WRITEs go."""
        self.remote_qpn = remote_qpn
        self._remote_address = remote_address
        self._remote_key = remote_key

    def bind_to(self, peer_high: int, peer_low: int) -> None:
        """Accept packets that arrive as bytes only from one address.

        The peer chooses its UDP source port, so that port is not checked.
        """
        self.is_bound = True
        self.peer_high = peer_high
        self.peer_low = peer_low

    def takes_from(self, high: int, low: int) -> bool:
        """Return whether packets from an address are accepted."""
        return not self.is_bound or (self.peer_high == high and self.peer_low == low)

    def note_foreign(self, high: int, low: int) -> None:
        """Count a packet that did not come from the address of the peer."""
        self.foreign_packets += 1
        self.foreign_high = high
        self.foreign_low = low

    def fetch_sender(self) -> None:
        """Prefetch the memory that is needed to send, and to handle responses."""
        prefetch(self, 6)
        prefetch(self.requester, 7)
        prefetch(self._queue, 2)
        prefetch(self._congestion_control, 2)
        prefetch(self._pace, 2)
        prefetch(self._retries, 2)
        prefetch(self.owner, 1)

    def fetch_receiver(self) -> None:
        """Prefetch the memory that is needed to receive data."""
        prefetch(self, 6)
        prefetch(self.responder, 6)
        prefetch(self.arrivals, 1)
        prefetch(self.requester, 1)
        prefetch(self.owner, 1)

    # User.

    def post_send(
        self,
        message_id: int,
        size_bytes: int,
        now_ns: int,
        contents: bytes | None = None,
        remote_offset: int = 0,
    ) -> None:
        """Post a message. `SendCompleted` reports when the peer has acknowledged it.

        A queue pair that has failed flushes the message immediately. The message is
        counted, but no event follows.

        Args:
            message_id: Immediate data, 32 bits, which the `MessageReceived` of the peer
                reports, or `NO_IMMEDIATE`.
            size_bytes: Size of the payload. 0 is valid and takes one packet.
            now_ns: Current time.
            contents: Payload bytes; None: a pattern, which costs less to send.
            remote_offset: Target of a WRITE, relative to the *remote_address* of the
                queue pair.

        Raises:
            ValueError: If *message_id* or *size_bytes* (2**31 at most) is out of range,
                or *contents* does not have *size_bytes* bytes.
        """
        self.requester.post_send(
            message_id, size_bytes, now_ns, 0, contents, remote_offset
        )

    def next_event(self) -> Event | None:
        """Return the oldest pending event, or None."""
        return self._events.take() if self._events.count else None

    def statistics(self) -> QueuePairStatistics:
        """Return the current counters."""
        rate_bps, target_bps, alpha = self.congestion()
        return gather(
            QueuePairStatistics,
            {"requester": self.requester, "responder": self.responder},
            rate_bps=rate_bps,
            target_bps=target_bps,
            alpha=alpha,
            failure=self.responder.failure,
        )

    def congestion(self) -> tuple[int | None, int | None, float | None]:
        """Return the rate, target rate and alpha for ``QueuePairStatistics``."""
        control = self._congestion_control
        rate_bps = control.rate_bps
        return (
            rate_bps if rate_bps > 0 else None,
            getattr(control, "target_bps", None),
            getattr(control, "alpha", None),
        )

    def happenings(self) -> int:
        """Return a number that grows with any activity of the queue pair."""
        requester = self.requester
        return (
            requester.packets_sent
            + requester.acks_received
            + requester.cnps_received
            + requester.naks_received
            + requester.timeouts
            + self.responder.packets_received
        )

    def unacknowledged_bytes(self) -> int:
        """Return how many payload bytes are in flight."""
        return self.requester.unacknowledged_bytes()

    def unfinished_messages(self) -> int:
        """Return how many messages are posted and not completely acknowledged."""
        return self.requester.unfinished_messages()

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

        If *count* is None, receive all remaining packets. *ce* of these packets are
        marked "congestion experienced".
        """
        packets = burst.count - first if count is None else count
        self.arrivals.receive_burst(burst, now_ns, first, packets, ce)

    def receive_packet(self, packet: Packet, now_ns: int, ce: bool = False) -> None:
        """Receive one decoded packet from any sender."""
        self.arrivals.receive_packet(packet, now_ns, ce)

    # Clock.

    def handle_timeout(self, now_ns: int) -> None:
        """Run the timers that are due, if any."""
        self.requester.handle_timeout(now_ns)
        if self.requester.failed:
            self.responder.fail(self.requester.failure)

    def next_timeout_ns(self) -> int:
        """Return when `handle_timeout` or `next_burst` next has work to do.

        A time in the past means now. `NEVER` means that there is no work until
        something arrives or is posted.
        """
        if self.responder.has_answer():
            return 0
        timeout_ns = self.requester.next_timeout_ns()
        ready_ns = self.requester.ready_ns()
        return ready_ns if ready_ns < timeout_ns else timeout_ns

    # Network output.

    def next_burst(self, now_ns: int, max_packets: int) -> Burst | None:
        """Return the packets that leave now, responses first, or None."""
        burst = self.make_answer()
        if burst is None and self.requester.ready_ns() <= now_ns:
            burst = self.make_burst(max_packets)
        if burst is not None:
            self.commit(burst, now_ns)
        return burst

    def make_answer(self) -> Burst | None:
        """Return the ACK, NAK or CNP to send next, or None, without a state change."""
        if not self.responder.has_answer():
            return None
        burst = Burst()
        self.responder.fill(burst)
        burst.overhead_bytes = self.overhead_bytes
        burst.wire_bytes = self.overhead_bytes + (
            _CNP_BYTES if burst.kind == _CNP else _AETH_BYTES
        )
        self._address(burst)
        return burst

    def make_burst(self, max_packets: int) -> Burst | None:
        """Return the data to send next, or None, without a state change.

        `Requester.ready_ns` decides whether the data may leave now.
        """
        burst = Burst()
        if not self.requester.fill(burst, max_packets):
            return None
        burst.remote_address = (
            self._remote_address + burst.remote_address
        ) & _ADDRESS_MASK
        burst.remote_key = self._remote_key
        self._address(burst)
        return burst

    def commit(self, burst: Burst, now_ns: int) -> None:
        """Record that *burst*, the last burst created, has left.

        Raises:
            ValueError: If *burst* is not the next burst to leave.
        """
        if burst.kind == _DATA:
            self.requester.commit(burst, now_ns)
        else:
            self.responder.commit(burst)

    def _address(self, burst: Burst) -> None:
        burst.source_qpn = self.qpn
        burst.destination_qpn = self.remote_qpn
        burst.source_port = self.source_port
        burst.destination = self.destination
