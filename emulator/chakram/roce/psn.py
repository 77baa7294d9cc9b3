"""Packet sequence numbers: serial arithmetic on 24 bits.

PSNs wrap after 2**24 packets, i.e. after 16 GiB at a path MTU of 1 KiB: a third of a
second at 400 Gbit/s. So "earlier" means "less than half a circle behind", and a
requester never has more than half a circle outstanding.
"""

from __future__ import annotations

PSN_MODULUS = 1 << 24

MAX_OUTSTANDING_PACKETS = 1 << 23
"""A requester has no more PSNs than this unacknowledged, or order would be lost."""
