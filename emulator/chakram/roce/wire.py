# cython: annotation_typing=False, language_level=3, cdivision=True
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""From bursts to bytes: headers stamped into a prepared buffer, sealed by table.

A port sends from unconnected UDP sockets with the don't-fragment flag. The kernel then
numbers the segments of one send 0, 1, 2 .. in the IPv4 identification, which the ICRC
covers; so a valid ICRC can be made here (`chakram.roce.icrc` has the algebra). The
payload is a fixed pattern: what a packet carries is of no interest, how much is.

Compiled, nothing checks the bounds of the buffer: `WireEncoder.encode` refuses bursts
that do not fit before anything is written.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from chakram.roce.constants import (
    ICRC_BYTES,
    ICRC_MODES,
    PATH_MTUS,
    UDP_PORT,
    BurstKind,
    Verb,
)
from chakram.roce.header_registers import SHARED_BTH_BYTES, HeaderRegisters
from chakram.roce.headers import BTH_BYTES
from chakram.roce.icrc import (
    ADVANCE_BITS,
    BYTE_TABLE,
    advance_tables,
    identification_table,
    residue,
)
from chakram.roce.icrc import icrc as icrc_of
from chakram.roce.opcodes import Opcode

if TYPE_CHECKING:
    from chakram.roce.burst import Burst

__all__ = ["WireEncoder"]

_DATA = int(BurstKind.DATA)
_CNP = int(BurstKind.CNP)
_WRITE = int(Verb.WRITE)
_BTH = BTH_BYTES
_ICRC = ICRC_BYTES
_RETH = 16
_IMMEDIATE = 4
_AETH = 4
_CNP_RESERVED = 16
# Opcodes by position, from the one of the verb's FIRST.
_FIRST = int(Opcode.SEND_FIRST)
_MIDDLE = int(Opcode.SEND_MIDDLE)
_LAST = int(Opcode.SEND_LAST_WITH_IMMEDIATE)
_ONLY = int(Opcode.SEND_ONLY_WITH_IMMEDIATE)
_PLAIN_LAST = int(Opcode.SEND_LAST)
_PLAIN_ONLY = int(Opcode.SEND_ONLY)
_WRITE_BASE = int(Opcode.WRITE_FIRST)
_ACKNOWLEDGE = int(Opcode.ACKNOWLEDGE)
_BY_TABLE = ICRC_MODES.index("table")
_IN_FULL = ICRC_MODES.index("full")
_CNP_OPCODE = int(Opcode.CNP)
_POWERS = ADVANCE_BITS
# As literals these would be Python's integers, also in compiled code.
_ONES = 0xFFFFFFFF
_BTH_SHARED = SHARED_BTH_BYTES
_ANSWER_BYTES = _BTH + _CNP_RESERVED + _ICRC


def _pattern(length: int) -> bytes:
    """Return payload bytes that do not repeat within a packet."""
    return bytes((7 * i + (i >> 8)) & 0xFF for i in range(length))


