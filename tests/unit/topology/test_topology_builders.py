"""Fabrics of several tiers, and nodes that forward."""

from __future__ import annotations

from collections import Counter

import pytest

from chakram.foundation.errors import FabricError
from chakram.topology.topology import Topology, check_topology
from chakram.topology.topology_builders import (
    fat_tree,
    forwarding_nodes,
    fully_connected_pairs,
    leaf_spine,
    rails,
    torus_pairs,
)
from chakram.topology.topology_helpers import LinkKind

HOST = LinkKind(rate_bps=100, delay_ns=1)
UPLINK = LinkKind(rate_bps=200, delay_ns=2)
CORE = LinkKind(rate_bps=400, delay_ns=3)


def between(topology: Topology) -> Counter[tuple[str, str]]:
    """Return the number of links between two switches."""
    return Counter((link.a.node, link.b.node) for link in topology.uplinks())


def test_one_uplink_to_each_spine_is_a_clos() -> None:
    topology = leaf_spine(2, 2, 2, uplinks=2, host=HOST, uplink=UPLINK)
    assert check_topology(topology) == []
    assert set(between(topology).values()) == {1}
    assert [link.name for link in topology.uplinks()][:2] == [
        "leaf0-spine0",
        "leaf0-spine1",
    ]
    assert topology.switch_of("h3") == "leaf1"


def test_parallel_links_are_separate_paths() -> None:
    topology = leaf_spine(2, 2, 1, uplinks=4, host=HOST, uplink=UPLINK)
    assert check_topology(topology) == []
    assert set(between(topology).values()) == {2}
    assert len(topology.next_hops("leaf0", "h1")) == 4
    # From the leaf any of four, from the spine any of two.
    assert len(topology.paths("h0", "h1")) == 8
    names = [link.name for link in topology.links]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("spines", "uplinks"), [(2, 3), (3, 4), (3, 5), (4, 6)])
def test_remaining_uplinks_are_distributed_differently_per_leaf(
    spines: int, uplinks: int
) -> None:
    topology = leaf_spine(spines, spines, 1, uplinks=uplinks, host=HOST, uplink=UPLINK)
    assert check_topology(topology) == []
    down = Counter(link.b.node for link in topology.uplinks())
    up = Counter(link.a.node for link in topology.uplinks())
    assert set(up.values()) == {uplinks}
    assert set(down.values()) == {uplinks}


def test_k_ary_fat_tree_has_its_numbers_of_nodes_and_links() -> None:
    k = 4
    topology = fat_tree(
        k, k // 2, k // 2, k // 2, k // 2, host=HOST, uplink=UPLINK, core=CORE
    )
    assert check_topology(topology) == []
    assert len(topology.hosts) == k**3 // 4
    assert len(topology.switches) == 5 * k**2 // 4
    # Every switch has k ports.
    assert {len(topology.links_of(switch)) for switch in topology.switches} == {k}
    assert len(topology.paths("h0", "h15")) == (k // 2) ** 2
    assert len(topology.paths("h0", "h2")) == k // 2
    rates = [link.rate_bps for link in topology.paths("h0", "h15")[0]]
    assert rates == [100, 200, 400, 400, 200, 100]


def test_cores_of_a_spine_join_the_spines_of_its_number() -> None:
    topology = fat_tree(3, 1, 2, 2, 1, host=HOST, uplink=UPLINK, core=CORE)
    joined = {
        core: {link.other_end(core).node for link in topology.links_of(core)}
        for core in ("core0", "core1", "core2", "core3")
    }
    first = {f"pod{pod}-spine0" for pod in range(3)}
    second = {f"pod{pod}-spine1" for pod in range(3)}
    assert joined == {
        "core0": first,
        "core1": first,
        "core2": second,
        "core3": second,
    }


def test_port_r_of_every_server_is_on_rail_r() -> None:
    topology = rails(3, 2, 2, uplinks=2, host=HOST, uplink=UPLINK)
    assert check_topology(topology) == []
    assert [topology.switch_of(host) for host in topology.hosts] == [
        "rail0",
        "rail1",
    ] * 3
    # On a rail by its leaf alone, between rails by a spine.
    assert len(topology.paths("h0", "h2")[0]) == 2
    assert len(topology.paths("h0", "h3")[0]) == 4


def test_ring_forwards_in_the_shorter_direction() -> None:
    topology = forwarding_nodes(6, torus_pairs([6]), host=LinkKind(), between=UPLINK)
    assert check_topology(topology) == []
    assert len(topology.uplinks()) == 6
    # Two links of hosts, without a rate, and those between nodes.
    assert len(topology.paths("h0", "h2")) == 1
    assert len(topology.paths("h0", "h2")[0]) == 2 + 2
    assert len(topology.paths("h0", "h5")[0]) == 2 + 1
    assert len(topology.paths("h0", "h3")) == 2


@pytest.mark.parametrize(
    ("dimensions", "links"),
    [([1], 0), ([2], 1), ([3], 3), ([4, 4], 32), ([2, 3], 3 + 6), ([2, 2, 2], 12)],
)
def test_neighbors_in_a_torus_have_one_link(dimensions: list[int], links: int) -> None:
    pairs = torus_pairs(dimensions)
    assert len(pairs) == len(set(pairs)) == links
    assert all(a < b for a, b in pairs)


def test_every_pair_of_a_fully_connected_fabric_is_one_link_apart() -> None:
    topology = forwarding_nodes(
        5, fully_connected_pairs(5), host=LinkKind(), between=UPLINK
    )
    assert check_topology(topology) == []
    assert len(topology.uplinks()) == 10
    assert {len(topology.paths("h1", host)[0]) for host in ("h0", "h4")} == {3}


def test_counts_are_positive() -> None:
    with pytest.raises(FabricError, match="uplinks is 0"):
        leaf_spine(1, 1, 1, uplinks=0, host=HOST, uplink=UPLINK)
    with pytest.raises(FabricError, match="pods is 0"):
        fat_tree(0, 1, 1, 1, 1, host=HOST, uplink=UPLINK, core=CORE)
    with pytest.raises(FabricError, match="servers is 0"):
        rails(0, 1, 1, uplinks=1, host=HOST, uplink=UPLINK)
