"""Requests for addresses, neighbors and routes in the nodes of a lab.

This module only creates requests. The builder of the lab sends them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field

from chakram.fabric.labs.netlink_requests import (
    ANY_ADDRESS,
    Request,
    add_address,
    add_forwarding_entry,
    add_neighbor,
    add_route,
    set_link,
)
from chakram.topology.addressing import BENCHMARK_SPACES, AddressPlan
from chakram.topology.topology import HOST_INTERFACE, Link, PortRef, Topology

# New namespaces may contain devices that kernel modules add to every namespace (tunl0,
# sit0, ...), with the lowest numbers.
FIRST_INDEX = 100
"""Number of the first interface that a lab creates in a namespace."""

BRIDGE_INDEX = FIRST_INDEX
"""Number of the bridge of every switch that has hosts."""


@dataclass(eq=False)
class NetworkRequests:
    """Creates the requests that configure the nodes of one lab.

    Attributes:
        topology: Hosts, switches and links of the lab.
        addresses: Address plan of the lab.
        indexes: Interface number of each port, within the namespace of the port.
        is_model: Whether one process runs all switches, so that all hosts are
            neighbors.
    """

    topology: Topology
    addresses: AddressPlan
    indexes: Mapping[PortRef, int]
    _: KW_ONLY
    is_model: bool
    _neighbors: dict[str, Request] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._routed = {each.link: each for each in self.addresses.routed_links}
        self._subnets = {each.switch: each for each in self.addresses.subnets}

    def of_switch(self, switch: str) -> list[Request]:
        """Return all requests for a switch, whose links must already exist."""
        requests: list[Request] = []
        subnet = self._subnets.get(switch)
        routed = len(self.topology.switches) > 1
        if subnet is not None:
            for host in self.topology.hosts_of(switch):
                port = self.topology.host_link(host).end_at(switch)
                address = self.addresses.host(host)
                requests.append(
                    add_forwarding_entry(address.mac, port=self.indexes[port])
                )
                if routed:
                    requests.append(
                        add_neighbor(
                            address.address, mac=address.mac, index=BRIDGE_INDEX
                        )
                    )
            if routed:
                requests.append(
                    add_address(
                        subnet.gateway,
                        prefix_length=subnet.prefix_length,
                        index=BRIDGE_INDEX,
                    )
                )
        for link in self.topology.links_of(switch):
            if link.name in self._routed:
                requests += self._routed_port_requests(switch, link)
        return requests + self.routes_of(switch)

    def routes_of(
        self, switch: str, *, without: Collection[str] | None = None
    ) -> list[Request]:
        """Return the requests for the routes of a switch.

        Args:
            switch: Name of the switch.
            without: Names of links that are down. The requests replace existing routes
                with routes that avoid these links where possible. None if the switch
                has no routes yet.
        """
        requests: list[Request] = []
        for other in self._subnets.values():
            if other.switch == switch:
                continue
            hops = self._next_hops(switch, other.switch, without or ())
            if hops:
                requests.append(
                    add_route(
                        other.network,
                        prefix_length=other.prefix_length,
                        next_hops=hops,
                        replace=without is not None,
                    )
                )
        return requests

    def _routed_port_requests(self, switch: str, link: Link) -> list[Request]:
        routed = self._routed[link.name]
        index = self.indexes[link.end_at(switch)]
        if link.a.node == switch:
            own, other, mac = routed.a_address, routed.b_address, routed.b_mac
        else:
            own, other, mac = routed.b_address, routed.a_address, routed.a_mac
        return [
            set_link(index, up=True, what=f"interface of {link.name}"),
            add_address(own, prefix_length=routed.prefix_length, index=index),
            add_neighbor(other, mac=mac, index=index),
        ]

    def _next_hops(
        self, switch: str, other: str, down: Collection[str]
    ) -> list[tuple[str, int]]:
        """Return the gateway and interface of each next hop to the hosts of a switch.

        Next hops over links that are down are omitted, unless all links are down.
        """
        host = self.topology.hosts_of(other)[0]
        hops: list[tuple[str, int]] = []
        up: list[tuple[str, int]] = []
        for port in self.topology.next_hops(switch, host):
            link = next(
                each
                for each in self.topology.links_of(switch)
                if each.end_at(switch) == port
            )
            routed = self._routed[link.name]
            far = routed.b_address if link.a.node == switch else routed.a_address
            hops.append((far, self.indexes[port]))
            if link.name not in down:
                up.append(hops[-1])
        return up or hops

    def of_host(self, host: str) -> list[Request]:
        """Return all requests for a host, whose link must already exist."""
        own = self.addresses.host(host)
        index = FIRST_INDEX + 1  # the first interface of every host
        if self.is_model:
            near = self.topology.hosts
        else:
            near = self.topology.hosts_of(self.topology.switch_of(host))
        requests = [
            set_link(index, up=True, what=f"interface {HOST_INTERFACE}"),
            add_address(
                own.address, prefix_length=self.prefix_length(host), index=index
            ),
        ]
        requests += [self._neighbor(other, index) for other in near if other != host]
        if own.gateway is not None and not self.is_model:
            subnet = self._subnets[self.topology.switch_of(host)]
            requests += [
                add_neighbor(own.gateway, mac=subnet.gateway_mac, index=index),
                add_route(
                    ANY_ADDRESS[self.addresses.family],
                    prefix_length=0,
                    next_hops=[(own.gateway, index)],
                ),
            ]
        return requests

    def prefix_length(self, host: str) -> int:
        """Return the prefix length that is configured on a host."""
        if self.is_model:
            return int(BENCHMARK_SPACES[self.addresses.family].partition("/")[2])
        return self.addresses.host(host).prefix_length

    def _neighbor(self, host: str, index: int) -> Request:
        """Return the request that adds *host* as a neighbor, encoded once per lab."""
        request = self._neighbors.get(host)
        if request is None:
            address = self.addresses.host(host)
            request = add_neighbor(address.address, mac=address.mac, index=index)
            self._neighbors[host] = request
        return request
