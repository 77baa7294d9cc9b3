"""Probes of the capabilities of this kernel, machine and user.

The probes try each capability, because version numbers and names do not prove that it
works. Kernel probes run in namespaces of a separate process. Everything that they
create disappears with that process.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from chakram import _compiled
from chakram.fabric.labs.user_namespace import has_net_admin

LAB_PROBES = ("namespaces", "veth", "bridge", "htb", "bfifo")
"""Names of the probes that namespace labs require."""

_CHILD_TIMEOUT_S = 10

_SOL_UDP = 17
_UDP_SEGMENT = 103
_UDP_GRO = 104
_SO_RCVBUFFORCE = 33
# Default of net.core.rmem_max in a stock kernel. It is enough for the windows of a few
# senders.
_USUAL_RMEM_MAX_BYTES = 212_992


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Result of one probe.

    Attributes:
        name: Short, stable name.
        ok: Whether the capability works.
        reason: The finding as a clause. If the capability does not work, the clause
            includes the consequence.
        needed: Whether labs or runs require the capability.
    """

    name: str
    ok: bool
    reason: str
    needed: bool = False


def probe_all() -> list[Probe]:
    """Run all probes. Return their results, most important first, in under a second."""
    return [
        _probe_user(),
        *probe_kernel(),
        _probe_gso(),
        _tried(
            "udp-gro",
            _receive_bursts,
            works="one call receives a burst of packets",
            lacks="every packet needs its own receive call",
        ),
        _probe_receive_buffer(),
        _tried(
            "rcvbuf-force",
            lambda: _granted_buffer(_SO_RCVBUFFORCE, 1 << 22),
            works="buffers may exceed net.core.rmem_max",
            lacks="buffers stay within net.core.rmem_max",
        ),
        _tried(
            "ipv6",
            _bind_ipv6,
            works="fabrics can use addressing: ipv6",
            lacks="fabrics cannot use addressing: ipv6",
        ),
        _probe_compiled(),
        _probe_compiler(),
        _probe_cores(),
        _probe_program("tshark", "captures cannot be decoded"),
        _probe_program("prometheus", "metrics are served, but not stored here"),
        _probe_rdma(),
        probe_steering(),
    ]


@lru_cache(maxsize=1)
def probe_kernel() -> tuple[Probe, ...]:
    """Probe namespaces, devices and queue disciplines, and return the results."""
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-m", "chakram.fabric.kernel_probe_process"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_CHILD_TIMEOUT_S,
            check=False,
        )
        found = json.loads(child.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        reason = f"the probing process did not answer ({error})"
        return tuple(
            Probe(name=name, ok=False, reason=reason, needed=True)
            for name in LAB_PROBES
        )
    return tuple(
        Probe(name=name, ok=ok, reason=reason, needed=name in LAB_PROBES)
        for name, ok, reason in found
    )


def _probe_user() -> Probe:
    reason = f"user {os.geteuid()}: labs run in a user namespace"
    if has_net_admin():
        reason = "root, with the privileges of root"
    return Probe(name="user", ok=True, reason=reason)


def _udp_pair() -> tuple[socket.socket, socket.socket]:
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    receiver.settimeout(1)
    return sender, receiver


def _tried(name: str, act: Callable[[], object], *, works: str, lacks: str) -> Probe:
    """Try an action, and return the result. *lacks* is the consequence of a failure."""
    try:
        act()
    except OSError as error:
        return Probe(name=name, ok=False, reason=f"{error.strerror}: {lacks}")
    return Probe(name=name, ok=True, reason=works)


def _probe_gso() -> Probe:
    sent: list[int] = []

    def send() -> None:
        sender, receiver = _udp_pair()
        with sender, receiver:
            size = [(_SOL_UDP, _UDP_SEGMENT, struct.pack("=H", 100))]
            sender.sendmsg([bytes(200)], size, 0, receiver.getsockname())
            sent.append(len(receiver.recv(1000)))

    probe = _tried(
        "udp-gso",
        send,
        works="one call sends a burst of packets",
        lacks="every packet needs its own send call, about 0.3 M/s",
    )
    return replace(probe, ok=probe.ok and sent == [100])


def _receive_bursts() -> None:
    sender, receiver = _udp_pair()
    with sender, receiver:
        receiver.setsockopt(_SOL_UDP, _UDP_GRO, 1)


def _bind_ipv6() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        probe.bind(("::1", 0))


def _probe_receive_buffer() -> Probe:
    try:
        limit = int(Path("/proc/sys/net/core/rmem_max").read_text("ascii"))
    except (OSError, ValueError):
        # A container may hide the setting, but the buffer that a socket gets reveals
        # it.
        limit = _granted_buffer(socket.SO_RCVBUF, 1 << 30) // 2
    enough = limit > _USUAL_RMEM_MAX_BYTES
    return Probe(
        name="rmem-max",
        ok=enough,
        reason=f"sockets may buffer {limit} bytes"
        + ("" if enough else ": raise sysctl net.core.rmem_max, or keep windows small"),
    )


def _granted_buffer(option: int, wanted: int) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, option, wanted)
        return probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def _probe_compiled() -> Probe:
    status = _compiled.status()
    plain = [name for name, form in status.modules.items() if form != "compiled"]
    if not status.modules:
        reason = "there are no modules to compile"
    elif plain:
        reason = (
            f"{len(plain)} of {len(status.modules)} hot modules run as plain Python "
            f"({plain[0]}: {status.modules[plain[0]]}): slower, but correct; in a "
            "checkout, run make build"
        )
    else:
        reason = f"all {len(status.modules)} hot modules"
    return Probe(name="compiled", ok=status.is_compiled(), reason=reason)


