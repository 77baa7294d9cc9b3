"""What went through the links of a run, as records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.results.run_records import LinkRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chakram.fabric.counters import LinkCounters
    from chakram.fabric.topology import Topology

__all__ = ["link_records"]


def link_records(
    topology: Topology,
    before: Mapping[str, LinkCounters],
    after: Mapping[str, LinkCounters],
) -> list[LinkRecord]:
    """Return two records per counted link: up is from its end ``a`` to ``b``.

    Links that were not counted at both moments are left out.
    """
    uplinks = {link.name for link in topology.uplinks()}
    records: list[LinkRecord] = []
    for link in topology.links:
        first, last = before.get(link.name), after.get(link.name)
        if first is None or last is None:
            continue
        kind = "uplink" if link.name in uplinks else "host"
        records.append(
            LinkRecord(
                link=link.name,
                kind=kind,
                direction="up",
                bytes_before=first.tx_bytes,
                bytes_after=last.tx_bytes,
                drops=last.tx_drops - first.tx_drops,
            )
        )
        records.append(
            LinkRecord(
                link=link.name,
                kind=kind,
                direction="down",
                bytes_before=first.rx_bytes,
                bytes_after=last.rx_bytes,
                drops=last.rx_drops - first.rx_drops,
            )
        )
    return records
