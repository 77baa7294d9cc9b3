# cython: annotation_typing=False, language_level=3, cdivision=True
# cython: wraparound=False, initializedcheck=False
"""Parser of received UDP segments, and runs of consecutive packets.

The kernel delivers many packets of one flow at once (generic receive offload). This
code runs per packet, so it creates no objects. The parser's attributes describe the
last packet. A run collects packets that can be delivered together.
"""

from __future__ import annotations

from chakram.native.buffers import network_word
from chakram.roce.constants import BTH_BYTES, ICRC_BYTES, Verb
from chakram.roce.opcodes import Opcode

__all__ = ["MALFORMED", "SERVED", "UNSUPPORTED", "Run", "SegmentParser"]

MALFORMED = 0
"""An invalid packet. It is too short, has a wrong version or pad, or is a bad CNP."""

SERVED = 1
"""A SEND, WRITE, ACK, NAK or CNP."""

UNSUPPORTED = 2
"""A packet with another opcode."""

_MALFORMED = MALFORMED
_SERVED = SERVED
_UNSUPPORTED = UNSUPPORTED
_BTH = BTH_BYTES
_ICRC = ICRC_BYTES
_RETH = 16
_IMMEDIATE = 4
_AETH = 4
_SEND = int(Verb.SEND)
_WRITE = int(Verb.WRITE)
_WRITE_FIRST = int(Opcode.WRITE_FIRST)
_WRITE_ONLY_WITH_IMMEDIATE = int(Opcode.WRITE_ONLY_WITH_IMMEDIATE)
_ACKNOWLEDGE = int(Opcode.ACKNOWLEDGE)
_CNP = int(Opcode.CNP)
_CNP_RESERVED = 16
_BECN = 0x40
_READ_REQUEST = int(Opcode.READ_REQUEST)
_COMPARE_SWAP = int(Opcode.COMPARE_SWAP)
_FETCH_ADD = int(Opcode.FETCH_ADD)
_ATOMIC = 28
# Opcodes relative to the FIRST opcode of the verb.
_FIRST = int(Opcode.SEND_FIRST)
_MIDDLE = int(Opcode.SEND_MIDDLE)
_LAST_WITH_IMMEDIATE = int(Opcode.SEND_LAST_WITH_IMMEDIATE)
_ONLY = int(Opcode.SEND_ONLY)
_ONLY_WITH_IMMEDIATE = int(Opcode.SEND_ONLY_WITH_IMMEDIATE)


class SegmentParser:
    """Parser of UDP segments, whose attributes describe the last packet.

    Attributes:
        opcode: BTH opcode.
        partition_key: BTH partition key.
        qpn: Destination QPN.
        psn: PSN of the packet.
        ack_request: Whether the packet requests an ACK.
        is_data: Whether the packet is a SEND or WRITE. The attributes from *verb* to
            *immediate* are valid only then.
        verb: A `Verb`.
        is_first: Whether the packet is FIRST or ONLY.
        is_last: Whether the packet is LAST or ONLY.
        payload_bytes: Payload length without pad.
        payload_at: Offset of the payload in the data.
        dma_length_bytes: DMA length from the RETH; 0 without a RETH.
        address: Virtual address from the RETH; 0 without a RETH.
        key: Remote key from the RETH; 0 without a RETH.
        immediate: Immediate data; -1: none.
        syndrome: AETH syndrome of an ACK or NAK.
        msn: AETH MSN of an ACK or NAK.
    """

    __slots__ = (
        "ack_request",
        "address",
        "dma_length_bytes",
        "immediate",
        "is_data",
        "is_first",
        "is_last",
        "key",
        "msn",
        "opcode",
        "partition_key",
        "payload_at",
        "payload_bytes",
        "psn",
        "qpn",
        "syndrome",
        "verb",
    )

    def __init__(self) -> None:
        self.opcode = 0
        self.partition_key = 0
        self.qpn = 0
        self.psn = 0
        self.ack_request = False
        self.is_data = False
        self.verb = _WRITE
        self.is_first = False
        self.is_last = False
        self.payload_bytes = 0
        self.payload_at = 0
        self.dma_length_bytes = 0
        self.address = 0
        self.key = 0
        self.immediate = -1
        self.syndrome = 0
        self.msn = 0

    def parse(
        self, data: bytes | bytearray | memoryview, offset: int, length: int
    ) -> int:
        """Parse *length* bytes of *data*, starting at *offset*. All of them must exist.

        Returns:
            `MALFORMED`, `SERVED` or `UNSUPPORTED`. For `UNSUPPORTED`, only the BTH
            fields are valid.
        """
        if length < _BTH + _ICRC or data[offset + 1] & 0x0F:
            return _MALFORMED
        opcode = data[offset]
        self.opcode = opcode
        self.partition_key = data[offset + 2] << 8 | data[offset + 3]
        self.qpn = data[offset + 5] << 16 | data[offset + 6] << 8 | data[offset + 7]
        self.psn = data[offset + 9] << 16 | data[offset + 10] << 8 | data[offset + 11]
        self.ack_request = data[offset + 8] >= 0x80
        self.is_data = opcode <= _WRITE_ONLY_WITH_IMMEDIATE
        pad_bytes = data[offset + 1] >> 4 & 3
        rest = length - _BTH - _ICRC - pad_bytes
        if not self.is_data:
            if opcode == _ACKNOWLEDGE:
                at = offset + _BTH
                self.syndrome = data[at]
                self.msn = data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
                return _SERVED if rest == _AETH and pad_bytes == 0 else _MALFORMED
            if opcode == _CNP:
                # Only its format identifies a CNP (annex A17, 17.9.3).
                if rest != _CNP_RESERVED or pad_bytes or not data[offset + 4] & _BECN:
                    return _MALFORMED
                return _SERVED
            if opcode == _READ_REQUEST:
                rest -= _RETH
            elif opcode in (_COMPARE_SWAP, _FETCH_ADD):
                rest -= _ATOMIC
            return _UNSUPPORTED if rest >= 0 else _MALFORMED
        self.verb = _SEND
        if opcode >= _WRITE_FIRST:
            self.verb = _WRITE
            opcode -= _WRITE_FIRST
        self.is_first = opcode == _FIRST or opcode >= _ONLY
        self.is_last = opcode != _FIRST and opcode != _MIDDLE
        at = offset + _BTH
        self.dma_length_bytes = 0
        self.address = 0
        self.key = 0
        if self.is_first and self.verb == _WRITE:
            rest -= _RETH
            if rest < 0:
                return _MALFORMED
            self.address = network_word(data, at) << 32 | network_word(data, at + 4)
            self.key = network_word(data, at + 8)
            self.dma_length_bytes = network_word(data, at + 12)
            at += _RETH
        self.immediate = -1
        if opcode in (_LAST_WITH_IMMEDIATE, _ONLY_WITH_IMMEDIATE):
            rest -= _IMMEDIATE
            if rest < 0:
                return _MALFORMED
            self.immediate = network_word(data, at)
            at += _IMMEDIATE
        self.payload_at = at
        if rest < 0 or (rest + pad_bytes) & 3:
            return _MALFORMED
        self.payload_bytes = rest
        return _SERVED

    def repetitions(
        self, data: bytes | bytearray | memoryview, offset: int, size: int, end: int
    ) -> int:
        """Return how many packets at *offset* repeat the packet before them.

        Each of these packets has *size* bytes, and none extends beyond *end*. Its BTH
        equals that of the packet before it, except that the PSN is the next one. It
        requests no ACK.
        """
        count = 0
        psn = self.psn
        previous = offset - size
        opening = network_word(data, previous)
        qpn = network_word(data, previous + 4)
        while offset + size <= end:
            psn = (psn + 1) & 0xFFFFFF
            if (
                network_word(data, offset) != opening
                or network_word(data, offset + 4) != qpn
                or network_word(data, offset + 8) != psn
            ):
                break
            count += 1
            offset += size
        return count


