# cython: annotation_typing=False, language_level=3, cdivision=True
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Verification of received packets: ICRC and payload.

The payload is a known pattern with a known effect on the ICRC. If a packet has the
right payload, its verification takes one comparison and a few lookups in the tables
that senders use (`chakram.roce.icrc`). The verifier caches, for every queue pair, the
CRC register over the IP header, the UDP header and the first 8 bytes of the BTH.

For any other payload, the ICRC is computed byte by byte. If the ICRC is right, the
payload was changed before the sender computed the ICRC, or after the last device that
checked it.

A UDP socket does not expose the IPv4 identification, which the ICRC covers. Chakram
senders set the don't-fragment flag and use unconnected sockets. Their identification is
therefore the index of the segment in its send. One receive returns a whole send or a
part of one. The verifier guesses the identification from the position in the receive.

If the ICRC is wrong with this guess, the verifier traces the difference back to the
identification field. The result is the only identification that makes the ICRC right,
if one exists. For a Chakram sender, it must be a valid segment index, so a wrong ICRC
passes with a probability of 2**-25. For other senders, any identification is accepted.

Compiled code does not check bounds. `Receiver` passes only packets that `SegmentParser`
has parsed.
"""

from __future__ import annotations

import zlib
from array import array
from ipaddress import ip_address
from typing import TYPE_CHECKING

from chakram.native.buffers import same_bytes, word
from chakram.plan.transport import PATH_MTUS
from chakram.roce.constants import BTH_BYTES, ICRC_BYTES, UDP_PORT
from chakram.roce.header_crc_cache import SHARED_BTH_BYTES
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
from chakram.roce.payload import pattern_bytes

if TYPE_CHECKING:
    from chakram.roce.segment_parser import SegmentParser

__all__ = [
    "INTACT",
    "WRONG_ICRC",
    "WRONG_PAYLOAD",
    "ArrivingFlow",
    "PacketVerifier",
]

INTACT = 0
"""No error was found."""

WRONG_ICRC = 1
"""The packet was changed in the network. An adapter would drop it."""

WRONG_PAYLOAD = 2
"""The payload is wrong, but nothing shows that the network changed it."""

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
# One slot per opcode of the reliable connection service. The last opcode is reserved
# there, so its slot serves the opcodes of all other services.
_KINDS = 32
# Maximum number of segments in one send.
_SEGMENTS = 128
_IDENTIFICATIONS = 1 << 16
# Bytes from the identification to the end of the UDP header, minus the ICRC, which the
# packet size already includes.
_BEHIND_IDENTIFICATION = 2 + 14 + 8 - ICRC_BYTES


class ArrivingFlow:
    """Cached CRC registers for the packets from a peer to one queue pair.

    The registers cover the headers before AckReq and PSN.

    Attributes:
        is_pattern: Whether the peer sends the payload pattern.
        identifications: IPv4 identifications below this number are accepted.
        packets: Key of the cached register, by opcode. `PacketVerifier` reads it
            directly, because a call would take as long as all other work.
        registers: Cached register, by opcode.
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
        """Create an empty cache.

        Args:
            source: Address of the peer.
            destination: Local address.
            udp_port: Local UDP port.
            is_ours: Whether the peer sends the pattern, from sockets like Chakram's.
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
        """Return the CRC register of the packet at *offset*, with identification 0."""
        headers = self._headers
        at = self._udp_at
        udp_bytes = size + 8
        headers[at] = source_port >> 8 & 0xFF
        headers[at + 1] = source_port & 0xFF
        headers[at + 4] = udp_bytes >> 8 & 0xFF
        headers[at + 5] = udp_bytes & 0xFF
        # The IP header starts at byte 8. It has the IPv4 total length at offset 2, or
        # the IPv6 payload length, which excludes the IP header, at offset 4.
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
    """Verifier of the packets that arrive at one port.

    Attributes:
        every: Number of packets of which one is verified.
    """

    __slots__ = (
        "_advance",
        "_at_position",
        "_byte_table",
        "_has_icrcs",
        "_identification",
        "_identifications",
        "_is_ipv4",
        "_late_identifications",
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
        """Create a verifier for one port.

        Args:
            local_address: IPv4 or IPv6 address of the port.
            path_mtu: Path MTU of all queue pairs of the port.
            every: Number of packets of which one is verified.
            udp_port: Local UDP port.
            has_icrcs: Whether senders compute ICRCs. If not, only payloads are
                compared.

        Raises:
            ValueError: If an argument is out of range.
        """
        if every < 1:
            raise ValueError(f"a share of one in {every} packets cannot be checked")
        if path_mtu not in PATH_MTUS:
            raise ValueError(f"path MTU {path_mtu} is not one of {PATH_MTUS}")
        self.every = every
        self._local = ip_address(local_address).packed
        self._is_ipv4 = len(self._local) == 4
        self._udp_port = udp_port
        self._has_icrcs = has_icrcs
        self._path_mtu = path_mtu
        self._pattern = pattern_bytes(path_mtu)
        self._byte_table = BYTE_TABLE
        self._advance = advance_tables()
        self._retreat = retreat_tables()
        self._stride = stride_tables(_BTH - _SHARED + path_mtu)
        self._identifications = identification_table(8 + _SHARED)
        self._late_identifications = identification_table(8 + _BTH + path_mtu)
        # Residues by payload length without pad; -1: not computed yet.
        self._residues = array("q", (-1 for _ in range(path_mtu + 1)))
        # State of the receive: identification and position of the last data packet with
        # a right ICRC, and the identification step from packet to packet.
        self._identification = 0
        self._at_position = 0
        self._step = 1

    def flow(self, address: str, *, is_ours: bool = True) -> ArrivingFlow:
        """Return a new cache for a queue pair whose peer is at *address*.

        *is_ours* states whether the peer sends the pattern, from sockets like
        Chakram's. If not, any payload and any IPv4 identification are accepted.

        Raises:
            ValueError: If *address* and the local address differ in IP version.
        """
        source = ip_address(address).packed
        if len(source) != len(self._local):
            raise ValueError(
                f"{address} does not have the IP version of the local address"
            )
        return ArrivingFlow(
            source=source,
            destination=self._local,
            udp_port=self._udp_port,
            is_ours=is_ours,
        )

    def begin(self) -> None:
        """Start a new receive. Packets belong to it until the next call."""
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
        """Verify a packet.

        Args:
            data: Buffer that contains the packet.
            offset: Start of the packet in *data*.
            size: Length of the packet, from the BTH to the end of the ICRC.
            packet: The parsed packet, which must be well-formed.
            flow: Cache of the destination queue pair.
            source_port: UDP source port of the packet.
            position: Index of the packet in the receive, from 0.

        Returns:
            `INTACT`, `WRONG_ICRC` or `WRONG_PAYLOAD`.
        """
        is_data = packet.is_data
        end = offset + size - _ICRC
        is_pattern = is_data and flow.is_pattern
        as_sent = is_pattern and self._has_pattern(data, packet, end)
        verdict = _WRONG_PAYLOAD if is_pattern and not as_sent else _INTACT
        if not self._has_icrcs:
            return verdict
        opcode = packet.opcode
        kind = opcode if opcode < _KINDS else _KINDS - 1
        # The destination QPN and the version (0) are the same for all packets of a
        # flow.
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
        if as_sent:
            value = self._by_table(register, data, offset, packet)
        elif opcode in (_ACKNOWLEDGE, _CNP):
            value = self._through(register, data, offset + _SHARED, end) ^ _ONES
        else:
            value = zlib.crc32(bytes(data[offset + _SHARED : end]), register ^ _ONES)
        found = word(data, end)
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

    def intact(
        self,
        data: bytes | bytearray | memoryview,
        offset: int,
        size: int,
        count: int,
        flow: ArrivingFlow,
        opcode: int,
        position: int,
    ) -> int:
        """Return how many of *count* packets are certainly intact.

        The packets must repeat a packet that was judged (`SegmentParser.repetitions`),
        and have full payloads without extended headers. The caller must judge the next
        packet.

        Args:
            data: Buffer that contains the packets.
            offset: Start of the first packet in *data*.
            size: Length of each packet.
            count: Number of packets.
            flow: Cache of the destination queue pair.
            opcode: Opcode of the packets.
            position: Index of the first packet in the receive.
        """
        path_mtu = self._path_mtu
        if not flow.is_pattern or size != _BTH + path_mtu + _ICRC:
            return 0
        pattern, late = self._pattern, self._late_identifications
        # The lookups depend only on the PSN. Consecutive packets thus use table entries
        # that are already in the CPU cache.
        constant = self._past(flow.registers[opcode]) ^ self._residue(path_mtu) ^ _ONES
        guess = self._identification + self._step * (position - self._at_position)
        done = 0
        while (
            done < count
            and guess < _SEGMENTS
            and same_bytes(data, offset + _BTH, pattern, 0, path_mtu)
        ):
            value = self._past(word(data, offset + _SHARED)) ^ constant
            if self._is_ipv4:
                value ^= late[guess]
            offset += size
            if self._has_icrcs and value != word(data, offset - _ICRC):
                break
            done += 1
            self._identification = guess
            self._at_position = position
            guess += self._step
            position += 1
        return done

    def _past(self, register: int) -> int:
        """Return *register* after zero bytes from the PSN to a full packet's end."""
        return (
            self._stride[register & 0xFF]
            ^ self._stride[256 + (register >> 8 & 0xFF)]
            ^ self._stride[512 + (register >> 16 & 0xFF)]
            ^ self._stride[768 + (register >> 24)]
        )

    def _has_pattern(
        self, data: bytes | bytearray | memoryview, packet: SegmentParser, end: int
    ) -> bool:
        """Return whether the payload is the pattern and the pad up to *end* is zero."""
        payload_end = packet.payload_at + packet.payload_bytes
        return (
            packet.payload_bytes <= self._path_mtu
            and same_bytes(
                data, packet.payload_at, self._pattern, 0, packet.payload_bytes
            )
            and (payload_end == end or self._has_plain_pad(data, payload_end, end))
        )

    def _has_plain_pad(
        self, data: bytes | bytearray | memoryview, at: int, end: int
    ) -> bool:
        """Return whether the pad, three bytes at most, is all zeros."""
        for i in range(at, end):  # noqa: SIM110 - compiles to a loop in C
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
        """Return the ICRC of a packet whose payload is the pattern."""
        payload_bytes = packet.payload_bytes
        payload_at = packet.payload_at
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
        """Return the residue of a padded payload, which is computed only once."""
        if self._residues[payload_bytes] < 0:
            pad = bytes((4 - (payload_bytes & 3)) & 3)
            self._residues[payload_bytes] = residue(
                bytes(self._pattern[:payload_bytes]) + pad
            )
        return self._residues[payload_bytes]

    def _through(
        self,
        register: int,
        data: bytes | bytearray | memoryview,
        start: int,
        end: int,
    ) -> int:
        """Return the CRC register after the bytes of *data* from *start* to *end*."""
        byte_table = self._byte_table
        for i in range(start, end):
            register = byte_table[(register ^ data[i]) & 0xFF] ^ register >> 8
        return register

    def _identification_of(self, difference: int, size: int) -> int:
        """Return the identification change that causes *difference*, or -1 if none."""
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
        # The first byte that enters a register is its lowest byte.
        return (register & 0xFF) << 8 | register >> 8
