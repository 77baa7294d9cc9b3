"""Wire cost of a message, in layer-2 bytes as a kernel or a shaper counts them.

Every packet has Ethernet (14 bytes), IPv4 (20) or IPv6 (40), UDP (8), BTH (12) and ICRC
(4). The overhead is 58 or 78 bytes, without preamble, frame check sequence and gap. The
first packet of an RDMA WRITE also has a RETH (16). The last packet of a message also
has immediate data (4) and up to 3 padding bytes, which make its payload a multiple of
4.

Source: InfiniBand Architecture Specification volume 1, 9.2 to 9.7, annex A17 (RoCEv2).
"""

from __future__ import annotations

from chakram.foundation.ip_addresses import IPV6, IPV6_EXTRA_BYTES

PACKET_OVERHEAD_BYTES = 14 + 20 + 8 + 12 + 4
"""Ethernet, IPv4, UDP, BTH and ICRC; the default IP version is IPv4."""

RETH_BYTES = 16
IMMEDIATE_BYTES = 4
AETH_BYTES = 4
"""Size of the header that an acknowledgment has instead of a payload."""


def overhead_bytes_of(family: str) -> int:
    """Return the bytes of each packet in addition to its payload, by address family."""
    return PACKET_OVERHEAD_BYTES + (IPV6_EXTRA_BYTES if family == IPV6 else 0)


def packets_of(size_bytes: int, *, path_mtu: int) -> int:
    """Return the number of packets of a message. An empty message has one packet."""
    return max(1, -(-size_bytes // path_mtu))


def wire_bytes(
    size_bytes: int,
    *,
    path_mtu: int,
    verb: str = "write",
    overhead_bytes: int = PACKET_OVERHEAD_BYTES,
) -> int:
    """Return the layer-2 bytes of all packets of one message.

    Args:
        size_bytes: Payload of the message.
        path_mtu: Payload of a full packet.
        verb: ``write`` or ``send``, as in ``TransportPlan``.
        overhead_bytes: Bytes of each packet in addition to its payload.
    """
    return (
        size_bytes
        + -size_bytes % 4
        + packets_of(size_bytes, path_mtu=path_mtu) * overhead_bytes
        + IMMEDIATE_BYTES
        + (RETH_BYTES if verb == "write" else 0)
    )


def first_packet_wire_bytes(
    size_bytes: int,
    *,
    path_mtu: int,
    verb: str = "write",
    overhead_bytes: int = PACKET_OVERHEAD_BYTES,
) -> int:
    """Return the layer-2 bytes of a message's first packet, which is its longest."""
    if size_bytes <= path_mtu:
        return wire_bytes(
            size_bytes, path_mtu=path_mtu, verb=verb, overhead_bytes=overhead_bytes
        )
    return overhead_bytes + path_mtu + (RETH_BYTES if verb == "write" else 0)


def serialisation_ns(wire_bytes: int, *, rate_bps: int | None) -> int:
    """Return the serialization delay of bytes, rounded up, or 0 without a rate."""
    if rate_bps is None:
        return 0
    return -(-wire_bytes * 8 * 10**9 // rate_bps)
