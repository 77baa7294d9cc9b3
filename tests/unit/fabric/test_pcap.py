"""Capture files, written and read."""

from __future__ import annotations

import struct

import pytest

from chakram.fabric.capture.capture_process import (
    FILE_HEADER,
    RECORD_HEADER,
    SNAP_BYTES,
)
from chakram.foundation.errors import PacketError, RunDirectoryError
from tests.pcap_files import Frame, ip_packet, read_frames

FRAMES = [
    Frame(time_ns=1_700_000_000_123_456_789, data=b"first", wire_bytes=5),
    Frame(time_ns=1_700_000_001_000_000_000, data=b"", wire_bytes=0),
    Frame(time_ns=1_700_000_001_000_000_001, data=b"cut", wire_bytes=9000),
]


def capture(frames: list[Frame] = FRAMES) -> bytes:
    parts = [FILE_HEADER]
    for frame in frames:
        parts += (
            RECORD_HEADER.pack(
                *divmod(frame.time_ns, 10**9), len(frame.data), frame.wire_bytes
            ),
            frame.data,
        )
    return b"".join(parts)


def test_written_packets_are_read_back() -> None:
    assert list(read_frames(capture(), where="x")) == FRAMES
    assert list(read_frames(capture([]), where="x")) == []


def test_files_begin_as_wireshark_expects() -> None:
    # Nanoseconds, version 2.4, no zone, no accuracy, 256 KiB, Ethernet.
    assert FILE_HEADER.hex() == "4d3cb2a10200040000000000000000000000040001000000"


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("magic", "unit_ns"), [(0xA1B2C3D4, 1000), (0xA1B23C4D, 1)])
def test_files_of_other_programs_are_read(order: str, magic: int, unit_ns: int) -> None:
    # The upper half of the link type says that frames have a check sequence.
    head = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, 0x54000001)
    record = struct.pack(order + "IIII", 7, 9, 2, 2) + b"ab"

    (frame,) = read_frames(head + record, where="x")

    assert frame == Frame(time_ns=7 * 10**9 + 9 * unit_ns, data=b"ab", wire_bytes=2)


@pytest.mark.parametrize("missing_bytes", [1, 3, 4, 18])
def test_truncated_capture_returns_its_whole_frames(missing_bytes: int) -> None:
    cut = capture()[:-missing_bytes]
    found: list[Frame] = []
    place = len(FILE_HEADER) + 16 + 5 + 16

    with pytest.raises(RunDirectoryError, match="ends within a frame") as refused:
        found.extend(read_frames(cut, where="x.pcap"))

    assert found == FRAMES[:2]
    assert refused.value.where == f"x.pcap at byte {place}"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "0 bytes are no capture file"),
        (capture()[:23], "23 bytes are no capture file"),
        (b"\x0a\x0d\x0d\x0a" + bytes(60), "begins with 0a0d0d0a is no classic pcap"),
        (
            FILE_HEADER[:20] + struct.pack("<I", 113),
            "link type 113 is not Ethernet",
        ),
        (
            FILE_HEADER + struct.pack("<IIII", 0, 0, SNAP_BYTES + 1, 0),
            "a frame of 262145 bytes is longer",
        ),
    ],
)
def test_invalid_capture_is_refused(data: bytes, found: str) -> None:
    with pytest.raises(RunDirectoryError, match=found):
        list(read_frames(data, where="x"))


def ethernet(ethertype: int, packet: bytes) -> bytes:
    return bytes(12) + ethertype.to_bytes(2, "big") + packet


IPV4 = b"\x45\x00\x00\x1e" + bytes(26)
IPV6 = b"\x60\x00\x00\x00\x00\x08\x11\x40" + bytes(40)


@pytest.mark.parametrize(("ethertype", "packet"), [(0x0800, IPV4), (0x86DD, IPV6)])
def test_padding_of_frames_is_removed(ethertype: int, packet: bytes) -> None:
    assert ip_packet(ethernet(ethertype, packet)) == packet
    assert ip_packet(ethernet(ethertype, packet + b"pad")) == packet


@pytest.mark.parametrize(
    ("frame", "found"),
    [
        (ethernet(0x0806, bytes(46)), "type 0x0806 is not IP"),
        (b"", "type 0x0000 is not IP"),
        (ethernet(0x0800, IPV4[:-1]), "29 bytes are there of a packet of 30"),
        (ethernet(0x0800, bytes(60)), "60 bytes are there of a packet of 0"),
        (ethernet(0x86DD, b""), "0 bytes are there of a packet of 40"),
    ],
)
def test_frames_without_a_whole_packet_are_refused(frame: bytes, found: str) -> None:
    with pytest.raises(PacketError, match=found):
        ip_packet(frame)
