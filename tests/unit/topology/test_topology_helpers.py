from __future__ import annotations

from collections.abc import Callable

import pytest

from chakram.foundation.errors import FabricError
from chakram.topology.topology import Link, Topology, check_topology
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos
from tests.unit.fabric.links import GBIT, names, port


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


@pytest.mark.parametrize(
    "make",
    [
        lambda names: single_switch(4, GBIT, names=names),
        lambda names: clos(2, 2, 2, GBIT, GBIT, names=names),
    ],
)
def test_hosts_can_have_own_names(
    make: Callable[[list[str]], Topology],
) -> None:
    topology = make(["h1", "leaf1", "spine0", "s0"])

    assert topology.hosts == ("h1", "leaf1", "spine0", "s0")
    assert check_topology(topology) == []
    assert topology.host_link("s0").name == f"s0-{topology.switch_of('s0')}"
    with pytest.raises(FabricError, match="has 4 hosts, but there are 3 ports"):
        make(["a", "b", "c"])
