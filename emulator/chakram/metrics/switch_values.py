"""Metric values of modeled switches, and of switches whose counters are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from chakram.fabric.labs.link_counters import LabCounters
from chakram.metrics.catalog import NO_REASON
from chakram.switch.packet_outcomes import DROP_REASONS
from chakram.topology.topology import Topology

Value: TypeAlias = tuple[str, tuple[str, ...], float]
"""Name of a metric without ``chakram_switch_``, values of its labels, and value."""

_REPORTED = (
    ("queue_bytes", "queue_bytes", 1),
    ("marked_packets_total", "marked", 1),
    ("pause_frames_total", "pauses_received", 1),
    ("paused_seconds_total", "paused_ns", 1e-9),
)
"""Metrics of traffic classes that switches report: name, counter, and factor."""

_REPORTED_DROPS = ("drops", "ingress_drops")
"""Counters of drops that switches report."""


def modeled_values(
    topology: Topology, counters: LabCounters, before: LabCounters | None = None
) -> Iterator[Value]:
    """Yield the values of modeled switches.

    Args:
        topology: Topology of the fabric.
        counters: Counters of the fabric.
        before: Counters at the start of the run, which include frames lost in earlier
            runs. None means the counters of a new lab.
    """
    process = counters.process
    earlier = {} if before is None else before.process
    lost = sum(process[name] - earlier.get(name, 0) for name in ("lost", "refused"))
    yield "lost_frames_total", (), lost
    yield "delay_max_seconds", (), process["late_ns"] * 1e-9
    yield "cpu_seconds_total", (), process["cpu_ns"] * 1e-9
    for link in topology.links:
        for direction, end in (("up", link.a), ("down", link.b)):
            port = counters.ports[str(end)]
            for klass, sent in enumerate(port["sent_packets"]):
                waiting = port["queue_bytes"][klass]
                paused = port["pfc_received"][klass]
                if sent or waiting or paused:
                    place = (link.name, direction, str(klass))
                    yield "queue_bytes", place, waiting
                    yield "marked_packets_total", place, port["marked_packets"][klass]
                    yield "pause_frames_total", place, paused
                    yield "paused_seconds_total", place, port["paused_ns"][klass] * 1e-9
            # Export zeros as well, because a rate needs the value before the first
            # drops.
            for reason, text in DROP_REASONS.items():
                dropped = port["drops_by_reason"][reason]
                yield "dropped_packets_total", (link.name, direction, text), dropped


def reported_values(
    classes: Iterable[tuple[str, str, int, Mapping[str, int]]],
) -> Iterator[Value]:
    """Yield the values of counters that switches reported.

    Args:
        classes: Link, direction, class (negative for a whole port) and counters.
    """
    dropped: dict[tuple[str, str], dict[tuple[str, bool], int]] = {}
    for link, direction, klass, counters in classes:
        for name in _REPORTED_DROPS:
            if name in counters:
                found = dropped.setdefault((link, direction), {})
                key = name, klass >= 0
                found[key] = found.get(key, 0) + counters[name]
        if klass < 0:
            continue
        for name, counter, factor in _REPORTED:
            if counter in counters:
                yield name, (link, direction, str(klass)), counters[counter] * factor
    for end, found in dropped.items():
        # The drops of a port include the drops of its classes.
        total = sum(
            found.get((name, False), found.get((name, True), 0))
            for name in _REPORTED_DROPS
        )
        yield "dropped_packets_total", (*end, NO_REASON), total
