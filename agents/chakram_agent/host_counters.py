"""Counters of a host that show what disturbed a run: drops, throttling, stolen time.

Names of interface counters begin with the interface, as in ``ens1f0 rx_dropped``.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.fabric.labs.enter_namespace import run_in_namespace
from chakram.foundation import ethtool
from chakram.foundation.errors import ChakramError

if TYPE_CHECKING:
    from chakram.plan.port_plan import PortPlan


_NET_DEV = Path("/proc/thread-self/net/dev")
_SOFTNET = Path("/proc/net/softnet_stat")
_STAT = Path("/proc/stat")
_CPUS = Path("/sys/devices/system/cpu")
_FIELDS = {2: "rx_errors", 3: "rx_dropped", 4: "rx_fifo", 10: "tx_errors"} | {
    11: "tx_dropped",
    12: "tx_fifo",
}
"""Counters in /proc/net/dev, by index of the column after the interface name."""

_NOTABLE = re.compile(
    r"discard|drop|out_of_buffer|pause|pfc|xoff|ecn|cnp|crc|symbol_err|timeout|fifo"
)
_OF_DRIVER = " ethtool:"
_MOST_OF_DRIVER = 64
_MOST_GROWTH = 1 << 62
_STEAL = 8
_RTM_GETQDISC, _NLM_REQUEST_DUMP, _NLMSG_DONE, _NLMSG_ERROR = 38, 0x301, 3, 2
_TCA_STATS = 3
_TC_H_ROOT = 0xFFFF_FFFF
_HEADER = struct.Struct("=IHHII")
_TCMSG = struct.Struct("=BxxxiIII")


def read_host_counters(ports: Iterable[PortPlan]) -> dict[str, int]:
    """Return the counters of this host and of the interfaces that *ports* use.

    Counters that cannot be read are absent.
    """
    counts = {**softnet(), **processor()}
    places = dict.fromkeys((port.netns, port.interface) for port in ports)
    for netns, interface in places:
        if not interface:
            continue
        name = interface
        if sum(each == interface for _, each in places) > 1:
            name = f"{interface}@{Path(netns or 'host').name}"
        with suppress(ChakramError, OSError):
            found = (
                interface_counters(interface)
                if netns is None
                else run_in_namespace(netns, interface_counters, interface)
            )
            counts |= {f"{name} {counter}": each for counter, each in found.items()}
    return counts


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return the increase of counters, and gauges (``cpu_*_khz``) unchanged.

    Counters that decreased, or that report errors as huge 64-bit numbers, are left out.
    The number of driver counters per interface has a limit, because some drivers list
    the counters of a hundred rings before the counters of the port. Counters that
    increased take precedence.
    """
    found = {
        name: value if name.endswith("_khz") else value - before[name]
        for name, value in after.items()
        if name.endswith("_khz")
        or (name in before and 0 <= value - before[name] < _MOST_GROWTH)
    }
    room: Counter[str] = Counter()
    for name in sorted(found, key=lambda name: not found[name]):
        interface, is_driver, _ = name.partition(_OF_DRIVER)
        room[interface] += bool(is_driver)
        if is_driver and room[interface] > _MOST_OF_DRIVER:
            del found[name]
    return found


def interface_counters(interface: str) -> dict[str, int]:
    """Return the counters of an interface in the namespace of this thread."""
    found: dict[str, int] = {}
    for line in _lines(_NET_DEV):
        name, _, numbers = line.partition(":")
        if name.strip() == interface:
            values = numbers.split()
            found |= {word: int(values[at]) for at, word in _FIELDS.items()}
    with suppress(OSError):
        number = socket.if_nametoindex(interface)
        found["qdisc_dropped"] = qdisc_drops(number)
    return found | {
        f"ethtool:{name}": value
        for name, value in ethtool.statistics(interface).items()
        if _NOTABLE.search(name)
    }


