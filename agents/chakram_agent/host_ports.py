"""The network interfaces of a host, which a controller may use as ports."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyroute2 import IPRoute

from chakram.fabric.inventory.reported_interfaces import HostPort
from chakram.fabric.labs.enter_namespace import run_in_namespace
from chakram.foundation import ethtool
from chakram.foundation.errors import ChakramError

if TYPE_CHECKING:
    from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg

NAMED_NAMESPACES = Path("/run/netns")
"""Folder in which ``ip netns`` keeps the names of network namespaces."""

_PCI = Path("/sys/bus/pci/devices")
_LOOPBACK, _UP = 0x8, 0x1  # IFF_* in linux/if.h
_LINK_SCOPE = 253  # RT_SCOPE_LINK
_GDRVINFO, _GLINKSETTINGS = 0x3, 0x4C  # ETHTOOL_* in linux/ethtool.h
_DRIVER_INFO = struct.Struct("=I32s64x32s64x")  # struct ethtool_drvinfo
_LINK_SETTINGS = struct.Struct("=II7xb32x")  # struct ethtool_link_settings
_MASK_WORDS = 127
_UNKNOWN_MBPS = 0xFFFFFFFF


def host_ports() -> tuple[HostPort, ...]:
    """Return the interfaces in the agent's namespace and in all named namespaces.

    Namespaces that the agent may not enter are left out.
    """
    found = list(_ports_here(None))
    names = sorted(NAMED_NAMESPACES.iterdir()) if NAMED_NAMESPACES.is_dir() else []
    own = Path("/proc/self/ns/net").stat().st_ino
    for path in names:
        try:
            if path.stat().st_ino != own:
                found += run_in_namespace(str(path), _ports_in, str(path))
        except (ChakramError, OSError):
            continue  # the agent may not enter, or the name has no namespace
    return tuple(found)


def _ports_in(netns: str) -> list[HostPort]:
    return list(_ports_here(netns))


def _ports_here(netns: str | None) -> Iterator[HostPort]:
    """Yield the interfaces of the calling thread's namespace."""
    addresses: dict[int, list[str]] = {}
    with IPRoute() as route:
        links = list(route.get_links())
        for each in route.get_addr():
            if each["scope"] < _LINK_SCOPE:
                addresses.setdefault(each["index"], []).append(address_of(each))
    for link in links:
        if link["flags"] & _LOOPBACK:
            continue
        name = link.get_attr("IFLA_IFNAME")
        driver, bus = _driver_of(name)
        device = _PCI / bus if bus else None
        yield HostPort(
            interface=name,
            netns=netns,
            addresses=tuple(addresses.get(link["index"], ())),
            mtu=link.get_attr("IFLA_MTU"),
            is_up=bool(link["flags"] & _UP and link.get_attr("IFLA_CARRIER")),
            rate_bps=_rate_of(name),
            driver=driver,
            numa_node=None if device is None else numa_node_of(device),
            rdma_device="" if device is None else rdma_device_of(device),
        )


def address_of(message: ifaddrmsg) -> str:
    """Return an address of an interface, with its prefix length.

    On a point-to-point link, IFA_ADDRESS is the address of the peer. IPv6 addresses
    without a peer have no IFA_LOCAL.
    """
    address = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
    return f"{address}/{message['prefixlen']}"


def numa_node_of(device: Path) -> int | None:
    """Return the NUMA node of a PCI device, or None if the host has only one."""
    try:
        node = int((device / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def rdma_device_of(device: Path) -> str:
    """Return the RDMA device of a PCI device, or an empty text if it has none."""
    try:
        return min(
            (each.name for each in (device / "infiniband").iterdir()), default=""
        )
    except OSError:
        return ""


def _driver_of(name: str) -> tuple[str, str]:
    """Return the driver and bus address of an interface, or empty texts if unknown."""
    answer = ethtool.ask(name, _DRIVER_INFO.pack(_GDRVINFO, b"", b""))
    if answer is None:
        return "", ""
    _, *both = _DRIVER_INFO.unpack_from(answer)
    driver, bus = (each.split(b"\0")[0].decode("ascii", "replace") for each in both)
    return driver, "" if "/" in bus else bus


def _rate_of(name: str) -> int | None:
    """Return the speed of an interface in bit/s, or None if it has no speed."""
    room = bytes(4 * 3 * _MASK_WORDS)
    words = 0
    # The first answer contains the size of the masks, as a negative number.
    for _ in range(2):
        answer = ethtool.ask(name, _LINK_SETTINGS.pack(_GLINKSETTINGS, 0, words) + room)
        if answer is None:
            return None
        _, mbps, words = _LINK_SETTINGS.unpack_from(answer)
        words = abs(words)
    return None if mbps in (0, _UNKNOWN_MBPS) else mbps * 10**6
