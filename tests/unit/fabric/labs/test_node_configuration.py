from __future__ import annotations

import socket

import pytest

from chakram.fabric.labs.node_configuration import NetworkRequests
from chakram.topology.addressing import plan_addresses
from chakram.topology.topology import PortRef
from tests.leaf_spines import clos
from tests.unit.fabric.links import GBIT
from tests.unit.fabric.netlink_messages import decoded, fields_of


def test_both_ends_of_an_uplink_have_addresses_and_neighbors() -> None:
    topology = clos(2, 1, 1, GBIT, GBIT)
    addresses = plan_addresses(topology)
    indexes: dict[PortRef, int] = {}
    for link in topology.links:
        for end in (link.a, link.b):
            indexes[end] = len(indexes) + 10
    requests = NetworkRequests(topology, addresses, indexes, is_model=False)
    for routed in addresses.routed_links:
        link = next(each for each in topology.links if each.name == routed.link)
        own = {link.a.node: routed.a_address, link.b.node: routed.b_address}
        for switch, other in ((link.a.node, link.b.node), (link.b.node, link.a.node)):
            said = [each.what for each in requests.of_switch(switch)]
            assert f"address {own[switch]}/{routed.prefix_length}" in said
            assert f"neighbor {own[other]}" in said
            assert f"neighbor {own[switch]}" not in said


def packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET, address)


@pytest.mark.parametrize("is_model", [False, True])
def test_host_has_its_address_neighbors_and_gateway(is_model: bool) -> None:
    topology = clos(2, 1, 2, GBIT, GBIT)
    addresses = plan_addresses(topology)
    requests = NetworkRequests(topology, addresses, {}, is_model=is_model)

    found = requests.of_host("h0")

    # The interface of every host has number 101.
    up, address, *others = found
    assert fields_of([up, address], "index", "flags", "prefix_length") == [
        ("NEWLINK", 101, 1, 0),
        ("NEWADDR", 101, 0, requests.prefix_length("h0")),
    ]
    neighbors = {
        decoded(each).attributes[1]
        for each in others
        if fields_of([each], "index") == [("NEWNEIGH", 101)]
    }
    own = addresses.host("h0")
    assert own.gateway is not None
    if is_model:
        # One program represents all switches: all addresses are neighbors.
        near = {packed(addresses.host(each).address) for each in ("h1", "h2", "h3")}
        assert neighbors == near
        assert len(others) == 3
        assert requests.prefix_length("h0") == 15
    else:
        assert neighbors == {packed(addresses.host("h1").address), packed(own.gateway)}
        route = decoded(others[-1])
        assert route.kind == "NEWROUTE"
        assert route.attributes[5] == packed(own.gateway)
        assert route.attributes[4] == (101).to_bytes(4, "little")
        assert requests.prefix_length("h0") == own.prefix_length