class WireEncoder:
    """Turns the bursts of one port into UDP payloads.

    The bytes stand in a buffer that belongs to the encoder. It has *slots* of which
    each holds one burst, so that a batch of sends can be prepared.
    """

    __slots__ = (
        "_advance",
        "_answer_at",
        "_buffer",
        "_byte_table",
        "_bytes",
        "_cut_answer",
        "_cut_data",
        "_dirty",
        "_header_registers",
        "_icrc_mode",
        "_identification",
        "_is_ipv4",
        "_max_burst_packets",
        "_odd_at",
        "_path_mtu",
        "_pattern",
        "_residues",
        "_segment_bytes",
        "_shapes",
        "_slot_bytes",
        "_slots",
        "_view",
    )

    def __init__(
        self,
        *,
        local_address: str,
        path_mtu: int,
        max_burst_packets: int,
        udp_port: int = UDP_PORT,
        slots: int = 1,
        icrc: str = "table",
    ) -> None:
        """Prepare the buffer.

        Args:
            local_address: IPv4 or IPv6 address that the port sends from.
            path_mtu: Of all its queue pairs.
            max_burst_packets: As in its `PortEngine`.
            udp_port: UDP destination port of peers that `set_destination` gives none.
            slots: How many bursts the buffer holds.
            icrc: One of `ICRC_MODES`.

        Raises:
            ValueError: If one of them is out of range.
        """
        if path_mtu not in PATH_MTUS:
            raise ValueError(f"path MTU {path_mtu} is not one of {PATH_MTUS}")
        if not 1 <= max_burst_packets <= 128:
            raise ValueError(
                f"{max_burst_packets} packets in a burst are not in 1..128"
            )
        if icrc not in ICRC_MODES:
            raise ValueError(f"ICRC mode {icrc!r} is not one of {ICRC_MODES}")
        if slots < 1:
            raise ValueError(f"{slots} slots hold no burst")
        self._header_registers = HeaderRegisters(local_address, udp_port)
        self._is_ipv4 = self._header_registers.is_ipv4
        self._icrc_mode = ICRC_MODES.index(icrc)
        self._path_mtu = path_mtu
        self._max_burst_packets = max_burst_packets
        self._slots = slots
        self._identification = identification_table(8 + _BTH_SHARED)
        self._byte_table = BYTE_TABLE
        self._advance = advance_tables()
        # By length of the payload without pad; -1: not computed yet.
        self._residues = array("q", (-1 for _ in range(path_mtu + 1)))
        self._pattern = _pattern(path_mtu)
        # Each slot: a run of packets without extended headers that keeps its payload;
        # behind it room for any other data (FIRST and one more, or messages of one
        # packet), and for an answer.
        run_bytes = max_burst_packets * (_BTH + path_mtu + _ICRC)
        odd_bytes = max(2, max_burst_packets) * (
            _BTH + _RETH + _IMMEDIATE + path_mtu + _ICRC
        )
        self._odd_at = run_bytes
        self._answer_at = run_bytes + odd_bytes
        self._slot_bytes = run_bytes + odd_bytes + _ANSWER_BYTES
        self._bytes = bytearray(slots * self._slot_bytes)
        self._buffer = self._bytes
        self._view = memoryview(self._bytes)
        # The parts of it that were returned last.
        self._cut_data = _Cut()
        self._cut_answer = _Cut()
        # Segment size of the data that was written last.
        self._segment_bytes = 0
        # By slot: which packet of the run has lost its payload, -1: none; and where the
        # payloads of the other data stand, as a number, 0: nowhere.
        self._dirty = [-1] * slots
        self._shapes = array("q", (0 for _ in range(slots)))
        for slot in range(slots):
            for position in range(max_burst_packets):
                self._restore(slot, position)

    def set_destination(
        self, destination: int, address: str, udp_port: int | None = None
    ) -> None:
        """Say which peer a queue pair's *destination* stands for.

        Raises:
            ValueError: If *address* is not of the same IP version as the local one, or
                *udp_port* is out of range.
        """
        self._header_registers.set_destination(destination, address, udp_port)

    def encode(self, burst: Burst, slot: int = 0) -> tuple[memoryview, int]:
        """Return the UDP payloads of *burst*, one behind the other, and a size.

        All have that size but the last, which may be shorter: it is the segment size
        for the kernel. The bytes are good until the next burst is encoded to *slot*.

        Raises:
            ValueError: If the burst does not fit this encoder, or its destination is
                not known.
        """
        if slot < 0 or slot >= self._slots:
            raise ValueError(f"slot {slot} is not in 0..{self._slots - 1}")
        start = slot * self._slot_bytes
        if burst.kind != _DATA:
            start += self._answer_at
            segment = self._put_answer(burst, start)
            end = start + segment
            cut = self._cut_answer
        else:
            self._check(burst)
            cut = self._cut_data
            if burst.packet_index < burst.message_packets - 1 and (
                burst.packet_index > 0 or burst.verb != _WRITE
            ):
                end = self._put_run(burst, slot, start)
            else:
                start += self._odd_at
                end = self._put_odd(burst, slot, start)
            segment = self._segment_bytes
        if self._icrc_mode != _BY_TABLE:
            self._replace_icrcs(burst, start, end, segment)
        if cut.start != start or cut.end != end:
            cut.start = start
            cut.end = end
            cut.view = self._view[start:end]
        return cut.view, segment

    def _replace_icrcs(self, burst: Burst, start: int, end: int, segment: int) -> None:
        """Write zeros, or what the rule gives over all bytes, for what tables gave."""
        for position, at in enumerate(range(start, end, segment)):
            stop = at + segment if at + segment < end else end
            value = bytes(_ICRC)
            if self._icrc_mode == _IN_FULL:
                headers = self._header_registers.masked_headers(
                    burst, stop - at, position
                )
                value = icrc_of(headers, bytes(self._bytes[at : stop - _ICRC]))
            self._bytes[stop - _ICRC : stop] = value

    def _check(self, burst: Burst) -> None:
        """Refuse data that does not fit the buffer, or no send."""
        count = burst.count
        if burst.path_mtu != self._path_mtu or count > self._max_burst_packets:
            raise ValueError(f"{burst!r} is larger than what this encoder was made for")
        last_bytes = burst.packet_payload_bytes(count - 1)
        if count < 1 or last_bytes < 0 or last_bytes > self._path_mtu:
            raise ValueError(f"{burst!r} contradicts itself")
        index = burst.packet_index
        if burst.message_ids is not None:
            if (
                index > 0
                or burst.message_packets > 1
                or count != len(burst.message_ids)
            ):
                raise ValueError(f"{burst!r} contradicts itself")
        elif index < burst.message_packets - 1 and (index > 0 or burst.verb != _WRITE):
            if (
                index + count == burst.message_packets
                and last_bytes > self._path_mtu - _IMMEDIATE
            ):
                raise ValueError(f"{burst!r} does not fit one send")
        elif count > 2:
            raise ValueError(f"{burst!r} does not fit one send")

    def _opcode(self, burst: Burst, position: int) -> int:
        """Return the opcode of a data packet."""
        index = burst.packet_index + position
        base = _WRITE_BASE if burst.verb == _WRITE else 0
        if burst.message_packets == 1:
            return base + (_PLAIN_ONLY if burst.message_id < 0 else _ONLY)
        if index < burst.message_packets - 1:
            return base + (_FIRST if index == 0 else _MIDDLE)
        return base + (_PLAIN_LAST if burst.message_id < 0 else _LAST)

    def _put_run(self, burst: Burst, slot: int, at: int) -> int:
        """Write packets without RETH, of which only the last may end the message.

        Returns:
            Where they end.
        """
        size = _BTH + self._path_mtu + _ICRC
        self._segment_bytes = size
        if self._dirty[slot] >= 0:
            self._restore(slot, self._dirty[slot])
            self._dirty[slot] = -1
        if burst.packet_index + burst.count < burst.message_packets:
            self._put_alike(burst, burst.count, at)
            return at + burst.count * size
        # All but a LAST are alike.
        position = burst.count - 1
        self._dirty[slot] = position
        self._put_alike(burst, position, at)
        at += position * size
        return at + self._put_packet(burst, position, at, False)

    def _put_odd(self, burst: Burst, slot: int, at: int) -> int:
        """Write packets of which some have extended headers; return where they end."""
        count = burst.count
        last_bytes = burst.packet_payload_bytes(count - 1)
        # All bursts with this number have their payloads at the same places.
        shape = (last_bytes << 8 | count) << 16 | (
            self._opcode(burst, 0) << 8 | self._opcode(burst, count - 1)
        )
        is_there = self._shapes[slot] == shape
        self._shapes[slot] = shape
        self._segment_bytes = 0
        for position in range(count):
            length = self._put_packet(burst, position, at, is_there)
            if position == 0:
                self._segment_bytes = length
            at += length
        return at

    def _put_alike(self, burst: Burst, count: int, at: int) -> None:
        """Write headers and ICRCs of packets without extended headers.

        Their payload, the path MTU, is in the buffer already. This is where the time
        goes, so it is one loop without calls.
        """
        buffer = self._buffer
        byte_table = self._byte_table
        advance = self._advance
        qpn = burst.destination_qpn
        psn = burst.psn
        size = _BTH + self._path_mtu + _ICRC
        # The path MTU is a power of two: one matrix carries the register over it.
        base = 0
        while self._path_mtu >> (base + 1):
            base += 1
        base <<= 10
        opcode = -1
        header_register = 0
        constant = 0
        for position in range(count):
            if opcode < 0 or opcode == _FIRST:
                # SEND has a FIRST of that shape; it is followed by MIDDLEs.
                opcode = self._opcode(burst, position)
                header_register = self._header_registers.register(
                    burst, opcode, 0, size
                )
                constant = self._constant(at + _BTH, self._path_mtu, 0)
            asks = 0x80 if burst.ack_request and position == burst.count - 1 else 0
            high, middle, low = psn >> 16 & 0xFF, psn >> 8 & 0xFF, psn & 0xFF
            buffer[at] = opcode
            buffer[at + 1] = 0
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
            if self._is_ipv4:
                register ^= self._identification[position]
            register = byte_table[(register ^ asks) & 0xFF] ^ register >> 8
            register = byte_table[(register ^ high) & 0xFF] ^ register >> 8
            register = byte_table[(register ^ middle) & 0xFF] ^ register >> 8
            register = byte_table[(register ^ low) & 0xFF] ^ register >> 8
            register = (
                advance[base + (register & 0xFF)]
                ^ advance[base + 256 + (register >> 8 & 0xFF)]
                ^ advance[base + 512 + (register >> 16 & 0xFF)]
                ^ advance[base + 768 + (register >> 24)]
                ^ constant
                ^ _ONES
            )
            at += size
            buffer[at - 4] = register & 0xFF
            buffer[at - 3] = register >> 8 & 0xFF
            buffer[at - 2] = register >> 16 & 0xFF
            buffer[at - 1] = register >> 24
            psn = (psn + 1) & 0xFFFFFF

    def _put_packet(self, burst: Burst, position: int, at: int, is_there: bool) -> int:
        """Write a data packet and return its length; its payload may be there."""
        opcode = self._opcode(burst, position)
        payload_bytes = burst.packet_payload_bytes(position)
        pad_bytes = (4 - (payload_bytes & 3)) & 3
        self._put_bth(burst, opcode, pad_bytes, (burst.psn + position) & 0xFFFFFF, at)
        # Where several messages are in a burst, each of them asks for its ACK.
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
        register = self._header_registers.register(
            burst, opcode, pad_bytes << 4, length
        )
        if self._is_ipv4:
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

    def _put_answer(self, burst: Burst, at: int) -> int:
        """Write an ACK, a NAK or a CNP; return its length."""
        is_cnp = burst.kind == _CNP
        opcode = _CNP_OPCODE if is_cnp else _ACKNOWLEDGE
        self._put_bth(burst, opcode, 0, burst.psn, at)
        if is_cnp:
            self._buffer[at + 4] = 0x40  # BECN
            for i in range(_CNP_RESERVED):
                self._buffer[at + _BTH + i] = 0
            length = _BTH + _CNP_RESERVED + _ICRC
        else:
            self._put_word(burst.syndrome << 24 | burst.msn, at + _BTH)
            length = _BTH + _AETH + _ICRC
        register = self._header_registers.register(burst, opcode, 0, length)
        register = self._through(register, at + _BTH_SHARED, at + length - _ICRC)
        self._put_icrc(register, at + length - _ICRC)
        return length

    def _put_bth(
        self, burst: Burst, opcode: int, pad_bytes: int, psn: int, at: int
    ) -> None:
        """Write a base transport header that does not ask for an ACK."""
        self._buffer[at] = opcode
        self._buffer[at + 1] = pad_bytes << 4
        self._buffer[at + 2] = 0xFF
        self._buffer[at + 3] = 0xFF
        self._put_word(burst.destination_qpn, at + 4)
        self._put_word(psn, at + 8)

    def _put_word(self, value: int, at: int) -> None:
        """Write 32 bits in network order."""
        self._buffer[at] = value >> 24 & 0xFF
        self._buffer[at + 1] = value >> 16 & 0xFF
        self._buffer[at + 2] = value >> 8 & 0xFF
        self._buffer[at + 3] = value & 0xFF

    def _put_icrc(self, register: int, at: int) -> None:
        """Write the final inversion of a register, lowest byte first."""
        value = register ^ _ONES
        self._buffer[at] = value & 0xFF
        self._buffer[at + 1] = value >> 8 & 0xFF
        self._buffer[at + 2] = value >> 16 & 0xFF
        self._buffer[at + 3] = value >> 24 & 0xFF

    def _constant(self, at: int, payload_bytes: int, pad_bytes: int) -> int:
        """Return the residue of the payload that stands at *at*."""
        constant = self._residues[payload_bytes]
        if constant < 0:
            constant = residue(bytes(self._bytes[at : at + payload_bytes + pad_bytes]))
            self._residues[payload_bytes] = constant
        return constant

    def _through(self, register: int, start: int, end: int) -> int:
        """Return the register after the bytes of the buffer from *start* to *end*."""
        buffer = self._buffer
        byte_table = self._byte_table
        for i in range(start, end):
            register = byte_table[(register ^ buffer[i]) & 0xFF] ^ register >> 8
        return register

    def _restore(self, slot: int, position: int) -> None:
        """Write the payload of a packet of the run again."""
        at = slot * self._slot_bytes + position * (_BTH + self._path_mtu + _ICRC) + _BTH
        self._bytes[at : at + self._path_mtu] = self._pattern


class _Cut:
    """A part of a buffer.

    Attributes:
        start: Where it begins.
        end: Before what it ends.
        view: It.
    """

    __slots__ = ("end", "start", "view")

    def __init__(self) -> None:
        self.start = -1
        self.end = -1
        self.view = memoryview(b"")
