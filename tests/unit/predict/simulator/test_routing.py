from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from chakram.errors import FabricError, PlanError
from chakram.fabric.shapes import clos, single_switch
from chakram.fabric.topology import Link, PortRef, Topology
from chakram.plan.plan import PortPlan
from chakram.predict.simulator.engine import Wire
from chakram.predict.simulator.routing import Router, flow_hash
from chakram.testing.plans import fabric_ports


def router(
    topology: Topology, *, seed: int = 1, ports: list[PortPlan] | None = None
) -> Router:
    """A router for ports that all send to all, by their index."""
    ports = fabric_ports(topology) if ports is None else ports
    everyone = [(port.address, port.udp_port) for port in ports]
    return Router(
        ports=ports,
        destinations=[everyone] * len(ports),
        topology=topology,
        wires={
            end: Wire(name=str(end), rate_bps=None, delay_ns=0)
            for link in topology.links
            for end in (link.a, link.b)
        },
        seed=seed,
    )


def path(route: Router, source: int, destination: int, source_port: int) -> list[str]:
    wires, receiver = route(source, destination, source_port)
    assert receiver == destination
    return [wire.name for wire in wires]


def test_two_hosts_of_a_switch_are_two_wires_apart() -> None:
    assert path(router(single_switch(3, None)), 0, 2, 49152) == ["h0:eth0", "s0:h2"]


def test_a_port_reaches_itself_without_a_wire() -> None:
    assert path(router(single_switch(3, None)), 1, 1, 49152) == []


def test_hosts_of_two_leaves_meet_at_a_spine() -> None:
    names = path(router(clos(2, 2, 2, None, None)), 0, 3, 49152)
    spine = names[1][-1]
    assert names == ["h0:eth0", f"leaf0:up{spine}", f"spine{spine}:down1", "leaf1:h3"]


def test_flows_spread_over_all_paths() -> None:
    route = router(clos(2, 4, 8, None, None))
    used = Counter(
        path(route, source, 8 + target, 49152 + port)[1]
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
    used = Counter(tuple(path(route, 0, 1, port)[1:3]) for port in range(400))
    assert len(used) == 4
    assert all(70 < count < 130 for count in used.values())


def test_a_flow_keeps_its_path_and_the_seed_decides_it() -> None:
    topology = clos(2, 2, 4, None, None)
    flows = [(0, 4 + target, 49152 + port) for target in range(4) for port in range(8)]
    choices = {
        seed: [path(router(topology, seed=seed), *flow) for flow in flows]
        for seed in (1, 2)
    }
    again = router(topology, seed=1)
    assert [path(again, *flow) for flow in flows] == choices[1]
    assert [path(again, *flow) for flow in flows] == choices[1]
    assert choices[1] != choices[2]


def test_hashes_of_neighbours_differ() -> None:
    hashes = {flow_hash(7, 0, 1, port) for port in range(49152, 49152 + 64)}
    assert len(hashes) == 64
    assert len({value % 4 for value in hashes}) == 4
    assert all(0 <= value < 1 << 32 for value in hashes)
    assert flow_hash(1, 2, 3, 4) != flow_hash(1, 3, 2, 4)


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
    ports = fabric_ports(topology)
    route = Router(
        ports=ports,
        destinations=[[("198.18.99.99", 4791)], []],
        topology=topology,
        wires={},
        seed=1,
    )
    with pytest.raises(PlanError, match=r"port 0: sends to 198\.18\.99\.99"):
        route(0, 0, 49152)


def test_hosts_without_a_path_are_refused() -> None:
    whole = clos(2, 1, 1, None, None)
    parted = Topology(
        hosts=whole.hosts,
        switches=whole.switches,
        links=tuple(link for link in whole.links if "spine" not in link.name),
    )
    with pytest.raises(FabricError, match="there is no path from h0 to h1"):
        router(parted)(0, 1, 49152)
