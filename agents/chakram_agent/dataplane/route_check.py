"""Route lookups that refuse destinations behind ``lo`` and group addresses.

Packets between two addresses in one network namespace go through ``lo``, even if the
addresses belong to other interfaces. These packets would never reach the device under
test. The lookup sends one netlink message to the kernel, because data-plane processes
do not load netlink libraries.
"""

from __future__ import annotations

import os
import socket
import struct
from ipaddress import ip_address

from chakram.foundation.errors import FabricError
from chakram.foundation.ip_addresses import is_ipv6

LOOPBACK_INDEX = 1
"""Index of ``lo`` in every network namespace."""

_RTM_GETROUTE = 26
_RTM_NEWROUTE = 24
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
_RTA_DST = 1
_RTA_OIF = 4
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_ROUTE = struct.Struct("=BBBBBBBBI")  # rtmsg
_TYPE_OFFSET = 7  # rtm_type in rtmsg
_SHARED_TYPES = frozenset({3, 4, 5})  # RTN_BROADCAST, RTN_ANYCAST, RTN_MULTICAST
_ATTRIBUTE = struct.Struct("=HH")  # rtattr


def outgoing_interface(address: str) -> int:
    """Return the index of the egress interface for packets to *address*.

    The index belongs to the calling thread's network namespace.

    Raises:
        FabricError: If there is no route, or if *address* is a broadcast, multicast or
            anycast address.

    Source: rtnetlink(7), RTM_GETROUTE.
    """
    family = socket.AF_INET6 if is_ipv6(address) else socket.AF_INET
    packed = socket.inet_pton(family, address)
    route = _ROUTE.pack(family, 8 * len(packed), 0, 0, 0, 0, 0, 0, 0)
    destination = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(packed), _RTA_DST)
    body = route + destination + packed
    request = _HEADER.pack(
        _HEADER.size + len(body), _RTM_GETROUTE, _NLM_F_REQUEST, 1, 0
    )
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
    ) as netlink:
        netlink.send(request + body)
        answer = netlink.recv(8192)
    _, kind, _, _, _ = _HEADER.unpack_from(answer)
    if kind == _NLMSG_ERROR:
        (code,) = struct.unpack_from("=i", answer, _HEADER.size)
        raise FabricError(
            f"destination {address}", f"there is no route to it ({os.strerror(-code)})"
        )
    if kind == _RTM_NEWROUTE and answer[_HEADER.size + _TYPE_OFFSET] in _SHARED_TYPES:
        raise _many_hosts(address)
    offset = _HEADER.size + _ROUTE.size
    while kind == _RTM_NEWROUTE and offset + _ATTRIBUTE.size <= len(answer):
        length, name = _ATTRIBUTE.unpack_from(answer, offset)
        if name == _RTA_OIF:
            (index,) = struct.unpack_from("=i", answer, offset + _ATTRIBUTE.size)
            return int(index)
        offset += max(_ATTRIBUTE.size, (length + 3) & ~3)
    raise FabricError(
        f"destination {address}", "the kernel reports no interface for it"
    )


def _many_hosts(address: str) -> FabricError:
    return FabricError(
        f"destination {address}",
        "it is the broadcast address of a subnet, or another address of several hosts",
        "give each port the address of a single host",
    )


def check_route(address: str, *, source: str) -> None:
    """Refuse a destination that packets from *source* reach through ``lo``.

    A loopback address (127.0.0.0/8 or ::1) is accepted if *source* is also a loopback
    address.

    Raises:
        FabricError: If packets would go through ``lo``, if there is no route, or if
            *address* belongs to several hosts.
    """
    if ip_address(address).is_multicast:
        raise _many_hosts(address)
    interface = outgoing_interface(address)
    if ip_address(source).is_loopback and ip_address(address).is_loopback:
        return
    if interface == LOOPBACK_INDEX:
        raise FabricError(
            f"port at {source}",
            f"packets to {address} would go through lo, not through the network",
            "give each port its own network namespace (isolate: namespace)",
        )
