# cython: annotation_typing=False, language_level=3, cdivision=True
"""The posted messages of a queue pair that are not completely acknowledged.

The messages are in the order of posting. One of them contains the packet to send next.
Earlier messages wait only for ACKs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.native.prefetch import prefetch
from chakram.roce.constants import LARGEST_SEND_BYTES, MAX_MESSAGE_BYTES, NO_IMMEDIATE
from chakram.roce.message import Message

if TYPE_CHECKING:
    from chakram.roce.burst import Burst

__all__ = ["SendQueue"]

_MAX_MESSAGE_BYTES = MAX_MESSAGE_BYTES
_NO_IMMEDIATE = NO_IMMEDIATE
_LARGEST_SEND_BYTES = LARGEST_SEND_BYTES
# Maximum number of bytes per packet that a send passes to the kernel in addition to the
# payload: BTH, RETH, immediate data, pad and ICRC.
_MOST_HEADERS_BYTES = 12 + 16 + 4 + 3 + 4
# Number of finished messages after which they are removed from the front of the list.
# Each removal moves all later messages of the list.
_COMPACT_AT = 64


class SendQueue:
    """The messages of one requester.

    `chakram.roce.requester` explains sequence numbers.

    Attributes:
        count: Number of messages.
        sending: The message that contains the next packet; None: all packets have left.
    """

    __slots__ = (
        "_behind",
        "_current",
        "_end",
        "_end_byte",
        "_head",
        "_oldest",
        "_path_mtu",
        "count",
        "sending",
    )

    def __init__(self, path_mtu: int) -> None:
        self._path_mtu = path_mtu
        # Most queue pairs have one message at a time. The oldest message has its own
        # field. The other messages follow in _behind, starting at index _head.
        self._oldest: Message | None = None
        self._behind: list[Message] = []
        self._head = 0
        self.count = 0
        # Index of `sending`, counted from the oldest message.
        self._current = 0
        self.sending: Message | None = None
        # Total packets and payload of all messages so far.
        self._end = 0
        self._end_byte = 0

    def check(
        self, message_id: int, size_bytes: int, contents: bytes | None = None
    ) -> None:
        """Reject an invalid message.

        Raises:
            ValueError: If *message_id* or *size_bytes* is out of range, or *contents*
                does not have *size_bytes* bytes.
        """
        if size_bytes < 0 or size_bytes > _MAX_MESSAGE_BYTES:
            raise ValueError(
                f"message {message_id}: {size_bytes} bytes are not in "
                f"0..{_MAX_MESSAGE_BYTES}"
            )
        if message_id < _NO_IMMEDIATE or message_id > 0xFFFFFFFF:
            raise ValueError(f"message id {message_id} does not fit in 32 bits")
        if contents is not None and len(contents) != size_bytes:
            raise ValueError(
                f"message {message_id}: {size_bytes} bytes do not match contents of "
                f"{len(contents)} bytes"
            )

    def append(
        self,
        message_id: int,
        size_bytes: int,
        now_ns: int,
        order: int,
        contents: bytes | None,
        remote_offset: int,
    ) -> Message:
        """Append a message that `check` accepts, and return it."""
        packets = (size_bytes + self._path_mtu - 1) // self._path_mtu
        if packets == 0:
            packets = 1
        message = Message()
        message.message_id = message_id
        message.size_bytes = size_bytes
        message.packets = packets
        message.first_sequence = self._end
        message.first_byte = self._end_byte
        message.posted_ns = now_ns
        message.order = order
        message.contents = contents
        message.remote_offset = remote_offset
        if self.count == 0:
            self._oldest = message
        else:
            self._behind.append(message)
        self.count += 1
        self._end += packets
        self._end_byte += size_bytes
        if self.sending is None:
            self.sending = message
        return message

    def clear(self) -> None:
        """Remove all messages."""
        self._oldest = None
        self._behind = []
        self._head = 0
        self.count = 0
        self._current = 0
        self.sending = None

    # Sending.

    def following(self, distance: int) -> Message:
        """Return the message that is *distance* places after the next one to send."""
        index = self._current + distance
        if index == 0 and self._oldest is not None:
            return self._oldest
        return self._behind[self._head + index - 1]

    def alike(self, most: int) -> int:
        """Return how many messages may share a send, starting with the next message.

        These messages have one packet each and the same size, order and remote offset.
        Either all or none have immediate data, and none has contents. The result is at
        most *most*.
        """
        first = self.following(0)
        fitting = _LARGEST_SEND_BYTES // (first.size_bytes + _MOST_HEADERS_BYTES)
        if most > fitting:
            most = fitting
        if most > self.count - self._current:
            most = self.count - self._current
        count = 1
        while count < most:
            message = self.following(count)
            if (
                message.packets != 1
                or message.size_bytes != first.size_bytes
                or message.order != first.order
                or message.contents is not None
                or message.remote_offset != first.remote_offset
                or (message.message_id < 0) != (first.message_id < 0)
            ):
                break
            count += 1
        return count

    def share(self, burst: Burst, most: int) -> int:
        """Put up to *most* messages into *burst*, if they fit. Return their number.

        The burst already contains the next message, which has one packet.
        """
        burst.message_ids = None
        if most < 2 or self._current + 1 >= self.count:
            return 1
        if self.following(0).contents is not None:
            return 1
        count = self.alike(most)
        if count > 1:
            messages = [self.following(i) for i in range(count)]
            burst.message_ids = [message.message_id for message in messages]
            burst.parts = None
            burst.parts_of = messages
        return count

    def advance(self, count: int) -> None:
        """Record that all packets of *count* messages have left."""
        self._current += count
        self._find_sending()

    def go_back(self) -> None:
        """Start again with the first message."""
        self._current = 0
        self._find_sending()

    def leap(self, sequence: int) -> int:
        """Continue with the packet *sequence*, and return the total payload before it.

        The skipped packets were sent earlier.
        """
        while self._current < self.count:
            message = self.following(0)
            inside = sequence - message.first_sequence
            if inside < message.packets:
                self.sending = message
                return message.first_byte + inside * self._path_mtu
            self._current += 1
        self.sending = None
        return self._end_byte

    # Acknowledgment.

    def take_done(self, acknowledged: int) -> Message | None:
        """Remove and return the first message if it is completely acknowledged.

        A message is completely acknowledged if all its packets are before
        *acknowledged*. Call `go_back` afterward if the next packet to send is before
        *acknowledged*.
        """
        message = self._oldest
        if message is None or message.first_sequence + message.packets > acknowledged:
            return None
        self.count -= 1
        if self._current > 0:
            self._current -= 1
        if self.count == 0:
            self._oldest = None
            if self._head > 0:
                del self._behind[:]
                self._head = 0
        else:
            self._oldest = self._behind[self._head]
            # Drop the reference, to free the memory. Places before the head are not
            # read.
            self._behind[self._head] = None  # type: ignore[call-overload]
            self._head += 1
            if self._head >= _COMPACT_AT:
                del self._behind[: self._head]
                self._head = 0
        return message

    def fetch_oldest(self) -> None:
        """Prefetch the first message, if there is one."""
        prefetch(self._oldest, 5)

    def bytes_before(self, acknowledged: int) -> int:
        """Return the total payload before *acknowledged*, in the first message."""
        first = self._oldest
        if first is None:
            return self._end_byte
        if acknowledged <= first.first_sequence:
            return first.first_byte
        inside = acknowledged - first.first_sequence
        return first.first_byte + inside * self._path_mtu

    def _find_sending(self) -> None:
        """Find the message that contains the next packet, if there is one."""
        if self._current < self.count:
            self.sending = self.following(0)
        else:
            self.sending = None
