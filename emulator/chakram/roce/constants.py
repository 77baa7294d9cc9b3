"""Constants shared by the modules of the RoCE engine.

Performance-critical modules copy the constants that they need into C variables at
import. Other modules import the names from here.
"""

from __future__ import annotations

from enum import IntEnum

NEVER = 2**63 - 1
"""Time value for "no deadline" or "nothing to wait for"."""

UDP_PORT = 4791
MAX_MESSAGE_BYTES = 1 << 31
"""Largest message of an RC queue pair (IBA volume 1, 9.7.3)."""

LARGEST_SEND_BYTES = 65_507
"""Maximum number of bytes in all segments of one UDP send over IPv4."""

RNR_RETRY_FOR_EVER = 7
"""RNR retry limit that means "no limit" (IBA volume 1, 9.7.5.2.8)."""

BTH_BYTES = 12
ICRC_BYTES = 4

NO_IMMEDIATE = -1
"""Message ID of a message without immediate data.

The receiver does not report such a WRITE. Its payload counts toward the next message
that is reported.
"""

IPV4_OVERHEAD_BYTES = 14 + 20 + 8 + 12 + ICRC_BYTES
"""Size of an IPv4 packet in bytes, excluding extended headers and padded payload.

It includes the Ethernet header (without VLAN tag and frame check sequence), IPv4, UDP,
BTH and ICRC. The kernel, traffic shapers and switch byte counters measure packet length
this way.
"""


class Verb(IntEnum):
    """RDMA operation that carries a message and, optionally, immediate data."""

    WRITE = 0
    """RDMA WRITE whose last packet has immediate data, as in NCCL."""

    SEND = 1
    """SEND with immediate data."""


class BurstKind(IntEnum):
    """Type of the packets in a burst."""

    DATA = 0
    ACK = 1
    NAK = 2
    """Negative acknowledgment. On the wire, it has the opcode of an ACK."""

    CNP = 3


def local_ack_timeout_ns(exponent: int) -> int:
    """Return the local ACK timeout: 4.096 us x 2**exponent, or `NEVER` for exponent 0.

    Raises:
        ValueError: If *exponent* is not in 0..31.

    Source: IBA volume 1, 9.7.6.1.3.
    """
    if not 0 <= exponent <= 31:
        raise ValueError(f"local ACK timeout exponent {exponent} is not in 0..31")
    return 4096 << exponent if exponent else NEVER


# PSNs wrap after 2**24 packets: 16 GiB at a path MTU of 1 KiB, or a third of a second
# at 400 Gbit/s. PSN a is therefore earlier than PSN b if (b - a) modulo 2**24 is less
# than half the PSN space. A requester never has more than half the space outstanding.

PSN_MODULUS = 1 << 24

MAX_OUTSTANDING_PACKETS = 1 << 23
"""Maximum number of unacknowledged PSNs, above which their order is ambiguous."""
