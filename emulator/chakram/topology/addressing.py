"""Addresses of a lab: IPv4 or IPv6, MAC, gateways and routed links.

Addresses are deterministic: the same topology has the same addresses on every machine,
so captures and records of two runs are comparable. Two labs may use the same addresses
because each lab has separate network namespaces.

The address spaces are 198.18.0.0/15 (RFC 2544) and 2001:2::/48 (RFC 5180). Both are
reserved for benchmarks of network devices (RFC 6890) and never routed on the Internet.
The lower half of each space has one subnet per switch with hosts. The upper half has a
/31 subnet (RFC 3021) or /127 subnet (RFC 6164) per link between switches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_network

from chakram.foundation.errors import FabricError
from chakram.foundation.ip_addresses import IPV4, IPV6
from chakram.topology.topology import Topology

BENCHMARK_SPACES = {IPV4: "198.18.0.0/15", IPV6: "2001:2::/48"}
"""Address space of namespace labs, by address family."""


class _Space:
    """Address space of one address family, with addresses as numbers.

    Args:
        hosts: Prefix for hosts.
        links: Prefix for links between switches.
        subnet_bits: Minimum number of host bits in a subnet.

    Attributes:
        hosts: First address for hosts.
        end: First address after the addresses for hosts.
        subnet_bits: Minimum number of host bits in a subnet.
        links: First address for links between switches.
        link_addresses: Number of addresses for links between switches.
        text: Prefix for hosts, for error messages.
        address_bits: Number of bits in an address.
    """

    def __init__(self, hosts: str, links: str, *, subnet_bits: int) -> None:
        own, between = ip_network(hosts), ip_network(links)
        self.hosts = int(own.network_address)
        self.end = int(own.broadcast_address) + 1
        self.subnet_bits = subnet_bits
        self.links = int(between.network_address)
        self.link_addresses = between.num_addresses
        self.text = hosts
        self.address_bits = own.max_prefixlen
        self._make = type(own.network_address)

    def write(self, number: int) -> str:
        """Return the address that *number* represents."""
        return str(self._make(number))


_SPACES = {
    # A /24 is easy to read, and its 253 hosts are enough for most leaves.
    IPV4: _Space("198.18.0.0/16", "198.19.0.0/16", subnet_bits=8),
    IPV6: _Space("2001:2::/49", "2001:2:0:8000::/96", subnet_bits=64),
}

_LOOPBACK_BASE = int(IPv4Address("127.18.0.1"))
_LOOPBACK_END = int(IPv4Address("127.19.0.0"))

_USUAL_ADDRESSES = 1 << 16
"""Usual maximum number of addresses in use in a subnet. In IPv6, such addresses differ
only in the last group."""

_MOST_ADDRESSES = 1 << 17
"""Maximum number of addresses in use in a subnet."""

# MAC addresses are locally administered (second-lowest bit of the first octet) and
# unicast. The second octet identifies the type of owner, which makes captures easier to
# read.
_HOST_MAC = 0x02CA
_SWITCH_MAC = 0x02CB
_PORT_MAC = 0x02CC


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAddress:
    """Addresses of one host's interface.

    ``gateway`` is None if the topology has only one switch.
    """

    host: str
    address: str
    prefix_length: int
    mac: str
    gateway: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """The subnet of one switch's hosts, and the switch's address in it."""

    switch: str
    network: str
    prefix_length: int
    gateway: str
    gateway_mac: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedLink:
    """Addresses of both ends of a link between switches, in a two-address subnet."""

    link: str
    prefix_length: int
    a_address: str
    b_address: str
    a_mac: str
    b_mac: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPlan:
    """All addresses of a lab, in one address family."""

    family: str
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
                "addressing",
                f"there is no host {name!r}",
                "choose from the topology's hosts",
            ) from None


def plan_addresses(topology: Topology, family: str = IPV4) -> AddressPlan:
    """Return the addresses of all hosts, gateways and routed links.

    Args:
        topology: Topology to assign addresses to.
        family: ``ipv4`` or ``ipv6``. With IPv4, a switch with hosts gets a /24, or the
            smallest larger subnet that has room for its hosts and its own address. With
            IPv6, it gets a /64. Hosts have consecutive addresses, starting at 1. The
            gateway has the last usable address. With IPv6, this address ends in
            ``:fffe``, or in ``:1:fffe`` for a switch with 65,534 or more hosts.

    Raises:
        FabricError: If the address space is too small for the hosts or links.
    """
    space = _SPACES[family]
    numbers = {host: number for number, host in enumerate(topology.hosts)}
    routed = len(topology.switches) > 1
    hosts: dict[str, HostAddress] = {}
    subnets: list[Subnet] = []
    cursor = space.hosts
    for switch_number, switch in enumerate(topology.switches):
        members = topology.hosts_of(switch)
        if not members:
            continue
        bits = _subnet_bits(space, len(members))
        size = 1 << bits
        base = -(-cursor // size) * size  # a subnet begins at a multiple of its size
        cursor = base + size
        if cursor > space.end or len(members) + 2 >= _MOST_ADDRESSES:
            raise FabricError(
                "addressing",
                f"there are not enough addresses in {space.text} for the "
                f"{len(members)} hosts of {switch}",
                "use addressing: ipv6, fewer leaves or fewer hosts per leaf"
                if family == IPV4
                else "use fewer leaves or fewer hosts per leaf",
            )
        used = (
            _USUAL_ADDRESSES if len(members) + 2 < _USUAL_ADDRESSES else _MOST_ADDRESSES
        )
        gateway = space.write(base + min(size, used) - 2)
        prefix_length = space.address_bits - bits
        subnets.append(
            Subnet(
                switch=switch,
                network=space.write(base),
                prefix_length=prefix_length,
                gateway=gateway,
                gateway_mac=switch_mac(switch_number),
            )
        )
        for offset, host in enumerate(members, start=1):
            hosts[host] = HostAddress(
                host=host,
                address=space.write(base + offset),
                prefix_length=prefix_length,
                mac=host_mac(numbers[host]),
                gateway=gateway if routed else None,
            )
    return AddressPlan(
        family=family,
        hosts=tuple(hosts[host] for host in topology.hosts),
        subnets=tuple(subnets),
        routed_links=_routed_links(topology, space),
    )


def room_for_switches(hosts: int, family: str = IPV4) -> int:
    """Return how many switches with *hosts* hosts each fit into the address space."""
    space = _SPACES[family]
    if hosts + 2 >= _MOST_ADDRESSES:
        return 0
    return (space.end - space.hosts) >> _subnet_bits(space, hosts)


def room_for_links(family: str = IPV4) -> int:
    """Return how many links between switches fit into the address space."""
    return _SPACES[family].link_addresses // 2


def _subnet_bits(space: _Space, hosts: int) -> int:
    # A subnet needs three more addresses, for the network, gateway and broadcast.
    return max(space.subnet_bits, (hosts + 2).bit_length())


def _routed_links(topology: Topology, space: _Space) -> tuple[RoutedLink, ...]:
    uplinks = topology.uplinks()
    capacity = space.link_addresses // 2
    if len(uplinks) > capacity:
        raise FabricError(
            "addressing",
            f"there are not enough addresses for {len(uplinks)} links between switches "
            f"(at most {capacity})",
            "use fewer leaves or spines",
        )
    return tuple(
        RoutedLink(
            link=link.name,
            prefix_length=space.address_bits - 1,
            a_address=space.write(space.links + 2 * number),
            b_address=space.write(space.links + 2 * number + 1),
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
            "use numbers from 0 to 4294967295",
        )
    digits = f"{kind << 32 | number:012x}"
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2))


def loopback_address(number: int) -> str:
    """Return the loopback address of host *number*, counting up from 127.18.0.1.

    127.0.0.1 itself remains free for other programs.

    Raises:
        FabricError: If *number* is negative or beyond the 65,535 planned addresses.
    """
    value = _LOOPBACK_BASE + number
    if not _LOOPBACK_BASE <= value < _LOOPBACK_END:
        raise FabricError(
            "addressing",
            f"there is no loopback address for host {number}",
            f"use hosts 0 to {_LOOPBACK_END - _LOOPBACK_BASE - 1}",
        )
    return str(IPv4Address(value))


def loopback_addresses(nhosts: int) -> tuple[str, ...]:
    """Return the loopback addresses of hosts 0 to *nhosts* - 1."""
    if nhosts > 0:
        loopback_address(nhosts - 1)  # fail before creating any address
    return tuple(loopback_address(number) for number in range(nhosts))