def qdisc_drops(interface_number: int) -> int:
    """Return how many packets the queuing disciplines of an interface dropped.

    Raises:
        OSError: If the kernel refuses.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        link.settimeout(1.0)
        body = _TCMSG.pack(0, interface_number, 0, 0, 0)
        size = _HEADER.size + len(body)
        header = _HEADER.pack(size, _RTM_GETQDISC, _NLM_REQUEST_DUMP, 1, 0)
        link.sendto(header + body, (0, 0))
        drops = 0
        while True:
            data = link.recv(1 << 16)
            at = 0
            while at + _HEADER.size <= len(data):
                size, kind, *_ = _HEADER.unpack_from(data, at)
                if kind == _NLMSG_ERROR or size < _HEADER.size:
                    raise OSError("the kernel does not list queuing disciplines")
                if kind == _NLMSG_DONE:
                    return drops
                message = data[at + _HEADER.size : at + size]
                _, number, _, parent, _ = _TCMSG.unpack_from(message)
                # The count of a root includes the drops of its children.
                if number == interface_number and parent == _TC_H_ROOT:
                    drops += _drops_in(message[_TCMSG.size :])
                at += (size + 3) & ~3


def _drops_in(attributes: bytes) -> int:
    at = 0
    while at + 4 <= len(attributes):
        size, kind = struct.unpack_from("=HH", attributes, at)
        if size < 4:
            break
        if kind == _TCA_STATS:  # struct tc_stats: bytes, packets, drops
            return int(struct.unpack_from("=QII", attributes, at + 4)[2])
        at += (size + 3) & ~3
    return 0


def softnet() -> dict[str, int]:
    """Return the drops and time squeezes of the kernel's receive path."""
    rows = [
        [int(word, 16) for word in line.split()[:3]]
        for line in _lines(_SOFTNET)
        if len(line.split()) >= 3
    ]
    if not rows:
        return {}
    return {
        "softnet_dropped": sum(row[1] for row in rows),
        "softnet_squeezed": sum(row[2] for row in rows),
    }


def processor() -> dict[str, int]:
    """Return the stolen time, throttle counts and frequencies of the CPUs."""
    found: dict[str, int] = {}
    for line in _lines(_STAT)[:1]:
        words = line.split()
        if len(words) > _STEAL:
            ticks = os.sysconf("SC_CLK_TCK")
            found["cpu_steal_ms"] = int(words[_STEAL]) * 1000 // ticks
    throttled = [
        count
        for name in ("core_throttle_count", "package_throttle_count")
        for count in _throttled(name).values()
    ]
    if throttled:
        found["cpu_throttled"] = sum(throttled)
    # Idle CPUs reduce their frequency. Right after a run, the fastest CPU shows the
    # frequency during the run.
    for word, name in (("fastest", "scaling_cur_freq"), ("limit", "cpuinfo_max_freq")):
        values = _numbers(f"cpu[0-9]*/cpufreq/{name}")
        if values:
            found[f"cpu_{word}_khz"] = max(values)
    return found


def _throttled(name: str) -> dict[tuple[str, ...], int]:
    """Return how often each core or package was throttled.

    Every CPU of a core or package counts the same events. A CPU that was offline has
    counted fewer events, so the highest count is right.
    """
    parts = ["physical_package_id"]
    if name.startswith("core"):
        parts.append("core_id")
    found: dict[tuple[str, ...], int] = {}
    for path in _CPUS.glob(f"cpu[0-9]*/thermal_throttle/{name}"):
        place = path.parents[1] / "topology"
        with suppress(OSError, ValueError):
            key = tuple((place / part).read_text("ascii").strip() for part in parts)
            found[key] = max(found.get(key, 0), int(path.read_text("ascii")))
    return found


def _numbers(pattern: str) -> list[int]:
    found = []
    for path in _CPUS.glob(pattern):
        with suppress(OSError, ValueError):
            found.append(int(path.read_text("ascii")))
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("ascii", "replace").splitlines()
    except OSError:
        return []
