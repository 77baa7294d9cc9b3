"""What the ideal of a collective needs to know of a topology."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from chakram.errors import FabricError
from chakram.plan.wire_cost import PACKET_OVERHEAD_BYTES
from chakram.predict.network_model import FabricModel, PathModel, PortModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chakram.fabric.topology import Topology

__all__ = ["fabric_model"]


def fabric_model(
    topology: Topology,
    host_of_rank: Mapping[int, str],
    *,
    overhead_bytes: int = PACKET_OVERHEAD_BYTES,
) -> FabricModel:
    """Return the model of *topology* under the ranks that are placed on its hosts.

    Ranks on one host share its port.  Of several equal-cost paths the first one stands
    for all.

    Args:
        topology: The fabric.
        host_of_rank: Where the ranks are.
        overhead_bytes: What each packet has beside its payload.

    Raises:
        FabricError: If a rank's host is not in the topology; a path asks for it later
            if two hosts are not connected.
    """
    hosts = list(dict.fromkeys(host_of_rank.values()))
    number = {host: index for index, host in enumerate(hosts)}

    @cache
    def path(src: int, dst: int) -> PathModel:
        return _path(topology, hosts[src], hosts[dst])

    return FabricModel(
        port_of={rank: number[host] for rank, host in host_of_rank.items()},
        ports=tuple(
            PortModel(
                rate_bps=topology.host_link(host).rate_bps,
                switch=topology.switch_of(host),
            )
            for host in hosts
        ),
        uplinks_bps=_uplinks(topology),
        path=path,
        overhead_bytes=overhead_bytes,
    )


def _path(topology: Topology, src_host: str, dst_host: str) -> PathModel:
    delay_ns = 0
    rates_bps: list[int | None] = []
    node = src_host
    while node != dst_host:
        next_hops = topology.next_hops(node, dst_host)
        if not next_hops:
            raise FabricError(
                "topology", f"there is no path from {src_host} to {dst_host}"
            )
        link = next(
            link
            for link in topology.links_of(node)
            if link.end_at(node) == next_hops[0]
        )
        delay_ns += link.delay_ns
        rates_bps.append(link.rate_bps)
        node = link.other_end(node).node
    return PathModel(delay_ns=delay_ns, rates_bps=tuple(rates_bps))


def _uplinks(topology: Topology) -> dict[str, int | None]:
    """Return the rate of all links of a switch to other switches together."""
    rates: dict[str, list[int | None]] = {}
    for link in topology.uplinks():
        for end in (link.a, link.b):
            rates.setdefault(end.node, []).append(link.rate_bps)
    return {
        switch: None if None in of_switch else sum(rate for rate in of_switch if rate)
        for switch, of_switch in rates.items()
    }
