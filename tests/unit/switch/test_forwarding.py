"""Paths of flows: batch draws equal single choices, also after link changes."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

import pytest

from chakram.predict.simulator.switch_fabric import SwitchFabric
from chakram.switch.balancing import PACKET_BALANCINGS
from chakram.switch.ecmp import DrawnPaths, Flow
from chakram.switch.keyed_random import flow_hash
from chakram.switch.profiles import Profile, fifo
from chakram.switch.settings import BALANCINGS
from tests.leaf_spines import clos
from tests.property.modeled_switches import flow_to, ring, two_leaves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.switch.headroom import LinkEnd
    from chakram.switch.model import SwitchModel
    from chakram.switch.settings import SwitchSettings

LEAVES, SPINES, HOSTS = 3, 4, 2
RANKS = LEAVES * HOSTS
SEED = -3
"""Seeds may be any numbers."""


def plain(ends: Sequence[LinkEnd]) -> SwitchSettings:
    return fifo(ends, queue_bytes=[None] * len(ends))


def way(model: SwitchModel, flow: int, source: int, destination: int) -> list[int]:
    """Return the ports by which a flow leaves switches from one host to another."""
    target = model.port(model.host_port(destination)).node
    port = model.port(model.port(model.host_port(source)).peer)
    ports: list[int] = []
    while port.node != target:
        ports.append(model.forwarding.egress(flow, len(ports), port.node, target, 0))
        if ports[-1] < 0:
            break
        port = model.port(model.port(ports[-1]).peer)
    return ports


def add_drawn(model: SwitchModel, ends: tuple[int, int], port: int) -> tuple[int, int]:
    """Add a flow twice, by its hash and by its chooser; return both numbers."""
    source, destination = ends
    entry = model.port(model.port(model.host_port(source)).peer).node
    node = model.port(model.host_port(destination)).node
    flow = Flow(
        sender=source,
        receiver=destination,
        source="198.18.0.1",
        destination="198.18.0.2",
        source_port=port,
        destination_port=4791,
    )
    return (
        model.forwarding.add_drawn_flow(entry, node, flow_hash(SEED, *ends, port)),
        model.forwarding.add_flow(
            entry, node, partial(DrawnPaths(seed=SEED).chooser, flow)
        ),
    )


def test_draws_of_many_flows_equal_single_draws_after_a_fault() -> None:
    topology = clos(LEAVES, SPINES, HOSTS, None, None)
    model = SwitchFabric(topology, Profile(), ecn=False, seed=SEED).model
    rng = random.Random(5)
    flows = [
        (ends, add_drawn(model, ends, 49152 + port))
        for ends in ((a, b) for a in range(RANKS) for b in range(RANKS) if a != b)
        for port in rng.sample(range(1 << 14), 4)
    ]
    # Uplinks of two leaves, and back again.
    first = model.host_port(0)
    ups = [
        port.number
        for port in model.ports()
        if port.number < first and not port.is_host and ":up" in str(port.name)
    ]
    used = []
    for number, is_up in ((ups[0], False), (ups[5], False), (ups[0], True)):
        ways = []
        for (source, destination), (drawn, chosen) in flows:
            found = way(model, drawn, source, destination)
            assert found == way(model, chosen, source, destination)
            assert len(found) == (1 if source // HOSTS == destination // HOSTS else 3)
            ways.append(found)
        used.append({port for each in ways for port in each})
        model.set_link(number, is_up, 0)
    assert [set(ups) - each for each in used] == [set(), {ups[0]}, {ups[0], ups[5]}]


@pytest.mark.parametrize("switches", [4, 5, 17, 80])
def test_paths_may_have_any_number_of_hops(switches: int) -> None:
    wires, _ = ring(switches, plain)
    model = wires.model
    short = flow_to(wires, 2, 3)
    flow = flow_to(wires, 0, switches - 1)
    last = flow_to(wires, 1, 2)
    assert len(way(model, flow, 0, switches - 1)) == switches
    assert len(way(model, short, 2, 3)) == 2
    assert way(model, last, 1, 2) == [3 * 1 + 1, 3 * 2]
    assert all(model.forwarding.has_path(each) for each in (short, flow, last))


def test_packet_off_its_path_continues_from_its_switch() -> None:
    wires, _ = ring(4, plain)
    flow = flow_to(wires, 0, 1)
    target = wires.model.port(wires.model.host_port(1)).node
    egress = wires.model.forwarding.egress
    # At switch 3, as if a link had sent it there while it was in flight.
    assert [egress(flow, hop, 3, target, 0) for hop in (0, 1, 2, 9)] == [10] * 4


def test_sprayed_packets_have_no_path() -> None:
    wires = two_leaves(spines=2, balancing="round_robin")
    forwarding = wires.model.forwarding
    assert not forwarding.has_path(0)
    target = wires.model.port(wires.model.host_port(1)).node
    assert {forwarding.egress(0, 0, 0, target, 0) for _ in range(4)} == {1, 2}


def test_every_balancing_but_hash_has_a_class() -> None:
    assert {"hash", *PACKET_BALANCINGS} == {*BALANCINGS}
