# cython: annotation_typing=False, language_level=3, cdivision=True
# cython: wraparound=False, initializedcheck=False
"""From bytes to packets: what stands in a received segment, and runs of them.

The kernel hands over many packets of one flow at once (generic receive offload), so
this runs per packet and makes no objects: the parser holds the last packet, the run
collects what can be handed over together.
"""

from __future__ import annotations

from chakram.roce.constants import ICRC_BYTES, Verb
from chakram.roce.headers import BTH_BYTES
from chakram.roce.opcodes import Opcode

__all__ = ["MALFORMED", "SERVED", "UNSUPPORTED", "Run", "SegmentParser"]

MALFORMED = 0
"""Not a packet: too short for its headers, wrong version or pad, no CNP's form."""

SERVED = 1
"""A SEND or WRITE, an ACK or NAK, a CNP."""

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
# Positions of an opcode behind the FIRST of its verb.
_FIRST = int(Opcode.SEND_FIRST)
_MIDDLE = int(Opcode.SEND_MIDDLE)
_LAST_WITH_IMMEDIATE = int(Opcode.SEND_LAST_WITH_IMMEDIATE)
_ONLY = int(Opcode.SEND_ONLY)
_ONLY_WITH_IMMEDIATE = int(Opcode.SEND_ONLY_WITH_IMMEDIATE)


class SegmentParser:
    """The packet that was parsed last.

    Attributes:
        opcode: As it stands there.
        partition_key: As it stands there.
        qpn: Destination.
        psn: Of the packet.
        ack_request: Whether it asks for an ACK.
        is_data: Whether it is a SEND or WRITE; all below but the last are for these.
        verb: A `Verb`.
        is_first: Whether it is FIRST or ONLY.
        is_last: Whether it is LAST or ONLY.
        payload_bytes: Without pad.
        payload_at: Where the payload begins in the data.
        dma_length_bytes: From the RETH, 0 without one.
        address: From the RETH, 0 without one.
        key: From the RETH, 0 without one.
        immediate: -1 without.
        syndrome: From the AETH of an ACK or NAK.
        msn: Likewise.
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
        """Parse the *length* bytes of *data* from *offset* on, which must be there.

        Returns:
            `MALFORMED`, `SERVED` or `UNSUPPORTED`; of the last only BTH values hold.
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
                # Nothing but its form tells that it is one (annex A17, 17.9.3).
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
            self.address = self._word(data, at) << 32 | self._word(data, at + 4)
            self.key = self._word(data, at + 8)
            self.dma_length_bytes = self._word(data, at + 12)
            at += _RETH
        self.immediate = -1
        if opcode in (_LAST_WITH_IMMEDIATE, _ONLY_WITH_IMMEDIATE):
            rest -= _IMMEDIATE
            if rest < 0:
                return _MALFORMED
            self.immediate = self._word(data, at)
            at += _IMMEDIATE
        self.payload_at = at
        if rest < 0 or (rest + pad_bytes) & 3:
            return _MALFORMED
        self.payload_bytes = rest
        return _SERVED

    def _word(self, data: bytes | bytearray | memoryview, at: int) -> int:
        """Return 32 bits in network order."""
        high = data[at] << 8 | data[at + 1]
        return high << 16 | data[at + 2] << 8 | data[at + 3]


class Run:
    """Packets with consecutive PSNs of one message, as `Responder.receive` takes them.

    Attributes:
        count: Packets; 0: none, and the others mean nothing.
        psn: Of the first; as the others, see `SegmentParser`.
        verb: Of all.
        is_first: Of the first packet.
        is_last: Of the last packet.
        payload_bytes: Of all.
        dma_length_bytes: Of the first packet.
        immediate: Of the last packet.
        ack_request: Whether any packet asks for an ACK.
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
        """Start with a data packet of a queue pair with that path MTU."""
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
        """Add a packet of the same queue pair; False: it does not belong to the run.

        All packets but the last hold exactly the path MTU: that is looked at each time,
        so a long one cannot make up for a short one.
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
