"""Frames in a packet ring with the layout of if_packet.h."""

from __future__ import annotations

import socket
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from chakram.fabric.modeled_switch import packet_ring
from chakram.fabric.modeled_switch.packet_ring import BLOCK_BYTES, PacketRing

BLOCKS = 2
STATUS_AT = 8


class Memory(bytearray):
    """Memory shared by the kernel, open until closed."""

    is_open = True

    def close(self) -> None:
        self.is_open = False


class Kernel:
    """A packet socket and its ring."""

    def __init__(self) -> None:
        self.memory = Memory(BLOCKS * BLOCK_BYTES)
        self.options: dict[int, object] = {}
        self.bound: tuple[str, int] | None = None
        self.order: list[str] = []
        self.refuses = False
        self.is_open = True
        self.lost = 0

    def setsockopt(self, level: int, name: int, value: Any) -> None:
        self.order.append(f"option {name}")
        self.options[name] = value

    def getsockopt(self, level: int, name: int, size: int) -> bytes:
        assert (level, name, size) == (263, 6, 12)
        lost, self.lost = self.lost, 0
        return struct.pack("=3I", 99, lost, 98)

    def bind(self, address: tuple[str, int]) -> None:
        if self.refuses:
            raise OSError("no such interface")
        self.order.append("bind")
        self.bound = address

    def fileno(self) -> int:
        return 7

    def close(self) -> None:
        self.is_open = False

    def hand_over(self, block: int, *frames: tuple[int, int, int, bytes]) -> None:
        """Fill a block: time in s and ns, the length, and what was captured of it."""
        at = first = block * BLOCK_BYTES + 48
        for time_s, nanoseconds, length, data in frames:
            # struct tpacket3_hdr; behind it and an address, the frame.
            start, step = 82, 82 + len(data) + 5
            struct.pack_into(
                "=IIIIIIHH",
                self.memory,
                at,
                *(step, time_s, nanoseconds, len(data), length, 0, start, start + 14),
            )
            self.memory[at + start : at + start + len(data)] = data
            at += step
        # struct tpacket_block_desc: version, offset, then status, frames and the first.
        struct.pack_into(
            "=IIIII",
            self.memory,
            block * BLOCK_BYTES,
            *(1, 0, 1, len(frames), first - block * BLOCK_BYTES),
        )

    def status(self, block: int) -> int:
        at = block * BLOCK_BYTES + STATUS_AT
        return int.from_bytes(self.memory[at : at + 4], "little")


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()

    def opened(family: int, kind: int, protocol: int) -> Kernel:
        assert family == socket.AF_PACKET
        assert protocol == 0  # nothing comes before the filter is there
        return made

    def mapped(descriptor: int, size: int) -> Memory:
        assert (descriptor, size) == (7, BLOCKS * BLOCK_BYTES)
        return made.memory

    names = ("AF_PACKET", "SOCK_RAW", "SOCK_CLOEXEC", "SOL_SOCKET")
    fake_socket: Any = SimpleNamespace(
        socket=opened, **{name: getattr(socket, name) for name in names}
    )
    fake_mmap: Any = SimpleNamespace(mmap=mapped)
    monkeypatch.setattr(packet_ring, "socket", fake_socket)
    monkeypatch.setattr(packet_ring, "mmap", fake_mmap)
    return made


def test_packet_ring_is_filtered_before_it_receives(kernel: Kernel) -> None:
    with PacketRing("eth0", blocks=BLOCKS) as ring:
        assert ring.fileno() == 7
        assert kernel.bound == ("eth0", 3)
        # SO_ATTACH_FILTER, PACKET_VERSION, PACKET_RX_RING
        assert kernel.order == ["option 26", "option 10", "option 5", "bind"]
        assert kernel.options[10] == 2  # TPACKET_V3
        size, blocks, frame, frames, retire_ms, private, features = struct.unpack(
            "=7I", kernel.options[5]
        )
        assert (size, blocks, retire_ms) == (BLOCK_BYTES, BLOCKS, 50)
        # The kernel demands that frames fill blocks exactly.
        assert frame * frames == BLOCK_BYTES * BLOCKS
        assert (private, features) == (0, 0)
    assert not kernel.is_open
    assert not kernel.memory.is_open


def test_a_socket_that_cannot_listen_is_closed(kernel: Kernel) -> None:
    kernel.refuses = True
    with pytest.raises(OSError, match="no such interface"):
        PacketRing("eth9", blocks=BLOCKS)
    assert not kernel.is_open


def test_frames_are_in_order_and_blocks_are_released(kernel: Kernel) -> None:
    frames = [(5, 10, 60, b"a" * 60), (5, 20, 9000, b"b" * 96), (6, 0, 1, b"c")]
    ring = PacketRing("eth0", blocks=BLOCKS)
    assert ring.next_block() is None

    kernel.hand_over(0, *frames)
    found = ring.next_block()
    assert found is not None
    assert next(found) == frames[0]
    assert kernel.status(0) == 1  # it is still read
    assert list(found) == frames[1:]
    assert kernel.status(0) == 0

    # The next one is awaited in its place, and after the last comes the first again.
    kernel.hand_over(0, frames[2])
    assert ring.next_block() is None
    for block in (1, 0):
        kernel.hand_over(block, frames[block])
        found = ring.next_block()
        assert found is not None
        assert list(found) == [frames[block]]
    assert ring.next_block() is None


def test_frames_without_space_are_counted(kernel: Kernel) -> None:
    ring = PacketRing("eth0", blocks=BLOCKS)
    kernel.lost = 3
    assert ring.dropped() == 3
    kernel.lost = 4
    assert ring.dropped() == 7
    assert ring.dropped() == 7
