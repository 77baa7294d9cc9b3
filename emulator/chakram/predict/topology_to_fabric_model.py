"""Conversion of a topology to the fabric model of the bound."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from chakram.plan.wire_cost import PACKET_OVERHEAD_BYTES
from chakram.predict.fabric_model import FabricModel, Hop
from chakram.topology.topology import Topology, bucket_bytes

_BYTE_NS = 8e9  # bits in a byte x nanoseconds in a second


def fabric_model(
    topology: Topology,
    host_of_rank: Mapping[int, str],
    *,
    overhead_bytes: int = PACKET_OVERHEAD_BYTES,
    burst_bytes: int = 0,
) -> FabricModel:
    """Return the fabric model of *topology* for ranks that are placed on its hosts.

    Ranks on one host share its port. If there are several equal-cost paths, every
    packet takes one of the links at each distance from the sender. The links at one
    distance form one line.

    Args:
        topology: The fabric.
        host_of_rank: Host of each rank.
        overhead_bytes: Size of each packet in addition to its payload.
        burst_bytes: Maximum size of a host's burst.

    Raises:
        FabricError: If a rank's host is not in the topology. The ``hops`` function of
            the result raises the same error if two hosts are not connected.
    """
    hosts = list(dict.fromkeys(host_of_rank.values()))
    number = {host: index for index, host in enumerate(hosts)}
    lines: dict[tuple[tuple[str, ...], tuple[str, ...]], Hop] = {}

    # By pair of switches, the layers of switches between the hosts on these switches.
    inner: dict[tuple[str, str], tuple[tuple[str, ...], ...]] = {}
    switch_of = [topology.switch_of(host) for host in hosts]

    def layers(src: int, dst: int) -> tuple[tuple[str, ...], ...]:
        if src == dst:
            return ()
        ends = switch_of[src], switch_of[dst]
        known = inner.get(ends)
        if known is None:
            known = inner[ends] = topology.layers(hosts[src], hosts[dst])[1:-1]
        return (hosts[src],), *known, (hosts[dst],)

    @cache
    def hops(src: int, dst: int) -> tuple[Hop, ...]:
        found = []
        for here, there in pairwise(layers(src, dst)):
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
    """Return the hop that combines all links from nodes *here* to nodes *there*."""
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
        # Hosts limit their own rate, so they run ahead by one burst only.
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
