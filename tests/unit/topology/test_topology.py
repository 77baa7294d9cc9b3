from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.foundation.errors import FabricError
from chakram.topology.topology import Link, PortRef, Topology, check_topology
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos
from tests.unit.fabric.links import GBIT, link, names, port


def test_paths_between_leaves_are_one_per_spine() -> None:
    topology = clos(2, 2, 2, GBIT, GBIT)

    paths = topology.paths("h0", "h3")

    assert [names(path) for path in paths] == [
        ["h0-leaf0", "leaf0-spine0", "leaf1-spine0", "h3-leaf1"],
        ["h0-leaf0", "leaf0-spine1", "leaf1-spine1", "h3-leaf1"],
    ]


def test_hosts_of_a_switch_are_in_the_order_of_all_hosts() -> None:
    topology = clos(2, 1, 6, GBIT, GBIT)
    mixed = replace(topology, links=topology.links[::-1])
    assert mixed.hosts_of("leaf1") == ("h6", "h7", "h8", "h9", "h10", "h11")
    assert mixed.hosts_of("spine0") == ()


def test_path_inside_a_leaf_does_not_climb() -> None:
    topology = clos(2, 2, 2, GBIT, GBIT)

    assert [names(path) for path in topology.paths("h2", "h3")] == [
        ["h2-leaf1", "h3-leaf1"]
    ]


def test_there_is_no_path_from_a_host_to_itself() -> None:
    topology = single_switch(2, GBIT)

    assert topology.paths("h0", "h0") == []
    assert topology.next_hops("h0", "h0") == ()


def test_next_hops_are_the_equal_cost_ports() -> None:
    topology = clos(3, 2, 1, GBIT, GBIT)

    assert topology.next_hops("h0", "h2") == (port("h0:eth0"),)
    assert topology.next_hops("leaf0", "h2") == (port("leaf0:up0"), port("leaf0:up1"))
    assert topology.next_hops("spine1", "h2") == (port("spine1:down2"),)
    assert topology.next_hops("leaf2", "h2") == (port("leaf2:h2"),)


def test_every_pair_of_a_three_tier_fabric_has_all_its_paths() -> None:
    # Two pods of one leaf and two aggregation switches, four core switches.
    links = [link("h0:eth0", "leaf0:h0"), link("h1:eth0", "leaf1:h1")]
    for pod in range(2):
        for agg in range(2):
            links.append(link(f"leaf{pod}:up{agg}", f"agg{pod}{agg}:down"))
            links += [
                link(f"agg{pod}{agg}:up{core}", f"core{agg}{core}:down{pod}")
                for core in range(2)
            ]
    topology = Topology(
        hosts=("h0", "h1"),
        switches=(
            *("leaf0", "leaf1"),
            *("agg00", "agg01", "agg10", "agg11"),
            *("core00", "core01", "core10", "core11"),
        ),
        links=tuple(links),
    )

    paths = topology.paths("h0", "h1")

    assert check_topology(topology) == []
    assert len(paths) == 4
    assert len(set(paths)) == 4
    assert {len(path) for path in paths} == {6}


def test_unreachable_nodes_have_no_next_hop() -> None:
    topology = Topology(
        hosts=("h0", "h1"),
        switches=("s0", "s1"),
        links=(link("h0:eth0", "s0:h0"), link("h1:eth0", "s1:h1")),
    )

    assert topology.next_hops("h0", "h1") == ()
    assert topology.next_hops("s0", "h1") == ()
    assert topology.paths("h0", "h1") == []
    assert check_topology(topology) == ["host h1: there is no path from h0"]


def test_unknown_nodes_are_refused_by_name() -> None:
    topology = single_switch(2, GBIT)

    with pytest.raises(FabricError, match="there is no node 'h7'"):
        topology.links_of("h7")
    with pytest.raises(FabricError, match="'s0' is not a host with a link"):
        topology.host_link("s0")


def test_topologies_compare_by_value() -> None:
    one, other = clos(2, 2, 2, GBIT, GBIT), clos(2, 2, 2, GBIT, GBIT)
    one.paths("h0", "h3")  # fills the distance table

    assert one == other
    assert one != replace(other, hosts=())


def test_only_leaves_choose_among_equal_paths() -> None:
    fabric = clos(
        leaves=2, spines=2, hosts_per_leaf=1, host_rate_bps=GBIT, uplink_rate_bps=GBIT
    )
    assert [fabric.has_choice(switch) for switch in fabric.switches] == [
        switch.startswith("leaf") for switch in fabric.switches
    ]
    assert not single_switch(3, GBIT).has_choice("s0")


def test_path_choice_is_found_at_a_switch_or_behind_it() -> None:
    fabric = clos(3, 2, 1, GBIT, GBIT)
    assert [fabric.path_has_choice(switch) for switch in fabric.switches] == [
        switch.startswith("leaf") for switch in fabric.switches
    ]
    assert not single_switch(3, GBIT).path_has_choice("s0")
    # A row of three switches; the second has two links to the third.
    row = Topology(
        hosts=("h0", "h1"),
        switches=("s0", "s1", "s2", "s3"),
        links=tuple(
            Link(
                a=PortRef(node=a, port=f"a{number}"),
                b=PortRef(node=b, port=f"b{number}"),
                rate_bps=GBIT,
                name=f"l{number}",
            )
            for number, (a, b) in enumerate(
                [("h0", "s0"), ("s0", "s1"), ("s1", "s2"), ("s1", "s2"), ("h1", "s2")]
            )
        ),
    )
    assert [row.path_has_choice(switch) for switch in row.switches] == [
        *(True, True, True),
        False,  # it is connected to nothing
    ]
    assert [row.has_choice(switch) for switch in row.switches] == [
        *(False, True, True, False)
    ]
