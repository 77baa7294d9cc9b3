# cython: annotation_typing=False, language_level=3, cdivision=True
"""A burst: packets of one message, messages of one packet, or one control packet.

What is in a burst leaves in one send.

The burst is the unit everywhere: a queue pair makes it, the port paces it, the shell
turns it into bytes (`chakram.roce.packet_buffer`), a simulator delivers it as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.roce.constants import BurstKind, Verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.roce.events import MessageParts

__all__ = ["Burst"]

_DATA = int(BurstKind.DATA)
_WRITE = int(Verb.WRITE)


class Burst:
    """Consecutive packets of one message or of several, or an ACK, a NAK or a CNP.

    A burst fits one UDP send with segmentation offload, whose segments must be of one
    length except for a shorter last: FIRST of an RDMA WRITE is longer than what
    follows, so it is joined by at most one packet; MIDDLEs run together and LAST ends
    them unless its immediate makes it longer; ONLY is alone, or with the messages of
    one packet that come next, have the same size and an immediate if it has one.

    A burst does not change once it is made, so it may be kept, delivered in parts, and
    delivered twice.

    Attributes:
        kind: A `BurstKind`.
        verb: A `Verb`; data only.
        source_qpn: Queue pair that sends.
        destination_qpn: Queue pair that receives.
        source_port: UDP source port.
        destination: The peer's address, as the opaque index given to the queue pair.
        psn: Of the first packet; of an ACK the PSN acknowledged, of a NAK the one
            expected.
        count: Packets, at least 1.
        path_mtu: Payload of every packet that does not end the message, in bytes.
        overhead_bytes: What a packet has beside payload and extended headers.
        message_id: Immediate data, 32 bits, or `NO_IMMEDIATE`; of the first message.
        message_ids: Of a burst of several messages the id of each; None: there is one
            message at most.
        message_bytes: Size of the whole message, or of each.
        message_packets: Packets of the whole message, or of each.
        packet_index: Place of the first packet in the message.
        payload_bytes: Of all packets, without pad.
        wire_bytes: Of all packets, from Ethernet header to ICRC.
        ack_request: Whether the last packet asks for an ACK, or each, if there are
            several messages.
        is_marked: Whether the packets leave marked "congestion experienced": a fault.
        flipped_bit: Which bit of the packet, from the BTH on, is flipped once its ICRC
            is made: a fault; -1: none. One packet only.
        resent_packets: How many of the packets, from the first on, were sent before.
        attempt: What tells sends of the same packets apart: 0 the first time, then
            another number each time; of an answer, which one it is since data came.
        syndrome: AETH syndrome; ACK and NAK only.
        msn: Messages completed, 24 bits; ACK and NAK only.
        contents: Payload of the whole message; None: a pattern. Bytes of these are made
            by `chakram.roce.message_contents`.
        remote_address: Where a WRITE goes; RETH only.
        remote_key: Key for it; RETH only.
        sequence: Of the first packet, as the sending queue pair counts; of an answer
            that of what it answers.
        parts: Of the message that it is of, where its time goes: for who delivers
            bursts as they are; None: it is of several.
        parts_of: Of a burst of several messages the same of each.
    """

    __slots__ = (
        "ack_request",
        "attempt",
        "contents",
        "count",
        "destination",
        "destination_qpn",
        "flipped_bit",
        "is_marked",
        "kind",
        "message_bytes",
        "message_id",
        "message_ids",
        "message_packets",
        "msn",
        "overhead_bytes",
        "packet_index",
        "parts",
        "parts_of",
        "path_mtu",
        "payload_bytes",
        "psn",
        "remote_address",
        "remote_key",
        "resent_packets",
        "sequence",
        "source_port",
        "source_qpn",
        "syndrome",
        "verb",
        "wire_bytes",
    )

    def __init__(self) -> None:
        self.kind = _DATA
        self.verb = _WRITE
        self.source_qpn = 0
        self.destination_qpn = 0
        self.source_port = 0
        self.destination = 0
        self.psn = 0
        self.count = 1
        self.path_mtu = 0
        self.overhead_bytes = 0
        self.message_id = 0
        self.message_ids: list[int] | None = None
        self.message_bytes = 0
        self.message_packets = 1
        self.packet_index = 0
        self.payload_bytes = 0
        self.wire_bytes = 0
        self.ack_request = False
        self.is_marked = False
        self.flipped_bit = -1
        self.resent_packets = 0
        self.attempt = 0
        self.syndrome = 0
        self.msn = 0
        self.contents: bytes | None = None
        self.remote_address = 0
        self.remote_key = 0
        self.sequence = 0
        self.parts: MessageParts | None = None
        self.parts_of: Sequence[MessageParts] | None = None

    def packet_payload_bytes(self, position: int) -> int:
        """Return the payload, without pad, of packet 0 <= *position* < count."""
        if self.kind != _DATA:
            return 0
        if self.message_ids is not None:
            return self.message_bytes
        index = self.packet_index + position
        if index < self.message_packets - 1:
            return self.path_mtu
        return self.message_bytes - index * self.path_mtu

    def packet_wire_bytes(self, position: int) -> int:
        """Return the length of packet *position*, from Ethernet header to ICRC."""
        if self.kind != _DATA:
            return self.wire_bytes
        index = 0 if self.message_ids is not None else self.packet_index + position
        # Pad rounds up to four bytes.
        length = (
            self.overhead_bytes + (self.packet_payload_bytes(position) + 3) // 4 * 4
        )
        if index == 0 and self.verb == _WRITE:
            length += 16
        if index == self.message_packets - 1 and self.message_id >= 0:
            length += 4
        return length

    def psn_at(self, position: int) -> int:
        """Return the PSN of packet *position*; that of an answer is the only one."""
        return (self.psn + position) & 0xFFFFFF

    def packet_message_id(self, position: int) -> int:
        """Return the immediate data, or `NO_IMMEDIATE`, of the message of a packet."""
        return (
            self.message_id if self.message_ids is None else self.message_ids[position]
        )

    def part(self, first: int, count: int) -> Burst:
        """Return *count* > 0 packets from position *first* on, as a burst."""
        part = Burst()
        part.kind = self.kind
        part.verb = self.verb
        part.source_qpn = self.source_qpn
        part.destination_qpn = self.destination_qpn
        part.source_port = self.source_port
        part.destination = self.destination
        part.psn = self.psn
        part.count = count
        part.path_mtu = self.path_mtu
        part.overhead_bytes = self.overhead_bytes
        part.message_id = self.message_id
        part.message_bytes = self.message_bytes
        part.message_packets = self.message_packets
        part.packet_index = self.packet_index + first
        if self.message_ids is not None:
            part.packet_index = 0
            part.message_id = self.message_ids[first]
            if count > 1:
                part.message_ids = self.message_ids[first : first + count]
            if self.parts_of is not None:
                part.parts = self.parts_of[first]
                part.parts_of = self.parts_of[first : first + count]
        else:
            part.parts = self.parts
        part.syndrome = self.syndrome
        part.msn = self.msn
        part.contents = self.contents
        part.remote_address = self.remote_address
        part.remote_key = self.remote_key
        part.is_marked = self.is_marked
        part.flipped_bit = self.flipped_bit
        again = self.resent_packets - first
        part.resent_packets = again if again > 0 else 0
        part.attempt = self.attempt
        part.sequence = self.sequence + first
        if self.kind != _DATA:
            part.wire_bytes = self.wire_bytes
            return part
        part.psn = (self.psn + first) & 0xFFFFFF
        part.ack_request = self.ack_request and (
            first + count == self.count or self.message_ids is not None
        )
        part.payload_bytes = 0
        part.wire_bytes = 0
        for position in range(first, first + count):
            part.payload_bytes += self.packet_payload_bytes(position)
            part.wire_bytes += self.packet_wire_bytes(position)
        return part

    def __repr__(self) -> str:
        kind = BurstKind(self.kind).name
        return (
            f"Burst({kind} psn={self.psn} count={self.count} "
            f"qpn={self.source_qpn}->{self.destination_qpn} "
            f"message={self.message_ids or self.message_id} "
            f"packet={self.packet_index}/{self.message_packets})"
        )
