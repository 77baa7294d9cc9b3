"""Reading the counters of a lab's links from inside its namespaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.fabric.counters import LinkCounters
from chakram.fabric.netlink import ask
from chakram.fabric.shaping import ARRIVAL_HANDLE, LEAF_HANDLE, ROOT_HANDLE

if TYPE_CHECKING:
    from pyroute2 import AsyncIPRoute

    from chakram.fabric.builder import BuiltLab
    from chakram.fabric.topology import PortRef, Topology


@dataclass(slots=True)
class _Sent:
    """What left through one interface, and what faults dropped that came by it."""

    bytes: int = 0
    packets: int = 0
    drops: int = 0
    lost: int = 0


def count_links(lab: BuiltLab, topology: Topology) -> dict[str, LinkCounters]:
    """Return the counters of every link that was built, by its name."""
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
