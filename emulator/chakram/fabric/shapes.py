"""The usual shapes of fabrics, made from a few numbers."""

from __future__ import annotations

from chakram.errors import FabricError
from chakram.fabric.topology import (
    HOST_INTERFACE,
    EcnThresholds,
    Link,
    PortRef,
    Topology,
)
from chakram.fabric.topology_check import check_link

__all__ = ["clos", "single_switch"]


def single_switch(
    nhosts: int,
    host_rate_bps: int | None,
    *,
    host_delay_ns: int = 0,
    host_queue_bytes: int | None = None,
    host_ecn: EcnThresholds | None = None,
) -> Topology:
    """Return *nhosts* hosts ``h0``, ``h1``, ... on one switch ``s0``.

    Raises:
        FabricError: If there is no host, or a link's values are impossible.
    """
    _require_positive("nhosts", nhosts)
    return _checked(
        Topology(
            hosts=tuple(f"h{number}" for number in range(nhosts)),
            switches=("s0",),
            links=tuple(
                _host_link(
                    number,
                    "s0",
                    host_rate_bps,
                    host_delay_ns,
                    host_queue_bytes,
                    host_ecn,
                )
                for number in range(nhosts)
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
) -> Topology:
    """Return a two-tier leaf-spine fabric: every leaf has one link to every spine.

    Hosts are numbered leaf by leaf: ``h0`` ... on ``leaf0``, the next
    *hosts_per_leaf* on ``leaf1``.

    Raises:
        FabricError: If a count is not positive, or a link's values are impossible.
    """
    _require_positive("leaves", leaves)
    _require_positive("spines", spines)
    _require_positive("hosts_per_leaf", hosts_per_leaf)
    nhosts = leaves * hosts_per_leaf
    host_links = [
        _host_link(
            number,
            f"leaf{number // hosts_per_leaf}",
            host_rate_bps,
            host_delay_ns,
            host_queue_bytes,
            host_ecn,
        )
        for number in range(nhosts)
    ]
    uplinks = [
        Link(
            a=PortRef(node=f"leaf{leaf}", port=f"up{spine}"),
            b=PortRef(node=f"spine{spine}", port=f"down{leaf}"),
            rate_bps=uplink_rate_bps,
            delay_ns=uplink_delay_ns,
            queue_bytes=uplink_queue_bytes,
            ecn=uplink_ecn,
            name=f"leaf{leaf}-spine{spine}",
        )
        for leaf in range(leaves)
        for spine in range(spines)
    ]
    return _checked(
        Topology(
            hosts=tuple(f"h{number}" for number in range(nhosts)),
            switches=(
                *(f"leaf{number}" for number in range(leaves)),
                *(f"spine{number}" for number in range(spines)),
            ),
            links=(*host_links, *uplinks),
        )
    )


def _host_link(
    number: int,
    switch: str,
    rate_bps: int | None,
    delay_ns: int,
    queue_bytes: int | None,
    ecn: EcnThresholds | None,
) -> Link:
    return Link(
        a=PortRef(node=f"h{number}", port=HOST_INTERFACE),
        b=PortRef(node=switch, port=f"h{number}"),
        rate_bps=rate_bps,
        delay_ns=delay_ns,
        queue_bytes=queue_bytes,
        ecn=ecn,
        name=f"h{number}-{switch}",
    )


def _require_positive(name: str, value: int) -> None:
    if value <= 0:
        raise FabricError(
            "topology", f"{name} is {value}", "a fabric has at least one of each"
        )


def _checked(topology: Topology) -> Topology:
    # The builders make sound shapes; only the links' values can be wrong, and those
    # are the same on all links of a kind, so the first problem says it all.
    nodes = frozenset((*topology.hosts, *topology.switches))
    for link in topology.links:
        for problem in check_link(link, nodes, frozenset()):
            raise FabricError("topology", problem, "see the fabric's links section")
    return topology
