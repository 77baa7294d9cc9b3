"""Leaf-spine fabrics from a few parameters."""

from __future__ import annotations

from collections.abc import Sequence

from chakram.topology.topology import EcnThresholds, Topology
from chakram.topology.topology_builders import leaf_spine
from chakram.topology.topology_helpers import LinkKind

__all__ = ["clos"]


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
    """Return a fabric in which every leaf has one link to every spine."""
    return leaf_spine(
        leaves,
        spines,
        hosts_per_leaf,
        uplinks=spines,
        host=LinkKind(
            rate_bps=host_rate_bps,
            delay_ns=host_delay_ns,
            queue_bytes=host_queue_bytes,
            ecn=host_ecn,
        ),
        uplink=LinkKind(
            rate_bps=uplink_rate_bps,
            delay_ns=uplink_delay_ns,
            queue_bytes=uplink_queue_bytes,
            ecn=uplink_ecn,
        ),
        names=names,
    )
