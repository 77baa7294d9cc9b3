"""Memory of a port on an RDMA NIC, and verification of the payload in it.

The memory begins with a fixed pattern, from which all messages that the port sends take
their payload. Different messages start at different positions of the pattern, so that
misplaced payload is detected. Room for one piece follows the pattern. All payload that
is not verified may overwrite this room. The slots of the verified queue pairs come
last.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

PIECE_BYTES = 1 << 20
"""Maximum size of a piece of a message.  Larger pieces would not be faster."""

_MIN_PIECE_BYTES = 4096
_MAX_SLOT_MEMORY = 1 << 28
"""Memory for slots, in bytes. Ports with many slots exceed it, but then use the
smallest pieces."""
_STARTS = 4096
_STEP = 1031


@cache
def pattern() -> bytes:
    """Return the pattern from which all messages take their payload."""
    return random.Random(1).randbytes(PIECE_BYTES + _STARTS)


def pattern_start(psn: int, message: int) -> int:
    """Return where in the pattern the payload of a message starts.

    Args:
        psn: First PSN of the sender.
        message: Number of the message on its queue pair.
    """
    return (psn + message * _STEP) % _STARTS


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadLayout:
    """Layout of payload in the memory of a port.

    Attributes:
        slots: Number of slots per verified queue pair. If 0, no payload is verified.
        pairs: Number of verified queue pairs.
    """

    slots: int
    pairs: int

    @property
    def piece_bytes(self) -> int:
        """Maximum size of a piece that the port receives: the size of a slot."""
        count = self.slots * self.pairs
        if not count:
            return PIECE_BYTES
        share = max(1, _MAX_SLOT_MEMORY // count)
        return min(PIECE_BYTES, max(_MIN_PIECE_BYTES, 1 << share.bit_length() >> 1))

    @property
    def size_bytes(self) -> int:
        """Size of the memory."""
        return self.slot_offset(0, 0) + self.slots * self.pairs * self.piece_bytes

    @property
    def scratch_offset(self) -> int:
        """Offset of the room for payload that is not verified."""
        return len(pattern())

    def slot_offset(self, index: int, slot: int) -> int:
        """Return where a slot of the verified queue pair *index* starts."""
        place = index * self.slots + slot
        return self.scratch_offset + PIECE_BYTES + place * self.piece_bytes


def wrong_packets(
    found: memoryview, *, psn: int, message: int, path_mtu: int
) -> tuple[int, int]:
    """Return how many packets a piece has, and how many of them have a wrong payload.

    Args:
        found: The payload that has arrived.
        psn: First PSN of the sender.
        message: Number of the message on its queue pair.
        path_mtu: Maximum payload of a packet.
    """
    start = pattern_start(psn, message)
    expected = memoryview(pattern())[start : start + len(found)]
    packets = max(1, -(-len(found) // path_mtu))
    if found == expected:
        return packets, 0
    wrong = sum(
        found[at : at + path_mtu] != expected[at : at + path_mtu]
        for at in range(0, len(found), path_mtu)
    )
    return packets, wrong
