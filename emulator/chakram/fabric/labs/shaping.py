"""Shape link ends with HTB and a queue limited in bytes, and read the counters.

Labs use HTB instead of TBF. TBF segments or drops a burst of packets (one GSO packet to
the kernel) that exceeds its own burst size. With TBF, links reached only 37 % of their
rate. HTB sends the whole burst, and its number of tokens may become negative. The queue
is a bfifo, so that its limit is the same for single packets and bursts.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pyroute2.netlink import rtnl
from pyroute2.netlink.rtnl.tcmsg import plugins, sched_pfifo, tcmsg
from pyroute2.netlink.rtnl.tcmsg.common import calc_xmittime

from chakram.fabric.labs.built_lab import BuiltLab
from chakram.fabric.labs.link_counters import LinkCounters
from chakram.fabric.labs.netlink import ask
from chakram.fabric.labs.netlink_requests import Request, create, remove_queue
from chakram.topology.topology import (
    BUCKET_NS,
    HOST_BUCKET_NS,
    Link,
    PortRef,
    Topology,
    bucket_bytes,
)

if TYPE_CHECKING:
    from pyroute2 import AsyncIPRoute

ROOT_HANDLE = 0x0001_0000
CLASS_HANDLE = 0x0001_0001
LEAF_HANDLE = 0x0010_0000
ARRIVAL_HANDLE = 0xFFFF_0000
"""Handle of the ingress queue discipline, which does not queue packets."""

_TC_H_ROOT = 0xFFFF_FFFF
_LINKLAYER_ETHERNET = 1
# With one class per device, the quantum has no effect. This value only avoids the
# kernel's warnings about quanta that are too small or too large.
_QUANTUM_BYTES = 60_000

# A NIC does not drop its own host's packets, because send buffers limit the sockets.
# The queue behind the sockets therefore has room for many full send buffers.
_HOST_QUEUE_BYTES = 16 << 20
_NO_LIMIT_BYTES = 0x7FFF_FFFF
_LARGEST = 0xFFFF_FFFF
"""Maximum of a 32-bit field."""

# Like pfifo, bfifo has only one option, the limit. The limit of bfifo is in bytes.
plugins.setdefault("bfifo", sched_pfifo)


def shape(
    index: int, *, rate_bps: int, limit_bytes: int, bucket_ns: int = BUCKET_NS
) -> list[Request]:
    """Return the requests that limit the egress of an interface.

    Args:
        index: Number of the interface.
        rate_bps: Rate in layer-2 bits per second.
        limit_bytes: Queue limit in bytes, beyond which packets are dropped.
        bucket_ns: Idle time for which a port accumulates unused rate.
    """
    return [
        _for_interface(request, index)
        for request in (_root(), _class(rate_bps, bucket_ns), _leaf(limit_bytes))
    ]


def shape_end(index: int, link: Link, *, rate_bps: int, is_host: bool) -> list[Request]:
    """Return the requests that limit the rate of one end of a lab link."""
    limit = link.queue_bytes or _NO_LIMIT_BYTES
    if not is_host:
        return shape(index, rate_bps=rate_bps, limit_bytes=limit)
    return shape(
        index,
        rate_bps=rate_bps,
        limit_bytes=max(limit, _HOST_QUEUE_BYTES),
        bucket_ns=HOST_BUCKET_NS,
    )


def reshape(index: int, *, rate_bps: int, is_host: bool) -> Request:
    """Return the request that changes the rate of a shaped end."""
    bucket_ns = HOST_BUCKET_NS if is_host else BUCKET_NS
    return _for_interface(_class(rate_bps, bucket_ns, replace=True), index)


def unshape(index: int) -> Request:
    """Return the request that removes the rate limit of an interface."""
    return remove_queue(index, parent=_TC_H_ROOT, what="htb queue discipline")


def _for_interface(request: Request, index: int) -> Request:
    # struct tcmsg follows the 16 bytes of nlmsghdr: family and padding (4 bytes), then
    # the number of the interface.
    data = bytearray(request.data)
    struct.pack_into("=i", data, 20, index)
    return Request(bytes(data), request.what)


@lru_cache(maxsize=1)
def _root() -> Request:
    message = tcmsg()
    message["handle"] = ROOT_HANDLE
    message["parent"] = _TC_H_ROOT
    init = {
        "version": 3,
        "rate2quantum": 10,
        "defcls": CLASS_HANDLE & 0xFFFF,
        "debug": 0,
        "direct_pkts": 0,
    }
    options = {"attrs": [("TCA_HTB_INIT", init)]}
    message["attrs"] = [("TCA_KIND", "htb"), ("TCA_OPTIONS", options)]
    return create(message, rtnl.RTM_NEWQDISC, "htb queue discipline")


@lru_cache(maxsize=64)
def _class(rate_bps: int, bucket_ns: int, *, replace: bool = False) -> Request:
    rate = max(1, rate_bps // 8)
    # At rates below 440 bit/s, the duration of the bucket exceeds the maximum of the
    # field.
    ticks = min(
        calc_xmittime(rate, bucket_bytes(rate_bps, bucket_ns=bucket_ns)), _LARGEST
    )
    # The kernel reads 64-bit rates from separate attributes, and then requires a
    # saturated 32-bit field.
    field = min(rate, _LARGEST)
    values = {
        "rate": field,
        "ceil": field,
        "buffer": ticks,
        "cbuffer": ticks,
        "quantum": _QUANTUM_BYTES,
        # pyroute2 calls the link layer "reserved". With Ethernet the kernel computes
        # transmission times itself and needs no table of 256 entries.
        "rate___reserved": _LINKLAYER_ETHERNET,
        "ceil___reserved": _LINKLAYER_ETHERNET,
    }
    attributes: list[tuple[str, object]] = [("TCA_HTB_PARMS", values)]
    if rate > field:
        attributes += [("TCA_HTB_RATE64", rate), ("TCA_HTB_CEIL64", rate)]
    message = tcmsg()
    message["handle"] = CLASS_HANDLE
    message["parent"] = ROOT_HANDLE
    message["attrs"] = [("TCA_KIND", "htb"), ("TCA_OPTIONS", {"attrs": attributes})]
    what = f"htb class of {rate_bps} bit/s"
    return create(message, rtnl.RTM_NEWTCLASS, what, replace=replace)


@lru_cache(maxsize=64)
def _leaf(limit_bytes: int) -> Request:
    message = tcmsg()
    message["handle"] = LEAF_HANDLE
    message["parent"] = CLASS_HANDLE
    message["attrs"] = [
        ("TCA_KIND", "bfifo"),
        ("TCA_OPTIONS", {"limit": min(limit_bytes, 0x7FFF_FFFF)}),
    ]
    return create(message, rtnl.RTM_NEWQDISC, f"bfifo queue of {limit_bytes} bytes")


@dataclass(slots=True)
class _Sent:
    """Counts of packets sent, dropped, and lost to link faults at one interface."""

    bytes: int = 0
    packets: int = 0
    drops: int = 0
    lost: int = 0


def count_links(lab: BuiltLab, topology: Topology) -> dict[str, LinkCounters]:
    """Return the counters of every link that was built, by link name."""
    sockets = [each.netlink for each in lab.namespaces.values()]
    counted = ask(sockets, _read, "reading its counters")
    sent = dict(zip(lab.namespaces, counted, strict=True))

    def at(end: PortRef) -> _Sent:
        port = lab.ports[end]
        return sent[port.namespace][port.index]

    return {
        link.name: LinkCounters(
            tx_bytes=at(link.a).bytes,
            tx_packets=at(link.a).packets,
            tx_drops=at(link.a).drops + at(link.b).lost,
            rx_bytes=at(link.b).bytes,
            rx_packets=at(link.b).packets,
            rx_drops=at(link.b).drops + at(link.a).lost,
        )
        for link in topology.links
        if link.a in lab.ports
    }


async def _read(route: AsyncIPRoute) -> dict[int, _Sent]:
    found: dict[int, _Sent] = {}
    async for link in await route.link("dump"):
        stats = link.get_attr("IFLA_STATS64")
        found[link["index"]] = _Sent(
            stats["tx_bytes"], stats["tx_packets"], stats["tx_dropped"]
        )
    async for queue in await route.tc("dump"):
        stats = queue.get_attr("TCA_STATS2")
        if queue["handle"] == ROOT_HANDLE:
            basic = stats.get_attr("TCA_STATS_BASIC")
            found[queue["index"]].bytes = basic["bytes"]
            found[queue["index"]].packets = basic["packets"]
        elif queue["handle"] == LEAF_HANDLE:
            found[queue["index"]].drops = stats.get_attr("TCA_STATS_QUEUE")["drops"]
        elif queue["handle"] == ARRIVAL_HANDLE:
            found[queue["index"]].lost = stats.get_attr("TCA_STATS_QUEUE")["drops"]
    return found
