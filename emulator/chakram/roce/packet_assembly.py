# cython: annotation_typing=False, language_level=3, cdivision=True
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Write packets into a buffer and compute their ICRCs with tables.

The payload is a fixed pattern, so its effect on the ICRC is known in advance. For each
packet, the CRC register is updated over a few header bytes. Tables then advance it to
the end of the packet (`chakram.roce.icrc` explains the algebra).

Compiled code does not check the bounds of the buffer. `chakram.roce.packet_encoder`
checks them.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from chakram.roce.constants import BTH_BYTES, ICRC_BYTES, BurstKind, Verb
from chakram.roce.header_crc_cache import SHARED_BTH_BYTES
from chakram.roce.headers import MIGRATED
from chakram.roce.icrc import (
    ADVANCE_BITS,
    BYTE_TABLE,
    advance_tables,
    identification_table,
    residue,
    stride_tables,
)
from chakram.roce.opcodes import Opcode
from chakram.roce.payload import pattern_bytes

if TYPE_CHECKING:
    from chakram.roce.burst import Burst
    from chakram.roce.header_crc_cache import HeaderRegisters

__all__ = ["IMMEDIATE_BYTES", "LONGEST_ANSWER_BYTES", "RETH_BYTES", "Stamper"]

RETH_BYTES = 16
"""Length of the RETH, in the first packet of a WRITE."""

IMMEDIATE_BYTES = 4
"""Length of immediate data, which the last packet of a message may have."""

_CNP_RESERVED_BYTES = 16

LONGEST_ANSWER_BYTES = BTH_BYTES + _CNP_RESERVED_BYTES + ICRC_BYTES
"""Length of the longest response (ACK, NAK or CNP)."""

_CNP = int(BurstKind.CNP)
_WRITE = int(Verb.WRITE)
_BTH = BTH_BYTES
_ICRC = ICRC_BYTES
_RETH = RETH_BYTES
_IMMEDIATE = IMMEDIATE_BYTES
_AETH = 4
_CNP_RESERVED = _CNP_RESERVED_BYTES
# Opcodes by position in the message, relative to the FIRST opcode of the verb.
_FIRST = int(Opcode.SEND_FIRST)
_MIDDLE = int(Opcode.SEND_MIDDLE)
_LAST = int(Opcode.SEND_LAST_WITH_IMMEDIATE)
_ONLY = int(Opcode.SEND_ONLY_WITH_IMMEDIATE)
_PLAIN_LAST = int(Opcode.SEND_LAST)
_PLAIN_ONLY = int(Opcode.SEND_ONLY)
_WRITE_BASE = int(Opcode.WRITE_FIRST)
_ACKNOWLEDGE = int(Opcode.ACKNOWLEDGE)
_CNP_OPCODE = int(Opcode.CNP)
_POWERS = ADVANCE_BITS
# Literals would be Python integers, even in compiled code.
_ONES = 0xFFFFFFFF
_BTH_SHARED = SHARED_BTH_BYTES
_MIGRATED = MIGRATED


