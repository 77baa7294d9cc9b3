from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.errors import FabricError
from chakram.fabric.topology import (
    Link,
    PortRef,
    Topology,
    check_topology,
    clos,
    single_switch,
)

GBIT = 10**9


def port(text: str) -> PortRef:
    node, name = text.split(":")
    return PortRef(node=node, port=name)


def link(a: str, b: str, *, name: str | None = None) -> Link:
    return Link(
        a=port(a), b=port(b), rate_bps=GBIT, name=name or f"{a}-{b}".replace(":", ".")
    )


def names(path: tuple[Link, ...]) -> list[str]:
    return [each.name for each in path]


def test_single_switch_connects_every_host_with_one_link() -> None:
    topology = single_switch(3, GBIT, host_delay_ns=500, host_queue_bytes=10_000)

    assert topology.hosts == ("h0", "h1", "h2")
    assert topology.switches == ("s0",)
    assert topology.links[2] == Link(
        a=port("h2:eth0"),
        b=port("s0:h2"),
        rate_bps=GBIT,
        delay_ns=500,
        queue_bytes=10_000,
        name="h2-s0",
    )
    assert topology.uplinks() == ()
    assert check_topology(topology) == []
    assert [names(path) for path in topology.paths("h0", "h2")] == [["h0-s0", "h2-s0"]]


def test_clos_has_one_link_per_leaf_and_spine() -> None:
    topology = clos(2, 3, 4, GBIT, 2 * GBIT, uplink_delay_ns=7, uplink_queue_bytes=99)

    assert len(topology.hosts) == 8
    assert topology.switches == ("leaf0", "leaf1", "spine0", "spine1", "spine2")
    assert topology.switch_of("h3") == "leaf0"
    assert topology.switch_of("h4") == "leaf1"
    assert topology.hosts_of("leaf1") == ("h4", "h5", "h6", "h7")
    assert topology.hosts_of("spine1") == ()
    assert [each.name for each in topology.uplinks()] == [
        "leaf0-spine0",
        "leaf0-spine1",
        "leaf0-spine2",
        "leaf1-spine0",
        "leaf1-spine1",
        "leaf1-spine2",
    ]
    uplink = topology.uplinks()[4]
    assert (str(uplink.a), str(uplink.b)) == ("leaf1:up1", "spine1:down1")
    assert (uplink.rate_bps, uplink.delay_ns, uplink.queue_bytes) == (2 * GBIT, 7, 99)
    assert check_topology(topology) == []


def test_paths_between_leaves_are_one_per_spine() -> None:
    topology = clos(2, 2, 2, GBIT, GBIT)

    paths = topology.paths("h0", "h3")

    assert [names(path) for path in paths] == [
        ["h0-leaf0", "leaf0-spine0", "leaf1-spine0", "h3-leaf1"],
        ["h0-leaf0", "leaf0-spine1", "leaf1-spine1", "h3-leaf1"],
    ]
    assert [str(each) for each in topology.egress_ports("h0", paths[1])] == [
        "h0:eth0",
        "leaf0:up1",
        "spine1:down1",
        "leaf1:h3",
    ]


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


def test_topologies_compare_by_what_they_are() -> None:
    one, other = clos(2, 2, 2, GBIT, GBIT), clos(2, 2, 2, GBIT, GBIT)
    one.paths("h0", "h3")  # fills the distance table

    assert one == other
    assert one != replace(other, hosts=())


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((0, 1, 1), "leaves is 0"),
        ((1, 0, 1), "spines is 0"),
        ((1, 1, -1), "hosts_per_leaf is -1"),
    ],
)
def test_clos_refuses_empty_shapes(arguments: tuple[int, int, int], found: str) -> None:
    with pytest.raises(FabricError, match=found):
        clos(*arguments, GBIT, GBIT)


def test_single_switch_refuses_no_hosts_and_impossible_links() -> None:
    with pytest.raises(FabricError, match="nhosts is 0"):
        single_switch(0, GBIT)
    with pytest.raises(FabricError, match="rate 0 bit/s is not positive"):
        single_switch(2, 0)
    with pytest.raises(FabricError, match="delay -1 ns is negative"):
        single_switch(2, GBIT, host_delay_ns=-1)
    with pytest.raises(FabricError, match="queue of 0 bytes is not positive"):
        single_switch(2, GBIT, host_queue_bytes=0)


def problems_of(
    *links: Link, hosts: tuple[str, ...] = ("h0",), switches: tuple[str, ...] = ("s0",)
) -> list[str]:
    return check_topology(Topology(hosts=hosts, switches=switches, links=links))


def test_check_names_every_problem_of_names() -> None:
    assert problems_of(hosts=(), switches=()) == ["there is no host"]
    assert problems_of(
        link("h0:eth0", "h0:h0", name="x"), hosts=("h0",), switches=("h0",)
    ) == [
        "switch h0: the name is used twice",
        "link x: connects h0 with itself",
        "host h0: has 2 links, must have exactly one",
    ]
    found = problems_of(link("h0:eth0", "s0:h0", name="a/b"))
    assert len(found) == 1
    assert found[0].startswith("link 'a/b': a name has 1 to 64")
    assert "link same: the name is used twice" in problems_of(
        link("h0:eth0", "s0:h0", name="same"),
        link("h1:eth0", "s0:h1", name="same"),
        hosts=("h0", "h1"),
    )


def test_check_names_every_problem_of_links() -> None:
    assert problems_of(link("h0:eth0", "s9:h0", name="x")) == [
        "link x: there is no node 's9'"
    ]
    assert problems_of(link("h0:eth0", "s0:sixteen-letters-", name="x")) == [
        "link x: 'sixteen-letters-' is not an interface name of at most 15 letters,"
        " digits, '_', '.' or '-'"
    ]
    assert problems_of(link("h0:eth0", "h1:eth0", name="x"), hosts=("h0", "h1")) == [
        "link x: connects two hosts without a switch"
    ]
    assert problems_of(
        link("h0:eth0", "s0:p", name="x"),
        link("h1:eth0", "s0:p", name="y"),
        hosts=("h0", "h1"),
    ) == ["link y: port s0:p has two links"]
    assert problems_of() == ["host h0: has 0 links, must have exactly one"]


def test_leaves_choose_among_spines_and_nobody_else_does() -> None:
    fabric = clos(
        leaves=2, spines=2, hosts_per_leaf=1, host_rate_bps=GBIT, uplink_rate_bps=GBIT
    )
    assert [fabric.has_choice(switch) for switch in fabric.switches] == [
        switch.startswith("leaf") for switch in fabric.switches
    ]
    assert not single_switch(3, GBIT).has_choice("s0")
