"""Reading the counters of a lab's links from inside its namespaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyroute2.netlink import rtnl
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from chakram.fabric.counters import LinkCounters
from chakram.fabric.shaping import LEAF_HANDLE, ROOT_HANDLE

if TYPE_CHECKING:
    from chakram.fabric.builder import BuiltLab
    from chakram.fabric.namespaces import Namespace
    from chakram.fabric.topology import PortRef, Topology

__all__ = ["count_links"]


@dataclass(slots=True)
class _Sent:
    """What left through one interface."""

    bytes: int = 0
    packets: int = 0
    drops: int = 0


def count_links(lab: BuiltLab, topology: Topology) -> dict[str, LinkCounters]:
    """Return the counters of every link that was built, by its name."""
    sent = {name: _read(each) for name, each in lab.namespaces.items()}

    def at(end: PortRef) -> _Sent:
        port = lab.ports[end]
        return sent[port.namespace][port.index]

    return {
        link.name: LinkCounters(
            tx_bytes=at(link.a).bytes,
            tx_packets=at(link.a).packets,
            tx_drops=at(link.a).drops,
            rx_bytes=at(link.b).bytes,
            rx_packets=at(link.b).packets,
            rx_drops=at(link.b).drops,
        )
        for link in topology.links
        if link.a in lab.ports
    }


def _read(namespace: Namespace) -> dict[int, _Sent]:
    found: dict[int, _Sent] = {}
    for link in namespace.netlink.dump(ifinfmsg(), rtnl.RTM_GETLINK):
        stats = link.get_attr("IFLA_STATS64")
        found[link["index"]] = _Sent(
            stats["tx_bytes"], stats["tx_packets"], stats["tx_dropped"]
        )
    for queue in namespace.netlink.dump(tcmsg(), rtnl.RTM_GETQDISC):
        stats = queue.get_attr("TCA_STATS2")
        if queue["handle"] == ROOT_HANDLE:
            basic = stats.get_attr("TCA_STATS_BASIC")
            found[queue["index"]].bytes = basic["bytes"]
            found[queue["index"]].packets = basic["packets"]
        elif queue["handle"] == LEAF_HANDLE:
            found[queue["index"]].drops = stats.get_attr("TCA_STATS_QUEUE")["drops"]
    return found
