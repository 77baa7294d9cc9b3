# cython: annotation_typing=False, language_level=3, cdivision=True
"""The receiving half of a queue pair: packet order, messages and responses.

Packets arrive in runs: packets of one message with consecutive PSNs. Only the expected
PSN is accepted:

* A later PSN indicates a loss. One NAK requests the expected PSN, and no other response
  to the gap follows. When the expected PSN arrives, it is acknowledged even if it
  requests no ACK.
* An earlier PSN is a duplicate. It is acknowledged again, because the first ACK may be
  lost.
* An invalid packet puts the queue pair into the error state after a NAK, as in a NIC.

A gap means that a packet was lost, or that other packets overtook it. The sender goes
back in either case. A lost packet then arrives once, as the retransmission. A late
packet arrives twice: the original and the retransmission. The retransmission is avoided
only if the ACK of the late packet reaches the sender first. The requester counts that
case (`Requester.naks_overtaken`).

With a reordering window, a packet that is ahead by less than the window is kept with
its payload until the gap closes. The responder does not respond to this packet, because
the missing packets may still arrive on a slower path. A packet further ahead is
dropped. The responder then considers the expected packet lost and sends a NAK. The MSN
of the NAK is the number of packets that are missing in a row.

The responder stores pending responses until the port takes them. A new ACK replaces
older ones, because an ACK covers all packets before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.roce.constants import MAX_MESSAGE_BYTES, BurstKind, Verb
from chakram.roce.events import MessageReceived
from chakram.roce.opcodes import ACK_CREDITS_UNUSED, RECEIVER_NOT_READY, NakCode

if TYPE_CHECKING:
    from chakram.plan.plan import QueuePairPlan
    from chakram.plan.transport import TransportPlan
    from chakram.roce.burst import Burst
    from chakram.roce.events import MessageParts
    from chakram.roce.fifo import Fifo
    from chakram.roce.notification_point import CnpLimiter
    from chakram.roce.receive_memory import MemoryRegion

__all__ = ["EarlyPacket", "Responder"]

_WRITE = int(Verb.WRITE)
_MAX_MESSAGE_BYTES = MAX_MESSAGE_BYTES
_ACK = int(BurstKind.ACK)
_NAK = int(BurstKind.NAK)
_CNP = int(BurstKind.CNP)
_CREDITS_UNUSED = ACK_CREDITS_UNUSED
_NOT_READY = RECEIVER_NOT_READY
_SEQUENCE_ERROR = int(NakCode.PSN_SEQUENCE_ERROR)
_INVALID_REQUEST = int(NakCode.INVALID_REQUEST)


class EarlyPacket:
    """A packet that is kept until the packets before it arrive.

    The constructor takes no arguments, because compiled code would convert them to
    Python objects.

    Attributes that are not listed here are arguments of `Responder.receive`.

    Attributes:
        contents: Payload; None: payload is not kept.
        address: Virtual address from the RETH, if the payload is kept.
        key: Remote key from the RETH, if the payload is kept.
        parts: Time breakdown in which a simulation records the message's arrival.
    """

    __slots__ = (
        "ack_request",
        "address",
        "ce",
        "contents",
        "dma_length_bytes",
        "immediate",
        "is_first",
        "is_last",
        "key",
        "parts",
        "payload_bytes",
        "verb",
    )

    def __init__(self) -> None:
        self.verb = 0
        self.is_first = False
        self.is_last = False
        self.payload_bytes = 0
        self.dma_length_bytes = 0
        self.immediate = -1
        self.ack_request = False
        self.ce = 0
        self.contents: bytes | None = None
        self.address = 0
        self.key = 0
        self.parts: MessageParts | None = None


class Responder:
    """The receiving half of a queue pair, which `QueuePair` calls.

    Attributes:
        early: Packets kept until earlier packets arrive, by PSN.
    """

    __slots__ = (
        "_accepted_ce",
        "_ack_first",
        "_ack_pending",
        "_answered_psn",
        "_answers",
        "_asked_psn",
        "_cnp_limiter",
        "_cnp_pending",
        "_dma_length_bytes",
        "_early_first_psn",
        "_early_last_psn",
        "_events",
        "_expected_psn",
        "_first_psn",
        "_first_received_ns",
        "_has_gap",
        "_in_message",
        "_memory",
        "_message_bytes",
        "_message_packets",
        "_nak_is_reordering",
        "_nak_pending",
        "_nak_sent",
        "_owner",
        "_path_mtu",
        "_qpn",
        "_reordering_packets",
        "_rnr_timer",
        "_unseen_bytes",
        "_unseen_ce",
        "_unseen_packets",
        "_unseen_since_ns",
        "_unseen_wrong",
        "_verb",
        "_wrong_psns",
        "acks_sent",
        "beyond_window",
        "bytes_received",
        "ce",
        "cnps_sent",
        "duplicates",
        "early",
        "failure",
        "invalid_requests",
        "kept_out_of_order",
        "messages_received",
        "naks_sent",
        "out_of_sequence",
        "packets_received",
        "receiver_not_ready_sent",
        "sequence_naks_reordered",
        "sequence_naks_sent",
    )

    def __init__(
        self,
        pair: QueuePairPlan,
        settings: TransportPlan,
        *,
        events: Fifo,
        cnp_limiter: CnpLimiter | None,
        memory: MemoryRegion | None = None,
    ) -> None:
        """Create a responder that expects the first packet.

        Without a *cnp_limiter*, it sends no CNPs. `receive_contents` stores the payload
        in *memory*.
        """
        self._events = events
        self._owner: object = pair.qpn
        self._qpn = pair.qpn
        self._path_mtu = settings.path_mtu
        self._expected_psn = self._first_psn = pair.receive_psn
        self._rnr_timer = settings.rnr_timer
        self._cnp_limiter = cnp_limiter
        self._memory = memory
        self._reordering_packets = settings.reordering_packets
        self.early: dict[int, EarlyPacket] = {}
        # PSNs of early packets with a wrong payload.
        self._wrong_psns: set[int] = set()
        # Whether a packet arrived out of order, or was refused for now.
        self._has_gap = False
        # The message that is being received.
        self._in_message = False
        self._verb = _WRITE
        self._dma_length_bytes = 0
        self._message_bytes = 0
        self._message_packets = 0
        self._accepted_ce = 0
        self._first_received_ns = 0
        # Complete messages that have not been reported.
        self._unseen_bytes = 0
        self._unseen_packets = 0
        self._unseen_ce = 0
        self._unseen_wrong = 0
        self._unseen_since_ns = 0
        # Pending responses. For a NAK, the syndrome, or 0 if none is pending.
        self._ack_pending = False
        # Whether the ACK must leave before a NAK.
        self._ack_first = False
        self._nak_pending = 0
        self._cnp_pending = False
        # Whether this gap has caused a NAK.
        self._nak_sent = False
        # The PSN that the last NAK requested; -1: none, or the cause is known.
        self._asked_psn = -1
        # The first and the last packet that arrived instead of the requested one.
        self._early_first_psn = -1
        self._early_last_psn = -1
        # Whether reordering, not loss, caused the pending NAK.
        self._nak_is_reordering = False
        # Why the queue pair is in the error state, as a clause; None: no error.
        self.failure: str | None = None
        self.packets_received = 0
        self.bytes_received = 0
        self.messages_received = 0
        self.duplicates = 0
        self.out_of_sequence = 0
        self.kept_out_of_order = 0
        self.beyond_window = 0
        self.invalid_requests = 0
        self.ce = 0
        self.acks_sent = 0
        self.naks_sent = 0
        self.sequence_naks_sent = 0
        self.sequence_naks_reordered = 0
        self.receiver_not_ready_sent = 0
        self.cnps_sent = 0
        # The expected PSN at the last response, and the number of responses with it.
        self._answered_psn = -1
        self._answers = 0

    def redirect_events(self, events: Fifo, owner: object) -> None:
        """Report to *events* from now on, with *owner* as the owner of the events."""
        self._events = events
        self._owner = owner

    def receive(
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
        """Receive a run of *count* packets with consecutive PSNs that start at *psn*.

        Args:
            psn: PSN of the first packet.
            count: Number of packets, at least 1.
            verb: A `Verb`.
            is_first: Whether the first packet is FIRST or ONLY.
            is_last: Whether the last packet is LAST or ONLY.
            payload_bytes: Total payload of the packets. Every packet must fill the path
                MTU, except the last one if *is_last*. This method checks the total.
            dma_length_bytes: DMA length from the RETH, if *is_first* and *verb* is
                WRITE.
            immediate: Immediate data if *is_last*; -1: none.
            ack_request: Whether any of the packets requests an ACK.
            ce: How many of the packets are marked "congestion experienced".
            now_ns: Current time.
        """
        if self.failure is not None:
            return
        self._note_arrival(count, ce, now_ns)
        distance = (psn - self._expected_psn) & 0xFFFFFF
        if distance >= 0x800000:
            duplicates = 0x1000000 - distance
            self._ack_pending = True
            if self._asked_psn >= 0:
                self._note_again(psn, duplicates if duplicates < count else count)
            if duplicates >= count:
                self.duplicates += count
                return
            self.duplicates += duplicates
            count -= duplicates
            payload_bytes -= duplicates * self._path_mtu
            is_first = False
            if ce > count:
                ce = count
        elif distance > 0:
            self.out_of_sequence += count
            if self._reordering_packets == 0:
                self._ask_again(psn, count)
                return
            self._keep(
                psn,
                count,
                distance,
                verb,
                is_first,
                is_last,
                payload_bytes,
                dma_length_bytes,
                immediate,
                ack_request,
                ce,
            )
            return
        problem = self.problem(
            count, verb, is_first, is_last, payload_bytes, dma_length_bytes
        )
        if problem is not None:
            self._refuse(problem, _INVALID_REQUEST)
            return
        if is_first:
            self._begin_message(verb, dma_length_bytes, now_ns)
        self._expected_psn = (self._expected_psn + count) & 0xFFFFFF
        had_gap = self._has_gap
        if had_gap:
            self._close_gap()
        self._message_bytes += payload_bytes
        self._message_packets += count
        self._accepted_ce += ce
        self.bytes_received += payload_bytes
        if ack_request:
            self._ack_pending = True
        if is_last:
            self._in_message = False
            self.messages_received += 1
            if self._unseen_packets == 0:
                self._unseen_since_ns = self._first_received_ns
            self._unseen_bytes += self._message_bytes
            self._unseen_packets += self._message_packets
            self._unseen_ce += self._accepted_ce
            if immediate >= 0 or verb != _WRITE:
                self._report_message(immediate, now_ns)
        if had_gap and self.early:
            self._take_early(count, now_ns)

    def _begin_message(self, verb: int, dma_length_bytes: int, now_ns: int) -> None:
        """Start a message whose first packet has arrived."""
        self._in_message = True
        self._verb = verb
        self._dma_length_bytes = dma_length_bytes
        self._message_bytes = 0
        self._message_packets = 0
        self._accepted_ce = 0
        self._first_received_ns = now_ns

    def _close_gap(self) -> None:
        """Continue in order: the first missing packet has arrived."""
        self._has_gap = False
        if self._nak_pending != 0:
            # The missing packet arrived before the NAK left.
            self._nak_pending = 0
        elif self._nak_sent:
            # Acknowledge the packet that the NAK requested. Without this ACK, Soft-RoCE
            # ignores the next NAK and waits for its timeout. The ACK reduces the time
            # for 23 MB at 5 % loss from 10.8 s to 2.8 s.
            self._ack_pending = True
            self._ack_first = True
        self._nak_sent = False

    def _report_message(self, immediate: int, now_ns: int) -> None:
        """Report a received message.

        A WRITE without immediate data is not reported, as in verbs. Its payload counts
        toward the next reported message.
        """
        # Set fields directly. Compiled code would convert arguments to Python objects.
        event = MessageReceived.__new__(MessageReceived)
        event.message_id = immediate if immediate >= 0 else None
        event.size_bytes = self._unseen_bytes
        event.packets = self._unseen_packets
        event.ce = self._unseen_ce
        event.wrong = self._unseen_wrong
        event.first_received_ns = self._unseen_since_ns
        event.received_ns = now_ns
        event.owner = self._owner
        self._events.append(event)
        self._unseen_bytes = 0
        self._unseen_packets = 0
        self._unseen_ce = 0
        self._unseen_wrong = 0

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
        """Receive one packet and store its payload in the memory, which must exist.

        *address* and *key* come from the RETH. `receive` describes the other arguments.
        """
        memory = self._memory
        if memory is None:
            raise ValueError(f"qpn {self._qpn} has no memory")
        payload_bytes = len(payload)
        is_expected = self.expects(psn)
        # The order of messages is checked before memory access, and sizes before the
        # key (IBA volume 1, 9.7.4.1).
        if is_expected and self.order_problem(verb, is_first) is None:
            syndrome, problem = memory.judge(
                verb=verb,
                is_first=is_first,
                payload_bytes=payload_bytes,
                dma_length_bytes=dma_length_bytes,
                address=address,
                key=key,
            )
            if syndrome == _NOT_READY:
                self.set_not_ready(psn, ce, now_ns)
                return
            size_problem = self.problem(
                1, verb, is_first, is_last, payload_bytes, dma_length_bytes
            )
            if syndrome and not size_problem:
                self.refuse(psn, ce, now_ns, problem, syndrome)
                return
            if not size_problem:
                # Store this payload before later ones, which may have arrived already.
                memory.place(payload, verb=verb, is_first=is_first, address=address)
        self.receive(
            psn,
            1,
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
        if not is_expected and psn in self.early:
            early = self.early[psn]
            early.contents = payload
            early.address = address
            early.key = key

    def note_parts(self, psn: int, parts: MessageParts) -> None:
        """Attach *parts* to the packet *psn*, if it is kept.

        When the message is complete, its arrival time is stored in *parts*.
        """
        early = self.early.get(psn)
        if early is not None:
            early.parts = parts

    def note_wrong_payload(self, psn: int) -> None:
        """Record that the packet *psn* has a wrong payload.

        Call this method before the packet is accepted or kept. The `MessageReceived`
        event reports the number of such packets in the message.
        """
        if psn == self._expected_psn:
            self._unseen_wrong += 1
        else:
            self._wrong_psns.add(psn)

    def takes(self, psn: int) -> bool:
        """Return whether a packet with *psn* would be accepted or kept."""
        if self.expects(psn):
            return True
        distance = (psn - self._expected_psn) & 0xFFFFFF
        return (
            self.failure is None
            and distance < self._reordering_packets
            and psn not in self.early
        )

    def expects(self, psn: int) -> bool:
        """Return whether *psn* is expected and the queue pair has not failed."""
        return self.failure is None and psn == self._expected_psn

    def refuse(
        self, psn: int, ce: int, now_ns: int, problem: str, syndrome: int
    ) -> None:
        """Refuse an unsupported packet, once all packets before it have arrived.

        The packet does not count as received, because it is counted elsewhere.

        Args:
            psn: PSN of the packet.
            ce: 1 if the packet is marked "congestion experienced", otherwise 0.
            now_ns: Current time.
            problem: Why the packet is not supported, as a clause.
            syndrome: AETH syndrome of the NAK.
        """
        if self.failure is not None:
            return
        self._note_arrival(0, ce, now_ns)
        distance = (psn - self._expected_psn) & 0xFFFFFF
        if distance == 0:
            self._refuse(problem, syndrome)
        elif distance < 0x800000:
            self._ask_again(psn, 1)

    def set_not_ready(self, psn: int, ce: int, now_ns: int) -> bool:
        """Refuse the packet *psn* for now, as if no receive were posted for it.

        Only the expected packet can be refused. For any other packet, return False.
        Later packets are dropped without a response until *psn* arrives again. *ce* is
        1 if the packet is marked "congestion experienced". The mark counts although the
        packet is refused.
        """
        if not self.expects(psn):
            return False
        self._note_arrival(1, ce, now_ns)
        self._nak_pending = _NOT_READY | self._rnr_timer
        self._nak_sent = True
        self._has_gap = True
        return True

    def fail(self, reason: str) -> None:
        """Enter the error state, without a response."""
        if self.failure is None:
            self.failure = reason
            self.early.clear()
            self._ack_pending = False
            self._ack_first = False
            self._nak_pending = 0
            self._cnp_pending = False

    def has_answer(self) -> bool:
        """Return whether an ACK, a NAK or a CNP is pending."""
        return self._ack_pending or self._nak_pending != 0 or self._cnp_pending

    def fill(self, burst: Burst) -> None:
        """Fill *burst* with the next response, which must exist (`has_answer`)."""
        if self._cnp_pending:
            burst.kind = _CNP
            burst.psn = 0
            burst.attempt = self.cnps_sent
            return
        if self._expected_psn == self._answered_psn:
            burst.attempt = self._answers
        burst.msn = self.messages_received & 0xFFFFFF
        if self._nak_pending and not self._ack_first:
            burst.kind = _NAK
            burst.syndrome = self._nak_pending
            burst.psn = self._expected_psn
            burst.sequence = (burst.psn - self._first_psn) & 0xFFFFFF
            if self._reordering_packets > 0 and self._nak_pending == _SEQUENCE_ERROR:
                burst.msn = self._missing()
        else:
            burst.kind = _ACK
            burst.syndrome = _CREDITS_UNUSED
            burst.psn = (self._expected_psn - 1) & 0xFFFFFF
            burst.sequence = (burst.psn - self._first_psn) & 0xFFFFFF

    def commit(self, burst: Burst) -> None:
        """Record that the response *burst*, the last burst filled, has left."""
        if burst.kind == _CNP:
            self._cnp_pending = False
            self.cnps_sent += 1
            return
        if self._expected_psn != self._answered_psn:
            self._answered_psn = self._expected_psn
            self._answers = 0
        self._answers += 1
        if burst.kind == _NAK:
            # A NAK acknowledges all packets before it.
            self._nak_pending = 0
            self._ack_pending = False
            self.naks_sent += 1
            if burst.syndrome >> 5 == 1:
                self.receiver_not_ready_sent += 1
            elif burst.syndrome == _SEQUENCE_ERROR:
                self.sequence_naks_sent += 1
                if self._nak_is_reordering:
                    self.sequence_naks_reordered += 1
                else:
                    self._asked_psn = burst.psn
        else:
            self._ack_pending = False
            self._ack_first = False
            self.acks_sent += 1

    def order_problem(self, verb: int, is_first: bool) -> str | None:
        """Return why a packet at the expected PSN is out of order, or None."""
        if is_first:
            return "a message begins inside another one" if self._in_message else None
        if not self._in_message:
            return "a packet continues a message that has not begun"
        return "a message continues with another verb" if verb != self._verb else None

    def problem(
        self,
        count: int,
        verb: int,
        is_first: bool,
        is_last: bool,
        payload_bytes: int,
        dma_length_bytes: int,
    ) -> str | None:
        """Return why a run at the expected PSN is invalid, or None.

        The arguments are those of `receive`. Order is checked first, then sizes (IBA
        volume 1, 9.7.4.1.2 and 9.7.4.1.6).
        """
        order_problem = self.order_problem(verb, is_first)
        if order_problem is not None:
            return order_problem
        message_bytes = payload_bytes
        if not is_first:
            dma_length_bytes = self._dma_length_bytes
            message_bytes += self._message_bytes
        last_bytes = payload_bytes - (count - 1) * self._path_mtu
        if not is_last:
            if last_bytes != self._path_mtu:
                return (
                    "a packet inside a message does not have the size of the path MTU"
                )
        elif last_bytes > self._path_mtu or (
            last_bytes <= 0 and not (is_first and count == 1)
        ):
            return "the last packet of a message has a wrong size"
        if (dma_length_bytes if verb == _WRITE else message_bytes) > _MAX_MESSAGE_BYTES:
            return "a message is too long"
        if verb == _WRITE and (
            message_bytes > dma_length_bytes
            or (is_last and message_bytes != dma_length_bytes)
        ):
            return "a WRITE does not have the length in its RETH"
        return None

    def _note_arrival(self, count: int, ce: int, now_ns: int) -> None:
        """Count packets and handle congestion marks, even if packets are refused."""
        self.packets_received += count
        if ce > 0:
            self.ce += ce
            limiter = self._cnp_limiter
            if limiter is not None and limiter.admits(now_ns):
                self._cnp_pending = True

    def _ask_again(self, psn: int, count: int) -> None:
        """Request the packet that *count* early packets overtook, once per gap."""
        last_psn = (psn + count - 1) & 0xFFFFFF
        is_beyond = 0 < ((last_psn - self._early_last_psn) & 0xFFFFFF) < 0x800000
        if self._nak_sent:
            if is_beyond:
                self._early_last_psn = last_psn
            return
        # If the following condition is true, the requested packet has arrived, followed
        # by a new packet instead of the dropped early packets. The sender has thus not
        # gone back. The requested packet was only late, and the packet that is missing
        # now has already arrived once.
        is_reordering = is_beyond and self._expected_psn == self._early_first_psn
        if not is_reordering:
            self._asked_psn = -1
        self._early_first_psn = psn
        self._early_last_psn = last_psn
        self._nak_is_reordering = is_reordering
        self._nak_sent = True
        self._has_gap = True
        self._nak_pending = _SEQUENCE_ERROR

    def _keep(
        self,
        psn: int,
        count: int,
        distance: int,
        verb: int,
        is_first: bool,
        is_last: bool,
        payload_bytes: int,
        dma_length_bytes: int,
        immediate: int,
        ack_request: bool,
        ce: int,
    ) -> None:
        """Keep the packets of a run that are inside the reordering window.

        *distance* is how far the run is ahead of the expected PSN. `receive` describes
        the other arguments.
        """
        inside = self._reordering_packets - distance
        for i in range(count if count < inside else inside):
            is_end = i == count - 1
            each = (psn + i) & 0xFFFFFF
            if each in self.early:
                self.duplicates += 1
                continue
            early = EarlyPacket.__new__(EarlyPacket)
            early.verb = verb
            early.is_first = is_first and i == 0
            early.is_last = is_last and is_end
            early.payload_bytes = self._path_mtu
            if is_end:
                early.payload_bytes = payload_bytes - i * self._path_mtu
            early.dma_length_bytes = dma_length_bytes
            early.immediate = immediate if is_end else -1
            early.ack_request = ack_request and is_end
            early.ce = 1 if i < ce else 0
            early.contents = None
            early.parts = None
            self.early[each] = early
            self.kept_out_of_order += 1
        self._has_gap = True
        if count > inside:
            beyond = count
            if inside > 0:
                beyond = count - inside
                psn = (psn + inside) & 0xFFFFFF
            self.beyond_window += beyond
            self._ask_again(psn, beyond)

    def _take_early(self, count: int, now_ns: int) -> None:
        """Accept the kept packets that follow *count* packets received in order."""
        for i in range(count):
            psn = (self._expected_psn - 1 - i) & 0xFFFFFF
            if self.early.pop(psn, None) is not None:
                # The packet arrived again, as part of the run.
                self.duplicates += 1
                self._wrong_psns.discard(psn)
        while True:
            psn = self._expected_psn
            found = self.early.pop(psn, None)
            if found is None:
                break
            early = found
            # The packet was counted on arrival, and `receive` will count it again.
            self.packets_received -= 1
            self._unseen_ce += early.ce
            if psn in self._wrong_psns:
                self._wrong_psns.discard(psn)
                self._unseen_wrong += 1
            messages = self.messages_received
            if early.contents is None:
                self.receive(
                    psn,
                    1,
                    early.verb,
                    early.is_first,
                    early.is_last,
                    early.payload_bytes,
                    early.dma_length_bytes,
                    early.immediate,
                    early.ack_request,
                    0,
                    now_ns,
                )
            else:
                self.receive_contents(
                    psn,
                    early.verb,
                    early.is_first,
                    early.is_last,
                    early.contents,
                    early.dma_length_bytes,
                    early.address,
                    early.key,
                    early.immediate,
                    early.ack_request,
                    0,
                    now_ns,
                )
            if early.parts is not None and self.messages_received > messages:
                early.parts.received_ns = now_ns
        if self.early:
            self._has_gap = True

    def _missing(self) -> int:
        """Count the consecutive missing packets, starting with the expected packet."""
        missing = 1
        while (
            missing < self._reordering_packets
            and ((self._expected_psn + missing) & 0xFFFFFF) not in self.early
        ):
            missing += 1
        return missing

    def _note_again(self, psn: int, count: int) -> None:
        """Count the NAK as due to reordering if a duplicate is the requested packet."""
        if ((self._asked_psn - psn) & 0xFFFFFF) >= count:
            return
        self.sequence_naks_reordered += 1
        self._asked_psn = -1

    def _refuse(self, problem: str, syndrome: int) -> None:
        """Enter the error state, with a NAK as the last response."""
        self.invalid_requests += 1
        self.fail(f"invalid request of the peer: {problem}")
        self._nak_pending = syndrome
