"""Reader for the settings of RDMA NICs that affect their traffic.

Sources: sysfs of RDMA devices, and iproute2's ``dcb`` program for priority flow
control. For mlx5, also the sysfs files of NVIDIA's drivers (``ecn``, ``tc``) and
debugfs (``cc_params``), which need root. A setting that cannot be read is absent.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from ipaddress import IPv6Address
from pathlib import Path

from chakram.foundation.command_output import command_output
from chakram.rdma.hardware_counters import SYSFS

_NET = Path("/sys/class/net")
_DEBUG = Path("/sys/kernel/debug/mlx5")
_output = partial(command_output, timeout_s=2.0)


def nic_settings(
    device: str,
    gid_index: int,
    *,
    sysfs: Path = SYSFS,
    net: Path = _NET,
    debug: Path = _DEBUG,
    output: Callable[[list[str]], bytes] = _output,
) -> dict[str, str]:
    """Return the settings of a device, by name.

    Args:
        device: Name of the device.
        gid_index: Index of the address that the queue pairs use.
        sysfs: Folder with the RDMA devices.
        net: Folder with the network interfaces.
        debug: Folder with the debugging files of mlx5.
        output: Function that returns the output of a command, or nothing if it fails.
    """
    port = sysfs / device / "ports" / "1"
    interface = _text(port / "gid_attrs" / "ndevs" / str(gid_index))
    found = {
        "memlock": _memlock(),
        "driver": _link(sysfs / device / "device" / "driver"),
        "interface": interface,
        "default_traffic_class": _text(sysfs / device / "tc" / "1" / "traffic_class"),
    }
    if interface:
        found["mtu"] = _text(net / interface / "mtu")
        found["pfc"] = _pfc(output(["dcb", "-j", "pfc", "show", "dev", interface]))
        found |= dict(_numbers(net / interface / "ecn" / "roce_np", "np"))
        found |= dict(_numbers(net / interface / "ecn" / "roce_rp", "rp"))
    pci = _link(sysfs / device / "device")
    if pci:
        found |= dict(_numbers(debug / pci / "cc_params", "cc"))
    return {name: text for name, text in found.items() if text}


def gids_of(device: str, sysfs: Path = SYSFS) -> list[tuple[int, str, str, str]]:
    """Return the index, address, type and interface of each entry of the GID table."""
    port = sysfs / device / "ports" / "1"
    found = []
    with suppress(OSError):
        for path in sorted((port / "gids").iterdir(), key=lambda each: int(each.name)):
            address = _text(path)
            kind = _text(port / "gid_attrs" / "types" / path.name)
            if kind and address.strip("0:"):
                with suppress(ValueError):
                    parsed = IPv6Address(address)
                    address = str(parsed.ipv4_mapped or parsed)
                interface = _text(port / "gid_attrs" / "ndevs" / path.name)
                found.append((int(path.name), address, kind, interface))
    return found


def _memlock() -> str:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit} B"


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return path.resolve(strict=True).name
    except OSError:
        return ""


def _numbers(folder: Path, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield each file in a folder with its text, and each subfolder with all texts."""
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return
    for path in paths:
        if path.is_dir():
            values = [_text(each) for each in sorted(path.iterdir())]
            yield f"{prefix}.{path.name}", " ".join(values)
        else:
            yield f"{prefix}.{path.name}", _text(path)


def _pfc(shown: bytes) -> str:
    """Return the priorities with priority flow control from the output of ``dcb``."""
    try:
        state = json.loads(shown)["prio_pfc"]
    except (ValueError, KeyError, TypeError):
        return ""
    if not isinstance(state, list):
        return ""
    return " ".join(str(at) for at, is_on in enumerate(state) if is_on) or "off"
