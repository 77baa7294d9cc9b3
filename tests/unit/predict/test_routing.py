"""Paths through a fabric with hashing switches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from chakram.collectives.groups import world_group
from chakram.foundation.errors import FabricError, PlanError
from chakram.plan.port_plan import PortPlan
from chakram.predict.routing import PathFinder, Router
from chakram.switch.ecmp import DrawnPaths, EcmpHash, KernelPaths
from chakram.switch.kernel_hash import hash_seed, kernel_hash, next_hop, upper_bounds
from chakram.topology.topology import Link, PortRef, Topology
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos
from tests.made_plans import collective, fabric_ports, make_plan, program

Names = Callable[[int, int, int], list[str]]


def router(
    topology: Topology,
    *,
    ports: list[PortPlan] | None = None,
    ecmp: EcmpHash | None = None,
) -> Names:
    """Return what names the ports on a path, by two indexes and a source port."""
    ports = fabric_ports(topology) if ports is None else ports
    route = Router(ports=ports, topology=topology, ecmp=ecmp or DrawnPaths(seed=1))

    def path(source: int, destination: int, source_port: int) -> list[str]:
        there = ports[destination]
        ends, receiver = route(source, there.address, there.udp_port, source_port)
        assert receiver == destination
        return [str(end) for end in ends]

    return path


def test_two_hosts_of_a_switch_have_two_links_between_them() -> None:
    assert router(single_switch(3, None))(0, 2, 49152) == ["h0:eth0", "s0:h2"]


def test_port_reaches_itself_without_a_link() -> None:
    assert router(single_switch(3, None))(1, 1, 49152) == []


def test_hosts_of_two_leaves_meet_at_a_spine() -> None:
    names = router(clos(2, 2, 2, None, None))(0, 3, 49152)
    spine = names[1][-1]
    assert names == ["h0:eth0", f"leaf0:up{spine}", f"spine{spine}:down1", "leaf1:h3"]


def test_flows_spread_over_all_paths() -> None:
    route = router(clos(2, 4, 8, None, None))
    used = Counter(
        route(source, 8 + target, 49152 + port)[1]
        for source in range(8)
        for target in range(8)
        for port in range(8)
    )
    assert len(used) == 4
    assert all(100 < count < 156 for count in used.values())


def test_several_choices_on_one_path_are_independent() -> None:
    # Two switches in a row that have two links each to the next one.
    def link(name: str, a: str, b: str) -> Link:
        ends = (PortRef(node=a, port=f"a{name}"), PortRef(node=b, port=f"b{name}"))
        return Link(a=ends[0], b=ends[1], rate_bps=None, name=name)

    topology = Topology(
        hosts=("h0", "h1"),
        switches=("s0", "s1", "s2"),
        links=(
            link("h0", "h0", "s0"),
            link("x0", "s0", "s1"),
            link("x1", "s0", "s1"),
            link("y0", "s1", "s2"),
            link("y1", "s1", "s2"),
            link("h1", "h1", "s2"),
        ),
    )
    ports = [
        replace(port, host=host)
        for port, host in zip(
            fabric_ports(single_switch(2, None)), topology.hosts, strict=True
        )
    ]
    route = router(topology, ports=ports)
    used = Counter(tuple(route(0, 1, port)[1:3]) for port in range(400))
    assert len(used) == 4
    assert all(70 < count < 130 for count in used.values())


def test_a_flow_keeps_its_path_and_the_seed_decides_it() -> None:
    topology = clos(2, 2, 4, None, None)
    flows = [(0, 4 + target, 49152 + port) for target in range(4) for port in range(8)]
    choices = {
        seed: [router(topology, ecmp=DrawnPaths(seed=seed))(*flow) for flow in flows]
        for seed in (1, 2)
    }
    again = router(topology)
    assert [again(*flow) for flow in flows] == choices[1]
    assert [again(*flow) for flow in flows] == choices[1]
    assert choices[1] != choices[2]


def test_two_ports_with_one_address_are_refused() -> None:
    first, second = fabric_ports(single_switch(2, None))
    ports = [first, replace(second, address=first.address)]
    with pytest.raises(PlanError, match=f"two ports have the address {first.address}"):
        router(single_switch(2, None), ports=ports)


def test_two_ports_on_one_host_are_refused() -> None:
    first, second = fabric_ports(single_switch(2, None))
    route = router(
        single_switch(2, None), ports=[first, replace(second, host=first.host)]
    )
    with pytest.raises(FabricError, match="two ports are on h0"):
        route(0, 1, 49152)


def test_an_address_of_no_port_is_refused() -> None:
    topology = single_switch(2, None)
    route = Router(
        ports=fabric_ports(topology), topology=topology, ecmp=DrawnPaths(seed=1)
    )
    with pytest.raises(PlanError, match=r"port 0: sends to 198\.18\.99\.99"):
        route(0, "198.18.99.99", 4791, 49152)


def test_hosts_without_a_path_are_refused() -> None:
    whole = clos(2, 1, 1, None, None)
    parted = Topology(
        hosts=whole.hosts,
        switches=whole.switches,
        links=tuple(link for link in whole.links if "spine" not in link.name),
    )
    with pytest.raises(FabricError, match="there is no path from h0 to h1"):
        router(parted)(0, 1, 49152)


def test_lab_hash_is_symmetric_and_differs_by_switch() -> None:
    topology = clos(2, 8, 2, None, None)
    route = router(topology, ecmp=KernelPaths(seed=7))
    ways = [
        (route(0, 2, port)[1], route(2, 0, port)[1])
        for port in range(49152, 49152 + 64)
    ]
    assert {up for up, _ in ways} == {f"leaf0:up{spine}" for spine in range(8)}
    assert {back for _, back in ways} == {f"leaf1:up{spine}" for spine in range(8)}
    # The hash is that of both directions; what tells the leaves apart are their seeds.
    same = sum(up[-1] == back[-1] for up, back in ways)
    assert 0 < same < 24
    addresses = [port.address for port in fabric_ports(topology)]
    bounds = upper_bounds([1] * 8)
    for (up, back), port in zip(ways, range(49152, 49152 + 64), strict=True):
        for leaf, found in enumerate((up, back)):
            value = kernel_hash(
                hash_seed(7, leaf),
                source=addresses[0],
                destination=addresses[2],
                source_port=port,
                destination_port=4791,
            )
            assert found == f"leaf{leaf}:up{next_hop(value, bounds)}"


def test_paths_of_a_queue_pair_are_links_between_switches() -> None:
    topology = clos(2, 2, 2, None, None)
    world = world_group(4)
    plan = make_plan(
        [program(rank, world, [collective("all_to_all", 64)]) for rank in range(4)],
        topology,
    )
    ecmp = KernelPaths(seed=3)
    ways = PathFinder(plan, topology, ecmp)
    route = router(topology, ecmp=ecmp)
    for rank in plan.ranks():
        number = rank.program.rank
        for pair in rank.queue_pairs:
            (way,) = ways(rank.program.job, number, pair.qpn)
            ends = route(number, pair.peer_rank, pair.source_port)
            assert list(way) == ends[1:-1]
            assert bool(way) == (number // 2 != pair.peer_rank // 2)