def _probe_compiler() -> Probe:
    path = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    reason = path or "none found: hot modules cannot be compiled"
    return Probe(name="compiler", ok=path is not None, reason=reason)


def _probe_cores() -> Probe:
    cores = len(os.sched_getaffinity(0))
    return Probe(
        name="cores",
        ok=cores > 1,
        reason=f"{cores} usable"
        + (
            ""
            if cores > 1
            else ": the data plane shares its core with all other processes"
        ),
    )


def _probe_program(name: str, without: str) -> Probe:
    path = shutil.which(name)
    return Probe(
        name=name, ok=path is not None, reason=path or f"not installed: {without}"
    )


def _probe_rdma() -> Probe:
    directory = Path("/sys/class/infiniband")
    devices = (
        sorted(each.name for each in directory.iterdir()) if directory.is_dir() else []
    )
    return Probe(
        name="rdma",
        ok=bool(devices),
        reason=", ".join(devices) or "no RDMA device: ports use sockets",
    )


def probe_steering(devices: Path = Path("/sys/class/infiniband")) -> Probe:
    """Probe whether NICs intercept packets to the RoCE UDP port.

    NICs with the driver `mlx5_core` do so while RoCE is enabled: packets to port 4791
    never reach a socket. The GID types of a NIC show whether RoCE is enabled.

    Args:
        devices: Directory with a link for each RDMA device.
    """
    takers = {
        (each / "device").resolve().name: each.name
        for each in (sorted(devices.iterdir()) if devices.is_dir() else ())
        if (each / "device" / "driver").resolve().name == "mlx5_core"
        and "RoCE v2" in _gid_types(each)
    }
    if not takers:
        return Probe(
            name="udp-4791",
            ok=True,
            reason="no NIC takes the packets to RoCE's UDP port away from sockets",
        )
    bus = min(takers)
    more = ", and do the same for the other devices" if len(takers) > 1 else ""
    return Probe(
        name="udp-4791",
        ok=False,
        reason=(
            f"{', '.join(sorted(takers.values()))}: RoCE is enabled, so sockets "
            "receive nothing on this UDP port: set another udp_port in the experiment, "
            f"or run devlink dev param set pci/{bus} name enable_roce value false "
            f"cmode driverinit, then devlink dev reload pci/{bus}{more}"
        ),
    )


def _gid_types(device: Path) -> set[str]:
    """Return the GID types of an RDMA device, without unused GIDs."""
    found = set()
    for entry in device.glob("ports/*/gid_attrs/types/*"):
        try:
            found.add(entry.read_text("ascii").strip())
        except (OSError, ValueError):
            continue
    return found
