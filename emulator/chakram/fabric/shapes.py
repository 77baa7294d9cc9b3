"""The usual shapes of fabrics, made from a few numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.errors import FabricError
from chakram.fabric.topology import (
    HOST_INTERFACE,
    EcnThresholds,
    Link,
    PortRef,
    Topology,
)
from chakram.fabric.topology_check import check_link

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "checked",
    "clos",
    "host_names",
    "require_positive",
    "single_switch",
    "switch_names",
]


def single_switch(
    nhosts: int,
    host_rate_bps: int | None,
    *,
    host_delay_ns: int = 0,
    host_queue_bytes: int | None = None,
    host_ecn: EcnThresholds | None = None,
    names: Sequence[str] | None = None,
) -> Topology:
    """Return *nhosts* hosts ``h0``, ``h1``, ... on one switch ``s0``.

    Args:
        nhosts: How many.
        host_rate_bps: Of the link of each, as the next three.
        host_delay_ns: See there.
        host_queue_bytes: See there.
        host_ecn: See there.
        names: What the hosts are called instead; no two alike.

    Raises:
        FabricError: If there is no host, not as many as names, or a link's values are
            impossible.
    """
    require_positive("nhosts", nhosts)
    hosts = host_names(nhosts, names)
    (switch,) = switch_names(["s0"], hosts)
    return checked(
        Topology(
            hosts=hosts,
            switches=(switch,),
            links=tuple(
                _host_link(
                    host,
                    number,
                    switch,
                    host_rate_bps,
                    host_delay_ns,
                    host_queue_bytes,
                    host_ecn,
                )
                for number, host in enumerate(hosts)
            ),
        )
    )


def clos(
    leaves: int,
    spines: int,
    hosts_per_leaf: int,
    host_rate_bps: int | None,
    uplink_rate_bps: int | None,
    *,
    host_delay_ns: int = 0,
    uplink_delay_ns: int = 0,
    host_queue_bytes: int | None = None,
    uplink_queue_bytes: int | None = None,
    host_ecn: EcnThresholds | None = None,
    uplink_ecn: EcnThresholds | None = None,
    names: Sequence[str] | None = None,
) -> Topology:
    """Return a two-tier leaf-spine fabric: every leaf has one link to every spine.

    Hosts are numbered leaf by leaf: ``h0`` ... on ``leaf0``, the next
    *hosts_per_leaf* on ``leaf1``. *names* are what they are called instead; no two
    alike.

    Raises:
        FabricError: If a count is not positive, there are not as many hosts as names,
            or a link's values are impossible.
    """
    require_positive("leaves", leaves)
    require_positive("spines", spines)
    require_positive("hosts_per_leaf", hosts_per_leaf)
    hosts = host_names(leaves * hosts_per_leaf, names)
    leaf_names = switch_names([f"leaf{number}" for number in range(leaves)], hosts)
    spine_names = switch_names([f"spine{number}" for number in range(spines)], hosts)
    host_links = [
        _host_link(
            host,
            number,
            leaf_names[number // hosts_per_leaf],
            host_rate_bps,
            host_delay_ns,
            host_queue_bytes,
            host_ecn,
        )
        for number, host in enumerate(hosts)
    ]
    uplinks = [
        Link(
            a=PortRef(node=leaf_name, port=f"up{spine}"),
            b=PortRef(node=spine_name, port=f"down{leaf}"),
            rate_bps=uplink_rate_bps,
            delay_ns=uplink_delay_ns,
            queue_bytes=uplink_queue_bytes,
            ecn=uplink_ecn,
            name=f"{leaf_name}-{spine_name}",
        )
        for leaf, leaf_name in enumerate(leaf_names)
        for spine, spine_name in enumerate(spine_names)
    ]
    return checked(
        Topology(
            hosts=hosts,
            switches=(*leaf_names, *spine_names),
            links=(*host_links, *uplinks),
        )
    )


def host_names(nhosts: int, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return what hosts are called: as they are, or by their numbers."""
    if names is None:
        return tuple(f"h{number}" for number in range(nhosts))
    if len(names) != nhosts:
        raise FabricError(
            "topology",
            f"has {nhosts} hosts, but there are {len(names)} ports",
            "every port is one host of the topology, in order",
        )
    return tuple(names)


def switch_names(names: list[str], hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return what switches are called, none of them like a host."""
    taken = frozenset(hosts)
    while not taken.isdisjoint(names):
        names = [f"switch-{name}" for name in names]
    return tuple(names)


def _host_link(
    host: str,
    number: int,
    switch: str,
    rate_bps: int | None,
    delay_ns: int,
    queue_bytes: int | None,
    ecn: EcnThresholds | None,
) -> Link:
    return Link(
        a=PortRef(node=host, port=HOST_INTERFACE),
        b=PortRef(node=switch, port=f"h{number}"),
        rate_bps=rate_bps,
        delay_ns=delay_ns,
        queue_bytes=queue_bytes,
        ecn=ecn,
        name=f"{host}-{switch}",
    )


def require_positive(name: str, value: int) -> None:
    """Refuse a count that is not positive."""
    if value <= 0:
        raise FabricError(
            "topology", f"{name} is {value}", "a fabric has at least one of each"
        )


def checked(topology: Topology) -> Topology:
    """Return *topology*, or refuse it for the values of its links."""
    # The builders make sound shapes; only the links' values can be wrong, and those
    # are the same on all links of a kind, so the first problem says it all.
    nodes = frozenset((*topology.hosts, *topology.switches))
    for link in topology.links:
        for problem in check_link(link, nodes, frozenset()):
            raise FabricError("topology", problem, "see the fabric's links section")
    return topology
