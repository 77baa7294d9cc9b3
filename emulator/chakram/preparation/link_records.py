"""Records of the links of a topology, one for each direction."""

from __future__ import annotations

from collections.abc import Mapping

from chakram.records.run_records import LinkRecord
from chakram.topology.topology import PortRef, Topology


def directions_of(
    topology: Topology, groups: Mapping[PortRef, str] | None = None
) -> list[LinkRecord]:
    """Return two records per link, without bytes.

    Direction ``up`` is from end ``a`` to end ``b``.

    Args:
        topology: Hosts, switches and links.
        groups: The result of ``topology.equal_cost()``, if it is known.
    """
    uplinks = {link.name for link in topology.uplinks()}
    if groups is None:
        groups = topology.equal_cost()
    return [
        LinkRecord(
            link=link.name,
            kind="uplink" if link.name in uplinks else "host",
            direction=direction,
            bytes_before=0,
            bytes_after=0,
            port=str(end),
            rate_bps=link.rate_bps,
            equal_cost=groups.get(end),
        )
        for link in topology.links
        for direction, end in (("up", link.a), ("down", link.b))
    ]
