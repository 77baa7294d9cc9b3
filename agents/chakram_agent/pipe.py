"""Messages between an agent and a shard, over a pair of stream sockets.

Each message consists of its length (four bytes, little-endian) and its bytes. A write
of the shard never blocks. The shard queues bytes that the agent does not accept at
once, up to a limit.
"""

from __future__ import annotations

import select
from collections import deque
from typing import TYPE_CHECKING

from chakram.control.protobuf_messages import MAX_MESSAGE_BYTES
from chakram.foundation.errors import PeerError, RunFailed

if TYPE_CHECKING:
    import socket


HEADER_BYTES = 4
MAX_QUEUED_BYTES = 64 * 2**20
"""Limit on bytes in the queue, which is enough for about 400,000 flow records."""

_READ_BYTES = 2**18


def frame(message: bytes) -> bytes:
    """Return *message* prefixed with its length."""
    return len(message).to_bytes(HEADER_BYTES, "little") + message


def frame_bytes(header: bytes | bytearray, where: str) -> int:
    """Return the length of the message that follows *header*.

    Raises:
        PeerError: If the message is too long. *where* is the error's location.
    """
    length = int.from_bytes(header, "little")
    if length > MAX_MESSAGE_BYTES:
        raise PeerError(where, f"a message of {length} bytes is too long")
    return length


class ShardPipe:
    """The shard's end of the connection.

    Attributes:
        closed: Whether the agent has closed its end or has ended.
        queued_bytes: Number of bytes that the agent has not accepted yet.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.closed = False
        self.queued_bytes = 0
        self._sock = sock
        self._out: deque[memoryview] = deque()
        self._in = bytearray()

    def fileno(self) -> int:
        """Return the descriptor, which is readable if data have arrived."""
        return self._sock.fileno()

    def send(self, message: bytes, *, last: bool = False) -> None:
        """Queue a message and write as much of the queue as the socket accepts.

        Args:
            message: Bytes of the message.
            last: Whether this is a final message, to which the limit does not apply.

        Raises:
            RunFailed: If the queue exceeds its limit. No record may be lost silently.
        """
        framed = frame(message)
        self._out.append(memoryview(framed))
        self.queued_bytes += len(framed)
        self.flush()
        if self.queued_bytes > MAX_QUEUED_BYTES and not last:
            raise RunFailed(
                "shard",
                f"the agent did not accept {self.queued_bytes} bytes of records",
                "is the host overloaded, or the controller slow?",
            )

    def flush(self) -> bool:
        """Write what the socket accepts. Return whether the queue is empty."""
        while self._out and not self.closed:
            chunk = self._out[0]
            try:
                taken = self._sock.send(chunk)
            except BlockingIOError:
                return False
            except ConnectionError:
                self.closed = True
                break
            self.queued_bytes -= taken
            if taken < len(chunk):
                self._out[0] = chunk[taken:]
            else:
                self._out.popleft()
        return not self._out or self.closed

    def receive(self) -> list[bytes]:
        """Return the messages that have arrived since the last call.

        Raises:
            PeerError: If a message is too long.
        """
        while not self.closed:
            try:
                data = self._sock.recv(_READ_BYTES)
            except BlockingIOError:
                break
            except ConnectionError:
                data = b""
            if not data:
                self.closed = True
            self._in += data
        messages = []
        while len(self._in) >= HEADER_BYTES:
            end = HEADER_BYTES + frame_bytes(self._in[:HEADER_BYTES], "agent")
            if len(self._in) < end:
                break
            messages.append(bytes(self._in[HEADER_BYTES:end]))
            del self._in[:end]
        return messages

    def wait(self, timeout_s: float) -> None:
        """Wait up to *timeout_s* for messages, or for room if bytes are queued."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN | (select.POLLOUT if self._out else 0))
        poll.poll(timeout_s * 1000)

    def close(self) -> None:
        """Close this end."""
        self._sock.close()
