"""Network interfaces of a host, as its agent reports them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort:
    """A network interface of a host.

    Attributes:
        interface: Name of the interface.
        netns: Network namespace of the interface, or None for the agent's namespace.
        addresses: Addresses with prefix lengths, without link-local addresses.
        mtu: Largest IP packet, in bytes.
        is_up: Whether the interface is up and has a carrier.
        rate_bps: Speed of the link, or None if unknown.
        driver: Name of the driver. Empty if unknown.
        numa_node: NUMA node of the device. None if unknown, or if the host has only
            one.
        rdma_device: Name of the RDMA device. Empty if there is none.
    """

    interface: str
    netns: str | None
    addresses: tuple[str, ...]
    mtu: int
    is_up: bool
    rate_bps: int | None = None
    driver: str = ""
    numa_node: int | None = None
    rdma_device: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPorts:
    """All network interfaces of a host except loopback."""

    ports: tuple[HostPort, ...]
