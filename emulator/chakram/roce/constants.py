"""Numbers that the parts of the engine share.

The hot modules copy what they need into C variables of their own when they are
imported; others import the numbers from here.
"""

from __future__ import annotations

from enum import IntEnum

NEVER = 2**63 - 1
"""The time of what has no time: no deadline, nothing to wait for."""

UDP_PORT = 4791
MAX_MESSAGE_BYTES = 1 << 31
"""The largest message of an RC queue pair (IBA volume 1, 9.7.3)."""

LARGEST_SEND_BYTES = 65_507
"""What UDP over IPv4 takes in one send, however many packets it makes of it."""

RNR_RETRY_FOR_EVER = 7
"""The RNR retry limit that is none (IBA volume 1, 9.7.5.2.8)."""

ICRC_BYTES = 4

NO_IMMEDIATE = -1
"""The id of a message that the receiver's user is not to hear of.

It has no immediate data; what it carried counts for the next one that has.
"""

IPV4_OVERHEAD_BYTES = 14 + 20 + 8 + 12 + ICRC_BYTES
"""What a packet without extended headers has beside its padded payload.

Ethernet without VLAN tag and frame check sequence, IPv4, UDP, BTH and ICRC: what the
kernel, a shaper and a switch's byte counter call the length of the packet.
"""


class Verb(IntEnum):
    """How messages are carried; both give the receiver size and immediate."""

    WRITE = 0
    """RDMA WRITE, the last packet with immediate data: what NCCL does."""

    SEND = 1
    """SEND with immediate data."""


class BurstKind(IntEnum):
    """What the packets of a burst are."""

    DATA = 0
    ACK = 1
    NAK = 2
    """Also ACK on the wire; told apart so that its loss can be told from the other."""

    CNP = 3


def local_ack_timeout_ns(exponent: int) -> int:
    """Return the local ACK timeout 4.096 us x 2**exponent; 0 means `NEVER`.

    Raises:
        ValueError: If *exponent* does not have five bits.

    Source: IBA volume 1, 9.7.6.1.3.
    """
    if not 0 <= exponent <= 31:
        raise ValueError(f"local ACK timeout exponent {exponent} is not in 0..31")
    return 4096 << exponent if exponent else NEVER


# PSNs wrap after 2**24 packets, i.e. after 16 GiB at a path MTU of 1 KiB: a third of a
# second at 400 Gbit/s. So "earlier" means "less than half a circle behind", and a
# requester never has more than half a circle outstanding.

PSN_MODULUS = 1 << 24

MAX_OUTSTANDING_PACKETS = 1 << 23
"""A requester has no more PSNs than this unacknowledged, or order would be lost."""
