"""Metrics that only some fabric types have, and what such a fabric must provide.

``tests/e2e/test_dashboards_by_fabric.py`` runs an experiment on every fabric type. It
compares the queries that have an answer with these tables.
"""

from __future__ import annotations

from chakram.metrics.catalog import SERIES, SWITCHES

ANY_FABRIC = "any fabric"
LINK_COUNTERS = "link counters"
SWITCH_COUNTERS = "switch counters"
SIMULATION = "simulation"

PROVIDED = {
    "loopback": frozenset({ANY_FABRIC}),
    "external": frozenset({ANY_FABRIC, SIMULATION}),
    "namespaces": frozenset({ANY_FABRIC, SIMULATION, LINK_COUNTERS}),
    "namespaces, switch: model": frozenset(
        {ANY_FABRIC, SIMULATION, LINK_COUNTERS, SWITCH_COUNTERS}
    ),
}
"""What each fabric type provides. ``loopback`` has no topology, so Chakram cannot
simulate it. For ``external``, a simulation needs ``fabric.topology`` in the experiment,
and counters of links and switches need ``fabric.telemetry``."""


def needed_for(series: str, source: str | None) -> str:
    """Return what a fabric must provide for a series to exist.

    Args:
        series: Name of the series.
        source: Value of its label ``source``. None for any value.
    """
    metric = SERIES.get(series)
    if metric is None:
        return ANY_FABRIC
    if metric.scope == SWITCHES:
        return SWITCH_COUNTERS
    if metric.name == "chakram_link_bytes_total":
        return LINK_COUNTERS
    return SIMULATION if source == "simulate" else ANY_FABRIC
