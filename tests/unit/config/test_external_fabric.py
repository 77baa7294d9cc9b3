"""Fabrics of real hosts in the experiment file, of both families of addresses."""

from __future__ import annotations

from fractions import Fraction

import pytest

from chakram.config.experiment import parse_experiment
from chakram.fabric.fabric_types.external import ExternalFabric
from tests.unit.config.texts import EXTERNAL, EXTERNAL_IPV6, mistakes_of


def test_external_fabric_is_read() -> None:
    experiment = parse_experiment(EXTERNAL)
    assert isinstance(experiment.fabric, ExternalFabric)
    first = experiment.fabric.hosts[0].ports[0]
    assert str(first.address) == "198.18.1.1/24"
    assert experiment.jobs[0].size_scale == Fraction(1, 16)
    assert experiment.jobs[0].compute.memory_bytes_per_s == 3_350_000_000_000


def test_an_external_fabric_of_ipv6_is_read() -> None:
    fabric = parse_experiment(EXTERNAL_IPV6).fabric
    assert isinstance(fabric, ExternalFabric)
    assert str(fabric.hosts[0].ports[0].address.ip) == "2001:2:0:1::1"
    assert fabric.family == "ipv6"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("2001:2:0:1::1/64", "2001:2:0:1::/64", "is not the address of a single port"),
        ("2001:2:0:1::1/64", "ff02::1/64", "is not the address of a single port"),
        (
            "2001:2:0:1::1/64",
            "fe80::1/64",
            "a link-local address may belong to another host",
        ),
        ("2001:2:0:1::1/64", "::ffff:198.18.1.1/120", "represents an IPv4 address"),
        ("2001:2:0:1::1/64", "2001:db8::1/64", "outside the allowed prefixes"),
        ("2001:2:0:1::1/64", "2001:2:0:1::1", "an address with its prefix length"),
        ("2001:2:0:1::2/64", "2001:2:0:1::1/64", "is the address of a port of h1"),
        ("2001:2:0:1::1/64", "198.18.1.1/24", "they cannot reach each other"),
        ("mtu: 9000", "mtu: 1279", "1279 is less than the smallest MTU of IPv6"),
        (
            "/run/netns/p1",
            "/run/netns/p1, mtu: 1279",
            "1279 is less than the smallest MTU of IPv6",
        ),
        ("  tls:", "  allow: ['::/0']\n  tls:", "is wider than /32"),
    ],
)
def test_a_mistake_in_an_external_fabric_of_ipv6(
    old: str, new: str, expected: str
) -> None:
    assert old in EXTERNAL_IPV6
    assert expected in mistakes_of(EXTERNAL_IPV6.replace(old, new))


def test_a_link_of_two_has_no_address_that_is_not_a_ports() -> None:
    text = EXTERNAL_IPV6.replace("2001:2:0:1::1/64", "2001:2:0:1::/127")
    assert parse_experiment(text).fabric


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("198.18.1.1/24", "10.0.0.1/24", "outside the allowed prefixes 198.18.0.0/15"),
        ("198.18.1.1/24", "198.18.1.1", "not an address with its prefix length"),
        ("198.18.1.1/24", "198.18.1.0/24", "not the address of a single port"),
        ("198.18.1.1/24", "224.0.0.1/24", "not the address of a single port"),
        ("198.18.1.2/24", "198.18.1.1/24", "198.18.1.1 is the address of a port of h1"),
        ("netns: /run/netns/p1", "mtu: 9000", "has no netns"),
        ("netns: /run/netns/p1", "netns: /run/netns/p0", "shares a network namespace"),
        ("udp:ens1f1", "tcp:ens1f1", "is not a port specification"),
        ("udp:ens1f1", "packet:ens1f1", "is not a port specification"),
        ("udp:ens1f1", "verbs:../etc", "'../etc' is not the name of a device"),
        ("udp:ens1f1", "udp:roceP22p195s0f1v12", "not the name of an interface"),
        ("udp:ens1f1", "udp:../etc", "'../etc' is not the name of an interface"),
        ("192.0.2.11:7411", "192.0.2.11", "is not the address of an agent"),
        ("192.0.2.11:7411", "192.0.2.11:74110", "is not the address of an agent"),
        ("unix:/run/chakram/h2.sock", "unix:h2.sock", "is not an absolute path"),
        ("name: h2", "name: h1", "host 0 also has 'h1' (give every host a unique name"),
        ("  tls:", "  allow: [0.0.0.0/0]\n  tls:", "is wider than /8"),
        ("rate: 100Gbit", "topology: 3", "unknown key"),
        ("  tls:", "  allow: [net]\n  tls:", "'net' is not a prefix"),
        ("{path: traces/mixtral,", "{path: 3,", "trace.path: is not a path"),
        ('agent: "unix:/run/chakram/h2.sock"', "agent: 192.0.2.11:7411", "under one"),
    ],
)
def test_a_mistake_in_an_external_fabric(old: str, new: str, expected: str) -> None:
    assert old in EXTERNAL
    assert expected in mistakes_of(EXTERNAL.replace(old, new, 1))


