# cython: annotation_typing=False, language_level=3, cdivision=True
"""Dispatch of arriving packets to the two halves of a queue pair.

Data goes to the responder. Responses and notifications go to the requester. If one half
fails, the other fails too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.roce.constants import BurstKind, Verb
from chakram.roce.opcodes import REFUSED_OPCODES, NakCode, Opcode

if TYPE_CHECKING:
    from chakram.roce.burst import Burst
    from chakram.roce.headers import Packet
    from chakram.roce.receive_memory import MemoryRegion
    from chakram.roce.requester import Requester
    from chakram.roce.responder import Responder

__all__ = ["Arrivals"]

_DATA = int(BurstKind.DATA)
_CNP = int(BurstKind.CNP)
_INVALID_REQUEST = int(NakCode.INVALID_REQUEST)

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


class Arrivals:
    """Passes the packets that arrive for one queue pair to its two halves.

    `QueuePair` describes the parameters.
    """

    __slots__ = ("_memory", "_qpn", "_requester", "_responder")

    def __init__(
        self,
        *,
        qpn: int,
        requester: Requester,
        responder: Responder,
        memory: MemoryRegion | None,
    ) -> None:
        self._qpn = qpn
        self._requester = requester
        self._responder = responder
        self._memory = memory

    def receive_burst(
        self,
        burst: Burst,
        now_ns: int,
        first: int,
        count: int,
        ce: int,
    ) -> None:
        """Receive *count* packets of a peer's *burst*, starting at position *first*.

        *ce* of these packets are marked "congestion experienced".
        """
        if burst.kind == _DATA:
            self._receive_part(burst, first, count, ce, now_ns)
        elif burst.kind == _CNP:
            self.receive_cnp(now_ns)
        else:
            self.receive_ack(burst.syndrome, burst.psn, now_ns, burst.msn)

    def receive_packet(self, packet: Packet, now_ns: int, ce: bool) -> None:
        """Receive one decoded packet from any sender."""
        bth = packet.bth
        opcode = bth.opcode
        if packet.aeth is not None and opcode is Opcode.ACKNOWLEDGE:
            self.receive_ack(packet.aeth.syndrome, bth.psn, now_ns, packet.aeth.msn)
        elif opcode is Opcode.CNP:
            if bth.backward_congestion:
                self.receive_cnp(now_ns)
        elif opcode <= Opcode.WRITE_ONLY_WITH_IMMEDIATE:
            verb = Verb.SEND if opcode < Opcode.WRITE_FIRST else Verb.WRITE
            is_first = opcode in _FIRST_OPCODES
            is_last = opcode not in _INNER_OPCODES
            reth = packet.reth
            dma_length_bytes = reth.dma_length_bytes if reth else 0
            immediate = packet.immediate.value if packet.immediate else -1
            if self._memory is not None:
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
        elif opcode in REFUSED_OPCODES:
            self.refuse(bth.psn, int(ce), now_ns, f"{opcode.name} is not supported")

    def _receive_part(
        self, burst: Burst, first: int, count: int, ce: int, now_ns: int
    ) -> None:
        """Receive *count* > 0 data packets of *burst*, starting at position *first*."""
        received = self._responder.messages_received
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
                if received < self._responder.messages_received:
                    received = self._responder.messages_received
                    if burst.parts_of is not None:
                        burst.parts_of[position].received_ns = now_ns
                elif self._responder.early and burst.parts_of is not None:
                    self._responder.note_parts(
                        (burst.psn + position) & 0xFFFFFF, burst.parts_of[position]
                    )
            return
        if self._memory is not None and burst.contents is not None:
            for position in range(first, first + count):
                self._receive_position(burst, position, position - first < ce, now_ns)
            self._note_parts(burst, first + count - 1, received, now_ns)
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
        self._note_parts(burst, first + count - 1, received, now_ns)

    def _note_parts(self, burst: Burst, last: int, received: int, now_ns: int) -> None:
        """Record the arrival of the message of *burst*, if the message is now complete.

        *last* is the position of the last packet that arrived. *received* is the number
        of messages that were complete before the call. If the responder keeps the
        packet at *last* for later, the time breakdown is attached to that packet.
        """
        if burst.parts is None:
            return
        if received < self._responder.messages_received:
            burst.parts.received_ns = now_ns
        elif self._responder.early:
            self._responder.note_parts((burst.psn + last) & 0xFFFFFF, burst.parts)

    def _receive_position(
        self, burst: Burst, position: int, is_marked: bool, now_ns: int
    ) -> None:
        """Receive the data packet of *burst* at *position*, with its contents."""
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
        """Receive a run of data packets: see `Responder.receive`."""
        self._responder.receive(
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
        if self._responder.failure is not None:
            self._fail_requester(now_ns)

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
        """Receive a data packet with its payload: see `Responder.receive_contents`."""
        self._responder.receive_contents(
            psn,
            verb,
            is_first,
            is_last,
            payload,
            dma_length_bytes,
            address,
            key,
            immediate,
            ack_request,
            ce,
            now_ns,
        )
        if self._responder.failure is not None:
            self._fail_requester(now_ns)

    def refuse(
        self,
        psn: int,
        ce: int,
        now_ns: int,
        problem: str,
        syndrome: int = _INVALID_REQUEST,
    ) -> None:
        """Refuse a request that is not supported: see `Responder.refuse`."""
        self._responder.refuse(psn, ce, now_ns, problem, syndrome)
        if self._responder.failure is not None:
            self._fail_requester(now_ns)

    def receive_ack(self, syndrome: int, psn: int, now_ns: int, msn: int = 0) -> None:
        """Receive an ACK or NAK with the *syndrome* and the *msn* of its AETH."""
        if syndrome >> 5 == 0:
            self._requester.handle_ack(psn, now_ns)
        else:
            self._requester.handle_nak(syndrome, psn, now_ns, msn)
            if self._requester.failed:
                self._responder.fail(self._requester.failure)

    def receive_cnp(self, now_ns: int) -> None:
        """Receive a congestion notification packet."""
        self._requester.handle_cnp(now_ns)

    def _fail_requester(self, now_ns: int) -> None:
        """Fail the requester after the responder has failed."""
        if not self._requester.failed:
            self._requester.fail(self._responder.failure or "", now_ns)
