# cython: annotation_typing=False, language_level=3, cdivision=True
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Whether a packet arrived as it was sent: ICRC and payload.

The payload is a pattern that is known beforehand, and so is what it does to the ICRC.
So a packet with the right payload costs a comparison, and its ICRC a few look-ups in
the tables that senders use (`chakram.roce.icrc`); what an IP header, a UDP header and
half a BTH make of the register is kept for every queue pair. Of any other payload the
ICRC is computed byte by byte: if it is right, something before the sender's ICRC has
changed the payload, or something behind the last device that checked.

A UDP socket does not see the IPv4 identification, which the ICRC covers. A sender of
our kind (don't-fragment, unconnected sockets) has the number of the segment in its send
there; the packets that a receive hands over are such a send, or what is left of it. So
the place in the receive is tried first. If the ICRC is wrong with that, what is wrong
is taken back to where the identification stands: that gives the one identification that
makes it right, if there is any. Of our own senders it must be a segment's number, so a
wrong ICRC is taken for right once in 2**25; of others any identification will do.

Compiled, nothing checks bounds: `Receiver` hands over what `SegmentParser` has parsed.
"""

from __future__ import annotations

import zlib
from array import array
from ipaddress import ip_address
from typing import TYPE_CHECKING

from chakram.plan.transport import PATH_MTUS
from chakram.roce.constants import ICRC_BYTES, UDP_PORT
from chakram.roce.header_registers import SHARED_BTH_BYTES
from chakram.roce.headers import BTH_BYTES
from chakram.roce.icrc import (
    ADVANCE_BITS,
    BYTE_TABLE,
    RETREAT_BITS,
    advance_tables,
    identification_table,
    masked_headers,
    residue,
    retreat_tables,
    stride_tables,
)
from chakram.roce.opcodes import Opcode
from chakram.roce.payload import payload_pattern

if TYPE_CHECKING:
    from chakram.roce.datagrams import SegmentParser

__all__ = [
    "INTACT",
    "WRONG_ICRC",
    "WRONG_PAYLOAD",
    "ArrivingFlow",
    "PacketVerifier",
]

INTACT = 0
"""As it was sent, as far as that can be told."""

WRONG_ICRC = 1
"""Something has changed it on the way: an adapter would drop it."""

WRONG_PAYLOAD = 2
"""Its payload is not what it should be, but nothing shows that the way did it."""

_INTACT = INTACT
_WRONG_ICRC = WRONG_ICRC
_WRONG_PAYLOAD = WRONG_PAYLOAD
_BTH = BTH_BYTES
_ICRC = ICRC_BYTES
_SHARED = SHARED_BTH_BYTES
_ACKNOWLEDGE = int(Opcode.ACKNOWLEDGE)
_CNP = int(Opcode.CNP)
_ADVANCE_POWERS = ADVANCE_BITS
_RETREAT_POWERS = RETREAT_BITS
_ONES = 0xFFFFFFFF
# One for each opcode of the reliable connection service; the last one, which is
# reserved there, stands for the opcodes of all other services.
_KINDS = 32
# The kernel numbers no more segments of one send.
_SEGMENTS = 128
_IDENTIFICATIONS = 1 << 16
# From the identification to the end of the IPv4 header, and the UDP header; the packet
# without its ICRC follows.
_BEHIND_IDENTIFICATION = 2 + 14 + 8 - ICRC_BYTES


class ArrivingFlow:
    """What a peer sends to one queue pair: the register before AckReq and PSN.

    Attributes:
        is_pattern: Whether the payload is the pattern.
        identifications: How many IPv4 identifications, from 0 on, may be right.
        packets: By opcode, for what a register was computed last; `PacketVerifier`
            looks itself, for a call took as long as all else.
        registers: By opcode, that register.
    """

    __slots__ = (
        "_bytes",
        "_headers",
        "_is_ipv4",
        "_udp_at",
        "identifications",
        "is_pattern",
        "packets",
        "registers",
    )

    def __init__(
        self, *, source: bytes, destination: bytes, udp_port: int, is_ours: bool
    ) -> None:
        """Begin with no register known.

        Args:
            source: The peer's address.
            destination: Our own.
            udp_port: Our own.
            is_ours: Whether the peer sends the pattern, from sockets as ours.
        """
        self.is_pattern = is_ours
        self.identifications = _SEGMENTS if is_ours else _IDENTIFICATIONS
        self._is_ipv4 = len(source) == 4
        template = masked_headers(
            source=source,
            destination=destination,
            source_port=0,
            udp_payload_bytes=0,
            udp_port=udp_port,
        )
        self._udp_at = len(template) - 8
        self._bytes = bytearray(template + bytes(_SHARED))
        self._headers = self._bytes
        self.packets = array("q", (-1 for _ in range(_KINDS)))
        self.registers = array("I", (0 for _ in range(_KINDS)))

    def compute(
        self,
        data: bytes | bytearray | memoryview,
        offset: int,
        size: int,
        source_port: int,
    ) -> int:
        """Return the register of the packet at *offset*, with identification 0."""
        headers = self._headers
        at = self._udp_at
        udp_bytes = size + 8
        headers[at] = source_port >> 8 & 0xFF
        headers[at + 1] = source_port & 0xFF
        headers[at + 4] = udp_bytes >> 8 & 0xFF
        headers[at + 5] = udp_bytes & 0xFF
        # After the eight ones, the IPv4 total length is at 2, the IPv6 payload length,
        # without the IP header, at 4.
        if self._is_ipv4:
            headers[10] = udp_bytes + 20 >> 8 & 0xFF
            headers[11] = udp_bytes + 20 & 0xFF
        else:
            headers[12] = udp_bytes >> 8 & 0xFF
            headers[13] = udp_bytes & 0xFF
        at += 8
        for i in range(_SHARED):
            headers[at + i] = data[offset + i]
        headers[at + 4] = 0xFF
        return zlib.crc32(self._bytes) ^ _ONES


class PacketVerifier:
    """Looks at the packets that arrive at one port.

    Attributes:
        every: One packet in so many is looked at.
    """

    __slots__ = (
        "_advance",
        "_at_position",
        "_byte_table",
        "_has_icrcs",
        "_identification",
        "_identifications",
        "_is_ipv4",
        "_local",
        "_path_mtu",
        "_pattern",
        "_residues",
        "_retreat",
        "_step",
        "_stride",
        "_udp_port",
        "every",
    )

    def __init__(
        self,
        *,
        local_address: str,
        path_mtu: int,
        every: int = 1,
        udp_port: int = UDP_PORT,
        has_icrcs: bool = True,
    ) -> None:
        """Look at one packet in *every*.

        Args:
            local_address: Of the port, of IPv4 or IPv6.
            path_mtu: Of all its queue pairs.
            every: One packet in so many.
            udp_port: Of the port.
            has_icrcs: Whether senders make ICRCs; if not, payloads alone are compared.

        Raises:
            ValueError: If one of them is out of range.
        """
        if every < 1:
            raise ValueError(f"one packet in {every} cannot be checked")
        if path_mtu not in PATH_MTUS:
            raise ValueError(f"path MTU {path_mtu} is not one of {PATH_MTUS}")
        self.every = every
        self._local = ip_address(local_address).packed
        self._is_ipv4 = len(self._local) == 4
        self._udp_port = udp_port
        self._has_icrcs = has_icrcs
        self._path_mtu = path_mtu
        self._pattern = payload_pattern(path_mtu)
        self._byte_table = BYTE_TABLE
        self._advance = advance_tables()
        self._retreat = retreat_tables()
        self._stride = stride_tables(_BTH - _SHARED + path_mtu)
        self._identifications = identification_table(8 + _SHARED)
        # By length of the payload without pad; -1: not computed yet.
        self._residues = array("q", (-1 for _ in range(path_mtu + 1)))
        # Of the receive: the identification of the packet that was right last, where
        # that one stood, and by how much those that follow differ.
        self._identification = 0
        self._at_position = 0
        self._step = 1

    def flow(self, address: str, *, is_ours: bool = True) -> ArrivingFlow:
        """Return what is to be kept of a queue pair whose peer is at *address*.

        *is_ours*: whether that sends the pattern, from sockets as ours; else its
        payloads can be anything, and so can its IPv4 identifications.

        Raises:
            ValueError: If *address* is not of the IP version of the local one.
        """
        source = ip_address(address).packed
        if len(source) != len(self._local):
            raise ValueError(f"{address} is not of the local address's IP version")
        return ArrivingFlow(
            source=source,
            destination=self._local,
            udp_port=self._udp_port,
            is_ours=is_ours,
        )

    def begin(self) -> None:
        """Take the packets that follow as what one receive has handed over."""
        self._identification = 0
        self._at_position = 0
        self._step = 1

    def judge(
        self,
        data: bytes | bytearray | memoryview,
        offset: int,
        size: int,
        packet: SegmentParser,
        flow: ArrivingFlow,
        source_port: int,
        position: int,
    ) -> int:
        """Look at a packet.

        Args:
            data: Holds it.
            offset: Where it begins there.
            size: Its length, from the BTH to the end of the ICRC.
            packet: What was parsed of it, and found to be a packet.
            flow: Of the queue pair that it is for.
            source_port: UDP port that it was sent from.
            position: Its place, from 0, among those of the receive.

        Returns:
            `INTACT`, `WRONG_ICRC` or `WRONG_PAYLOAD`.
        """
        is_data = packet.is_data
        end = offset + size - _ICRC
        is_pattern = is_data and flow.is_pattern
        as_sent = (
            is_pattern
            and packet.payload_bytes <= self._path_mtu
            and self._pattern.matches(data, packet.payload_at, packet.payload_bytes)
            and (
                packet.payload_at + packet.payload_bytes == end
                or self._has_plain_pad(
                    data, packet.payload_at + packet.payload_bytes, end
                )
            )
        )
        verdict = _WRONG_PAYLOAD if is_pattern and not as_sent else _INTACT
        if not self._has_icrcs:
            return verdict
        opcode = packet.opcode
        kind = opcode if opcode < _KINDS else _KINDS - 1
        # Whom it is for is the same for all, and so is the version, which is 0.
        key = size << 16 | source_port
        key = key << 24 | opcode << 16 | packet.partition_key
        key = key << 4 | data[offset + 1] >> 4
        if flow.packets[kind] != key:
            flow.registers[kind] = flow.compute(data, offset, size, source_port)
            flow.packets[kind] = key
        register = flow.registers[kind]
        guess = 0
        if self._is_ipv4 and is_data and flow.is_pattern:
            guess = self._identification + self._step * (position - self._at_position)
            if guess < 0 or guess >= _SEGMENTS:
                guess = 0
            register ^= self._identifications[guess]
        if (
            as_sent
            and packet.payload_bytes == self._path_mtu
            and packet.payload_at == offset + _BTH
        ):
            # Nearly all are of that kind, so it is here, without calls.
            constant = self._residues[self._path_mtu]
            if constant < 0:
                constant = self._residue(self._path_mtu)
            register ^= (
                data[offset + 8]
                | data[offset + 9] << 8
                | data[offset + 10] << 16
                | data[offset + 11] << 24
            )
            value = (
                self._stride[register & 0xFF]
                ^ self._stride[256 + (register >> 8 & 0xFF)]
                ^ self._stride[512 + (register >> 16 & 0xFF)]
                ^ self._stride[768 + (register >> 24)]
                ^ constant
                ^ _ONES
            )
        elif as_sent:
            value = self._by_table(register, data, offset, packet)
        elif opcode in (_ACKNOWLEDGE, _CNP):
            value = self._through(register, data, offset + _SHARED, end) ^ _ONES
        else:
            value = zlib.crc32(bytes(data[offset + _SHARED : end]), register ^ _ONES)
        found = (
            data[end] | data[end + 1] << 8 | data[end + 2] << 16 | data[end + 3] << 24
        )
        if value != found:
            if not self._is_ipv4:
                return _WRONG_ICRC
            change = self._identification_of(value ^ found, size)
            if change < 0 or (guess ^ change) >= flow.identifications:
                return _WRONG_ICRC
            guess ^= change
            self._step = 0 if guess == self._identification else 1
        if is_data:
            self._identification = guess
            self._at_position = position
        return verdict

    def _has_plain_pad(
        self, data: bytes | bytearray | memoryview, at: int, end: int
    ) -> bool:
        """Tell whether what follows the payload are zeros, three bytes at most."""
        for i in range(at, end):  # noqa: SIM110 - compiled, this is a loop in C
            if data[i] != 0:
                return False
        return True

    def _by_table(
        self,
        register: int,
        data: bytes | bytearray | memoryview,
        offset: int,
        packet: SegmentParser,
    ) -> int:
        """Return the ICRC of a packet with the pattern as its payload."""
        payload_bytes = packet.payload_bytes
        payload_at = packet.payload_at
        constant = self._residues[payload_bytes]
        if constant < 0:
            constant = self._residue(payload_bytes)
        register = self._through(register, data, offset + _SHARED, payload_at)
        advance = self._advance
        padded_bytes = payload_bytes + 3 & ~3
        for k in range(_ADVANCE_POWERS):
            if padded_bytes >> k & 1:
                base = k << 10
                register = (
                    advance[base + (register & 0xFF)]
                    ^ advance[base + 256 + (register >> 8 & 0xFF)]
                    ^ advance[base + 512 + (register >> 16 & 0xFF)]
                    ^ advance[base + 768 + (register >> 24)]
                )
        return register ^ constant ^ _ONES

    def _residue(self, payload_bytes: int) -> int:
        """Return what a payload makes of a register, and keep it."""
        pad = bytes((4 - (payload_bytes & 3)) & 3)
        self._residues[payload_bytes] = residue(
            self._pattern.data[:payload_bytes] + pad
        )
        return self._residues[payload_bytes]

    def _through(
        self,
        register: int,
        data: bytes | bytearray | memoryview,
        start: int,
        end: int,
    ) -> int:
        """Return the register after the bytes of *data* from *start* to *end*."""
        byte_table = self._byte_table
        for i in range(start, end):
            register = byte_table[(register ^ data[i]) & 0xFF] ^ register >> 8
        return register

    def _identification_of(self, difference: int, size: int) -> int:
        """Return which IPv4 identification changes an ICRC so; -1: none does."""
        retreat = self._retreat
        register = difference
        behind = size + _BEHIND_IDENTIFICATION
        for k in range(_RETREAT_POWERS):
            if behind >> k & 1:
                base = k << 10
                register = (
                    retreat[base + (register & 0xFF)]
                    ^ retreat[base + 256 + (register >> 8 & 0xFF)]
                    ^ retreat[base + 512 + (register >> 16 & 0xFF)]
                    ^ retreat[base + 768 + (register >> 24)]
                )
        if register >> 16:
            return -1
        # The first byte that goes into a register is its lowest one.
        return (register & 0xFF) << 8 | register >> 8
