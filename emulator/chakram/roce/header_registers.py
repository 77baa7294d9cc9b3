# cython: annotation_typing=False, language_level=3, cdivision=True
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""The ICRC's register before AckReq and PSN: IP, UDP and half a BTH, once per flow.

Up to there all packets of one opcode, length and queue pair are alike. So the register
is kept, by opcode, for the queue pair that sent last: one that sends burst after burst,
or data and ACKs by turns, pays for its headers once.
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
"""Opcode, flags, partition key, a masked byte and the QPN."""

_SHARED = SHARED_BTH_BYTES
# One for each opcode of the reliable connection service; the last one, which is
# reserved there, stands for the opcodes of all other services.
_KINDS = 32
_ONES = 0xFFFFFFFF


class HeaderRegisters:
    """The registers of what one address sends.

    Attributes:
        is_ipv4: Whether that address is one of IPv4.
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
        """Take *udp_port* for peers that `set_destination` gives none.

        Raises:
            ValueError: If one of the two is none.
        """
        if not 0 < udp_port <= 0xFFFF:
            raise ValueError(f"UDP port {udp_port} is not in 1..65535")
        self._local = ip_address(local_address).packed
        self.is_ipv4 = len(self._local) == 4
        # By destination: its address, room for the source port, its UDP port.
        self._addresses: dict[int, bytes] = {}
        self._udp_port = udp_port
        # All but addresses, lengths, source port and BTH stays as it is.
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
        # By opcode: for what the register was computed last, in two words; and it.
        self._flows = array("q", (-1 for _ in range(_KINDS)))
        self._packets = array("q", (-1 for _ in range(_KINDS)))
        self._registers = array("I", (0 for _ in range(_KINDS)))

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
        for kind in range(_KINDS):
            self._flows[kind] = -1

    def register(self, burst: Burst, opcode: int, flags: int, length: int) -> int:
        """Return the register of a packet of *burst*.

        Args:
            burst: Says where from and where to.
            opcode: First byte of the packet.
            flags: Its second byte.
            length: Of the packet, from the BTH to the end of the ICRC.

        Raises:
            ValueError: If the destination is not known.
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
        """Return what the ICRC of segment *position* of a send covers before the BTH.

        *length* is that of the packet, from the BTH to the end of the ICRC.
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
        """Return what `register` is to keep."""
        address = self._addresses.get(burst.destination)
        if address is None:
            raise ValueError(f"{burst!r}: destination {burst.destination} is not known")
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
        # After the eight ones, the IPv4 total length is at 2, the IPv6 payload length,
        # without the IP header, at 4.
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
