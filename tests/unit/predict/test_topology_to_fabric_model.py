"""Conversion of a topology to the model of the bound."""

from dataclasses import replace

import pytest

from chakram.foundation.errors import FabricError
from chakram.predict.topology_to_fabric_model import fabric_model
from chakram.topology.topology import Link, PortRef, Topology
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos


def test_leaf_spine_fabric_is_converted() -> None:
    topology = clos(2, 2, 2, 250, 400, host_delay_ns=5, uplink_delay_ns=7)
    model = fabric_model(topology, {0: "h0", 1: "h1", 2: "h2", 3: "h0", 4: "h3"})
    assert model.port_of == {0: 0, 1: 1, 2: 2, 3: 0, 4: 3}
    assert model.ports_bps == (250, 250, 250, 250)
    assert [hop[1:4] for hop in model.hops(0, 1)] == [(250, 250, 5)] * 2
    crossing = model.hops(0, 2)
    assert [hop[1:4] for hop in crossing] == [
        (250, 250, 5),
        (400, 800, 7),
        (400, 800, 7),
        (250, 250, 5),
    ]
    # The uplinks of a leaf are one line for any source and destination.
    assert crossing[1:3] == model.hops(1, 3)[1:3]
    assert len({hop.line for hop in (*crossing, *model.hops(2, 0))}) == 8


def test_parallel_links_form_one_line() -> None:
    topology = clos(2, 1, 1, 10, 40)
    twice = replace(
        topology,
        links=(
            *topology.links,
            *(
                replace(
                    link,
                    a=replace(link.a, port=f"{link.a.port}b"),
                    b=replace(link.b, port=f"{link.b.port}b"),
                    name=f"{link.name}b",
                    delay_ns=9,
                )
                for link in topology.uplinks()
            ),
        ),
    )
    model = fabric_model(twice, {0: "h0", 1: "h1"})
    assert [hop[1:4] for hop in model.hops(0, 1)[1:3]] == [(40, 80, 0)] * 2


def test_unlimited_uplinks_are_unlimited_together() -> None:
    model = fabric_model(clos(2, 1, 1, None, None), {0: "h0", 1: "h1"})
    assert {hop[1:4] for hop in model.hops(0, 1)} == {(None, None, 0)}
    assert model.ports_bps == (None, None)


def test_ports_of_a_lab_may_be_ahead_of_their_rate() -> None:
    topology = replace(clos(1, 1, 2, 10**8, 10**8), is_shaped=True)
    model = fabric_model(topology, {0: "h0", 1: "h1"}, burst_bytes=10_000)
    # A host by a burst, a switch by what an idle port saves as well.
    assert [hop.ahead_ns for hop in model.hops(0, 1)] == [800_000, 2_000_000]


@pytest.mark.parametrize(
    ("rate_bps", "is_shaped", "at_host", "at_switch"),
    [
        # Hosts save 2 ms of their rate, switches 200 us; both 15,000 bytes at least.
        (10**9, True, 250_000, 25_000),
        (10**10, True, 2_500_000, 250_000),
        (10**6, True, 15_000, 15_000),
        (10**9, False, None, None),
        (None, True, None, None),
    ],
)
def test_credit_of_an_idle_port_is_bounded(
    rate_bps: int | None,
    is_shaped: bool,
    at_host: int | None,
    at_switch: int | None,
) -> None:
    topology = replace(single_switch(2, rate_bps), is_shaped=is_shaped)
    link = topology.host_link("h0")

    saved = [topology.saved_bytes(end.node, link) for end in (link.a, link.b)]
    found = dict(zip((link.a.node, link.b.node), saved, strict=True))
    assert found.pop("h0") == at_host
    assert [*found.values()] == [at_switch]


def test_an_unknown_host_is_refused() -> None:
    with pytest.raises(FabricError, match="'h9'"):
        fabric_model(single_switch(2, 9), {0: "h9"})


def test_hosts_without_a_path_are_refused() -> None:
    def link(host: str, switch: str) -> Link:
        return Link(
            a=PortRef(node=host, port="eth0"),
            b=PortRef(node=switch, port=host),
            rate_bps=1,
            name=f"{host}-{switch}",
        )

    topology = Topology(
        hosts=("a", "b"), switches=("s", "t"), links=(link("a", "s"), link("b", "t"))
    )
    model = fabric_model(topology, {0: "a", 1: "b"})
    with pytest.raises(FabricError, match="no path from a to b"):
        model.hops(0, 1)
