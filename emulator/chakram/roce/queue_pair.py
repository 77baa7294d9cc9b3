# cython: annotation_typing=False, language_level=3, cdivision=True
"""A reliable-connected queue pair, without I/O and without a clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.foundation.field_bounds import check_fields
from chakram.native.prefetch import prefetch
from chakram.records.counter_definitions import QueuePairStatistics, gather
from chakram.roce.arrivals import Arrivals
from chakram.roce.burst import Burst
from chakram.roce.constants import (
    IPV4_OVERHEAD_BYTES,
    NEVER,
    BurstKind,
)
from chakram.roce.fifo import Fifo
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
    from chakram.roce.send_turns import SendOrder

__all__ = ["LONGEST_BURST_NS", "QueuePair"]

_NEVER = NEVER
_DATA = int(BurstKind.DATA)
_CNP = int(BurstKind.CNP)
# As a literal it would be Python's integer, also in compiled code.
_ADDRESS_MASK = 0xFFFFFFFFFFFFFFFF
_AETH_BYTES = 4
_CNP_BYTES = 16
LONGEST_BURST_NS = 1 << 23
"""Times a rate of some terabits per second it fits 64 bits."""


class QueuePair:
    """One end of a reliable connection: a requester and a responder.

    Three things drive it, all with the time in ns of one clock that never runs back:
    the user (`post_send`), the network (`receive_burst`, `receive_packet`) and the
    clock (`handle_timeout`, when `next_timeout_ns` has come). After each of them
    take what it gives: `next_burst` until None, then `next_event` until None.

    A queue pair usually belongs to a `PortEngine`, which calls all this; then post and
    take events there.

    Attributes:
        qpn: Its number, 24 bits.
        remote_qpn: The peer's.
        source_port: UDP source port of what it sends.
        destination: Index of the peer's address, for the edge alone.
        memory: Where what arrives is kept; None: nowhere.
        is_bound: Whether packets must come from one address: see `bind_to`.
        peer_high: That address as `addresses.address_halves` has it.
        peer_low: Likewise.
        is_heard: Whether anything came from there.
        foreign_packets: Packets to this queue pair that came from elsewhere.
        foreign_high: Where the last of them came from.
        foreign_low: Likewise.
        flow: What its verifier keeps of what arrives for it; None: that is not looked
            at.
    """

    __slots__ = (
        "_congestion_control",
        "_events",
        "_owner",
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
        """Make a queue pair that is ready to send and to receive.

        Args:
            pair: Its numbers: QPN and PSN of either end, source port.
            settings: Those of all queue pairs.
            destination: See the attributes of the class.
            congestion_control: Its own, not shared with other queue pairs.
            burst_ns: With a rate from congestion control, how much of that rate's time
                one burst may take; one packet always may go.
            cnp_limiter: When marked packets are answered with CNPs; None: never.
            overhead_bytes: `IPV4_OVERHEAD_BYTES`; 20 more of IPv6.
            remote_address: Where WRITEs go (a peer of ours does not look).
            remote_key: Key for that (likewise).
            memory: Where what arrives is kept; None: it is counted alone, and any WRITE
                is taken.

        Raises:
            ValueError: If one of them is out of range.
        """
        check_fields(pair)
        for name, value, maximum in (
            ("remote_address", remote_address, (1 << 64) - 1),
            ("remote_key", remote_key, (1 << 32) - 1),
            ("burst_ns", burst_ns, LONGEST_BURST_NS),
        ):
            if not 0 <= value <= maximum:
                raise ValueError(
                    f"qpn {pair.qpn}: {name} {value} is not in 0..{maximum}"
                )
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
        self._owner: object = pair.qpn
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
        # What is always looked at together is found from here, and comes at once.
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
        # What follows is the port's: `PortEngine` alone uses it.
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
        """Report to *events*, a port's, from now on; what is there moves along."""
        while self._events.count:
            events.append(self._events.take())
        self._events = events
        self.requester.redirect_events(events, self._owner)
        self.responder.redirect_events(events, self._owner)

    def belong_to(self, owner: object) -> None:
        """Let events name *owner* from now on, and no longer the QPN.

        So who uses the queue pair finds what it keeps of it without looking for it.
        """
        self._owner = owner
        self.requester.redirect_events(self._events, owner)
        self.responder.redirect_events(self._events, owner)

    def bind_to(self, peer_high: int, peer_low: int) -> None:
        """Take, of what arrives as bytes, only what comes from one address.

        The UDP source port is a peer's choice and is not looked at.
        """
        self.is_bound = True
        self.peer_high = peer_high
        self.peer_low = peer_low

    def takes_from(self, high: int, low: int) -> bool:
        """Tell whether a packet from an address is the peer's, as far as that tells."""
        return not self.is_bound or (self.peer_high == high and self.peer_low == low)

    def note_foreign(self, high: int, low: int) -> None:
        """Count a packet that came from another address than the peer's."""
        self.foreign_packets += 1
        self.foreign_high = high
        self.foreign_low = low

    def fetch_sender(self) -> None:
        """Let the memory come that is looked at when it sends, or hears of that."""
        prefetch(self, 6)
        prefetch(self.requester, 7)
        prefetch(self._queue, 2)
        prefetch(self._congestion_control, 2)
        prefetch(self._pace, 2)
        prefetch(self._retries, 2)
        prefetch(self._owner, 1)

    def fetch_receiver(self) -> None:
        """Let the memory come that is looked at when data arrive."""
        prefetch(self, 6)
        prefetch(self.responder, 6)
        prefetch(self.arrivals, 1)
        prefetch(self.requester, 1)
        prefetch(self._owner, 1)

    # The user.

    def post_send(
        self,
        message_id: int,
        size_bytes: int,
        now_ns: int,
        contents: bytes | None = None,
        remote_offset: int = 0,
    ) -> None:
        """Send a message; `SendCompleted` will tell when it has arrived.

        On a queue pair that has failed the message is flushed at once: it is counted,
        and no event comes.

        Args:
            message_id: The immediate data, 32 bits: the peer's `MessageReceived` names
                it; or `NO_IMMEDIATE`.
            size_bytes: 0 is legal, and one packet.
            now_ns: The time.
            contents: The payload; None: a pattern, which costs less to send.
            remote_offset: Where a WRITE goes, from the *remote_address* of the queue
                pair.

        Raises:
            ValueError: If *message_id* or *size_bytes* (2**31 at most) is out of range,
                or *contents* do not have that size.
        """
        self.requester.post_send(
            message_id, size_bytes, now_ns, 0, contents, remote_offset
        )

    def next_event(self) -> Event | None:
        """Return what has happened, oldest first, or None."""
        return self._events.take() if self._events.count else None

    def statistics(self) -> QueuePairStatistics:
        """Return the counters as they are now."""
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
        """Return the rate, the target and alpha of ``QueuePairStatistics``."""
        control = self._congestion_control
        rate_bps = control.rate_bps
        return (
            rate_bps if rate_bps > 0 else None,
            getattr(control, "target_bps", None),
            getattr(control, "alpha", None),
        )

    def happenings(self) -> int:
        """Return a number that grows whenever something happens to it."""
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
        """Return the payload that is under way."""
        return self.requester.unacknowledged_bytes()

    def unfinished_messages(self) -> int:
        """Return how many messages are posted and not completely acknowledged."""
        return self.requester.unfinished_messages()

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

        *ce* of them are marked "congestion experienced".
        """
        packets = burst.count - first if count is None else count
        self.arrivals.receive_burst(burst, now_ns, first, packets, ce)

    def receive_packet(self, packet: Packet, now_ns: int, ce: bool = False) -> None:
        """Take one decoded packet, whatever sent it."""
        self.arrivals.receive_packet(packet, now_ns, ce)

    # The clock.

    def handle_timeout(self, now_ns: int) -> None:
        """Act on the timers that are due; harmless if none is."""
        self.requester.handle_timeout(now_ns)
        if self.requester.failed:
            self.responder.fail(self.requester.failure)

    def next_timeout_ns(self) -> int:
        """Return when `handle_timeout` or `next_burst` has something to do next.

        A time in the past means now; `NEVER` means not before something comes in.
        """
        if self.responder.has_answer():
            return 0
        timeout_ns = self.requester.next_timeout_ns()
        ready_ns = self.requester.ready_ns()
        return ready_ns if ready_ns < timeout_ns else timeout_ns

    # The network: out.

    def next_burst(self, now_ns: int, max_packets: int) -> Burst | None:
        """Return the packets that leave now, answers first; None: nothing may."""
        burst = self.make_answer()
        if burst is None and self.requester.ready_ns() <= now_ns:
            burst = self.make_burst(max_packets)
        if burst is not None:
            self.commit(burst, now_ns)
        return burst

    def make_answer(self) -> Burst | None:
        """Return the ACK, NAK or CNP that is to leave, or None; changes nothing."""
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
        """Return the data that is to leave, or None; changes nothing.

        Whether it may leave *now* is `Requester.ready_ns`.
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
        """Note that *burst*, the last one made, has left.

        Raises:
            ValueError: If it is not what would leave next.
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
