"""Does traffic to an address leave this machine at all?

Two ports of one machine that share a network namespace reach each other through
``lo``, whatever their interfaces are called, and the device under test never sees a
packet.  So external fabrics refuse such destinations.
"""

from __future__ import annotations

import ipaddress
import socket

from pyroute2.netlink import rtnl
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from chakram.errors import FabricError
from chakram.fabric.namespaces import LOOPBACK_INDEX
from chakram.fabric.netlink import NetlinkSocket
from chakram.fabric.netns import run_in_namespace

__all__ = ["routes_through_lo"]


def routes_through_lo(address: str, netns: str | None = None) -> bool:
    """Return whether packets to *address* would go through the loopback interface.

    Args:
        address: IPv4 or IPv6 address of a destination.
        netns: Path of the network namespace that asks; None for the caller's own.

    Raises:
        FabricError: If it is not an address, there is no such namespace, or no route.
        PrivilegeError: If the namespace may not be entered.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        raise FabricError(
            f"destination {address!r}", "it is not an IP address", "e.g. 198.18.0.1"
        ) from None
    if netns is None:
        return _ask(parsed)
    return run_in_namespace(netns, _ask, parsed)


def _ask(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    message = rtmsg()
    message["family"] = socket.AF_INET if address.version == 4 else socket.AF_INET6
    message["dst_len"] = address.max_prefixlen
    message["attrs"] = [("RTA_DST", str(address))]
    netlink = NetlinkSocket(f"destination {address}")
    try:
        route = netlink.get(message, rtnl.RTM_GETROUTE, "looking for a route")
    finally:
        netlink.close()
    return bool(route.get_attr("RTA_OIF") == LOOPBACK_INDEX)
