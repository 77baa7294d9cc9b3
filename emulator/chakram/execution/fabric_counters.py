"""Counters of a fabric over a run: traffic of its links, and delays of its switches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from chakram.preparation.link_records import directions_of
from chakram.records.run_records import LAB

if TYPE_CHECKING:
    from chakram.fabric.labs.link_counters import LabCounters
    from chakram.records.run_records import LinkRecord
    from chakram.topology.topology import Topology


_NOTABLY_LATE_NS = 10_000_000
_COMPARED = ("bytes", "drops", "marked", "pauses")
_OF_PORTS = {
    "marked": "marked_packets",
    "pauses": "pfc_received",
    "paused_ns": "paused_ns",
}
"""Fields of link records that come from counters of modeled ports, by field name."""


def link_records(
    topology: Topology, before: LabCounters, after: LabCounters
) -> list[LinkRecord]:
    """Return two records per counted link, one for each direction.

    Links without counters before or after the run are omitted.
    """
    records = []
    for record in directions_of(topology):
        first, last = before.links.get(record.link), after.links.get(record.link)
        if first is None or last is None:
            continue
        if record.direction == "up":
            bytes_before, bytes_after = first.tx_bytes, last.tx_bytes
            drops = last.tx_drops - first.tx_drops
        else:
            bytes_before, bytes_after = first.rx_bytes, last.rx_bytes
            drops = last.rx_drops - first.rx_drops
        port = record.port or ""
        then, now = before.ports.get(port), after.ports.get(port)
        counted: dict[str, Any] = {
            name: None if then is None or now is None else sum(now[of]) - sum(then[of])
            for name, of in _OF_PORTS.items()
        }
        records.append(
            replace(
                record,
                bytes_before=bytes_before,
                bytes_after=bytes_after,
                drops=drops,
                observed=LAB,
                **counted,
            )
        )
    return records


def merged(
    counted: Sequence[LinkRecord], reported: Sequence[LinkRecord]
) -> list[LinkRecord]:
    """Return switches' records of links, and the lab's records of other links."""
    by_port = {record.port: record for record in reported}
    known = {record.port for record in counted}
    return [
        *(by_port.get(record.port, record) for record in counted),
        *(record for record in reported if record.port not in known),
    ]


def disagreements(
    counted: Sequence[LinkRecord], reported: Sequence[LinkRecord]
) -> list[str]:
    """Return a warning if values from switches differ from the lab's values."""
    by_port = {record.port: record for record in counted}
    wrong = [
        f"{record.link} {record.direction}: the switch reported {told} {name}, the lab "
        f"counted {found}"
        for record in reported
        if (own := by_port.get(record.port)) is not None
        for name in _COMPARED
        # The lab also counts packets that hosts drop.
        if not (name == "drops" and (record.kind, record.direction) == ("host", "up"))
        if (told := getattr(record, name)) is not None
        if told != (found := getattr(own, name))
    ]
    if not wrong:
        return []
    more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return [f"TELEMETRY IS WRONG: {wrong[0]}{more}"]


def switch_banners(
    before: Mapping[str, int], after: Mapping[str, int], late_ns: int
) -> list[str]:
    """Return banners about artifacts of modeled switches that lacked CPU time.

    Args:
        before: Counters of the switch process before the run. Empty if there was no
            such process.
        after: Counters of the switch process after the run.
        late_ns: The longest delay of a frame beyond its due time.
    """
    if not before or not after:
        return []
    banners = []
    lost = sum(after[name] - before[name] for name in ("lost", "refused"))
    if lost:
        banners.append(
            f"MODELED SWITCHES COULD NOT KEEP UP: their process lost {lost} packets, "
            "so times and retransmissions are not those of the fabric: use lower "
            "rates, or leave the switches a core"
        )
    if late_ns >= _NOTABLY_LATE_NS:
        banners.append(
            f"modeled switches were late by up to {late_ns / 1e6:.1f} ms: another "
            "process used their core"
        )
    return banners
