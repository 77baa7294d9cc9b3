"""The invariant CRC: over whole packets, and the algebra that makes it cheap.

The rule (IBA volume 1, 7.8.1, and annex A17): the CRC-32 of Ethernet, little-endian at
the end of the packet, over eight bytes of ones (the place of the local route header),
the IP and UDP headers, BTH, extended headers, payload and pad. What switches may change
counts as ones: IPv4 type of service, time to live and header checksum; IPv6 traffic
class, flow label and hop limit; the UDP checksum; byte 4 of the BTH. The IPv4
identification is **not** among them.

The table method. A CRC register is linear over GF(2) in its start value and in the
data, so the register after a header state *s* and *d* bytes of payload is
``advance(s, d) XOR residue(payload)``: `advance` (what *d* zero bytes do) is a product
of the matrices for the powers of two in *d*, each four look-ups in a table of 256
entries, and `residue` (the register that starts at 0) is a constant of the payload.
Likewise an IPv4 identification of *k* instead of 0 changes the register at a later
place by a constant of *k*. So a packet of 4 KiB costs the bytes of its header, not of
its payload.
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
"""Tables exist for 1, 2, 4 .. 65536 bytes backwards: any UDP datagram."""

ADVANCE_BITS = 13
"""Tables exist for 1, 2, 4 .. 4096 bytes: any payload of the largest path MTU."""

IDENTIFICATION_TABLE_BYTES = 256
"""Segments of one send are numbered in one byte: the kernel allows at most 128."""


def _byte_table() -> array[int]:
    table = array("I")
    for value in range(256):
        register = value
        for _ in range(8):
            register = register >> 1 ^ (_POLYNOMIAL if register & 1 else 0)
        table.append(register)
    return table


BYTE_TABLE = _byte_table()
"""The register after one byte, by the low byte of the register XOR the data byte."""


def _look_up(tables: array[int], offset: int, register: int) -> int:
    """Apply the matrix whose four tables start at *offset*."""
    return (
        tables[offset + (register & 0xFF)]
        ^ tables[offset + 256 + (register >> 8 & 0xFF)]
        ^ tables[offset + 512 + (register >> 16 & 0xFF)]
        ^ tables[offset + 768 + (register >> 24)]
    )


def _four_tables(columns: list[int]) -> array[int]:
    """Return a matrix, given by the images of the 32 bits, as four byte tables."""
    tables = array("I", bytes(4 * 1024))
    for byte in range(4):
        for bit in range(8):
            column = columns[8 * byte + bit]
            # Entries below 2**bit are complete: the others are those with this bit on.
            for value in range(1 << bit):
                base = 256 * byte
                tables[base + (1 << bit) + value] = tables[base + value] ^ column
    return tables


@cache
def advance_tables() -> array[int]:
    """Return `ADVANCE_BITS` x 4 x 256 entries: what 2**k zero bytes do to a register.

    That for byte *b* (0: the lowest) of value *v* is at ``1024 * k + 256 * b + v``.
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
    """Return `RETREAT_BITS` x 4 x 256 entries, as `advance_tables`, for the way back.

    What 2**k zero bytes have made a register of, this makes what it was before.
    """
    # The highest byte of an entry of the table of bytes tells which entry it is.
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
    """Return what *length_bytes* zero bytes (below 8192) make of a register."""
    tables = advance_tables()
    for k in range(ADVANCE_BITS):
        if length_bytes >> k & 1:
            register = _look_up(tables, 1024 * k, register)
    return register


@cache
def stride_tables(length_bytes: int) -> array[int]:
    """Return 4 x 256 entries: what *length_bytes* zero bytes (below 8192) do at once.

    That for byte *b* (0: the lowest) of value *v* is at ``256 * b + v``. Of data whose
    first four bytes alone are not zero, these may be added to the register before.
    """
    return _four_tables([advance(1 << i, length_bytes) for i in range(32)])


def residue(data: bytes) -> int:
    """Return the register that starts at 0 after *data*."""
    return zlib.crc32(data, _ONES) ^ _ONES


@cache
def identification_table(udp_and_bth_bytes: int) -> array[int]:
    """Return by IPv4 identification (0..255) its share in a later register.

    Args:
        udp_and_bth_bytes: Where the register is taken, counted from the end of the
            IPv4 header; 14 bytes of that header follow the identification.
    """
    # The high byte of the identification, always 0 here, stands before the low one.
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
    """Return what the ICRC covers before the BTH, with the variable fields as ones.

    Args:
        source: Address in 4 (IPv4) or 16 bytes (IPv6).
        destination: Likewise.
        source_port: Of UDP.
        udp_payload_bytes: From the BTH to the end of the ICRC.
        udp_port: Destination port.
        identification: IPv4 only. The don't-fragment flag is taken as set.

    Raises:
        ValueError: If the addresses are not of one family.
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
        raise ValueError(f"addresses of {lengths} bytes are not of one IP version")
    return b"\xff" * 8 + ip + source + destination + udp


def icrc(headers: bytes, transport: bytes) -> bytes:
    """Return the four bytes of the ICRC.

    Args:
        headers: What `masked_headers` returns.
        transport: From the BTH to the pad, without the ICRC.
    """
    register = zlib.crc32(headers)
    register = zlib.crc32(transport[:4], register)
    register = zlib.crc32(b"\xff", register)
    return zlib.crc32(transport[5:], register).to_bytes(ICRC_BYTES, "little")


def ip_icrc(packet: bytes) -> bytes:
    """Return the ICRC that the IP packet *packet* ought to end with.

    Args:
        packet: From the IP header to the end of the ICRC, whose value is ignored.

    Raises:
        PacketError: If it is not an unfragmented UDP packet of IPv4, or of IPv6 without
            extension headers, that is long enough for BTH and ICRC.
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
