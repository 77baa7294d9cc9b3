# cython: annotation_typing=False, language_level=3
"""Frames that ports of modeled switches send and receive through packet sockets.

One socket receives from all interfaces of a namespace, and another one sends. All
frames are stored in one block of memory, at places that the switch chooses.
"""

from __future__ import annotations

import errno
import mmap
import socket
from time import monotonic_ns
from typing import TYPE_CHECKING

from chakram.foundation.errors import FabricError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BATCH", "Frames", "SocketFrames", "open_frames"]

BATCH = 64
"""Maximum number of frames per batch."""

_ETH_P_ALL = socket.htons(3)
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_QDISC_BYPASS = 20
_PACKET_IGNORE_OUTGOING = 23
_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 32 << 20
_STATISTICS_BYTES = 8


class Frames:
    """Base class for frame input and output at the ports of modeled switches.

    Attributes:
        memory: Memory for all frames. Place n begins at n x *frame_bytes*.
        frame_bytes: Maximum length of a frame.
        port: Number of the port that received the last frame.
        length: Length of the last frame, or 0 if the frame was too long to store.
        time_ns: Arrival time of the last frame.
        lost: Total number of frames lost on arrival because there was no room.
        refused: Total number of frames that the kernel refused to send.
    """

    __slots__ = (
        "frame_bytes",
        "length",
        "lost",
        "memory",
        "port",
        "refused",
        "time_ns",
    )

    def __init__(self, *, frame_bytes: int, places: int) -> None:
        self.frame_bytes = frame_bytes
        # Unused pages take no memory.
        self.memory: memoryview | mmap.mmap = mmap.mmap(-1, frame_bytes * places)
        self.port = 0
        self.length = 0
        self.time_ns = 0
        self.lost = 0
        self.refused = 0

    def receive(self, place: int) -> bool:
        """Store the next received frame at *place*. Return False if there is none."""
        return False

    def send(self, place: int, length: int, port: int) -> None:
        """Queue a frame for *port*, to be sent by the next ``flush``.

        Queue at most ``BATCH`` frames before a flush.
        """

    def flush(self) -> None:
        """Send all queued frames."""


class SocketFrames(Frames):
    """Frame input and output through Python's sockets.

    Attributes:
        receiver: Socket that becomes readable when a frame arrives.
    """

    __slots__ = ("_interfaces", "_numbers", "_outgoing", "_sender", "receiver")

    def __init__(
        self, interfaces: Sequence[str], *, frame_bytes: int, places: int
    ) -> None:
        """Open the ports in the namespace of this thread.

        Args:
            interfaces: Name of each port's interface, by port number.
            frame_bytes: See ``Frames``.
            places: Maximum number of stored frames.

        Raises:
            OSError: If the kernel refuses to open a socket.
        """
        super().__init__(frame_bytes=frame_bytes, places=places)
        self._interfaces = list(interfaces)
        self._numbers = {name: number for number, name in enumerate(interfaces)}
        self._outgoing: list[tuple[int, int, int]] = []
        self._sender = sending_socket()
        self.receiver = receiving_socket()
        try:
            self.receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        except PermissionError:
            self.receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)

    def receive(self, place: int) -> bool:
        """Store the next received frame at *place*. Return False if there is none."""
        start = place * self.frame_bytes
        room = memoryview(self.memory)[start : start + self.frame_bytes]
        while True:
            try:
                # MSG_TRUNC returns the original length of a truncated frame.
                length, _, _, address = self.receiver.recvmsg_into(
                    [room], 0, socket.MSG_DONTWAIT | socket.MSG_TRUNC
                )
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno != errno.ENETDOWN:  # the interface was just created
                    raise
                continue
            number = self._numbers.get(address[0])
            if number is None:
                continue  # the interface is not a port
            self.port = number
            self.length = length if length <= self.frame_bytes else 0
            self.time_ns = monotonic_ns()
            return True

    def send(self, place: int, length: int, port: int) -> None:
        """Queue a frame for *port*, to be sent by the next ``flush``."""
        self._outgoing.append((place, length, port))

    def flush(self) -> None:
        """Send all queued frames."""
        memory = memoryview(self.memory)
        for place, length, port in self._outgoing:
            start = place * self.frame_bytes
            try:
                self._sender.sendto(
                    memory[start : start + length], (self._interfaces[port], 0)
                )
            except OSError:
                self.refused += 1
        self._outgoing.clear()

    def count_lost(self) -> None:
        """Increase ``lost`` by the number of frames lost since the last call."""
        counted = self.receiver.getsockopt(
            _SOL_PACKET, _PACKET_STATISTICS, _STATISTICS_BYTES
        )
        self.lost += int.from_bytes(counted[4:8], "little")  # reading resets it

    def close(self) -> None:
        """Close the sockets."""
        self.receiver.close()
        self._sender.close()


def receiving_socket() -> socket.socket:
    """Return a socket that receives from all interfaces, except outgoing frames."""
    receiver = socket.socket(
        socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _ETH_P_ALL
    )
    try:
        receiver.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    except OSError:
        receiver.close()
        raise
    return receiver


def sending_socket() -> socket.socket:
    """Return a socket that sends through any interface and bypasses its queue."""
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    sender.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
    return sender


def open_frames(
    interfaces: Sequence[str], *, frame_bytes: int, places: int
) -> SocketFrames:
    """Open ports in the namespace of this thread, with the fastest available class.

    Raises:
        FabricError: If the kernel refuses to open the ports.
    """
    try:
        try:
            from chakram.fabric.modeled_switch._frames import RingFrames
        except ImportError:  # not compiled, or disabled
            return SocketFrames(interfaces, frame_bytes=frame_bytes, places=places)
        return RingFrames(interfaces, frame_bytes=frame_bytes, places=places)
    except OSError as error:
        raise FabricError(
            "switch",
            f"cannot open its ports ({error.strerror})",
            "see the kernel's log",
        ) from error
