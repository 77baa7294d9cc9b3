# cython: annotation_typing=False, language_level=3, cdivision=True
"""A burst: the packets that leave a port in one send.

It contains packets of one message, several one-packet messages, or one control packet.

A queue pair creates a burst, and the port paces it. The I/O layer encodes it as bytes
(`chakram.roce.packet_encoder`), or a simulator delivers it unencoded.
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
    """Consecutive packets of one or more messages, or a single ACK, NAK or CNP.

    A burst fits into one UDP send with segmentation offload. All segments must have the
    same length, except that the last may be shorter. Therefore:

    * The FIRST packet of an RDMA WRITE is longer than later packets. Its burst contains
      at most one more packet.
    * MIDDLE packets share a burst. The LAST packet joins them unless immediate data
      makes it longer.
    * An ONLY packet leaves alone, or shares a burst with the next one-packet messages
      of the same size. Either all of these messages have immediate data, or none does.

    A burst does not change after its creation. It may be kept, delivered in parts, and
    delivered twice.

    Attributes:
        kind: A `BurstKind`.
        verb: A `Verb`; data only.
        source_qpn: QPN of the sender.
        destination_qpn: QPN of the receiver.
        source_port: UDP source port.
        destination: Index of the peer's address, as given to the queue pair.
        psn: PSN of the first packet. For an ACK, the acknowledged PSN. For a NAK, the
            expected PSN.
        count: Number of packets, at least 1.
        path_mtu: Payload of every packet that does not end the message, in bytes.
        overhead_bytes: Size of a packet without payload and extended headers.
        message_id: Immediate data of the first message, 32 bits, or `NO_IMMEDIATE`.
        message_ids: Immediate data of each message, in a burst of several messages;
            otherwise None.
        message_bytes: Size of the whole message, or of each message.
        message_packets: Number of packets of the whole message, or of each message.
        packet_index: Index of the first packet in the message.
        payload_bytes: Total payload of all packets, without pad.
        wire_bytes: Total size of all packets, from Ethernet header to ICRC.
        ack_request: Whether the last packet requests an ACK. If there are several
            messages, whether each packet does.
        is_marked: Whether a fault marks the packets "congestion experienced" as they
            leave.
        flipped_bit: Bit of the packet, counted from the BTH, that a fault flips after
            the ICRC is computed; -1: none. Only for bursts of one packet.
        resent_packets: Number of leading packets that were sent before. It may exceed
            *count*.
        attempt: Number that distinguishes transmissions of the same packets: 0 for the
            first, then a new number each time. For a response, the number of responses
            since data last arrived.
        syndrome: AETH syndrome; ACK and NAK only.
        msn: Number of completed messages, 24 bits; ACK and NAK only.
        contents: Payload of the whole message; None: a pattern. If present,
            `chakram.roce.contents_encoder` encodes the burst.
        remote_address: Target address of a WRITE; RETH only.
        remote_key: Key for that address; RETH only.
        sequence: Sequence number of the first packet in the sending queue pair. For a
            response, the sequence number of the packet that it refers to.
        parts: Time breakdown of the message, for simulators that deliver bursts.
        parts_of: Time breakdown of each message, in a burst of several messages.
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
        """Return the payload size of the packet at *position*, without pad."""
        if self.kind != _DATA:
            return 0
        if self.message_ids is not None:
            return self.message_bytes
        index = self.packet_index + position
        if index < self.message_packets - 1:
            return self.path_mtu
        return self.message_bytes - index * self.path_mtu

    def packet_wire_bytes(self, position: int) -> int:
        """Return the size of the packet at *position*, from Ethernet header to ICRC."""
        if self.kind != _DATA:
            return self.wire_bytes
        index = 0 if self.message_ids is not None else self.packet_index + position
        # The pad rounds the payload up to a multiple of four bytes.
        length = (
            self.overhead_bytes + (self.packet_payload_bytes(position) + 3) // 4 * 4
        )
        if index == 0 and self.verb == _WRITE:
            length += 16
        if index == self.message_packets - 1 and self.message_id >= 0:
            length += 4
        return length

    def psn_at(self, position: int) -> int:
        """Return the PSN of the packet at *position*, which must be 0 in a response."""
        return (self.psn + position) & 0xFFFFFF

    def packet_message_id(self, position: int) -> int:
        """Return the immediate data of a packet's message, or `NO_IMMEDIATE`."""
        return (
            self.message_id if self.message_ids is None else self.message_ids[position]
        )

    def part(self, first: int, count: int) -> Burst:
        """Return *count* > 0 packets, starting at position *first*, as a new burst."""
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
