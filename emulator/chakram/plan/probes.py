"""Probes: single packets that test how a path treats traffic.

Before a run every port sends a few packets of several sizes and types of service to
every other port. They look like RoCEv2 packets: unreliable datagrams to a queue pair
that does not exist. Switches therefore classify them like the packets of the run. The
receiver records what arrives. No reply is needed, so the two directions of a pair are
measured separately.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

from chakram.foundation.field_bounds import (
    MAX_TIME_NS,
    AtMost,
    Distinct,
    HostAddress,
    TimeNs,
    UdpPort,
    Within,
)
from chakram.plan.wire_cost import serialisation_ns


class ProbeEvent(IntEnum):
    """Event that happened to probes. Each row of records begins with this number."""

    SENT = 0
    """The packets left the port."""
    ARRIVED = 1
    """The packets were received; the value is their type of service on arrival."""
    REFUSED = 2
    """The sender's kernel rejected the packets; the value is its error number."""
    TOO_BIG = 3
    """An ICMP error reported that the packets are too big; the value is its MTU."""
    UNREACHABLE = 4
    """An ICMP error reported that there is no route; the value is the error number."""
    DROPPED = 5
    """A socket had no room for ``count`` packets; the source is the socket's port."""
    OFFERED = 6
    """A train left; the value is how far the sender fell behind its rate, in ns."""
    SPAN = 7
    """The later half of a train, ``count`` packets, arrived within ``value`` ns."""


ETHERNET_BYTES = 14

LEAST_SIZE_BYTES = 128
"""Minimum size of a probe: room for the IP headers and the data that identifies it."""


MOST_COPIES = 1000
"""Maximum number of copies of a packet on each source port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePacket:
    """One kind of probe.

    Attributes:
        size_bytes: Length of the IP packet.
        tos: Type of service: DSCP << 2 | ECN.
    """

    size_bytes: Annotated[int, Within(LEAST_SIZE_BYTES, 65535)]
    tos: Annotated[int, Within(0, 255)]

    def wire_ns(self, rate_bps: int | None) -> int:
        """Return the serialization delay at a rate, rounded up, or 0 without a rate."""
        return serialisation_ns(self.size_bytes + ETHERNET_BYTES, rate_bps=rate_bps)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTarget:
    """A source port and the destination port to which it sends all probes.

    Attributes:
        offset_ns: Earliest time of the first packet after the start.
        source: Number of the sending port.
        destination: Number of the receiving port.
        address: Address of the receiving port.
        udp_port: UDP port of the receiving port.
    """

    offset_ns: TimeNs
    source: int
    destination: int
    address: HostAddress
    udp_port: UdpPort


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """The probes that the ports of one agent send.

    Attributes:
        packets: The kinds of probes.
        source_ports: UDP source ports. Each may lead to a different path through the
            fabric.
        copies: Number of times that every packet is sent on every source port.
        gap_ns: Minimum time between two packets of a port.
        end_ns: Time from the start until the ports stop listening.
        targets: Pairs of ports, sorted by time.
        is_train: Whether all copies of a packet leave back to back, as a train, with
            ``gap_ns`` between trains.
    """

    packets: Annotated[tuple[ProbePacket, ...], AtMost(256)]
    source_ports: Annotated[tuple[UdpPort, ...], AtMost(64), Distinct()]
    copies: Annotated[int, Within(1, MOST_COPIES)]
    gap_ns: Annotated[int, Within(1000, MAX_TIME_NS)]
    end_ns: TimeNs
    targets: Annotated[tuple[ProbeTarget, ...], AtMost(2**20)]
    is_train: bool = False

    @property
    def packets_per_target(self) -> int:
        """Number of packets that one port sends to another."""
        return len(self.packets) * len(self.source_ports) * self.copies