class Stamper:
    """Writes the packets of one port's bursts into a buffer.

    In all methods, *at* is the offset of the packet in the buffer.

    Attributes:
        is_numbered: Whether the kernel numbers the packets of a send 0, 1, 2 .. in the
            IPv4 identification, which the ICRC covers. Otherwise the identification is
            0.
    """

    __slots__ = (
        "_advance",
        "_buffer",
        "_byte_table",
        "_bytes",
        "_header_registers",
        "_identification",
        "_path_mtu",
        "_pattern",
        "_residues",
        "_stride",
        "is_numbered",
    )

    def __init__(
        self, *, buffer: bytearray, header_registers: HeaderRegisters, path_mtu: int
    ) -> None:
        """Prepare the tables. *header_registers* provides the addresses."""
        self._bytes = buffer
        self._buffer = buffer
        self._header_registers = header_registers
        self.is_numbered = header_registers.is_ipv4
        self._path_mtu = path_mtu
        self._identification = identification_table(8 + _BTH_SHARED)
        self._byte_table = BYTE_TABLE
        self._advance = advance_tables()
        # Tables for the bytes from AckReq to the end of a payload of one path MTU.
        self._stride = stride_tables(_BTH - _BTH_SHARED + path_mtu)
        # Residues by payload length without pad; -1: not computed yet.
        self._residues = array("q", (-1 for _ in range(path_mtu + 1)))
        self._pattern = pattern_bytes(path_mtu)

    def put_payload(self, at: int) -> None:
        """Write the payload of a full packet without extended headers."""
        at += _BTH
        self._bytes[at : at + self._path_mtu] = self._pattern

    def put_alike(self, burst: Burst, count: int, at: int) -> None:
        """Write headers and ICRCs of packets without extended headers.

        Each payload fills the path MTU and is already in the buffer. Most of the
        encoding time is spent here, so the loop does its work inline.
        """
        buffer = self._buffer
        stride = self._stride
        qpn = burst.destination_qpn
        psn = burst.psn
        size = _BTH + self._path_mtu + _ICRC
        opcode = -1
        header_register = 0
        constant = 0
        for position in range(count):
            if opcode < 0 or opcode == _FIRST:
                # The FIRST packet of a SEND has no extended header either. MIDDLE
                # packets follow it.
                opcode = self.opcode(burst, position)
                header_register = self._header_registers.register(
                    burst, opcode, _MIGRATED, size
                )
                constant = self._constant(at + _BTH, self._path_mtu, 0)
            asks = 0x80 if burst.ack_request and position == burst.count - 1 else 0
            high, middle, low = psn >> 16 & 0xFF, psn >> 8 & 0xFF, psn & 0xFF
            buffer[at] = opcode
            buffer[at + 1] = _MIGRATED
            buffer[at + 2] = 0xFF
            buffer[at + 3] = 0xFF
            buffer[at + 4] = 0
            buffer[at + 5] = qpn >> 16 & 0xFF
            buffer[at + 6] = qpn >> 8 & 0xFF
            buffer[at + 7] = qpn & 0xFF
            buffer[at + 8] = asks
            buffer[at + 9] = high
            buffer[at + 10] = middle
            buffer[at + 11] = low
            register = header_register
            if self.is_numbered:
                register ^= self._identification[position]
            register ^= asks | high << 8 | middle << 16 | low << 24
            register = (
                stride[register & 0xFF]
                ^ stride[256 + (register >> 8 & 0xFF)]
                ^ stride[512 + (register >> 16 & 0xFF)]
                ^ stride[768 + (register >> 24)]
                ^ constant
                ^ _ONES
            )
            at += size
            buffer[at - 4] = register & 0xFF
            buffer[at - 3] = register >> 8 & 0xFF
            buffer[at - 2] = register >> 16 & 0xFF
            buffer[at - 1] = register >> 24
            psn = (psn + 1) & 0xFFFFFF

    def put_packet(self, burst: Burst, position: int, at: int, is_there: bool) -> int:
        """Write a data packet and return its length.

        *is_there* states whether the packet's payload is already in the buffer.
        """
        opcode = self.opcode(burst, position)
        payload_bytes = burst.packet_payload_bytes(position)
        pad_bytes = (4 - (payload_bytes & 3)) & 3
        flags = _MIGRATED | pad_bytes << 4
        self._put_bth(burst, opcode, flags, (burst.psn + position) & 0xFFFFFF, at)
        # In a burst of several messages, each message requests an ACK.
        if burst.ack_request and (
            position == burst.count - 1 or burst.message_ids is not None
        ):
            self._buffer[at + 8] = 0x80
        kind = opcode if opcode < _WRITE_BASE else opcode - _WRITE_BASE
        payload_at = at + _BTH
        if opcode != kind and kind in (_FIRST, _ONLY, _PLAIN_ONLY):
            self._put_word(burst.remote_address >> 32, payload_at)
            self._put_word(burst.remote_address & _ONES, payload_at + 4)
            self._put_word(burst.remote_key, payload_at + 8)
            self._put_word(burst.message_bytes, payload_at + 12)
            payload_at += _RETH
        if kind in (_LAST, _ONLY):
            self._put_word(burst.packet_message_id(position), payload_at)
            payload_at += _IMMEDIATE
        end = payload_at + payload_bytes
        if not is_there:
            self._buffer[payload_at:end] = self._pattern[:payload_bytes]
            for i in range(pad_bytes):
                self._buffer[end + i] = 0
        padded_bytes = payload_bytes + pad_bytes
        length = payload_at + padded_bytes + _ICRC - at
        register = self._header_registers.register(burst, opcode, flags, length)
        if self.is_numbered:
            register ^= self._identification[position]
        register = self._through(register, at + _BTH_SHARED, payload_at)
        advance = self._advance
        for k in range(_POWERS):
            if padded_bytes >> k & 1:
                base = k << 10
                register = (
                    advance[base + (register & 0xFF)]
                    ^ advance[base + 256 + (register >> 8 & 0xFF)]
                    ^ advance[base + 512 + (register >> 16 & 0xFF)]
                    ^ advance[base + 768 + (register >> 24)]
                )
        constant = self._constant(payload_at, payload_bytes, pad_bytes)
        self._put_icrc(register ^ constant, at + length - _ICRC)
        return length

    def put_answer(self, burst: Burst, at: int) -> int:
        """Write an ACK, a NAK or a CNP and return its length."""
        is_cnp = burst.kind == _CNP
        opcode = _CNP_OPCODE if is_cnp else _ACKNOWLEDGE
        flags = 0 if is_cnp else _MIGRATED
        self._put_bth(burst, opcode, flags, burst.psn, at)
        if is_cnp:
            self._buffer[at + 4] = 0x40  # BECN
            for i in range(_CNP_RESERVED):
                self._buffer[at + _BTH + i] = 0
            length = _BTH + _CNP_RESERVED + _ICRC
        else:
            self._put_word(burst.syndrome << 24 | burst.msn, at + _BTH)
            length = _BTH + _AETH + _ICRC
        register = self._header_registers.register(burst, opcode, flags, length)
        register = self._through(register, at + _BTH_SHARED, at + length - _ICRC)
        self._put_icrc(register, at + length - _ICRC)
        return length

    def opcode(self, burst: Burst, position: int) -> int:
        """Return the opcode of the data packet at *position*."""
        index = burst.packet_index + position
        base = _WRITE_BASE if burst.verb == _WRITE else 0
        if burst.message_packets == 1:
            return base + (_PLAIN_ONLY if burst.message_id < 0 else _ONLY)
        if index < burst.message_packets - 1:
            return base + (_FIRST if index == 0 else _MIDDLE)
        return base + (_PLAIN_LAST if burst.message_id < 0 else _LAST)

    def _put_bth(
        self, burst: Burst, opcode: int, flags: int, psn: int, at: int
    ) -> None:
        """Write a base transport header that does not request an ACK."""
        self._buffer[at] = opcode
        self._buffer[at + 1] = flags
        self._buffer[at + 2] = 0xFF
        self._buffer[at + 3] = 0xFF
        self._put_word(burst.destination_qpn, at + 4)
        self._put_word(psn, at + 8)

    def _put_word(self, value: int, at: int) -> None:
        """Write 32 bits in network byte order."""
        self._buffer[at] = value >> 24 & 0xFF
        self._buffer[at + 1] = value >> 16 & 0xFF
        self._buffer[at + 2] = value >> 8 & 0xFF
        self._buffer[at + 3] = value & 0xFF

    def _put_icrc(self, register: int, at: int) -> None:
        """Write the inverted register, lowest byte first."""
        value = register ^ _ONES
        self._buffer[at] = value & 0xFF
        self._buffer[at + 1] = value >> 8 & 0xFF
        self._buffer[at + 2] = value >> 16 & 0xFF
        self._buffer[at + 3] = value >> 24 & 0xFF

    def _constant(self, at: int, payload_bytes: int, pad_bytes: int) -> int:
        """Return the residue of the payload at *at*."""
        constant = self._residues[payload_bytes]
        if constant < 0:
            constant = residue(bytes(self._bytes[at : at + payload_bytes + pad_bytes]))
            self._residues[payload_bytes] = constant
        return constant

    def _through(self, register: int, start: int, end: int) -> int:
        """Return the CRC register after the buffer bytes from *start* to *end*."""
        buffer = self._buffer
        byte_table = self._byte_table
        for i in range(start, end):
            register = byte_table[(register ^ buffer[i]) & 0xFF] ^ register >> 8
        return register
