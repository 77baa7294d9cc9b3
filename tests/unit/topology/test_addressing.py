from __future__ import annotations

import ipaddress

import pytest

from chakram.foundation.errors import FabricError
from chakram.topology.addressing import (
    BENCHMARK_SPACES,
    HostAddress,
    RoutedLink,
    Subnet,
    host_mac,
    loopback_address,
    loopback_addresses,
    plan_addresses,
    port_mac,
    room_for_links,
    room_for_switches,
    switch_mac,
)
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos

GBIT = 10**9


def test_single_switch_is_one_subnet_without_gateway() -> None:
    plan = plan_addresses(single_switch(2, GBIT))

    assert plan.host("h1") == HostAddress(
        host="h1",
        address="198.18.0.2",
        prefix_length=24,
        mac="02:ca:00:00:00:01",
        gateway=None,
    )
    assert plan.subnets == (
        Subnet(
            switch="s0",
            network="198.18.0.0",
            prefix_length=24,
            gateway="198.18.0.254",
            gateway_mac="02:cb:00:00:00:00",
        ),
    )
    assert plan.routed_links == ()


def test_clos_has_a_subnet_per_leaf_and_a_31_per_uplink() -> None:
    plan = plan_addresses(clos(2, 2, 2, GBIT, GBIT))

    assert [(each.address, each.gateway) for each in plan.hosts] == [
        ("198.18.0.1", "198.18.0.254"),
        ("198.18.0.2", "198.18.0.254"),
        ("198.18.1.1", "198.18.1.254"),
        ("198.18.1.2", "198.18.1.254"),
    ]
    assert [each.switch for each in plan.subnets] == ["leaf0", "leaf1"]
    assert plan.routed_links[1] == RoutedLink(
        link="leaf0-spine1",
        prefix_length=31,
        a_address="198.19.0.2",
        b_address="198.19.0.3",
        a_mac="02:cc:00:00:00:02",
        b_mac="02:cc:00:00:00:03",
    )


def test_ipv6_has_a_64_per_leaf_and_a_127_per_uplink() -> None:
    plan = plan_addresses(clos(2, 2, 2, GBIT, GBIT), "ipv6")

    assert [
        (each.address, each.prefix_length, each.gateway) for each in plan.hosts
    ] == [
        ("2001:2::1", 64, "2001:2::fffe"),
        ("2001:2::2", 64, "2001:2::fffe"),
        ("2001:2:0:1::1", 64, "2001:2:0:1::fffe"),
        ("2001:2:0:1::2", 64, "2001:2:0:1::fffe"),
    ]
    assert plan.subnets[1].network == "2001:2:0:1::"
    assert plan.routed_links[1] == RoutedLink(
        link="leaf0-spine1",
        prefix_length=127,
        a_address="2001:2:0:8000::2",
        b_address="2001:2:0:8000::3",
        a_mac="02:cc:00:00:00:02",
        b_mac="02:cc:00:00:00:03",
    )


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_all_addresses_are_unique_and_inside_the_benchmark_space(family: str) -> None:
    plan = plan_addresses(clos(8, 4, 32, GBIT, GBIT), family)
    space = ipaddress.ip_network(BENCHMARK_SPACES[family])
    assert plan.family == family

    addresses = [
        *(each.address for each in plan.hosts),
        *(each.gateway for each in plan.subnets),
        *(each.a_address for each in plan.routed_links),
        *(each.b_address for each in plan.routed_links),
    ]
    macs = [
        *(each.mac for each in plan.hosts),
        *(each.gateway_mac for each in plan.subnets),
        *(each.a_mac for each in plan.routed_links),
        *(each.b_mac for each in plan.routed_links),
    ]

    assert len(set(addresses)) == len(addresses)
    assert len(set(macs)) == len(macs)
    assert all(ipaddress.ip_address(each) in space for each in addresses)


