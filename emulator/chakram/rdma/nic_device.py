"""Selection of an RDMA device, with the address, MTU and rate to use."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.foundation.errors import ConfigError, EnvironmentProblem
from chakram.rdma.hardware_counters import SYSFS

if TYPE_CHECKING:
    from chakram.rdma.libibverbs import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """An RDMA device to test.

    Attributes:
        name: Name of the device.
        address: Address that the queue pairs use. It is in the device's GID table.
        gid_index: Index of the address in the GID table. The entry has type RoCE v2.
        path_mtu: Maximum payload of a packet.
        rate_bps: Rate of the port in bit/s, or None if unknown.
        firmware: Version of the firmware.
    """

    name: str
    address: str
    gid_index: int
    path_mtu: int
    rate_bps: int | None
    firmware: str


def open_device(name: str) -> Device:
    """Return an open RDMA device.

    Raises:
        ConfigError: If there is no such device.
        EnvironmentProblem: If libibverbs is missing, or the device cannot be opened.
    """
    try:
        from chakram.rdma.libibverbs import Device, device_names
    except ImportError as error:
        raise EnvironmentProblem(
            f"RDMA device {name}",
            f"libibverbs cannot be used: {error}",
            "install libibverbs1 and ibverbs-providers; to build from source, install "
            "libibverbs-dev and run make build",
        ) from None
    try:
        return Device(name)
    except LookupError:
        known = ", ".join(device_names()) or "none"
        raise ConfigError(
            f"RDMA device {name}", "does not exist", f"devices of this host: {known}"
        ) from None
    except OSError as error:
        raise EnvironmentProblem(
            f"RDMA device {name}",
            str(error),
            "check /dev/infiniband and its permissions",
        ) from None


def find_nic(device: Device, address: str | None, sysfs: Path = SYSFS) -> Nic:
    """Return the address from the GID table, the MTU and the rate to use for a device.

    Args:
        device: The open device.
        address: Address to use. If None, use the first address that is not link-local.
        sysfs: Folder with the devices of the host.

    Raises:
        ConfigError: If the device is InfiniBand, its port is not active, or its GID
            table has no usable address.
    """
    if not device.is_ethernet:
        raise ConfigError(
            f"RDMA device {device.name}", "is InfiniBand", "name a device for RoCE"
        )
    if not device.is_active:
        raise ConfigError(
            f"RDMA device {device.name}",
            "its port is not active",
            "check cable and interface: rdma link show",
        )
    try:
        wanted = str(ip_address(address)) if address else None
    except ValueError:
        raise ConfigError(
            "--address", f"{address!r} is not an IP address", "e.g. 198.18.0.1"
        ) from None
    usable = {
        index: each
        for index, each in device.gids().items()
        if _is_version_2(sysfs / device.name, index)
    }
    chosen = next(
        (
            index
            for index, each in usable.items()
            if (each == wanted if wanted else not each.startswith("fe80:"))
        ),
        None,
    )
    if chosen is None:
        raise ConfigError(
            f"RDMA device {device.name}",
            f"has no GID of type RoCE v2 for {address or 'a global address'}",
            f"its addresses are: {', '.join(usable.values()) or 'none'}",
        )
    return Nic(
        name=device.name,
        address=usable[chosen],
        gid_index=chosen,
        path_mtu=device.path_mtu,
        rate_bps=_rate_of(sysfs / device.name),
        firmware=device.firmware,
    )


def huge_page_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return the size of this machine's huge pages.

    Raises:
        EnvironmentProblem: If the kernel does not support huge pages.
    """
    found = re.search(r"^Hugepagesize: +(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    if found is None:
        raise EnvironmentProblem("huge pages", "this kernel has none")
    return int(found[1]) * 1024


def _is_version_2(device: Path, index: int) -> bool:
    try:
        kind = (device / "ports/1/gid_attrs/types" / str(index)).read_text()
    except OSError:
        return False
    return kind.strip() == "RoCE v2"


def _rate_of(device: Path) -> int | None:
    """Return the rate of the first port from a sysfs text like ``100 Gb/sec (4X)``."""
    with suppress(OSError):
        found = re.match(r"([\d.]+) Gb/sec", (device / "ports/1/rate").read_text())
        if found is not None:
            return round(float(found[1]) * 1e9)
    return None
