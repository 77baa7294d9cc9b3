"""Memory for received payload: the target of WRITEs, and posted receives.

Most queue pairs have no memory: received payload is counted and discarded. A queue pair
with a `MemoryRegion` keeps the payload of every packet that the responder accepts. Like
a NIC, it refuses WRITEs to other memory, and SENDs without a posted receive.
"""

from __future__ import annotations

from collections import deque

from chakram.roce.constants import Verb
from chakram.roce.opcodes import RECEIVER_NOT_READY, NakCode

_WRITE = int(Verb.WRITE)

_TAKEN = (0, "")
_NOT_READY = (RECEIVER_NOT_READY, "no receive is posted")
_WRONG_KEY = (int(NakCode.REMOTE_ACCESS_ERROR), "a WRITE has a wrong key")
_OUTSIDE = (int(NakCode.REMOTE_ACCESS_ERROR), "a WRITE exceeds the memory")
_TOO_LONG = (int(NakCode.INVALID_REQUEST), "a SEND is longer than the posted receive")


class MemoryRegion:
    """The memory of one queue pair.

    A WRITE with immediate data consumes no posted receive, unlike in verbs. It is
    reported even if no receive is posted.

    Attributes:
        buffer: Bytes of the memory.
        address: Virtual address of the first byte, which the peer uses.
        key: Remote key that a WRITE of the peer must carry.
    """

    def __init__(self, size_bytes: int, *, address: int = 0, key: int = 0) -> None:
        """Allocate *size_bytes* zero bytes.

        Raises:
            ValueError: If an argument is out of range.
        """
        if size_bytes < 0 or not 0 <= address <= (1 << 64) - size_bytes:
            raise ValueError(
                f"{size_bytes} bytes at address {address:#x} are not a valid memory "
                "region"
            )
        if not 0 <= key < 1 << 32:
            raise ValueError(f"key {key:#x} does not fit in 32 bits")
        self.buffer = bytearray(size_bytes)
        self.address = address
        self.key = key
        self._receives: deque[tuple[int, int]] = deque()
        # Offset of the next packet of the message, and end of the posted receive for
        # the message.
        self._next = 0
        self._end = 0

    def post_receive(self, offset: int, size_bytes: int) -> None:
        """Post a receive at *offset*, for use after the receives already posted.

        Raises:
            ValueError: If the receive is not inside the memory.
        """
        if not 0 <= offset <= offset + size_bytes <= len(self.buffer):
            raise ValueError(
                f"{size_bytes} bytes at offset {offset} exceed the buffer of "
                f"{len(self.buffer)} bytes"
            )
        self._receives.append((offset, offset + size_bytes))

    def receives(self) -> int:
        """Return how many posted receives are unused."""
        return len(self._receives)

    def judge(
        self,
        *,
        verb: int,
        is_first: bool,
        payload_bytes: int,
        dma_length_bytes: int,
        address: int,
        key: int,
    ) -> tuple[int, str]:
        """Return the NAK syndrome for a packet, and the reason; 0: accept the packet.

        This changes nothing. The responder checks packet order and the length of
        messages.

        Args:
            verb: A `Verb`.
            is_first: Whether the packet is FIRST or ONLY.
            payload_bytes: Payload of the packet.
            dma_length_bytes: DMA length from the RETH, in the first packet of a WRITE.
            address: Virtual address from the RETH, in the first packet of a WRITE.
            key: Remote key from the RETH, in the first packet of a WRITE.
        """
        if verb == _WRITE:
            # A length of 0 accesses no memory, so nothing is checked (IBA volume 1,
            # C9-88).
            if not is_first or dma_length_bytes == 0:
                return _TAKEN
            if key != self.key:
                return _WRONG_KEY
            offset = address - self.address
            if not 0 <= offset <= len(self.buffer) - dma_length_bytes:
                return _OUTSIDE
            return _TAKEN
        if not is_first:
            room_bytes = self._end - self._next
        elif self._receives:
            start, end = self._receives[0]
            room_bytes = end - start
        else:
            return _NOT_READY
        return _TOO_LONG if payload_bytes > room_bytes else _TAKEN

    def place(self, payload: bytes, *, verb: int, is_first: bool, address: int) -> None:
        """Store the payload of a packet that `judge` and the responder accept.

        Args:
            payload: Payload without pad.
            verb: A `Verb`.
            is_first: Whether the packet is FIRST or ONLY.
            address: Virtual address from the RETH, in the first packet of a WRITE.
        """
        if is_first and verb == _WRITE:
            self._next = address - self.address
        elif is_first:
            self._next, self._end = self._receives.popleft()
        if payload:
            self.buffer[self._next : self._next + len(payload)] = payload
            self._next += len(payload)
