"""Where what a peer sends is put: memory that it writes to, and posted receives.

Most queue pairs have none: what arrives is counted and forgotten. One that has a
`MemoryRegion` keeps the payload of every packet that its responder takes, and refuses
what a NIC would: WRITEs to other memory, SENDs that nothing was posted for.
"""

from __future__ import annotations

from collections import deque

from chakram.roce.constants import Verb
from chakram.roce.opcodes import RECEIVER_NOT_READY, NakCode

_WRITE = int(Verb.WRITE)

_TAKEN = (0, "")
_NOT_READY = (RECEIVER_NOT_READY, "no receive is posted")
_WRONG_KEY = (int(NakCode.REMOTE_ACCESS_ERROR), "a WRITE has a wrong key")
_OUTSIDE = (int(NakCode.REMOTE_ACCESS_ERROR), "a WRITE leaves the memory")
_TOO_LONG = (int(NakCode.INVALID_REQUEST), "a SEND is longer than the posted receive")


class MemoryRegion:
    """The memory of one queue pair.

    A WRITE with immediate data consumes no receive here, unlike in verbs: nobody has to
    post any to be told of it.

    Attributes:
        buffer: The bytes.
        address: Virtual address of the first one, as the peer has to name it.
        key: What the peer has to show for a WRITE.
    """

    def __init__(self, size_bytes: int, *, address: int = 0, key: int = 0) -> None:
        """Make *size_bytes* zero bytes.

        Raises:
            ValueError: If one of them is out of range.
        """
        if size_bytes < 0 or not 0 <= address <= (1 << 64) - size_bytes:
            raise ValueError(f"{size_bytes} bytes at {address:#x} are no memory")
        if not 0 <= key < 1 << 32:
            raise ValueError(f"key {key:#x} does not fit in 32 bits")
        self.buffer = bytearray(size_bytes)
        self.address = address
        self.key = key
        self._receives: deque[tuple[int, int]] = deque()
        # Where the next packet of the message goes, and where its receive ends.
        self._next = 0
        self._end = 0

    def post_receive(self, offset: int, size_bytes: int) -> None:
        """Let the next SEND that has no receive yet go to *offset*.

        Raises:
            ValueError: If that is not inside.
        """
        if not 0 <= offset <= offset + size_bytes <= len(self.buffer):
            raise ValueError(
                f"{size_bytes} bytes at offset {offset} are not inside "
                f"{len(self.buffer)}"
            )
        self._receives.append((offset, offset + size_bytes))

    def receives(self) -> int:
        """Return how many receives no SEND has begun to fill."""
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
        """Return the syndrome of the NAK that a packet gets, and why; 0: it is taken.

        Changes nothing. Whether the packet is in place, and a message is whole, is for
        the responder to say.

        Args:
            verb: A `Verb`.
            is_first: Whether it is FIRST or ONLY.
            payload_bytes: Of the packet.
            dma_length_bytes: From the RETH, of a WRITE that *is_first*.
            address: Likewise.
            key: Likewise.
        """
        if verb == _WRITE:
            # Without length there is no access, so nothing is checked (IBA volume 1,
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
        """Put the payload of a packet where it goes, after `judge` and the responder.

        Args:
            payload: Without pad.
            verb: A `Verb`.
            is_first: Whether it is FIRST or ONLY.
            address: From the RETH, of a WRITE that *is_first*.
        """
        if is_first and verb == _WRITE:
            self._next = address - self.address
        elif is_first:
            self._next, self._end = self._receives.popleft()
        if payload:
            self.buffer[self._next : self._next + len(payload)] = payload
            self._next += len(payload)
