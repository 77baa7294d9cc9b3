from __future__ import annotations

from chakram.fabric.addressing import plan_addresses
from chakram.fabric.network_requests import NetworkRequests
from chakram.fabric.topology import PortRef
from tests.leaf_spines import clos
from tests.unit.fabric.links import GBIT


def test_both_ends_of_a_link_between_switches_know_themselves_and_each_other() -> None:
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
            assert f"neighbour {own[other]}" in said
            assert f"neighbour {own[switch]}" not in said
