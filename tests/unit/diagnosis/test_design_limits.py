"""Placements and links that may cost time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

from chakram.diagnosis.design_limits import _links_of, _placements
from chakram.plan.placement import PlacementOptions
from chakram.topology.topology import Topology
from chakram.topology.topology_builders import leaf_spine
from chakram.topology.topology_helpers import LinkKind, single_switch

KIND = LinkKind(rate_bps=10**9)
FABRIC = leaf_spine(2, 2, 2, uplinks=2, host=KIND, uplink=KIND)


@dataclass(frozen=True)
class Job:
    name: str
    placement: PlacementOptions


@dataclass(frozen=True)
class Variant:
    jobs: tuple[Job, ...]
    alone: str | None = None
    experiment: Any = field(default_factory=lambda: SimpleNamespace(dilation=10))
    link_rates_bps: Mapping[str, int] = field(default_factory=dict)
    link_delays_ns: Mapping[str, int] = field(default_factory=dict)


PACKED = Job("a", PlacementOptions())
STRIPED = Job("b", PlacementOptions(pattern="striped"))
RANDOM = Job("c", PlacementOptions(pattern="random", ranks_per_port=2))
ORDERED = Job("d", PlacementOptions(order=(1, 0), local_rate_bps=10**9))
JOBS = Variant((PACKED, STRIPED, RANDOM))


def places(variant: Variant, topology: Topology) -> list[str]:
    found = _placements(cast("Any", variant), topology)
    return [case.suspect.place for case in found]


def test_ranks_that_are_spread_over_switches_may_cost_time() -> None:
    assert places(JOBS, FABRIC) == ["job b", "job c"]
    assert places(replace(JOBS, alone="c"), FABRIC) == ["job c"]
    assert places(JOBS, single_switch(4, 10**9)) == []


def test_their_ranks_are_packed_and_nothing_else_changes() -> None:
    _, case = _placements(cast("Any", JOBS), FABRIC)
    changed = cast("Variant", case.change(cast("Any", JOBS)))
    assert changed.jobs[:2] == JOBS.jobs[:2]
    assert changed.jobs[2].placement == PlacementOptions(ranks_per_port=2)


def test_an_order_is_a_placement_and_a_rate_within_hosts_a_limit() -> None:
    found = list(_placements(cast("Any", Variant((PACKED, ORDERED))), FABRIC))
    named = [(case.suspect.cause, case.suspect.place) for case in found]
    assert named == [("placement", "job d"), ("local rate", "job d")]
    assert found[1].suspect.remedy == "with 100Gbit/s between the ranks of a host"
    placement, rate = (case.change(cast("Any", JOBS)) for case in found)
    assert (placement, rate) == (JOBS, JOBS), "other jobs do not change"
    of = Variant((PACKED, ORDERED))
    placement, rate = (case.change(cast("Any", of)) for case in found)
    assert placement.jobs == (PACKED, Job("d", PlacementOptions(local_rate_bps=10**9)))
    faster = PlacementOptions(order=(1, 0), local_rate_bps=10**10)
    assert rate.jobs == (PACKED, Job("d", faster))
    # Ports of one switch are alike, but rates within hosts are not.
    named = places(Variant((ORDERED,)), single_switch(4, 10**9))
    assert named == ["job d"]


def test_links_that_are_slower_or_longer_by_design_are_limits() -> None:
    assert list(_links_of(FABRIC, 1)) == []
    slow = {"h0-leaf0": 10**8, "h1-leaf0": 10**8}
    links = tuple(
        replace(link, rate_bps=slow.get(link.name, link.rate_bps), delay_ns=500)
        for link in FABRIC.links
    )
    links = (*links[:-1], replace(links[-1], delay_ns=5000))
    rates, long, delays = _links_of(replace(FABRIC, links=links), 10)
    assert str(rates.suspect) == "uneven link rates at h0-leaf0, h1-leaf0"
    assert rates.suspect.remedy == "at 10Gbit/s like similar links, not 1Gbit/s"
    changed = rates.change(cast("Any", JOBS))
    assert changed.link_rates_bps == dict.fromkeys(slow, 10**9)
    assert str(long.suspect) == f"long link at {links[-1].name}"
    assert long.suspect.remedy == "with a delay of 50ns like similar links, not 500ns"
    assert long.change(cast("Any", JOBS)).link_delays_ns == {links[-1].name: 500}
    assert str(delays.suspect) == "propagation at all links"
    shorter = {link.name: link.delay_ns // 10 for link in links}
    assert delays.change(cast("Any", JOBS)).link_delays_ns == shorter
