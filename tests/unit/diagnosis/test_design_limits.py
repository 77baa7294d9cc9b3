"""Placements that may cost time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

from chakram.diagnosis.design_limits import _placements
from chakram.plan.placement import PlacementOptions
from chakram.topology.common_topologies import LinkKind, single_switch
from chakram.topology.multi_tier_topologies import leaf_spine
from chakram.topology.topology import Topology

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


PACKED = Job("a", PlacementOptions())
STRIPED = Job("b", PlacementOptions(pattern="striped"))
RANDOM = Job("c", PlacementOptions(pattern="random", ranks_per_port=2))
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
