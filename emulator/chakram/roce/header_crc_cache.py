# cython: annotation_typing=False, language_level=3, cdivision=True
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Cache of CRC registers over the headers before AckReq and PSN.

The registers cover the IP and UDP headers and the first 8 bytes of the BTH. These bytes
are the same in all packets with the same opcode, length and queue pair.

The cache has one register per opcode, for the queue pair that sent last. A queue pair
that sends many bursts in a row, or alternates data and ACKs, computes each register
once.
"""

from __future__ import annotations

import zlib
from array import array
from ipaddress import ip_address
from typing import TYPE_CHECKING

from chakram.roce.icrc import masked_headers

if TYPE_CHECKING:
    from chakram.roce.burst import Burst

__all__ = ["SHARED_BTH_BYTES", "HeaderRegisters"]

SHARED_BTH_BYTES = 8
"""BTH bytes before AckReq: opcode, flags, partition key, a masked byte and the QPN."""

_SHARED = SHARED_BTH_BYTES
# One slot per opcode of the reliable connection service. The last opcode is reserved
# there, so its slot serves the opcodes of all other services.
_KINDS = 32
_ONES = 0xFFFFFFFF


class HeaderRegisters:
    """Cached CRC registers of the packets sent from one address.

    Attributes:
        is_ipv4: Whether the address is an IPv4 address.
    """

    __slots__ = (
        "_address_at",
        "_addresses",
        "_bytes",
        "_flows",
        "_headers",
        "_local",
        "_packets",
        "_registers",
        "_udp_at",
        "_udp_port",
        "is_ipv4",
    )

    def __init__(self, local_address: str, udp_port: int) -> None:
        """Create an empty cache.

        *udp_port* is the default UDP destination port for `set_destination`.

        Raises:
            ValueError: If *local_address* or *udp_port* is invalid.
        """
        if not 0 < udp_port <= 0xFFFF:
            raise ValueError(f"UDP port {udp_port} is not in 1..65535")
        self._local = ip_address(local_address).packed
        self.is_ipv4 = len(self._local) == 4
        # For each destination, the address, two bytes for the source port, and the UDP
        # destination port.
        self._addresses: dict[int, bytes] = {}
        self._udp_port = udp_port
        # Only the destination address, the ports, the lengths and the BTH change.
        template = masked_headers(
            source=self._local,
            destination=self._local,
            source_port=0,
            udp_payload_bytes=0,
            udp_port=udp_port,
        )
        self._udp_at = len(template) - 8
        self._address_at = self._udp_at - len(self._local)
        # BTH: opcode, flags, partition key 0xFFFF, masked byte, QPN.
        self._bytes = bytearray(template + b"\0\0\xff\xff\xff\0\0\0")
        self._headers = self._bytes
        # For each opcode, the key of the cached register, in two words, and the
        # register.
        self._flows = array("q", (-1 for _ in range(_KINDS)))
        self._packets = array("q", (-1 for _ in range(_KINDS)))
        self._registers = array("I", (0 for _ in range(_KINDS)))

    def set_destination(
        self, destination: int, address: str, udp_port: int | None = None
    ) -> None:
        """Set the address and UDP port of a *destination* index.

        Raises:
            ValueError: If *address* and the local address differ in IP version, or
                *udp_port* is out of range.
        """
        packed = ip_address(address).packed
        if len(packed) != len(self._local):
            raise ValueError(
                f"{address} does not have the IP version of the local address"
            )
        port = self._udp_port if udp_port is None else udp_port
        if not 0 < port <= 0xFFFF:
            raise ValueError(f"UDP port {port} is not in 1..65535")
        self._addresses[destination] = packed + bytes(2) + port.to_bytes(2, "big")
        for kind in range(_KINDS):
            self._flows[kind] = -1

    def register(self, burst: Burst, opcode: int, flags: int, length: int) -> int:
        """Return the CRC register of a packet of *burst*, before AckReq and PSN.

        Args:
            burst: Burst of the packet, which identifies the flow.
            opcode: First byte of the packet.
            flags: Second byte of the packet.
            length: Length of the packet, from the BTH to the end of the ICRC.

        Raises:
            ValueError: If the destination is unknown.
        """
        kind = opcode if opcode < _KINDS else _KINDS - 1
        flow = burst.destination << 40 | burst.destination_qpn << 16 | burst.source_port
        packet = (length << 8 | opcode) << 8 | flags
        if self._flows[kind] != flow or self._packets[kind] != packet:
            self._registers[kind] = self._compute(burst, opcode, flags, length)
            self._flows[kind] = flow
            self._packets[kind] = packet
        return self._registers[kind]

    def masked_headers(self, burst: Burst, length: int, position: int) -> bytes:
        """Return the bytes before the BTH that the ICRC of a segment covers.

        *length* is the packet length from the BTH to the end of the ICRC. *position* is
        the index of the segment in its send.
        """
        address = self._addresses[burst.destination]
        return masked_headers(
            source=self._local,
            destination=address[: len(self._local)],
            source_port=burst.source_port,
            udp_payload_bytes=length,
            udp_port=int.from_bytes(address[len(self._local) + 2 :], "big"),
            identification=position,
        )

    def _compute(self, burst: Burst, opcode: int, flags: int, length: int) -> int:
        """Compute the CRC register that `register` caches."""
        address = self._addresses.get(burst.destination)
        if address is None:
            raise ValueError(f"{burst!r}: destination {burst.destination} is unknown")
        headers = self._headers
        at = self._address_at
        for i in range(len(address)):
            headers[at + i] = address[i]
        at = self._udp_at
        udp_bytes = length + 8
        headers[at] = burst.source_port >> 8
        headers[at + 1] = burst.source_port & 0xFF
        headers[at + 4] = udp_bytes >> 8
        headers[at + 5] = udp_bytes & 0xFF
        # The IP header starts at byte 8. It has the IPv4 total length at offset 2, or
        # the IPv6 payload length, which excludes the IP header, at offset 4.
        if self.is_ipv4:
            headers[10] = (udp_bytes + 20) >> 8
            headers[11] = (udp_bytes + 20) & 0xFF
        else:
            headers[12] = udp_bytes >> 8
            headers[13] = udp_bytes & 0xFF
        at += 8
        qpn = burst.destination_qpn
        headers[at] = opcode
        headers[at + 1] = flags
        headers[at + 5] = qpn >> 16 & 0xFF
        headers[at + 6] = qpn >> 8 & 0xFF
        headers[at + 7] = qpn & 0xFF
        return zlib.crc32(self._bytes) ^ _ONES
