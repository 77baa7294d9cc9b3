"""Invariant CRC of packets, and lookup tables to compute it faster.

The rule is in IBA volume 1, 7.8.1, and annex A17. The ICRC is the CRC-32 of Ethernet,
stored little-endian at the end of the packet. It covers eight 0xFF bytes in place of
the local route header, then the packet from the IP header to the pad.

The following fields, which switches may change, are replaced by one bits:

* IPv4 type of service, time to live and header checksum
* IPv6 traffic class, flow label and hop limit
* UDP checksum
* byte 4 of the BTH

The IPv4 identification is **not** among them.

The table method relies on linearity: a CRC register is linear over GF(2) in its start
value and in the data. If the register is *s* after the headers, then after *d* bytes of
payload it is ``advance(s, d) XOR residue(payload)``:

* `advance` is the effect of *d* zero bytes. It is a product of the matrices for the
  powers of two in *d*. Multiplying by a matrix takes four table lookups.
* `residue` is the register after the payload, starting from 0. It depends only on the
  payload.

An IPv4 identification of *k* instead of 0 XORs a constant into any later register. The
time to compute an ICRC thus hardly depends on the payload length.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from functools import cache

from chakram.foundation.errors import PacketError
from chakram.roce.constants import ICRC_BYTES, UDP_PORT

_ONES = 0xFFFFFFFF
_POLYNOMIAL = 0xEDB88320  # reflected
RETREAT_BITS = 17
"""Number of retreat tables: for 1, 2, 4 .. 65536 bytes, enough for any UDP datagram."""

ADVANCE_BITS = 13
"""Number of advance tables: for 1, 2, 4 .. 4096 bytes, enough for any path MTU."""

IDENTIFICATION_TABLE_BYTES = 256
"""Number of entries of `identification_table`.

