"""Checks of the fabric section, and what others ask of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chakram.addresses import IPV4, family_of
from chakram.config.fabric import (
    ExternalFabric,
    Fabric,
    LoopbackFabric,
    NamespaceFabric,
    TopologySettings,
)
from chakram.fabric.addressing import room_for_links, room_for_switches
from chakram.settings.mistakes import Location, Mistake

if TYPE_CHECKING:
    from collections.abc import Iterable


_IPV6_LEAST_MTU = 1280
"""RFC 8200, section 5."""


def check_fabric(fabric: Fabric) -> list[Mistake]:
    """Check the fabric by itself."""
    mistakes: list[Mistake] = []
    if isinstance(fabric, NamespaceFabric):
        mistakes += _check_shape(fabric.topology)
        mistakes += _check_room(fabric)
        mistakes += _check_captures(fabric)
        mistakes += _check_mtu(fabric.mtu, fabric.addressing, ("fabric", "mtu"))
    if isinstance(fabric, LoopbackFabric):
        mistakes += _check_mtu(fabric.mtu, fabric.addressing, ("fabric", "mtu"))
    if isinstance(fabric, ExternalFabric):
        if fabric.topology is not None:
            mistakes += _check_shape(fabric.topology)
        mistakes += _check_hosts(fabric)
        mistakes += _check_addresses(fabric)
        mistakes += _check_families(fabric)
        mistakes += _check_isolation(fabric)
        mistakes += _check_tls(fabric)
    return mistakes


def _check_shape(topology: TopologySettings) -> list[Mistake]:
    given = [topology.single_switch, topology.clos]
    if sum(each is not None for each in given) == 1:
        return []
    return [
        Mistake(
            location=("fabric", "topology"),
            found="names two shapes" if all(given) else "names no shape",
            hint="write either single_switch or clos",
        )
    ]


def _check_room(fabric: NamespaceFabric) -> list[Mistake]:
    """Check that there are addresses for all leaves, hosts and links of a lab."""
    clos = fabric.topology.clos
    if clos is None:
        return []
    where: Location = ("fabric", "topology", "clos")
    leaves = room_for_switches(clos.hosts_per_leaf, fabric.addressing)
    links = room_for_links(fabric.addressing)
    if clos.leaves > leaves:
        return [
            Mistake(
                location=(*where, "leaves"),
                found=f"there are addresses for {leaves} leaves with "
                f"{clos.hosts_per_leaf} hosts each",
                hint=f"at most {leaves}, or fewer hosts_per_leaf",
            )
        ]
    if clos.leaves * clos.spines > links:
        return [
            Mistake(
                location=(*where, "spines"),
                found=f"there are addresses for {links} links between switches",
                hint=f"at most {links // clos.leaves} with so many leaves",
            )
        ]
    return []


def _check_captures(fabric: NamespaceFabric) -> list[Mistake]:
    count = fabric.topology.hosts
    hosts = {f"h{number}" for number in range(count)}
    return [
        Mistake(
            location=("fabric", "capture", index),
            found=f"there is no host {name!r}",
            hint=f"hosts are h0 to h{count - 1}",
        )
        for index, name in enumerate(fabric.capture)
        if count and name not in hosts
    ]


def _check_hosts(fabric: ExternalFabric) -> list[Mistake]:
    mistakes: list[Mistake] = []
    for key in ("name", "agent"):
        values = [getattr(host, key) for host in fabric.hosts]
        for index, value in enumerate(values):
            if value in values[:index]:
                mistakes.append(
                    Mistake(
                        location=("fabric", "hosts", index, key),
                        found=f"host {values.index(value)} has {value!r} as well",
                        hint=f"give every host {key} of its own"
                        if key == "name"
                        else "list all ports of an agent under one host",
                    )
                )
    return mistakes


def _check_addresses(fabric: ExternalFabric) -> list[Mistake]:
    mistakes: list[Mistake] = []
    first: dict[object, str] = {}
    allowed = ", ".join(str(each) for each in fabric.allow)
    for location, host, port in _ports(fabric):
        address = port.address.ip
        if address in first:
            mistakes.append(
                Mistake(
                    location=(*location, "address"),
                    found=f"{address} is the address of a port of {first[address]}",
                    hint="give every port an address of its own",
                )
            )
        first.setdefault(address, host.name)
        if not any(address in prefix for prefix in fabric.allow):
            mistakes.append(
                Mistake(
                    location=(*location, "address"),
                    found=f"{address} lies outside the allowed prefixes {allowed}",
                    hint="name its prefix in fabric.allow, and start the agents "
                    "with it as --allow",
                )
            )
    return mistakes


def _check_families(fabric: ExternalFabric) -> list[Mistake]:
    """Refuse a port that cannot reach the others, or packets that IPv6 has not."""
    mistakes: list[Mistake] = []
    first = fabric.hosts[0]
    address = first.ports[0].address.ip
    for location, _, port in _ports(fabric):
        if port.address.ip.version != address.version:
            mistakes.append(
                Mistake(
                    location=(*location, "address"),
                    found=f"{port.address.ip} is of IPv{port.address.ip.version}, but "
                    f"{address} (host {first.name}) of IPv{address.version}: they "
                    "cannot reach each other",
                    hint="give all ports addresses of one family",
                )
            )
        elif port.mtu is not None:
            mistakes += _check_mtu(port.mtu, address_family(fabric), (*location, "mtu"))
    return mistakes + _check_mtu(
        fabric.defaults.mtu, address_family(fabric), ("fabric", "defaults", "mtu")
    )


def _check_mtu(mtu: int, family: str, location: Location) -> list[Mistake]:
    if family == IPV4 or mtu >= _IPV6_LEAST_MTU:
        return []
    return [
        Mistake(
            location=location,
            found=f"{mtu} is less than any link of IPv6 has",
            hint=f"at least {_IPV6_LEAST_MTU}",
        )
    ]


def _check_isolation(fabric: ExternalFabric) -> list[Mistake]:
    """Refuse ports of one host that would reach each other without the fabric."""
    mistakes: list[Mistake] = []
    for index, host in enumerate(fabric.hosts):
        seen: set[object] = set()
        for number, port in enumerate(host.ports):
            location: Location = ("fabric", "hosts", index, "ports", number)
            if port.address.ip.is_loopback:
                continue
            if fabric.defaults.isolate == "namespace" and port.netns is None:
                mistakes.append(
                    Mistake(
                        location=location,
                        found="has no netns, but fabric.defaults.isolate is namespace",
                        hint="e.g. netns: /run/netns/port0",
                    )
                )
            elif port.netns in seen:
                mistakes.append(
                    Mistake(
                        location=location,
                        found=f"shares a network namespace with another port of "
                        f"{host.name}; their traffic would not leave the host",
                        hint="move each interface into a namespace of its own and "
                        "name it, e.g. netns: /run/netns/port1",
                    )
                )
            seen.add(port.netns)
    return mistakes


def _check_tls(fabric: ExternalFabric) -> list[Mistake]:
    if fabric.tls is not None:
        return []
    return [
        Mistake(
            location=("fabric", "hosts", index, "agent"),
            found=f"{host.agent} is on another machine, and there are no certificates",
            hint="make some with chakram certs and name them in fabric.tls",
        )
        for index, host in enumerate(fabric.hosts)
        if not host.agent.startswith(("unix:", "127.", "localhost:", "[::1]:"))
    ]


def _ports(fabric: ExternalFabric) -> Iterable[tuple[Location, Any, Any]]:
    for index, host in enumerate(fabric.hosts):
        for number, port in enumerate(host.ports):
            yield ("fabric", "hosts", index, "ports", number), host, port


def address_family(fabric: Fabric) -> str:
    """Return the address family of all ports, ``ipv4`` or ``ipv6``."""
    if not isinstance(fabric, ExternalFabric):
        return fabric.addressing
    return family_of(str(fabric.hosts[0].ports[0].address.ip))


def smallest_mtu(fabric: Fabric) -> int:
    """Return the smallest MTU of all ports."""
    if not isinstance(fabric, ExternalFabric):
        return fabric.mtu
    return min(port.mtu or fabric.defaults.mtu for _, _, port in _ports(fabric))


def port_rate(fabric: Fabric) -> int | None:
    """Return the rate of the slowest port that has one."""
    if isinstance(fabric, NamespaceFabric):
        return fabric.links.host.rate_bps
    if isinstance(fabric, LoopbackFabric):
        return fabric.rate_bps
    rates = [port.rate_bps or fabric.defaults.rate_bps for _, _, port in _ports(fabric)]
    return min((rate for rate in rates if rate is not None), default=None)


def available_ports(fabric: Fabric) -> int | None:
    """Return how many ports the fabric has, None if as many as are needed."""
    if isinstance(fabric, NamespaceFabric):
        return fabric.topology.hosts or None
    if isinstance(fabric, LoopbackFabric):
        return fabric.ports
    return sum(len(host.ports) for host in fabric.hosts)