def test_names_of_devices_may_be_longer_than_those_of_interfaces() -> None:
    text = EXTERNAL.replace("udp:ens1f1", "verbs:roceP22p195s0f1v12", 1)
    assert parse_experiment(text).fabric


def test_agents_on_other_machines_need_certificates() -> None:
    text = "\n".join(line for line in EXTERNAL.splitlines() if "tls:" not in line)
    told = mistakes_of(text)
    assert "192.0.2.11:7411 is on another machine" in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("agent", "is_local"),
    [
        ("unix:/run/agent.sock", True),
        ("127.0.0.2:7411", True),
        ("localhost:7411", True),
        ("[::1]:7411", True),
        ("127.example.com:7411", False),
        ("localhost.example.com:7411", False),
        ("[2001:db8::1]:7411", False),
    ],
)
def test_only_addresses_of_this_machine_need_no_certificates(
    agent: str, is_local: bool
) -> None:
    text = "\n".join(line for line in EXTERNAL.splitlines() if "tls:" not in line)
    text = text.replace("192.0.2.11:7411", agent)
    if is_local:
        parse_experiment(text)
    else:
        assert f"{agent} is on another machine" in mistakes_of(text)


def test_the_smallest_mtu_of_all_ports_decides() -> None:
    text = EXTERNAL.replace("p1}", "p1, mtu: 1500}") + "transport: {path_mtu: 4096}\n"
    assert "the fabric's MTU of 1500 (use at most 1024, or" in mistakes_of(text)


def test_rates_of_ports_that_simulations_do_not_use_are_warned_about() -> None:
    def warnings(
        links: str, topology: str = "{single_switch: {hosts: 3}}"
    ) -> list[str]:
        overrides = {"fabric.topology": topology, "fabric.links": links}
        return parse_experiment(EXTERNAL, overrides=overrides).fabric.warnings()

    assert parse_experiment(EXTERNAL).fabric.warnings() == []
    assert warnings("{host: {rate: 100Gbit}}") == []
    (warning,) = warnings("{}")
    assert "links of 3 of 3 ports" in warning
    assert "h1:udp:ens1f0: without rate instead of 100Gbit/s" in warning
    graph = (
        "{graph: {hosts: [a, b, c], switches: [s], links: [{ends: [a, s]}, "
        "{ends: [b, s]}, {ends: [c, s], rate: 10Gbit}]}}"
    )
    (warning,) = warnings("{host: {rate: 100Gbit}}", graph)
    assert "links of 1 of 3 ports" in warning
    assert "h2: 10Gbit/s instead of 100Gbit/s" in warning


def test_predicting_by_simulation_needs_a_topology() -> None:
    text = EXTERNAL + "predict: [simulate]\n"
    assert "simulate requires a description of the fabric" in mistakes_of(text)
    with_topology = text.replace(
        "  tls:", "  topology: {single_switch: {hosts: 3}}\n  tls:"
    )
    parse_experiment(with_topology)
    too_small = with_topology.replace("{hosts: 3}", "{hosts: 2}")
    assert "has 2 hosts, but fabric.hosts has 3 ports" in mistakes_of(too_small)
