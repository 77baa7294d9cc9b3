"""Probes: single packets that tell how a path treats what it carries.

Before a run every port sends a few packets of several sizes and types of service to
every other one.  They look like RoCEv2 packets (datagrams of the unreliable service to
a queue pair that nobody has), so that switches class them as they would the run's.
Whoever receives one notes what of it has arrived: nothing has to come back, so the two
directions of a pair are told apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, NamedTuple

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


class ProbeRow(NamedTuple):
    """What has happened to the same packets, as often as ``count`` says."""

    event: int  # a ProbeEvent
    source: int  # number of the port that sent it
    destination: int  # number of the port that it was sent to
    packet: int  # index in ProbePlan.packets
    path: int  # index in ProbePlan.source_ports
    count: int  # type: ignore[assignment] # how often, and no method
    value: int  # what the event says
    address: int  # IPv4 address of who said it, as a number; 0: unknown


PROBE_FIELDS = ProbeRow._fields


class ProbeEvent(IntEnum):
    """What happened to a probe, as the first number of a row."""

    SENT = 0
    """They left the port."""
    ARRIVED = 1
    """They were received; the value is their type of service as they arrived."""
    REFUSED = 2
    """The sender's kernel did not take them; the value is its error number."""
    TOO_BIG = 3
    """Somebody said that they are too big (ICMP); the value is the MTU that it has."""
    UNREACHABLE = 4
    """Somebody said that there is no way (ICMP); the value is the error number."""
    DROPPED = 5
    """A socket had no room for ``count`` packets; the source is its port."""
    OFFERED = 6
    """A train left; the value is by how much its sender fell behind its rate (ns)."""
    SPAN = 7
    """The later half of a train, ``count`` packets, arrived within ``value`` ns."""


ETHERNET_BYTES = 14

LEAST_SIZE_BYTES = 128
"""Headers and what tells a probe from others, of either version of IP."""


MOST_COPIES = 1000
"""Of a packet on each source port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePacket:
    """One kind of probe.

    Attributes:
        size_bytes: Length of its IP packet.
        tos: Its type of service: DSCP << 2 | ECN.
    """

    size_bytes: Annotated[int, Within(LEAST_SIZE_BYTES, 65535)]
    tos: Annotated[int, Within(0, 255)]

    def wire_ns(self, rate_bps: int | None) -> int:
        """Return how long it takes at a rate, rounded up; 0 where none is set."""
        return serialisation_ns(self.size_bytes + ETHERNET_BYTES, rate_bps=rate_bps)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTarget:
    """One port sends all probes to another one.

    Attributes:
        offset_ns: When, from the start on, not earlier.
        source: Number of the port that sends.
        destination: Number of the port that is sent to.
        address: Its address.
        udp_port: UDP port that it receives on.
    """

    offset_ns: TimeNs
    source: int
    destination: int
    address: HostAddress
    udp_port: UdpPort


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """What the ports of one agent send.

    Attributes:
        packets: The kinds of probes.
        source_ports: UDP source ports; each may take another path through the fabric.
        copies: How often every packet is sent on every source port.
        gap_ns: Least time between two packets of a port.
        end_ns: How long, from the start on, to listen.
        targets: Who sends to whom, by time.
        is_train: Whether all copies of a packet leave back to back, ``gap_ns`` apart
            from those of the next one: each packet is a train.
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
        """Packets that one port sends to another one."""
        return len(self.packets) * len(self.source_ports) * self.copies
