"""Comparison of the ports in an inventory with the actual interfaces of the hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import ip_interface
from typing import TYPE_CHECKING

from chakram.plan.port_plan import interface_of

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

    from chakram.fabric.fabric_types.inventory_file import HostSettings, PortDefaults
    from chakram.fabric.inventory.reported_interfaces import HostPort


def check_ports(
    host: HostSettings, found: Sequence[HostPort], defaults: PortDefaults
) -> Iterator[str]:
    """Yield the differences between a host's interfaces and its inventory ports.

    Args:
        host: Host in the inventory.
        found: Interfaces found on the host.
        defaults: Port defaults of the inventory.
    """
    for port in host.ports:
        kind, name = port.open.partition(":")[0], interface_of(port.open)
        netns = None if port.netns is None else str(port.netns)
        place = name if netns is None else f"{name} in {netns}"
        here = [each for each in found if each.netns == netns]
        if kind == "verbs":
            matching = _of_device(name, port.address.ip, here)
        else:
            matching = [each for each in here if each.interface == name]
        if not matching:
            what = "interface has this RDMA device" if kind == "verbs" else ""
            yield f"{place}: no {what or 'such interface'}"
            continue
        actual = matching[0]
        if not actual.is_up:
            yield f"{place}: is down, or has no carrier"
        addresses = {ip_interface(each) for each in actual.addresses}
        if port.address.ip not in {each.ip for each in addresses}:
            has = " ".join(actual.addresses) or "no address"
            yield f"{place}: does not have {port.address}; it has {has}"
        elif port.address not in addresses:
            has = " ".join(actual.addresses)
            yield f"{place}: has {has} instead of {port.address}"
        mtu = port.mtu or defaults.mtu
        if actual.mtu < mtu:
            yield f"{place}: has MTU {actual.mtu}, the inventory {mtu}"
        rate_bps = port.rate_bps or defaults.rate_bps
        if rate_bps and actual.rate_bps and rate_bps > actual.rate_bps:
            yield (
                f"{place}: runs at {actual.rate_bps / 1e9:g} Gbit/s, less than the "
                f"{rate_bps / 1e9:g} Gbit/s in the inventory"
            )


def _of_device(
    device: str, address: IPv4Address | IPv6Address, found: Sequence[HostPort]
) -> list[HostPort]:
    """Return the interfaces that may belong to an RDMA device.

    If any of these interfaces has the address, the others are omitted. The RDMA device
    of bonds, VLANs and software devices is unknown, so they match only by address.
    """
    possible = [each for each in found if each.rdma_device in (device, "")]
    having = [
        each
        for each in possible
        if address in {ip_interface(text).ip for text in each.addresses}
    ]
    return having or [each for each in possible if each.rdma_device]
