"""Packet sequence numbers: serial arithmetic on 24 bits.

PSNs wrap after 2**24 packets, i.e. after 16 GiB at a path MTU of 1 KiB: a third of a
second at 400 Gbit/s. So "earlier" means "less than half a circle behind", and a
requester never has more than half a circle outstanding.
"""

from __future__ import annotations

__all__ = [
    "MAX_OUTSTANDING_PACKETS",
    "PSN_MASK",
    "PSN_MODULUS",
    "psn_distance",
]

PSN_MODULUS = 1 << 24
PSN_MASK = PSN_MODULUS - 1
MAX_OUTSTANDING_PACKETS = 1 << 23
"""A requester has no more PSNs than this unacknowledged, or order would be lost."""


def psn_distance(start: int, end: int) -> int:
    """Return how far *end* lies after *start*: -2**23 .. 2**23 - 1, in packets."""
    distance = (end - start) & PSN_MASK
    return distance - PSN_MODULUS if distance >= PSN_MODULUS // 2 else distance
