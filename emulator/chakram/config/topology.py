"""From the fabric section of an experiment to a topology."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.config.fabric import ExternalFabric, LoopbackFabric
from chakram.errors import ConfigError
from chakram.fabric.shapes import clos, single_switch
from chakram.fabric.topology import EcnThresholds, Topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.config.fabric import (
        LinkSettings,
        LinksSettings,
        NamespaceFabric,
        TopologySettings,
    )

__all__ = ["DEFAULT_QUEUE_BYTES", "topology_from_config"]

# Seven senders with windows of 128 KiB each, towards one port, fit without loss.
DEFAULT_QUEUE_BYTES = 2 << 20
"""Queue of a port with a rate, where the experiment names none."""


def topology_from_config(
    fabric: NamespaceFabric | LoopbackFabric | ExternalFabric,
    *,
    nports: int | None = None,
) -> Topology | None:
    """Return the topology that an experiment's fabric section describes.

    Args:
        fabric: The section.
        nports: Ports that the jobs need, for a loopback fabric that names no number.

    Returns:
        The topology; for a loopback fabric its ports as hosts on one switch; None for
        an external fabric whose shape is not told. The hosts of one whose shape is told
        are its ports, and called like them.

    Raises:
        ConfigError: If a loopback fabric's number of ports is known from nowhere.
        FabricError: If the shape is impossible.
    """
    if isinstance(fabric, LoopbackFabric):
        ports = fabric.ports or nports
        if ports is None:
            raise ConfigError(
                "fabric.ports", "the number of ports is not known", "e.g. ports: 8"
            )
        return single_switch(ports, fabric.rate_bps)
    if fabric.topology is None:
        return None
    names = fabric.port_names() if isinstance(fabric, ExternalFabric) else None
    return _shape(fabric.topology, fabric.links, names)


def _shape(
    shape: TopologySettings, links: LinksSettings, names: Sequence[str] | None
) -> Topology:
    host = links.host
    if shape.single_switch is not None:
        return single_switch(
            shape.single_switch.hosts,
            host.rate_bps,
            host_delay_ns=host.delay_ns,
            host_queue_bytes=_queue_bytes(host),
            host_ecn=_ecn(host),
            names=names,
        )
    if shape.clos is None:
        raise ConfigError(
            "fabric.topology", "names no shape", "write single_switch or clos"
        )
    uplink = links.uplink
    return clos(
        shape.clos.leaves,
        shape.clos.spines,
        shape.clos.hosts_per_leaf,
        host.rate_bps,
        uplink.rate_bps,
        host_delay_ns=host.delay_ns,
        uplink_delay_ns=uplink.delay_ns,
        host_queue_bytes=_queue_bytes(host),
        uplink_queue_bytes=_queue_bytes(uplink),
        host_ecn=_ecn(host),
        uplink_ecn=_ecn(uplink),
        names=names,
    )


def _queue_bytes(link: LinkSettings) -> int | None:
    if link.queue_bytes is not None or link.rate_bps is None:
        return link.queue_bytes
    return DEFAULT_QUEUE_BYTES


def _ecn(link: LinkSettings) -> EcnThresholds | None:
    if link.ecn is None:
        return None
    return EcnThresholds(
        kmin_bytes=link.ecn.kmin_bytes,
        kmax_bytes=link.ecn.kmax_bytes,
        probability=link.ecn.pmax,
    )
