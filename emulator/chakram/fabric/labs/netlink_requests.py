"""Encoded requests to the kernel for links, addresses, neighbors and routes.

Every function returns the request for one object, which ``what`` names in errors.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink import (
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    NLM_F_REQUEST,
    rtnl,
)
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from chakram.foundation.ip_addresses import IPV4, IPV6, is_ipv6

_IFF_UP = 0x1
_IFF_NOARP = 0x80
_IFF_MULTICAST = 0x1000
_NUD_NOARP = 0x40
_NUD_PERMANENT = 0x80
_NTF_MASTER = 0x04
_AF_BRIDGE = 7
_RT_TABLE_MAIN = 254
_RTPROT_STATIC = 4
_RT_SCOPE_UNIVERSE = 0
_RTN_UNICAST = 1
_IFA_F_NODAD = 0x02

ANY_ADDRESS = {IPV4: "0.0.0.0", IPV6: "::"}
"""Network that contains all addresses, by address family."""

# Default queue length of veth, for queue disciplines without their own limit.
_TX_QUEUE_LENGTH = 1000


@dataclass(frozen=True, slots=True)
class Request:
    """One encoded message, and its purpose for error messages."""

    data: bytes
    what: str


def create(message: Any, kind: int, what: str, *, replace: bool = False) -> Request:
    """Return a request that creates an object, from a filled pyroute2 message."""
    flags = NLM_F_CREATE | (NLM_F_REPLACE if replace else NLM_F_EXCL)
    return _request(message, kind, what, flags)


def _request(message: Any, kind: int, what: str, flags: int = 0) -> Request:
    message["header"]["type"] = kind
    message["header"]["flags"] = NLM_F_REQUEST | NLM_F_ACK | flags
    message.encode()
    return Request(bytes(message.data), what)


def remove_queue(index: int, *, parent: int, what: str) -> Request:
    """Return the request that removes a queue discipline and its packets."""
    message = tcmsg()
    message["index"] = index
    message["parent"] = parent
    return _request(message, rtnl.RTM_DELQDISC, what)


def _link_info(kind: str, *data: tuple[str, object]) -> tuple[str, object]:
    """Return the attribute that specifies the type of a link."""
    info = [("IFLA_INFO_KIND", kind), ("IFLA_INFO_DATA", {"attrs": list(data)})]
    return "IFLA_LINKINFO", {"attrs": info}


def _bring_up(message: Any, *, silent: bool) -> None:
    """Make a link message bring its interface up.

    A *silent* interface discovers no neighbors and joins no groups. Otherwise, IPv6
    sends MLD reports and neighbor solicitations on every link.
    """
    message["flags"] = _IFF_UP | (_IFF_NOARP if silent else 0)
    message["change"] = message["flags"] | (_IFF_MULTICAST if silent else 0)


def new_bridge(
    name: str, *, index: int, mac: str, mtu: int, silent: bool = False
) -> Request:
    """Return the request for an enabled bridge without STP or multicast snooping."""
    message = ifinfmsg()
    message["index"] = index
    _bring_up(message, silent=silent)
    message["attrs"] = [
        ("IFLA_IFNAME", name),
        ("IFLA_ADDRESS", mac),
        ("IFLA_MTU", mtu),
        _link_info("bridge", ("IFLA_BR_STP_STATE", 0), ("IFLA_BR_MCAST_SNOOPING", 0)),
    ]
    return create(message, rtnl.RTM_NEWLINK, f"bridge {name}")


def new_veth(
    name: str,
    *,
    index: int,
    mac: str | None,
    master: int | None,
    mtu: int,
    peer_name: str,
    peer_index: int,
    peer_mac: str | None,
    peer_namespace: int,
    silent: bool = False,
) -> Request:
    """Return the request for a pair of interfaces in two namespaces.

    The request brings up only the first interface, because the kernel refuses to bring
    up the second interface before it has a peer.

    Args:
        name: Name of the interface in the namespace that receives the request.
        index: Number of that interface. New namespaces allow any number, which avoids
            lookups.
        mac: MAC address of that interface, or None for a random address.
        master: Number of the bridge that the interface joins, or None.
        mtu: Largest IP packet of both ends, in bytes.
        peer_name: Name of the interface in the other namespace.
        peer_index: Number of the peer interface.
        peer_mac: MAC address of the peer interface, or None for a random address.
        peer_namespace: Open descriptor of the other namespace.
        silent: Whether the kernel sends no packets spontaneously at either end. IPv6
            needs no such packets if neighbors are static.
    """
    peer: list[tuple[str, object]] = [
        ("IFLA_IFNAME", peer_name),
        ("IFLA_MTU", mtu),
        ("IFLA_TXQLEN", _TX_QUEUE_LENGTH),
        ("IFLA_NET_NS_FD", peer_namespace),
    ]
    if peer_mac is not None:
        peer.append(("IFLA_ADDRESS", peer_mac))
    message = ifinfmsg()
    message["index"] = index
    _bring_up(message, silent=silent)
    peer_message: dict[str, object] = {"index": peer_index, "attrs": peer}
    if silent:
        peer_message |= {"flags": _IFF_NOARP, "change": _IFF_NOARP | _IFF_MULTICAST}
    attributes: list[tuple[str, object]] = [
        ("IFLA_IFNAME", name),
        ("IFLA_MTU", mtu),
        ("IFLA_TXQLEN", _TX_QUEUE_LENGTH),
    ]
    if mac is not None:
        attributes.append(("IFLA_ADDRESS", mac))
    if master is not None:
        attributes.append(("IFLA_MASTER", master))
    attributes.append(_link_info("veth", ("VETH_INFO_PEER", peer_message)))
    message["attrs"] = attributes
    return create(message, rtnl.RTM_NEWLINK, f"interface {name}")


def set_link(index: int, *, up: bool, what: str) -> Request:
    """Return the request that sets an interface up or down."""
    message = ifinfmsg()
    message["index"] = index
    message["flags"] = _IFF_UP if up else 0
    message["change"] = _IFF_UP
    return _request(message, rtnl.RTM_NEWLINK, what)


def add_address(address: str, *, prefix_length: int, index: int) -> Request:
    """Return the request for an interface address that is usable immediately."""
    message = ifaddrmsg()
    message["family"] = _family(address)
    message["prefixlen"] = prefix_length
    message["index"] = index
    message["attrs"] = [("IFA_LOCAL", address), ("IFA_ADDRESS", address)]
    if is_ipv6(address):
        # The address is unique, and duplicate address detection takes a second.
        message["flags"] = _IFA_F_NODAD
    return create(message, rtnl.RTM_NEWADDR, f"address {address}/{prefix_length}")


def add_neighbor(address: str, *, mac: str, index: int) -> Request:
    """Return the request for a permanent neighbor, which avoids address resolution."""
    message = ndmsg()
    message["family"] = _family(address)
    message["ifindex"] = index
    message["state"] = _NUD_PERMANENT
    message["attrs"] = [("NDA_DST", address), ("NDA_LLADDR", mac)]
    return create(message, rtnl.RTM_NEWNEIGH, f"neighbor {address}", replace=True)


def add_forwarding_entry(mac: str, *, port: int) -> Request:
    """Return the request for a bridge entry that maps a MAC address to a port.

    Without the entry, a bridge floods the first packets to a silent host.
    """
    message = ndmsg()
    message["family"] = _AF_BRIDGE
    message["ifindex"] = port
    message["state"] = _NUD_NOARP
    message["flags"] = _NTF_MASTER
    message["attrs"] = [("NDA_LLADDR", mac)]
    return create(message, rtnl.RTM_NEWNEIGH, f"forwarding entry {mac}", replace=True)


def add_route(
    network: str,
    *,
    prefix_length: int,
    next_hops: Sequence[tuple[str, int]],
    replace: bool = False,
) -> Request:
    """Return the request for a route.

    The kernel hashes flows over several next hops.

    Args:
        network: Destination network. For the default route, ``ANY_ADDRESS`` with length
            0.
        prefix_length: Prefix length of the destination.
        next_hops: Gateway of each next hop, with the number of the interface to reach
            it.
        replace: Whether the new route replaces the existing route.
    """
    message = rtmsg()
    message["family"] = _family(network)
    message["dst_len"] = prefix_length
    message["table"] = _RT_TABLE_MAIN
    message["proto"] = _RTPROT_STATIC
    message["scope"] = _RT_SCOPE_UNIVERSE
    message["type"] = _RTN_UNICAST
    attributes: list[tuple[str, object]] = []
    if prefix_length:
        attributes.append(("RTA_DST", network))
    if len(next_hops) == 1:
        gateway, index = next_hops[0]
        attributes += [("RTA_GATEWAY", gateway), ("RTA_OIF", index)]
    else:
        hops = [
            {"oif": index, "hops": 0, "attrs": [("RTA_GATEWAY", gateway)]}
            for gateway, index in next_hops
        ]
        attributes.append(("RTA_MULTIPATH", hops))
    message["attrs"] = attributes
    what = f"route to {network}/{prefix_length}"
    return create(message, rtnl.RTM_NEWROUTE, what, replace=replace)


def _family(address: str) -> int:
    return socket.AF_INET6 if is_ipv6(address) else socket.AF_INET
