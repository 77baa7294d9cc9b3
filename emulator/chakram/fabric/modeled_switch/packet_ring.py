"""Capture of an interface's frames through memory shared with the kernel.

The kernel copies frames with their timestamps into the blocks of a ring (TPACKET_V3),
and releases each full block as a whole. A reader therefore needs no system call per
frame. A busy reader loses no frames until the ring is full. Unlike a socket buffer, the
ring may be large without extra privileges.

Source: Documentation/networking/packet_mmap.rst and include/uapi/linux/if_packet.h of
the kernel.
"""

from __future__ import annotations

import ctypes
import mmap
import socket
import struct
from collections.abc import Iterator
from typing import Self

BLOCK_BYTES = 1 << 18
"""Size of a block. It exceeds the longest frame: 64 KiB with segmentation offload, plus
headers."""

RETIRE_MS = 50
"""Time after which the kernel releases a partly filled block."""

_ETH_P_ALL = 3
_SOL_PACKET = 263
_PACKET_RX_RING = 5
_PACKET_STATISTICS = 6
_PACKET_VERSION = 10
_TPACKET_V3 = 2
_SO_ATTACH_FILTER = 26

_FRAME_BYTES = 1 << 11  # only a divisor here: frames in a block vary in length

_KERNEL_OWNS = 0
_USER_OWNS = 1
_STATUS_OFFSET = 8
_BLOCK = struct.Struct("=II")  # at _STATUS_OFFSET + 4: frame count, first offset
_STATUS = struct.Struct("=I")
_FRAME = struct.Struct("=IIIIIIH")
"""Header of a frame in the ring. Fields: offset of the next frame, seconds,
nanoseconds, captured bytes, original length, status, offset of the data."""

# Accepts Ethernet frames with UDP over IPv4 or IPv6. Chakram sends nothing else.
_LOAD_HALF, _LOAD_BYTE, _JUMP_IF_EQUAL, _RETURN = 0x28, 0x30, 0x15, 0x06
_ONLY_UDP = (
    (_LOAD_HALF, 0, 0, 12),
    (_JUMP_IF_EQUAL, 0, 2, 0x0800),
    (_LOAD_BYTE, 0, 0, 23),
    (_JUMP_IF_EQUAL, 3, 4, 17),
    (_JUMP_IF_EQUAL, 0, 3, 0x86DD),
    (_LOAD_BYTE, 0, 0, 20),
    (_JUMP_IF_EQUAL, 0, 1, 17),
    (_RETURN, 0, 0, 0xFFFF_FFFF),
    (_RETURN, 0, 0, 0),
)


class PacketRing:
    """Capture of the UDP packets that an interface sends and receives.

    Create the object in a thread that is in the interface's network namespace. Any
    thread may then use it.
    """

    def __init__(self, interface: str, *, blocks: int) -> None:
        """Start the capture.

        Args:
            interface: Name of the interface.
            blocks: Number of blocks of ``BLOCK_BYTES`` in the ring.

        Raises:
            OSError: If the interface does not exist, or if privileges or memory are
                missing.
        """
        # Without a protocol, the socket receives nothing until the filter is in place.
        self._socket = socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0
        )
        try:
            _attach(self._socket, _ONLY_UDP)
            self._socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V3)
            request = struct.pack(
                "=7I",
                BLOCK_BYTES,
                blocks,
                _FRAME_BYTES,
                BLOCK_BYTES // _FRAME_BYTES * blocks,
                RETIRE_MS,
                0,
                0,
            )
            self._socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, request)
            self._ring = mmap.mmap(self._socket.fileno(), BLOCK_BYTES * blocks)
            self._socket.bind((interface, _ETH_P_ALL))
        except BaseException:
            self._socket.close()
            raise
        self._blocks = blocks
        self._next = 0
        self._dropped = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a block is available."""
        return self._socket.fileno()

    def next_block(self) -> Iterator[tuple[int, int, int, bytes]] | None:
        """Return the frames of the next block, or None if no block is available yet.

        Each frame consists of its time in s and ns, its length, and its bytes. The
        block returns to the kernel after the last frame.
        """
        if self._status() & _USER_OWNS:
            return self._frames()
        return None

    def dropped(self) -> int:
        """Return how many packets the kernel has dropped because the ring was full."""
        statistics = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 12)
        self._dropped += struct.unpack("=3I", statistics)[1]  # reading resets it
        return self._dropped

    def close(self) -> None:
        """End the capture."""
        self._ring.close()
        self._socket.close()

    def _status(self) -> int:
        offset = self._next * BLOCK_BYTES + _STATUS_OFFSET
        status: int = _STATUS.unpack_from(self._ring, offset)[0]
        return status

    def _frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        ring = self._ring
        block = self._next * BLOCK_BYTES
        count, first = _BLOCK.unpack_from(ring, block + _STATUS_OFFSET + 4)
        offset = block + first
        for _ in range(count):
            next_offset, time_s, nanoseconds, captured, length, _, data = (
                _FRAME.unpack_from(ring, offset)
            )
            start = offset + data
            yield time_s, nanoseconds, length, ring[start : start + captured]
            offset += next_offset
        _STATUS.pack_into(ring, block + _STATUS_OFFSET, _KERNEL_OWNS)
        self._next = (self._next + 1) % self._blocks


def _attach(
    sock: socket.socket, program: tuple[tuple[int, int, int, int], ...]
) -> None:
    """Attach a classic BPF program that filters the frames of a socket."""
    code = ctypes.create_string_buffer(
        b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    )
    # struct sock_fprog: the kernel copies the program that it points to.
    fprog = struct.pack("@HP", len(program), ctypes.addressof(code))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, fprog)