The kernel sends at most 128 segments at once.
"""


def _byte_table() -> array[int]:
    table = array("I")
    for value in range(256):
        register = value
        for _ in range(8):
            register = register >> 1 ^ (_POLYNOMIAL if register & 1 else 0)
        table.append(register)
    return table


BYTE_TABLE = _byte_table()
"""CRC table, indexed by the low byte of the register XOR the data byte."""


def _look_up(tables: array[int], offset: int, register: int) -> int:
    """Multiply *register* by the matrix whose four tables start at *offset*."""
    return (
        tables[offset + (register & 0xFF)]
        ^ tables[offset + 256 + (register >> 8 & 0xFF)]
        ^ tables[offset + 512 + (register >> 16 & 0xFF)]
        ^ tables[offset + 768 + (register >> 24)]
    )


def _four_tables(columns: list[int]) -> array[int]:
    """Return a 32 x 32 bit matrix as four tables of 256 words, one per operand byte.

    ``columns[i]`` is the image of bit i.
    """
    tables = array("I", bytes(4 * 1024))
    for byte in range(4):
        for bit in range(8):
            column = columns[8 * byte + bit]
            # Entries below 2**bit are complete. The next 2**bit entries have the same
            # indices with this bit set.
            for value in range(1 << bit):
                base = 256 * byte
                tables[base + (1 << bit) + value] = tables[base + value] ^ column
    return tables


@cache
def advance_tables() -> array[int]:
    """Return the effect of 2**k zero bytes on a register, for each k.

    *k* is below `ADVANCE_BITS`. Each *k* has 4 x 256 entries. The entry for byte *b*
    (0: the lowest) of value *v* is at ``1024 * k + 256 * b + v``.
    """
    one = [BYTE_TABLE[bit & 0xFF] ^ bit >> 8 for bit in (1 << i for i in range(32))]
    tables = _four_tables(one)
    for k in range(1, ADVANCE_BITS):
        offset = 1024 * (k - 1)
        columns = [
            _look_up(tables, offset, _look_up(tables, offset, 1 << i))
            for i in range(32)
        ]
        tables += _four_tables(columns)
    return tables


@cache
def retreat_tables() -> array[int]:
    """Return the inverse of `advance_tables`, for each k.

    *k* is below `RETREAT_BITS`. The layout is the same. Each matrix recovers the
    register before 2**k zero bytes.
    """
    # The highest byte of an entry of BYTE_TABLE identifies the entry.
    entry_of = {value >> 24: index for index, value in enumerate(BYTE_TABLE)}

    def back(register: int) -> int:
        entry = entry_of[register >> 24]
        return (register ^ BYTE_TABLE[entry]) << 8 & _ONES | entry

    tables = _four_tables([back(1 << i) for i in range(32)])
    for k in range(1, RETREAT_BITS):
        offset = 1024 * (k - 1)
        columns = [
            _look_up(tables, offset, _look_up(tables, offset, 1 << i))
            for i in range(32)
        ]
        tables += _four_tables(columns)
    return tables


def advance(register: int, length_bytes: int) -> int:
    """Return *register* after *length_bytes* zero bytes (below 8192)."""
    tables = advance_tables()
    for k in range(ADVANCE_BITS):
        if length_bytes >> k & 1:
            register = _look_up(tables, 1024 * k, register)
    return register


@cache
def stride_tables(length_bytes: int) -> array[int]:
    """Return the effect of *length_bytes* zero bytes (below 8192), as 4 x 256 entries.

    The entry for byte *b* (0: the lowest) of value *v* is at ``256 * b + v``. If only
    the first four bytes of the data are nonzero, XOR them into the register before the
    lookup.
    """
    return _four_tables([advance(1 << i, length_bytes) for i in range(32)])


def residue(data: bytes) -> int:
    """Return the CRC register after *data*, starting from 0."""
    return zlib.crc32(data, _ONES) ^ _ONES


@cache
def identification_table(udp_and_bth_bytes: int) -> array[int]:
    """Return how each IPv4 identification from 0 to 255 changes a later register.

    Args:
        udp_and_bth_bytes: Position of the register, counted from the end of the IPv4
            header. In that header, 14 bytes follow the identification.
    """
    # The high byte of the identification comes before the low byte. It is always 0
    # here.
    return array(
        "I",
        (
            advance(BYTE_TABLE[k], 14 + udp_and_bth_bytes)
            for k in range(IDENTIFICATION_TABLE_BYTES)
        ),
    )


def masked_headers(
    *,
    source: bytes,
    destination: bytes,
    source_port: int,
    udp_payload_bytes: int,
    udp_port: int = UDP_PORT,
    identification: int = 0,
) -> bytes:
    """Return the bytes before the BTH that the ICRC covers, in masked form.

    Args:
        source: Source address: 4 bytes (IPv4) or 16 bytes (IPv6).
        destination: Destination address, of the same IP version.
        source_port: UDP source port.
        udp_payload_bytes: Length from the BTH to the end of the ICRC.
        udp_port: UDP destination port.
        identification: IPv4 identification. The don't-fragment flag is assumed to be
            set.

    Raises:
        ValueError: If the addresses differ in IP version.
    """
    udp_bytes = udp_payload_bytes + 8
    udp = struct.pack(">HHHH", source_port, udp_port, udp_bytes, 0xFFFF)
    if len(source) == len(destination) == 4:
        fields = (0x45, 0xFF, udp_bytes + 20, identification, 0x4000, 0xFF, 17, 0xFFFF)
        ip = struct.pack(">BBHHHBBH", *fields)
    elif len(source) == len(destination) == 16:
        ip = struct.pack(">IHBB", 0x6FFFFFFF, udp_bytes, 17, 0xFF)
    else:
        lengths = f"{len(source)} and {len(destination)}"
        raise ValueError(
            f"addresses of {lengths} bytes do not have the same IP version"
        )
    return b"\xff" * 8 + ip + source + destination + udp


def icrc(headers: bytes, transport: bytes) -> bytes:
    """Return the four bytes of the ICRC.

    Args:
        headers: Result of `masked_headers`.
        transport: Bytes from the BTH to the pad, without the ICRC.
    """
    register = zlib.crc32(headers)
    register = zlib.crc32(transport[:4], register)
    register = zlib.crc32(b"\xff", register)
    return zlib.crc32(transport[5:], register).to_bytes(ICRC_BYTES, "little")


def ip_icrc(packet: bytes) -> bytes:
    """Return the correct ICRC of the IP packet *packet*.

    Args:
        packet: Bytes from the IP header to the end of the ICRC. The value of the ICRC
            is ignored.

    Raises:
        PacketError: If the packet is not UDP over IPv4 or IPv6, is a fragment, has IPv6
            extension headers, or is too short for BTH and ICRC.
    """
    version = packet[0] >> 4 if packet else 0
    if version == 4:
        header_bytes, protocol_at = (packet[0] & 0x0F) * 4, 9
    elif version == 6:
        header_bytes, protocol_at = 40, 6
    else:
        raise PacketError("IP header", f"version {version} is neither 4 nor 6")
    if len(packet) < header_bytes + 8 + 12 + ICRC_BYTES:
        raise PacketError("IP header", f"the packet has only {len(packet)} bytes")
    if packet[protocol_at] != 17:
        raise PacketError("IP header", f"protocol {packet[protocol_at]} is not UDP")
    headers = bytearray(packet[: header_bytes + 8])
    if version == 4:
        if int.from_bytes(packet[6:8], "big") & 0x3FFF:
            raise PacketError("IP header", "the packet is a fragment")
        headers[1] = headers[8] = headers[10] = headers[11] = 0xFF
    else:
        headers[0] |= 0x0F
        headers[1] = headers[2] = headers[3] = headers[7] = 0xFF
    headers[header_bytes + 6] = headers[header_bytes + 7] = 0xFF
    transport = packet[header_bytes + 8 : -ICRC_BYTES]
    return icrc(b"\xff" * 8 + headers, transport)