class Run:
    """Packets of one message with consecutive PSNs, for `Responder.receive`.

    Attributes:
        count: Number of packets; 0: none, and the other attributes are undefined.
        psn: PSN of the first packet.
        verb: `Verb` of all packets.
        is_first: Whether the first packet is FIRST or ONLY.
        is_last: Whether the last packet is LAST or ONLY.
        payload_bytes: Total payload of all packets.
        dma_length_bytes: DMA length from the RETH of the first packet.
        immediate: Immediate data of the last packet.
        ack_request: Whether any packet requests an ACK.
    """

    __slots__ = (
        "_path_mtu",
        "ack_request",
        "count",
        "dma_length_bytes",
        "immediate",
        "is_first",
        "is_last",
        "payload_bytes",
        "psn",
        "verb",
    )

    def __init__(self) -> None:
        self.count = 0
        self.psn = 0
        self.verb = _WRITE
        self.is_first = False
        self.is_last = False
        self.payload_bytes = 0
        self.dma_length_bytes = 0
        self.immediate = -1
        self.ack_request = False
        self._path_mtu = 0

    def begin(self, packet: SegmentParser, path_mtu: int) -> None:
        """Start a run with a data packet of a queue pair that uses *path_mtu*."""
        self.count = 1
        self.psn = packet.psn
        self.verb = packet.verb
        self.is_first = packet.is_first
        self.is_last = packet.is_last
        self.payload_bytes = packet.payload_bytes
        self.dma_length_bytes = packet.dma_length_bytes
        self.immediate = packet.immediate
        self.ack_request = packet.ack_request
        self._path_mtu = path_mtu

    def extend(self, packet: SegmentParser) -> bool:
        """Add the next packet of the queue pair, or return False if it does not fit.

        The payload of every packet but the last must be exactly the path MTU. The size
        is checked at each step, so a long packet cannot make up for a short one.
        """
        if (
            self.count == 0
            or not packet.is_data
            or packet.is_first
            or self.is_last
            or packet.verb != self.verb
            or packet.psn != (self.psn + self.count) & 0xFFFFFF
            or self.payload_bytes != self.count * self._path_mtu
        ):
            return False
        self.count += 1
        self.payload_bytes += packet.payload_bytes
        self.is_last = packet.is_last
        self.immediate = packet.immediate
        self.ack_request = self.ack_request or packet.ack_request
        return True

    def repeat(self, count: int) -> None:
        """Add *count* repetitions of the last packet, which does not end a message."""
        self.count += count
        self.payload_bytes += count * self._path_mtu

    def is_inside(self) -> bool:
        """Return whether another packet with a full payload may follow the last one."""
        return not self.is_last and self.payload_bytes == self.count * self._path_mtu
