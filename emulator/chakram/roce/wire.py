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

import zlib
from array import array
from ipaddress import ip_address
from typing import TYPE_CHECKING

from chakram.roce.constants import (
    ICRC_BYTES,
    ICRC_MODES,
    PATH_MTUS,
    UDP_PORT,
    BurstKind,
    Verb,
)
from chakram.roce.headers import BTH_BYTES
from chakram.roce.icrc import (
    ADVANCE_BITS,
    BYTE_TABLE,
    advance_tables,
    identification_table,
    masked_headers,
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
# The header bytes that are the same for all packets of one opcode and length: eight
# ones, IP, UDP and the BTH up to the destination QPN.
_BTH_SHARED = 8


def _pattern(length: int) -> bytes:
    """Return payload bytes that do not repeat within a packet."""
    return bytes((7 * i + (i >> 8)) & 0xFF for i in range(length))


class WireEncoder:
    """Turns the bursts of one port into UDP payloads.

    The bytes stand in a buffer that belongs to the encoder. It has *slots* of which
    each holds one burst, so that a batch of sends can be prepared.
    """

    __slots__ = (
        "_address_at",
        "_addresses",
        "_advance",
        "_buffer",
        "_byte_table",
        "_bytes",
        "_dirty",
        "_headers",
        "_headers_bytes",
        "_icrc_mode",
        "_identification",
        "_is_ipv4",
        "_local",
        "_max_burst_packets",
        "_odd_at",
        "_path_mtu",
        "_pattern",
        "_residues",
        "_slot_bytes",
        "_slots",
        "_udp_at",
        "_udp_port",
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
        if not 0 < udp_port <= 0xFFFF:
            raise ValueError(f"UDP port {udp_port} is not in 1..65535")
        self._local = ip_address(local_address).packed
        # By destination: its address, room for the source port, its UDP port.
        self._addresses: dict[int, bytes] = {}
        self._udp_port = udp_port
        self._icrc_mode = ICRC_MODES.index(icrc)
        self._path_mtu = path_mtu
        self._max_burst_packets = max_burst_packets
        self._slots = slots
        # What the ICRC covers up to the destination QPN; all but addresses, lengths,
        # source port and BTH stays as it is.
        template = masked_headers(
            source=self._local,
            destination=self._local,
            source_port=0,
            udp_payload_bytes=0,
            udp_port=udp_port,
        )
        self._is_ipv4 = len(self._local) == 4
        self._udp_at = len(template) - 8
        self._address_at = self._udp_at - len(self._local)
        # BTH: opcode, flags, partition key 0xFFFF, masked byte, QPN.
        self._headers_bytes = bytearray(template + b"\0\0\xff\xff\xff\0\0\0")
        self._headers = self._headers_bytes
        self._identification = identification_table(8 + _BTH_SHARED)
        self._byte_table = BYTE_TABLE
        self._advance = advance_tables()
        # By length of the payload without pad; -1: not computed yet.
        self._residues = array("q", (-1 for _ in range(path_mtu + 1)))
        self._pattern = _pattern(path_mtu)
        # Each slot: a run of packets without extended headers that keeps its payload,
        # and behind it room for any other burst (FIRST and one more at most).
        run_bytes = max_burst_packets * (_BTH + path_mtu + _ICRC)
        odd_bytes = 2 * (_BTH + _RETH + _IMMEDIATE + path_mtu + _ICRC)
        self._odd_at = run_bytes
        self._slot_bytes = run_bytes + odd_bytes
        self._bytes = bytearray(slots * self._slot_bytes)
        self._buffer = self._bytes
        self._view = memoryview(self._bytes)
        # By slot: which packet of the run has lost its payload; -1: none.
        self._dirty = [-1] * slots
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
        packed = ip_address(address).packed
        if len(packed) != len(self._local):
            raise ValueError(f"{address} is not of the local address's IP version")
        port = self._udp_port if udp_port is None else udp_port
        if not 0 < port <= 0xFFFF:
            raise ValueError(f"UDP port {port} is not in 1..65535")
        self._addresses[destination] = packed + bytes(2) + port.to_bytes(2, "big")

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
        address = self._addresses.get(burst.destination)
        if address is None:
            raise ValueError(f"{burst!r}: destination {burst.destination} is not known")
        for i in range(len(address)):
            self._headers[self._address_at + i] = address[i]
        start = slot * self._slot_bytes
        if burst.kind != _DATA:
            start += self._odd_at
            length = self._put_answer(burst, start)
            if self._icrc_mode != _BY_TABLE:
                self._replace_icrcs(burst, start, start + length, length)
            return self._view[start : start + length], length
        if burst.path_mtu != self._path_mtu or burst.count > self._max_burst_packets:
            raise ValueError(f"{burst!r} is larger than what this encoder was made for")
        last_bytes = burst.packet_payload_bytes(burst.count - 1)
        if burst.count < 1 or last_bytes < 0 or last_bytes > self._path_mtu:
            raise ValueError(f"{burst!r} contradicts itself")
        index = burst.packet_index
        ends_message = index + burst.count == burst.message_packets
        is_run = index < burst.message_packets - 1 and (
            index > 0 or burst.verb != _WRITE
        )
        if is_run:
            if ends_message and last_bytes > self._path_mtu - _IMMEDIATE:
                raise ValueError(f"{burst!r} does not fit one send")
            segment = _BTH + self._path_mtu + _ICRC
            if self._dirty[slot] >= 0:
                self._restore(slot, self._dirty[slot])
                self._dirty[slot] = -1
            if ends_message:
                self._dirty[slot] = burst.count - 1
        else:
            if burst.count > 2:
                raise ValueError(f"{burst!r} does not fit one send")
            start += self._odd_at
            segment = 0
        end = start
        position = 0
        if is_run:
            # All but a LAST are alike.
            position = burst.count - 1 if ends_message else burst.count
            self._put_run(burst, position, start)
            end += position * segment
        while position < burst.count:
            opcode = self._opcode(burst, position)
            length = self._put_packet(burst, position, opcode, end)
            if segment == 0:
                segment = length
            register = self._header_register(burst, end, length)
            self._seal(end, length, position, opcode, register)
            end += length
            position += 1
        if self._icrc_mode != _BY_TABLE:
            self._replace_icrcs(burst, start, end, segment)
        return self._view[start:end], segment

    def _replace_icrcs(self, burst: Burst, start: int, end: int, segment: int) -> None:
        """Write zeros, or what the rule gives over all bytes, for what tables gave."""
        address = self._addresses[burst.destination]
        for position, at in enumerate(range(start, end, segment)):
            stop = at + segment if at + segment < end else end
            value = bytes(_ICRC)
            if self._icrc_mode == _IN_FULL:
                headers = masked_headers(
                    source=self._local,
                    destination=address[: len(self._local)],
                    source_port=burst.source_port,
                    udp_payload_bytes=stop - at,
                    udp_port=int.from_bytes(address[len(self._local) + 2 :], "big"),
                    identification=position,
                )
                value = icrc_of(headers, bytes(self._bytes[at : stop - _ICRC]))
            self._bytes[stop - _ICRC : stop] = value

    def _opcode(self, burst: Burst, position: int) -> int:
        """Return the opcode of a data packet."""
        index = burst.packet_index + position
        base = _WRITE_BASE if burst.verb == _WRITE else 0
        if index < burst.message_packets - 1:
            return base + (_FIRST if index == 0 else _MIDDLE)
        if burst.message_id < 0:
            return base + (_PLAIN_ONLY if index == 0 else _PLAIN_LAST)
        return base + (_ONLY if index == 0 else _LAST)

    def _put_run(self, burst: Burst, count: int, at: int) -> None:
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
                self._put_bth(burst, opcode, 0, psn, at)
                header_register = self._header_register(burst, at, size)
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
                ^ 0xFFFFFFFF
            )
            at += size
            buffer[at - 4] = register & 0xFF
            buffer[at - 3] = register >> 8 & 0xFF
            buffer[at - 2] = register >> 16 & 0xFF
            buffer[at - 1] = register >> 24
            psn = (psn + 1) & 0xFFFFFF

    def _put_packet(self, burst: Burst, position: int, opcode: int, at: int) -> int:
        """Write a data packet but for its ICRC; return its length with that."""
        index = burst.packet_index + position
        payload_bytes = burst.packet_payload_bytes(position)
        pad_bytes = (4 - (payload_bytes & 3)) & 3
        self._put_bth(burst, opcode, pad_bytes, (burst.psn + position) & 0xFFFFFF, at)
        if burst.ack_request and position == burst.count - 1:
            self._buffer[at + 8] = 0x80
        end = at + _BTH
        if index == 0 and burst.verb == _WRITE:
            self._put_word(burst.remote_address >> 32, end)
            self._put_word(burst.remote_address & 0xFFFFFFFF, end + 4)
            self._put_word(burst.remote_key, end + 8)
            self._put_word(burst.message_bytes, end + 12)
            end += _RETH
        if index == burst.message_packets - 1 and burst.message_id >= 0:
            self._put_word(burst.message_id, end)
            end += _IMMEDIATE
        self._buffer[end : end + payload_bytes] = self._pattern[:payload_bytes]
        end += payload_bytes
        for i in range(pad_bytes):
            self._buffer[end + i] = 0
        return end + pad_bytes + _ICRC - at

    def _put_answer(self, burst: Burst, at: int) -> int:
        """Write an ACK, a NAK or a CNP; return its length."""
        is_cnp = burst.kind == _CNP
        self._put_bth(burst, _CNP_OPCODE if is_cnp else _ACKNOWLEDGE, 0, burst.psn, at)
        if is_cnp:
            self._buffer[at + 4] = 0x40  # BECN
            for i in range(_CNP_RESERVED):
                self._buffer[at + _BTH + i] = 0
            length = _BTH + _CNP_RESERVED + _ICRC
        else:
            self._put_word(burst.syndrome << 24 | burst.msn, at + _BTH)
            length = _BTH + _AETH + _ICRC
        register = self._header_register(burst, at, length)
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
        value = register ^ 0xFFFFFFFF
        self._buffer[at] = value & 0xFF
        self._buffer[at + 1] = value >> 8 & 0xFF
        self._buffer[at + 2] = value >> 16 & 0xFF
        self._buffer[at + 3] = value >> 24 & 0xFF

    def _header_register(self, burst: Burst, at: int, length: int) -> int:
        """Return the register before AckReq and PSN of the packet at *at*."""
        udp_bytes = length + 8
        udp_at = self._udp_at
        self._headers[udp_at] = burst.source_port >> 8
        self._headers[udp_at + 1] = burst.source_port & 0xFF
        self._headers[udp_at + 4] = udp_bytes >> 8
        self._headers[udp_at + 5] = udp_bytes & 0xFF
        # After the eight ones, the IPv4 total length is at 2, the IPv6 payload length,
        # without the IP header, at 4.
        if self._is_ipv4:
            self._headers[10] = (udp_bytes + 20) >> 8
            self._headers[11] = (udp_bytes + 20) & 0xFF
        else:
            self._headers[12] = udp_bytes >> 8
            self._headers[13] = udp_bytes & 0xFF
        bth_at = udp_at + 8
        self._headers[bth_at] = self._buffer[at]
        self._headers[bth_at + 1] = self._buffer[at + 1]
        self._headers[bth_at + 5] = self._buffer[at + 5]
        self._headers[bth_at + 6] = self._buffer[at + 6]
        self._headers[bth_at + 7] = self._buffer[at + 7]
        return zlib.crc32(self._headers_bytes) ^ 0xFFFFFFFF

    def _seal(
        self, at: int, length: int, position: int, opcode: int, register: int
    ) -> None:
        """Write the ICRC of the data packet at *at*, segment *position* of its send."""
        payload_at = at + _BTH
        kind = opcode if opcode < _WRITE_BASE else opcode - _WRITE_BASE
        if opcode != kind and kind in (_FIRST, _ONLY, _PLAIN_ONLY):
            payload_at += _RETH
        if kind in (_LAST, _ONLY):
            payload_at += _IMMEDIATE
        if self._is_ipv4:
            register ^= self._identification[position]
        register = self._through(register, at + _BTH_SHARED, payload_at)
        padded_bytes = at + length - _ICRC - payload_at
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
        pad_bytes = self._buffer[at + 1] >> 4 & 3
        constant = self._constant(payload_at, padded_bytes - pad_bytes, pad_bytes)
        self._put_icrc(register ^ constant, at + length - _ICRC)

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
