# cython: annotation_typing=False, language_level=3
"""Frames in and out of the ports of modelled switches, through packet sockets.

One socket receives from all interfaces of a namespace, another one sends.  Frames are
kept where the switch has a place for them, in one piece of memory.
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
"""Frames that are sent at once."""

_ETH_P_ALL = socket.htons(3)
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_QDISC_BYPASS = 20
_PACKET_IGNORE_OUTGOING = 23
_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 32 << 20
_STATISTICS_BYTES = 8


class Frames:
    """What ports receive and send; each way to do that is a subclass.

    Attributes:
        memory: Of all frames; place n begins at n x *frame_bytes*.
        frame_bytes: Of the longest frame.
        port: Number of the port that the last one has come in by.
        length: Its bytes; 0: it is longer than a place, and not there.
        time_ns: When it came.
        lost: Frames that have come and found no room, in all.
        refused: Frames that the kernel has not taken, in all.
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
        # Pages that nothing was ever put into take no memory.
        self.memory: memoryview | mmap.mmap = mmap.mmap(-1, frame_bytes * places)
        self.port = 0
        self.length = 0
        self.time_ns = 0
        self.lost = 0
        self.refused = 0

    def receive(self, place: int) -> bool:
        """Put the next frame that has come into a place; False if there is none."""
        return False

    def send(self, place: int, length: int, port: int) -> None:
        """Let a frame leave by a port with the next ``flush``, ``BATCH`` at most."""

    def flush(self) -> None:
        """Send what is to leave."""


class SocketFrames(Frames):
    """Frames through Python's sockets.

    Attributes:
        receiver: Becomes readable when a frame has come.
    """

    __slots__ = ("_interfaces", "_numbers", "_outgoing", "_sender", "receiver")

    def __init__(
        self, interfaces: Sequence[str], *, frame_bytes: int, places: int
    ) -> None:
        """Open the ports of the namespace of this thread.

        Args:
            interfaces: Of each port.
            frame_bytes: See ``Frames``.
            places: How many frames can be kept.

        Raises:
            OSError: As the kernel says.
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
        """Put the next frame that has come into a place; False if there is none."""
        start = place * self.frame_bytes
        room = memoryview(self.memory)[start : start + self.frame_bytes]
        while True:
            try:
                # One that is cut says how long it was.
                length, _, _, address = self.receiver.recvmsg_into(
                    [room], 0, socket.MSG_DONTWAIT | socket.MSG_TRUNC
                )
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno != errno.ENETDOWN:  # an interface that was just made
                    raise
                continue
            number = self._numbers.get(address[0])
            if number is None:
                continue  # of an interface that is no port
            self.port = number
            self.length = length if length <= self.frame_bytes else 0
            self.time_ns = monotonic_ns()
            return True

    def send(self, place: int, length: int, port: int) -> None:
        """Let a frame leave by a port with the next ``flush``."""
        self._outgoing.append((place, length, port))

    def flush(self) -> None:
        """Send what is to leave."""
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
        """Bring ``lost`` up to date."""
        counted = self.receiver.getsockopt(
            _SOL_PACKET, _PACKET_STATISTICS, _STATISTICS_BYTES
        )
        self.lost += int.from_bytes(counted[4:8], "little")  # reading resets it

    def close(self) -> None:
        """Close the sockets."""
        self.receiver.close()
        self._sender.close()


def receiving_socket() -> socket.socket:
    """Return a socket that gets what comes by all interfaces, not what is sent here."""
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
    """Return a socket for frames of all interfaces, past their queues."""
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    sender.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
    return sender


def open_frames(
    interfaces: Sequence[str], *, frame_bytes: int, places: int
) -> SocketFrames:
    """Open ports in the namespace of this thread, the fastest way that there is.

    Raises:
        FabricError: If the kernel cannot.
    """
    try:
        try:
            from chakram.fabric.modelled_switch._frames import RingFrames
        except ImportError:  # not built, or not wanted
            return SocketFrames(interfaces, frame_bytes=frame_bytes, places=places)
        return RingFrames(interfaces, frame_bytes=frame_bytes, places=places)
    except OSError as error:
        raise FabricError(
            "switch",
            f"cannot open its ports ({error.strerror})",
            "see the kernel's log",
        ) from error
