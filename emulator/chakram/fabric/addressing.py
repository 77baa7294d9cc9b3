"""Addresses of a lab: IPv4, MAC, gateways and routed links.

Pure and deterministic: the same topology has the same addresses on every machine, so
captures and records of two runs can be compared, and two labs may use the same ones
because each has network namespaces of its own.

The space is 198.18.0.0/15, reserved for benchmarks of network devices (RFC 2544,
RFC 6890): it is never routed on the Internet.  Its lower half holds one subnet per
switch that has hosts, its upper half a /31 (RFC 3021) per link between switches.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chakram.errors import FabricError

if TYPE_CHECKING:
    from chakram.fabric.topology import Topology

__all__ = [
    "BENCHMARK_SPACE",
    "AddressPlan",
    "HostAddress",
    "RoutedLink",
    "Subnet",
    "host_mac",
    "loopback_address",
    "loopback_addresses",
    "plan_addresses",
    "port_mac",
    "switch_mac",
]

BENCHMARK_SPACE = "198.18.0.0/15"
"""All addresses of namespace labs."""

_HOST_SPACE = ipaddress.IPv4Network("198.18.0.0/16")
_LINK_SPACE = ipaddress.IPv4Network("198.19.0.0/16")
_SMALLEST_SUBNET_BITS = 8  # /24: reads well, and 253 hosts are plenty for most leaves

_LOOPBACK_BASE = int(ipaddress.IPv4Address("127.18.0.1"))
_LOOPBACK_END = int(ipaddress.IPv4Address("127.19.0.0"))

# Locally administered (second-lowest bit of the first octet) and unicast; the second
# octet tells what the address belongs to, so that a capture can be read.
_HOST_MAC = 0x02CA
_SWITCH_MAC = 0x02CB
_PORT_MAC = 0x02CC


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAddress:
    """Addresses of one host's interface.

    ``gateway`` is None where all hosts are in one subnet.
    """

    host: str
    address: str
    prefix_length: int
    mac: str
    gateway: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """The subnet of the hosts of one switch, and the switch's own address in it."""

    switch: str
    network: str
    prefix_length: int
    gateway: str
    gateway_mac: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedLink:
    """Addresses of the two ends of a link between switches (a /31)."""

    link: str
    a_address: str
    b_address: str
    a_mac: str
    b_mac: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPlan:
    """All addresses of a lab."""

    hosts: tuple[HostAddress, ...]
    subnets: tuple[Subnet, ...]
    routed_links: tuple[RoutedLink, ...]
    _by_host: dict[str, HostAddress] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_host", {each.host: each for each in self.hosts})

    def host(self, name: str) -> HostAddress:
        """Return the addresses of one host.

        Raises:
            FabricError: If there is no such host.
        """
        try:
            return self._by_host[name]
        except KeyError:
            raise FabricError(
                "addressing", f"there is no host {name!r}", "see the topology's hosts"
            ) from None


def plan_addresses(topology: Topology) -> AddressPlan:
    """Return the addresses of all hosts, gateways and routed links.

    A switch with hosts gets a /24, or the smallest larger subnet that holds its hosts
    and its own address.  Hosts count up from the first address, the gateway is the
    last usable one.

    Raises:
        FabricError: If the space is too small for that many hosts or links.
    """
    numbers = {host: number for number, host in enumerate(topology.hosts)}
    routed = len(topology.switches) > 1
    hosts: dict[str, HostAddress] = {}
    subnets: list[Subnet] = []
    cursor = int(_HOST_SPACE.network_address)
    end = cursor + _HOST_SPACE.num_addresses
    for switch_number, switch in enumerate(topology.switches):
        members = topology.hosts_of(switch)
        if not members:
            continue
        # Three more than hosts: network, gateway and broadcast address.
        bits = max(_SMALLEST_SUBNET_BITS, (len(members) + 2).bit_length())
        size = 1 << bits
        base = -(-cursor // size) * size  # a subnet begins at a multiple of its size
        cursor = base + size
        if cursor > end:
            raise FabricError(
                "addressing",
                f"no room in {_HOST_SPACE} for the {len(members)} hosts of {switch}",
                "use fewer leaves or fewer hosts per leaf",
            )
        gateway = str(ipaddress.IPv4Address(base + size - 2))
        subnets.append(
            Subnet(
                switch=switch,
                network=str(ipaddress.IPv4Address(base)),
                prefix_length=32 - bits,
                gateway=gateway,
                gateway_mac=switch_mac(switch_number),
            )
        )
        for offset, host in enumerate(members, start=1):
            hosts[host] = HostAddress(
                host=host,
                address=str(ipaddress.IPv4Address(base + offset)),
                prefix_length=32 - bits,
                mac=host_mac(numbers[host]),
                gateway=gateway if routed else None,
            )
    return AddressPlan(
        hosts=tuple(hosts[host] for host in topology.hosts),
        subnets=tuple(subnets),
        routed_links=_routed_links(topology),
    )


def _routed_links(topology: Topology) -> tuple[RoutedLink, ...]:
    uplinks = topology.uplinks()
    capacity = _LINK_SPACE.num_addresses // 2
    if len(uplinks) > capacity:
        raise FabricError(
            "addressing",
            f"no room in {_LINK_SPACE} for {len(uplinks)} links between switches"
            f" (at most {capacity})",
            "use fewer leaves or spines",
        )
    base = int(_LINK_SPACE.network_address)
    return tuple(
        RoutedLink(
            link=link.name,
            a_address=str(ipaddress.IPv4Address(base + 2 * number)),
            b_address=str(ipaddress.IPv4Address(base + 2 * number + 1)),
            a_mac=port_mac(2 * number),
            b_mac=port_mac(2 * number + 1),
        )
        for number, link in enumerate(uplinks)
    )


def host_mac(number: int) -> str:
    """Return the MAC address of host *number*."""
    return _mac(_HOST_MAC, number)


def switch_mac(number: int) -> str:
    """Return the MAC address of the bridge of switch *number*."""
    return _mac(_SWITCH_MAC, number)


def port_mac(number: int) -> str:
    """Return the MAC address of routed port *number* (two per link)."""
    return _mac(_PORT_MAC, number)


def _mac(kind: int, number: int) -> str:
    if not 0 <= number < 1 << 32:
        raise FabricError(
            "addressing",
            f"number {number} does not fit into a MAC address",
            "numbers are 0 to 4294967295",
        )
    digits = f"{kind << 32 | number:012x}"
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2))


def loopback_address(number: int) -> str:
    """Return the loopback address of host *number*: 127.18.0.1 and upwards.

    127.0.0.1 itself stays with whatever else runs on the machine.

    Raises:
        FabricError: If *number* is negative or beyond the 65,535 planned addresses.
    """
    value = _LOOPBACK_BASE + number
    if not _LOOPBACK_BASE <= value < _LOOPBACK_END:
        raise FabricError(
            "addressing",
            f"there is no loopback address for host {number}",
            f"hosts are 0 to {_LOOPBACK_END - _LOOPBACK_BASE - 1}",
        )
    return str(ipaddress.IPv4Address(value))


def loopback_addresses(nhosts: int) -> tuple[str, ...]:
    """Return the loopback addresses of hosts 0 to *nhosts* - 1."""
    if nhosts > 0:
        loopback_address(nhosts - 1)  # refuse at once
    return tuple(loopback_address(number) for number in range(nhosts))