@pytest.mark.parametrize(
    ("nhosts", "prefix_length"), [(253, 24), (254, 23), (1024, 21)]
)
def test_subnet_grows_with_its_hosts(nhosts: int, prefix_length: int) -> None:
    plan = plan_addresses(single_switch(nhosts, None))
    subnet = plan.subnets[0]
    network = ipaddress.IPv4Network(f"{subnet.network}/{subnet.prefix_length}")
    last = ipaddress.IPv4Address(plan.hosts[-1].address)

    assert subnet.prefix_length == prefix_length
    assert ipaddress.IPv4Address(subnet.gateway) in network
    assert last in network
    assert last < ipaddress.IPv4Address(subnet.gateway)


def test_subnet_larger_than_24_begins_at_a_multiple_of_its_size() -> None:
    # One small leaf first, so that the next free address is no multiple of 512.
    plan = plan_addresses(clos(3, 1, 300, None, None))

    for subnet in plan.subnets:
        ipaddress.IPv4Network(f"{subnet.network}/{subnet.prefix_length}")  # strict


def test_too_many_hosts_are_refused() -> None:
    with pytest.raises(
        FabricError, match=r"not enough addresses in 198\.18\.0\.0/16 .* of leaf256"
    ):
        plan_addresses(clos(257, 1, 1, None, None))
    plan_addresses(clos(257, 1, 1, None, None), "ipv6")


def test_too_many_uplinks_are_refused() -> None:
    topology = clos(256, 129, 1, None, None)
    with pytest.raises(FabricError, match="for 33024 links between switches"):
        plan_addresses(topology)
    # An IPv6 address space has room for them, and begins with the same addresses.
    links = plan_addresses(topology, "ipv6").routed_links
    assert links[0].a_address == "2001:2:0:8000::"
    assert links[-1].b_address == "2001:2:0:8000::1:1ff"


@pytest.mark.slow  # more hosts than a smaller number could represent
@pytest.mark.soak
@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_a_subnet_has_room_for_its_gateway(family: str) -> None:
    plan = plan_addresses(single_switch(65_533, None), family)
    last, gateway = plan.hosts[-1].address, plan.subnets[0].gateway
    assert int(ipaddress.ip_address(last)) + 1 == int(ipaddress.ip_address(gateway))
    with pytest.raises(FabricError, match="not enough addresses in"):
        plan_addresses(single_switch(65_534, None), family)


def test_address_space_equals_that_of_a_plan() -> None:
    # A /24 for 253 hosts and the gateway, a /23 for one more.
    assert [room_for_switches(hosts) for hosts in (1, 253, 254)] == [256, 256, 128]
    assert room_for_switches(65_534) == 0
    assert len(plan_addresses(clos(256, 1, 1, None, None)).subnets) == 256
    with pytest.raises(FabricError, match="not enough addresses"):
        plan_addresses(clos(257, 1, 1, None, None))
    assert room_for_links() == 256 * 128
    links = plan_addresses(clos(256, 128, 1, None, None)).routed_links
    assert len(links) == 256 * 128


def test_unknown_host_is_refused() -> None:
    with pytest.raises(FabricError, match="there is no host 'h9'"):
        plan_addresses(single_switch(2, None)).host("h9")


def test_macs_are_unicast_and_locally_administered() -> None:
    for mac in (host_mac(0), switch_mac(255), port_mac(2**32 - 1)):
        assert int(mac[:2], 16) & 0b11 == 0b10
    assert port_mac(0x01020304) == "02:cc:01:02:03:04"


@pytest.mark.parametrize("number", [-1, 2**32])
def test_mac_refuses_numbers_beyond_32_bits(number: int) -> None:
    with pytest.raises(FabricError, match="does not fit"):
        host_mac(number)


def test_loopback_addresses_count_up_from_127_18_0_1() -> None:
    assert loopback_addresses(2) == ("127.18.0.1", "127.18.0.2")
    assert loopback_addresses(0) == ()
    assert loopback_address(65_534) == "127.18.255.255"


@pytest.mark.parametrize("number", [-1, 65_535])
def test_loopback_refuses_hosts_without_an_address(number: int) -> None:
    with pytest.raises(FabricError, match=f"no loopback address for host {number}"):
        loopback_address(number)


def test_too_many_loopback_hosts_are_refused_before_any_is_made() -> None:
    with pytest.raises(FabricError, match="host 65535"):
        loopback_addresses(65_536)
