"""Reads capture files in all four classic pcap formats, and packets of frames.

Source: draft-ietf-opsawg-pcap, "PCAP Capture File Format".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from chakram.fabric.capture.capture_process import (
    FILE_HEADER,
    RECORD_HEADER,
    SNAP_BYTES,
)
from chakram.foundation.errors import PacketError, RunDirectoryError

_NANOSECONDS = 0xA1B23C4D
_MICROSECONDS = 0xA1B2C3D4
_ETHERNET = 1
_LINK_TYPE_MASK = 0xFFFF  # the upper half says how long the frame check sequence is
_FILE_HEADER = "IHHiIII"

_ETHERNET_BYTES = 14
_ETHERTYPE_IPV4 = 0x0800
_ETHERTYPE_IPV6 = 0x86DD
_IPV6_HEADER_BYTES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One captured frame, from its Ethernet header on.

    Attributes:
        time_ns: When it crossed the interface, since 1970 (UTC).
        data: What was kept of it.
        wire_bytes: How long it was.
    """

    time_ns: int
    data: bytes
    wire_bytes: int


def read_frames(capture: bytes, *, where: str) -> Iterator[Frame]:
    """Yield the frames of a capture file.

    The error about a truncated file follows all whole frames before it.

    Args:
        capture: The file.
        where: Its name, for errors.

    Raises:
        RunDirectoryError: If it is no classic pcap file of Ethernet frames, or ends
            within a record.
    """
    order, unit_ns = _form(capture, where)
    header = struct.Struct(order + "IIII")
    offset = len(FILE_HEADER)
    while offset < len(capture):
        start = offset + RECORD_HEADER.size
        if start > len(capture):
            raise _cut_short(where, offset)
        time_s, parts, captured_bytes, wire_bytes = header.unpack_from(capture, offset)
        if captured_bytes > SNAP_BYTES:
            raise RunDirectoryError(
                f"{where} at byte {offset}",
                f"a frame of {captured_bytes} bytes is longer than any real one",
                "the file is damaged: capture again",
            )
        if start + captured_bytes > len(capture):
            raise _cut_short(where, offset)
        offset = start + captured_bytes
        yield Frame(
            time_ns=time_s * 10**9 + parts * unit_ns,
            data=bytes(capture[start:offset]),
            wire_bytes=wire_bytes,
        )


def ip_packet(frame: bytes) -> bytes:
    """Return the IP packet of an Ethernet frame, without what pads the frame.

    Raises:
        PacketError: If it carries none, or not all of it.
    """
    ethertype = int.from_bytes(frame[12:14], "big")
    packet = frame[_ETHERNET_BYTES:]
    if ethertype == _ETHERTYPE_IPV4:
        length = int.from_bytes(packet[2:4], "big")
    elif ethertype == _ETHERTYPE_IPV6:
        length = int.from_bytes(packet[4:6], "big") + _IPV6_HEADER_BYTES
    else:
        raise PacketError("Ethernet header", f"type {ethertype:#06x} is not IP")
    if not _ETHERNET_BYTES < length <= len(packet):
        raise PacketError(
            "IP header", f"{len(packet)} bytes are there of a packet of {length}"
        )
    return packet[:length]


def _form(capture: bytes, where: str) -> tuple[str, int]:
    """Return the byte order, and what one unit of a fraction of a second is in ns."""
    if len(capture) < len(FILE_HEADER):
        raise RunDirectoryError(where, f"{len(capture)} bytes are no capture file")
    for order in "<", ">":
        magic, *_, link_type = struct.unpack_from(order + _FILE_HEADER, capture)
        if magic not in (_NANOSECONDS, _MICROSECONDS):
            continue
        if link_type & _LINK_TYPE_MASK != _ETHERNET:
            raise RunDirectoryError(
                where, f"link type {link_type & _LINK_TYPE_MASK} is not Ethernet"
            )
        return order, 1 if magic == _NANOSECONDS else 1000
    raise RunDirectoryError(
        where,
        f"a file that begins with {capture[:4].hex()} is no classic pcap file",
        "turn it into one: editcap -F nsecpcap",
    )


def _cut_short(where: str, offset: int) -> RunDirectoryError:
    return RunDirectoryError(
        f"{where} at byte {offset}",
        "the file ends within a frame",
        "its writer was killed, or the disk was full; what stands before is whole",
    )
