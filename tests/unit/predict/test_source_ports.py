"""Source ports that spread flows evenly over equal-cost paths."""

from __future__ import annotations

from itertools import combinations

import pytest

from chakram.predict.routing import Router
from chakram.predict.source_ports import (
    LoadedPair,
    Loads,
    balanced_source_ports,
    loads_of,
)
from chakram.switch.ecmp import KernelPaths
from chakram.topology.topology import Topology
from tests.leaf_spines import clos
from tests.made_plans import fabric_ports


def imbalance(loads: Loads, topology: Topology) -> float:
    up = [loads.get(link.a, 0) for link in topology.uplinks()]
    return max(up) * len(up) / sum(up)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 5])
def test_chosen_source_ports_balance_flows(seed: int, count: int) -> None:
    topology = clos(2, 4, 4, None, None)
    ports = fabric_ports(topology)
    router = Router(ports=ports, topology=topology, ecmp=KernelPaths(seed=seed))
    pairs = [
        LoadedPair(ends=ends, sent_bytes=(1000, 1000))
        for ends in combinations(range(8), 2)
        for _ in range(count)
    ]
    chosen = balanced_source_ports(pairs, router=router, ports=ports)
    # As the experiment takes them: different ones, used in turn.
    assert len(set(chosen)) == len(chosen) == min(64, len(pairs))
    given = [chosen[turn % len(chosen)] for turn in range(len(pairs))]
    usual = [49152 + turn % 64 for turn in range(len(pairs))]
    before, after = (
        imbalance(
            loads_of(zip(pairs, each, strict=True), router=router, ports=ports),
            topology,
        )
        for each in (usual, given)
    )
    assert after <= 1.05 < before


def test_loads_cover_both_directions() -> None:
    topology = clos(2, 1, 1, None, None)
    ports = fabric_ports(topology)
    router = Router(ports=ports, topology=topology, ecmp=KernelPaths(seed=1))
    pair = LoadedPair(ends=(0, 1), sent_bytes=(300, 20))
    loads = loads_of([(pair, 49152)], router=router, ports=ports)
    assert {str(end): size for end, size in loads.items()} == {
        "leaf0:up0": 300,
        "spine0:down1": 300,
        "leaf1:up0": 20,
        "spine0:down0": 20,
    }
