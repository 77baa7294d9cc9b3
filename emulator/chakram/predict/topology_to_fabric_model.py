"""What the bound of a collective needs to know of a topology."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from chakram.plan.wire_cost import PACKET_OVERHEAD_BYTES
from chakram.predict.paths import FabricModel, Hop
from chakram.topology.topology import Topology, bucket_bytes

_BYTE_NS = 8e9  # bits in a byte x nanoseconds in a second


def fabric_model(
    topology: Topology,
    host_of_rank: Mapping[int, str],
    *,
    overhead_bytes: int = PACKET_OVERHEAD_BYTES,
    burst_bytes: int = 0,
) -> FabricModel:
    """Return the model of *topology* under the ranks that are placed on its hosts.

    Ranks on one host share its port.  Where there are several equal-cost paths, their
    links at one distance are one line: whichever path a packet takes, it takes one of
    them.

    Args:
        topology: The fabric.
        host_of_rank: Where the ranks are.
        overhead_bytes: What each packet has beside its payload.
        burst_bytes: What hosts send at once, at most.

    Raises:
        FabricError: If a rank's host is not in the topology; hops ask for it later if
            two hosts are not connected.
    """
    hosts = list(dict.fromkeys(host_of_rank.values()))
    number = {host: index for index, host in enumerate(hosts)}
    lines: dict[tuple[tuple[str, ...], tuple[str, ...]], Hop] = {}

    @cache
    def hops(src: int, dst: int) -> tuple[Hop, ...]:
        layers = topology.layers(hosts[src], hosts[dst])
        found = []
        for here, there in pairwise(layers):
            hop = lines.get((here, there))
            if hop is None:
                hop = lines[here, there] = _hop(
                    topology, len(lines), here, there, burst_bytes
                )
            found.append(hop)
        return tuple(found)

    rates_bps = tuple(topology.host_link(host).rate_bps for host in hosts)
    return FabricModel(
        port_of={rank: number[host] for rank, host in host_of_rank.items()},
        ports_bps=rates_bps,
        hops=hops,
        ahead_ns=tuple(
            (burst_bytes + bucket_bytes(rate)) * _BYTE_NS / rate
            if topology.is_shaped and rate
            else 0.0
            for rate in rates_bps
        ),
        overhead_bytes=overhead_bytes,
        cuts_through=topology.cuts_through,
    )


def _hop(
    topology: Topology,
    line: int,
    here: tuple[str, ...],
    there: tuple[str, ...],
    burst_bytes: int,
) -> Hop:
    """Return what all links from nodes *here* to nodes *there* are together."""
    ends = frozenset(there)
    links = [
        link
        for node in here
        for link in topology.links_of(node)
        if link.other_end(node).node in ends
    ]
    rates = [link.rate_bps for link in links]
    limited = [rate for rate in rates if rate is not None]
    is_limited = len(limited) == len(rates)
    ahead_ns = 0.0
    if topology.is_shaped and is_limited:
        # Hosts hold their rate by themselves: they are ahead by a burst only.
        is_host = here[0] in topology.hosts
        ahead_ns = max(
            (burst_bytes + (0 if is_host else bucket_bytes(rate))) * _BYTE_NS / rate
            for rate in limited
        )
    return Hop(
        line=line,
        rate_bps=max(limited) if is_limited else None,
        together_bps=sum(limited) if is_limited else None,
        delay_ns=min(link.delay_ns for link in links),
        ahead_ns=ahead_ns,
        slowest_bps=min(limited) if is_limited else None,
    )
