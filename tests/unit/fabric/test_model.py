"""The ideal's view of a topology."""

import pytest

from chakram.errors import FabricError
from chakram.fabric.model import fabric_model
from chakram.fabric.shapes import clos, single_switch
from chakram.fabric.topology import Link, PortRef, Topology
from chakram.predict.network_model import PathModel


def test_a_leaf_spine_fabric() -> None:
    topology = clos(2, 2, 2, 250, 400, host_delay_ns=5, uplink_delay_ns=7)
    model = fabric_model(topology, {0: "h0", 1: "h1", 2: "h2", 3: "h0"})
    assert model.port_of == {0: 0, 1: 1, 2: 2, 3: 0}
    assert [(port.rate_bps, port.switch) for port in model.ports] == [
        (250, "leaf0"),
        (250, "leaf0"),
        (250, "leaf1"),
    ]
    assert model.uplinks_bps["leaf0"] == 800
    assert model.path(0, 1) == PathModel(delay_ns=10, rates_bps=(250, 250))
    assert model.path(0, 2) == PathModel(delay_ns=24, rates_bps=(250, 400, 400, 250))


def test_unlimited_uplinks_are_unlimited_together() -> None:
    model = fabric_model(clos(2, 1, 1, None, None), {0: "h0", 1: "h1"})
    assert model.uplinks_bps == {"leaf0": None, "leaf1": None, "spine0": None}
    assert model.ports[0].rate_bps is None


def test_a_star_has_no_uplinks() -> None:
    assert fabric_model(single_switch(2, 9), {0: "h0", 1: "h1"}).uplinks_bps == {}


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
        model.path(0, 1)
