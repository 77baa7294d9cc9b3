# cython: annotation_typing=False, language_level=3, cdivision=True
"""A reliable-connected queue pair, without I/O and without a clock."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from chakram.roce.backoff import Backoff
from chakram.roce.burst import Burst
from chakram.roce.constants import (
    IPV4_OVERHEAD_BYTES,
    NEVER,
    PATH_MTUS,
    RNR_RETRY_FOR_EVER,
    BurstKind,
    Verb,
)
from chakram.roce.notification import CnpLimiter
from chakram.roce.opcodes import RECEIVER_NOT_READY, NakCode, Opcode
from chakram.roce.psn import PSN_MASK
from chakram.roce.requester import Requester
from chakram.roce.responder import Responder
from chakram.roce.statistics import QueuePairStatistics

if TYPE_CHECKING:
    from chakram.roce.congestion.base import CongestionControl
    from chakram.roce.events import Event
    from chakram.roce.headers import Packet
    from chakram.roce.memory import MemoryRegion
    from chakram.roce.turns import SendOrder

__all__ = ["QueuePair"]

_NEVER = NEVER
_DATA = int(BurstKind.DATA)
_CNP = int(BurstKind.CNP)
_WRITE = int(Verb.WRITE)
_NOT_READY = RECEIVER_NOT_READY
_INVALID_REQUEST = int(NakCode.INVALID_REQUEST)
# As a literal it would be Python's integer, also in compiled code.
_ADDRESS_MASK = 0xFFFFFFFFFFFFFFFF
_AETH_BYTES = 4
_CNP_BYTES = 16
_LONGEST_TIMEOUT_NS = 1 << 53

_FIRST_OPCODES = frozenset(
    (
        Opcode.SEND_FIRST,
        Opcode.SEND_ONLY,
        Opcode.SEND_ONLY_WITH_IMMEDIATE,
        Opcode.WRITE_FIRST,
        Opcode.WRITE_ONLY,
        Opcode.WRITE_ONLY_WITH_IMMEDIATE,
    )
)
_INNER_OPCODES = frozenset(
    (
        Opcode.SEND_FIRST,
        Opcode.SEND_MIDDLE,
        Opcode.WRITE_FIRST,
        Opcode.WRITE_MIDDLE,
    )
)


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
    """

    __slots__ = (
        "_congestion_control",
        "_events",
        "_remote_address",
        "_remote_key",
        "deficit_bytes",
        "destination",
        "is_answering",
        "is_in_ring",
        "memory",
        "order",
        "overhead_bytes",
        "path_mtu",
        "qpn",
        "ready_since_ns",
        "remote_qpn",
        "requester",
        "responder",
        "send_order",
        "source_port",
        "wait_before_ns",
        "wake_ns",
    )

    def __init__(
        self,
        *,
        qpn: int,
        remote_qpn: int,
        source_port: int,
        destination: int,
        path_mtu: int,
        send_psn: int,
        receive_psn: int,
        window_bytes: int,
        congestion_control: CongestionControl,
        retransmit_timeout_ns: int,
        retry_limit: int,
        ack_interval_packets: int,
        verb: Verb,
        burst_bound_ns: int = 15_000,
        backoff_limit: int = 0,
        rnr_retry_limit: int = RNR_RETRY_FOR_EVER,
        rnr_timer: int = 12,
        adaptive_low_ns: int = 0,
        adaptive_tries: int = 2,
        cnp_interval_ns: int | None = None,
        cnp_limiter: CnpLimiter | None = None,
        overhead_bytes: int = IPV4_OVERHEAD_BYTES,
        remote_address: int = 0,
        remote_key: int = 0,
        memory: MemoryRegion | None = None,
    ) -> None:
        """Make a queue pair that is ready to send and to receive.

        Args:
            qpn: See the attributes of the class for these four.
            remote_qpn: Likewise.
            source_port: Likewise.
            destination: Likewise.
            path_mtu: Payload of a full packet, one of 256, 512 .. 4096 bytes.
            send_psn: PSN of the first packet sent; the peer's *receive_psn*.
            receive_psn: PSN of the first packet expected; the peer's *send_psn*.
            window_bytes: Payload that may be unacknowledged. One packet always may.
            congestion_control: Its own, not shared with other queue pairs.
            retransmit_timeout_ns: How long to wait for an ACK that was asked for;
                `NEVER`: for ever. See `local_ack_timeout_ns`.
            retry_limit: How often to go back without progress before giving up.
            ack_interval_packets: How many packets may go without asking for an ACK,
                rounded up to whole bursts.
            verb: How messages are sent.
            burst_bound_ns: With a rate from congestion control, how much of that rate's
                time one burst may take, and how late it may be and still catch up.
            backoff_limit: How often the timeout doubles with each retry.
            rnr_retry_limit: How often to try again in a row when the peer is not ready
                to receive; `RNR_RETRY_FOR_EVER`: always.
            rnr_timer: Code of the time that the peer is asked to wait, see
                `RNR_TIMER_NS`.
            adaptive_low_ns: Where the first range of timeouts begins, in place of
                *retransmit_timeout_ns*; 0: no ranges. See `Backoff`.
            adaptive_tries: How often each range is tried.
            cnp_interval_ns: Answer marked packets with CNPs, at most one in this time;
                None: never.
            cnp_limiter: One that other queue pairs share, in place of an interval of
                its own.
            overhead_bytes: `IPV4_OVERHEAD_BYTES` or `IPV6_OVERHEAD_BYTES`.
            remote_address: Where WRITEs go (a peer of ours does not look).
            remote_key: Key for that (likewise).
            memory: Where what arrives is kept; None: it is counted alone, and any WRITE
                is taken.

        Raises:
            ValueError: If one of them is out of range.
        """
        for name, value, maximum in (
            ("qpn", qpn, PSN_MASK),
            ("remote_qpn", remote_qpn, PSN_MASK),
            ("source_port", source_port, 0xFFFF),
            ("send_psn", send_psn, PSN_MASK),
            ("receive_psn", receive_psn, PSN_MASK),
            ("remote_address", remote_address, (1 << 64) - 1),
            ("remote_key", remote_key, (1 << 32) - 1),
            ("retry_limit", retry_limit, 1 << 31),
            ("backoff_limit", backoff_limit, 8),
            ("rnr_retry_limit", rnr_retry_limit, RNR_RETRY_FOR_EVER),
            ("rnr_timer", rnr_timer, 31),
            ("adaptive_low_ns", adaptive_low_ns, _LONGEST_TIMEOUT_NS >> 4),
            ("cnp_interval_ns", cnp_interval_ns or 0, _LONGEST_TIMEOUT_NS),
            ("burst_bound_ns", burst_bound_ns, 1 << 23),
        ):
            if not 0 <= value <= maximum:
                raise ValueError(f"qpn {qpn}: {name} {value} is not in 0..{maximum}")
        if path_mtu not in PATH_MTUS:
            raise ValueError(
                f"qpn {qpn}: path MTU {path_mtu} is not one of {PATH_MTUS}"
            )
        for name, value in (
            ("window_bytes", window_bytes),
            ("ack_interval_packets", ack_interval_packets),
            ("adaptive_tries", adaptive_tries),
            ("retransmit_timeout_ns", retransmit_timeout_ns),
        ):
            if value <= 0:
                raise ValueError(f"qpn {qpn}: {name} {value} is not positive")
        if _LONGEST_TIMEOUT_NS < retransmit_timeout_ns < NEVER:
            raise ValueError(
                f"qpn {qpn}: retransmit_timeout_ns {retransmit_timeout_ns} is too long"
            )
        if cnp_limiter is None and cnp_interval_ns is not None:
            cnp_limiter = CnpLimiter(cnp_interval_ns)
        self.qpn = qpn
        self.remote_qpn = remote_qpn
        self.source_port = source_port
        self.destination = destination
        self.path_mtu = path_mtu
        self.overhead_bytes = overhead_bytes
        self._remote_address = remote_address
        self._remote_key = remote_key
        self.memory = memory
        self._congestion_control = congestion_control
        self._events: deque[tuple[int, Event]] = deque()
        self.requester = Requester(
            events=self._events,
            qpn=qpn,
            path_mtu=path_mtu,
            overhead_bytes=overhead_bytes,
            first_psn=send_psn,
            window_bytes=window_bytes,
            congestion_control=congestion_control,
            backoff=Backoff(
                timeout_ns=retransmit_timeout_ns,
                doublings=backoff_limit,
                low_ns=adaptive_low_ns,
                tries=adaptive_tries,
                seed=qpn,
            ),
            retry_limit=retry_limit,
            rnr_retry_limit=rnr_retry_limit,
            ack_interval_packets=ack_interval_packets,
            burst_bound_ns=burst_bound_ns,
            verb=int(verb),
        )
        self.responder = Responder(
            events=self._events,
            qpn=qpn,
            path_mtu=path_mtu,
            first_psn=receive_psn,
            rnr_timer=rnr_timer,
            cnp_limiter=cnp_limiter,
        )
        # What follows is the port's: `PortEngine` alone uses it.
        self.is_in_ring = False
        self.send_order: SendOrder | None = None
        self.order = 0
        self.is_answering = False
        self.deficit_bytes = 0
        self.ready_since_ns = 0
        self.wait_before_ns = 0
        self.wake_ns = _NEVER

    def redirect_events(self, events: deque[tuple[int, Event]]) -> None:
        """Report to *events*, a port's, from now on; what is there moves along."""
        events.extend(self._events)
        self._events = events
        self.requester.redirect_events(events)
        self.responder.redirect_events(events)

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
        return self._events.popleft()[1] if self._events else None

    def statistics(self) -> QueuePairStatistics:
        """Return the counters as they are now."""
        requester, responder = self.requester, self.responder
        rate_bps = self._congestion_control.rate_bps
        return QueuePairStatistics(
            messages_posted=requester.messages_posted,
            messages_completed=requester.messages_completed,
            messages_flushed=requester.messages_flushed,
            messages_received=responder.messages_received,
            packets_sent=requester.packets_sent,
            bytes_sent=requester.bytes_sent,
            wire_bytes_sent=requester.wire_bytes_sent,
            packets_retransmitted=requester.packets_retransmitted,
            bytes_retransmitted=requester.bytes_retransmitted,
            retransmitted_for_nak=requester.retransmitted_for_nak,
            retransmitted_for_timeout=requester.retransmitted_for_timeout,
            retransmitted_for_rnr=requester.retransmitted_for_rnr,
            packets_received=responder.packets_received,
            bytes_received=responder.bytes_received,
            acks_sent=responder.acks_sent,
            acks_received=requester.acks_received,
            acks_invalid=requester.acks_invalid,
            naks_sent=responder.naks_sent,
            naks_received=requester.naks_received,
            naks_stale=requester.naks_stale,
            receiver_not_ready=requester.receiver_not_ready,
            receiver_not_ready_sent=responder.receiver_not_ready_sent,
            cnps_sent=responder.cnps_sent,
            cnps_received=requester.cnps_received,
            duplicates=responder.duplicates,
            out_of_sequence=responder.out_of_sequence,
            invalid_requests=responder.invalid_requests,
            timeouts=requester.timeouts,
            ce=responder.ce,
            rate_bps=rate_bps if rate_bps > 0 else None,
            target_bps=getattr(self._congestion_control, "target_bps", None),
            alpha=getattr(self._congestion_control, "alpha", None),
            failure=responder.failure,
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
        if burst.kind == _DATA:
            self.receive_part(burst, first, packets, ce, now_ns)
        elif burst.kind == _CNP:
            self.receive_cnp(now_ns)
        else:
            self.receive_ack(burst.syndrome, burst.psn, now_ns)

    def receive_packet(self, packet: Packet, now_ns: int, ce: bool = False) -> None:
        """Take one decoded packet, whatever sent it."""
        bth = packet.bth
        opcode = bth.opcode
        if packet.aeth is not None and opcode is Opcode.ACKNOWLEDGE:
            self.receive_ack(packet.aeth.syndrome, bth.psn, now_ns)
        elif opcode is Opcode.CNP:
            self.receive_cnp(now_ns)
        elif opcode <= Opcode.WRITE_ONLY_WITH_IMMEDIATE:
            verb = Verb.SEND if opcode < Opcode.WRITE_FIRST else Verb.WRITE
            is_first = opcode in _FIRST_OPCODES
            is_last = opcode not in _INNER_OPCODES
            reth = packet.reth
            dma_length_bytes = reth.dma_length_bytes if reth else 0
            immediate = packet.immediate.value if packet.immediate else -1
            if self.memory is not None:
                self.receive_contents(
                    bth.psn,
                    verb,
                    is_first,
                    is_last,
                    packet.payload,
                    dma_length_bytes,
                    reth.virtual_address if reth else 0,
                    reth.remote_key if reth else 0,
                    immediate,
                    bth.ack_request,
                    int(ce),
                    now_ns,
                )
                return
            self.receive_run(
                bth.psn,
                1,
                verb,
                is_first,
                is_last,
                len(packet.payload),
                dma_length_bytes,
                immediate,
                bth.ack_request,
                int(ce),
                now_ns,
            )
        else:
            self.refuse(bth.psn, f"{opcode.name} is not supported", now_ns)

    def receive_part(
        self, burst: Burst, first: int, count: int, ce: int, now_ns: int
    ) -> None:
        """Take *count* > 0 data packets of *burst* from *first* on."""
        if burst.message_ids is not None:
            for position in range(first, first + count):
                self.receive_run(
                    (burst.psn + position) & 0xFFFFFF,
                    1,
                    burst.verb,
                    True,
                    True,
                    burst.message_bytes,
                    burst.message_bytes,
                    burst.packet_message_id(position),
                    burst.ack_request,
                    1 if position - first < ce else 0,
                    now_ns,
                )
            return
        if self.memory is not None and burst.contents is not None:
            for position in range(first, first + count):
                self._receive_position(burst, position, position - first < ce, now_ns)
            return
        index = burst.packet_index + first
        is_last = index + count == burst.message_packets
        if is_last:
            payload_bytes = burst.message_bytes - index * burst.path_mtu
        else:
            payload_bytes = count * burst.path_mtu
        self.receive_run(
            (burst.psn + first) & 0xFFFFFF,
            count,
            burst.verb,
            index == 0,
            is_last,
            payload_bytes,
            burst.message_bytes,
            burst.message_id if is_last else -1,
            burst.ack_request and first + count == burst.count,
            ce,
            now_ns,
        )

    def _receive_position(
        self, burst: Burst, position: int, is_marked: bool, now_ns: int
    ) -> None:
        """Take the data packet of *burst* at *position*, with its contents."""
        index = burst.packet_index + position
        is_last = index + 1 == burst.message_packets
        start = index * burst.path_mtu
        contents = burst.contents or b""
        self.receive_contents(
            (burst.psn + position) & 0xFFFFFF,
            burst.verb,
            index == 0,
            is_last,
            contents[start : start + burst.packet_payload_bytes(position)],
            burst.message_bytes,
            burst.remote_address,
            burst.remote_key,
            burst.message_id if is_last else -1,
            burst.ack_request and position + 1 == burst.count,
            is_marked,
            now_ns,
        )

    def receive_run(
        self,
        psn: int,
        count: int,
        verb: int,
        is_first: bool,
        is_last: bool,
        payload_bytes: int,
        dma_length_bytes: int,
        immediate: int,
        ack_request: bool,
        ce: int,
        now_ns: int,
    ) -> None:
        """Take a run of data packets; `Responder.receive` says what the values mean."""
        self.responder.receive(
            psn,
            count,
            verb,
            is_first,
            is_last,
            payload_bytes,
            dma_length_bytes,
            immediate,
            ack_request,
            ce,
            now_ns,
        )
        if self.responder.failure is not None:
            self._fail_requester(now_ns)

    def receive_ack(self, syndrome: int, psn: int, now_ns: int) -> None:
        """Take an ACK or NAK with that AETH *syndrome*."""
        if syndrome >> 5 == 0:
            self.requester.handle_ack(psn, now_ns)
        else:
            self.requester.handle_nak(syndrome, psn, now_ns)
            self._fail_responder()

    def receive_cnp(self, now_ns: int) -> None:
        """Take a congestion notification."""
        self.requester.handle_cnp(now_ns)

    def receive_contents(
        self,
        psn: int,
        verb: int,
        is_first: bool,
        is_last: bool,
        payload: bytes,
        dma_length_bytes: int,
        address: int,
        key: int,
        immediate: int,
        ack_request: bool,
        ce: int,
        now_ns: int,
    ) -> None:
        """Take one data packet, and keep its payload in `memory`, which must be there.

        *address* and *key* are those of the RETH; `Responder.receive` says what the
        others mean.
        """
        memory = self.memory
        if memory is None:
            raise ValueError(f"qpn {self.qpn} has no memory")
        is_expected = self.responder.expects(psn)
        if is_expected:
            syndrome, problem = memory.judge(
                verb=verb,
                is_first=is_first,
                payload_bytes=len(payload),
                dma_length_bytes=dma_length_bytes,
                address=address,
                key=key,
            )
            if syndrome == _NOT_READY:
                self.responder.be_not_ready(psn)
                return
            if syndrome:
                self.refuse(psn, problem, now_ns, syndrome)
                return
        self.receive_run(
            psn,
            1,
            verb,
            is_first,
            is_last,
            len(payload),
            dma_length_bytes,
            immediate,
            ack_request,
            ce,
            now_ns,
        )
        if is_expected and self.responder.failure is None:
            memory.place(payload, verb=verb, is_first=is_first, address=address)

    def refuse(
        self, psn: int, problem: str, now_ns: int, syndrome: int = _INVALID_REQUEST
    ) -> None:
        """Take a request that is not served here: *problem* says why, as a clause."""
        self.responder.refuse(psn, problem, syndrome)
        if self.responder.failure is not None:
            self._fail_requester(now_ns)

    # The clock.

    def handle_timeout(self, now_ns: int) -> None:
        """Act on the timers that are due; harmless if none is."""
        self.requester.handle_timeout(now_ns)
        self._fail_responder()

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

    def _fail_requester(self, now_ns: int) -> None:
        """Carry a failure of the responder over."""
        if not self.requester.failed:
            self.requester.fail(self.responder.failure or "", now_ns)

    def _fail_responder(self) -> None:
        """Carry a failure of the requester over."""
        if self.requester.failed:
            self.responder.fail(self.requester.failure)
