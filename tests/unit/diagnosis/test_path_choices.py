"""Bytes of flows by next hop, and paths that spread flows evenly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from chakram.collectives.groups import world_group
from chakram.diagnosis.counterfactual import Assumption, Rerun
from chakram.diagnosis.path_choices import bytes_by_choice, even_spread
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.switch.ecmp import AssignedPaths
from chakram.switch.profiles import Switching
from chakram.topology.topology_builders import leaf_spine
from chakram.topology.topology_helpers import LinkKind
from tests.made_plans import collective, make_plan, program

KIND = LinkKind(rate_bps=10**9)
TOPOLOGY = leaf_spine(2, 2, 2, uplinks=2, host=KIND, uplink=KIND)
SIZE = 1 << 16


@pytest.fixture(scope="module")
def run() -> Rerun:
    """Return an all-to-all whose flows all take the first of two uplinks."""
    world = world_group(4)
    operations = [collective("all_to_all", 4 * SIZE)]
    plan = make_plan([program(each, world, operations) for each in range(4)], TOPOLOGY)
    paths = AssignedPaths(next_hops={})
    result = simulate_plan(plan, TOPOLOGY, switching=Switching(ecmp=paths))
    made = SimpleNamespace(
        plan=plan, topology=TOPOLOGY, result=result, ecmp=paths, assumed=()
    )
    return cast("Any", made)


def carried(run: Rerun) -> dict[str, int]:
    found = bytes_by_choice(run)
    return {str(end): each[end] for hops, each in found.items() for end in hops}


def test_bytes_count_where_a_flow_has_a_choice(run: Rerun) -> None:
    # Two hosts of each leaf send to two of the other one.
    full = 4 * SIZE
    assert carried(run) == {
        "leaf0:up0": full,
        "leaf0:up1": 0,
        "leaf1:up0": full,
        "leaf1:up1": 0,
    }


def test_flows_are_spread_evenly(run: Rerun) -> None:
    even = SimpleNamespace(**{**vars(run), "ecmp": even_spread(run)})
    assert set(carried(cast("Any", even)).values()) == {2 * SIZE}


def test_links_that_are_down_are_no_choice(run: Rerun) -> None:
    down = Assumption(kind="down", port="leaf0:up0")
    changed = SimpleNamespace(**{**vars(run), "assumed": (down,)})
    found = carried(cast("Any", changed))
    # One way is left from leaf 0, and one to it.
    assert found == {}
