"""Fabric types: their topologies, and their descriptions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.fabric.fabric_types.external import ExternalFabric
from chakram.fabric.fabric_types.link_settings import DEFAULT_QUEUE_BYTES
from chakram.fabric.fabric_types.loopback import LoopbackFabric
from chakram.fabric.fabric_types.namespaces import NamespaceFabric
from chakram.fabric.fabric_types.topology_settings import (
    SingleSwitchShape,
    TopologySettings,
)
from chakram.foundation.errors import ConfigError
from chakram.switch.ecmp import DrawnPaths, EcmpHash, KernelPaths
from chakram.switch.ecmp_hashes import CrcPaths, Ns3Paths
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos


def test_single_switch() -> None:
    fabric = NamespaceFabric.model_validate(
        {
            "kind": "namespaces",
            "topology": {"single_switch": {"hosts": 3}},
            "links": {"host": {"rate": "1Gbit", "delay": "2us", "queue": "64KiB"}},
        }
    )
    wires = single_switch(3, 10**9, host_delay_ns=2000, host_queue_bytes=65536)
    assert fabric.to_topology() == replace(wires, is_shaped=True)


def test_leaf_spine_with_and_without_rates() -> None:
    fabric = NamespaceFabric.model_validate(
        {
            "kind": "namespaces",
            "topology": {"clos": {"leaves": 2, "spines": 3, "hosts_per_leaf": 4}},
            "links": {"uplink": {"rate": "500Mbit"}},
        }
    )
    wires = clos(*(2, 3, 4, None, 500_000_000), uplink_queue_bytes=DEFAULT_QUEUE_BYTES)
    assert fabric.to_topology() == replace(wires, is_shaped=True)


@pytest.mark.parametrize(
    ("links", "more"),
    [
        ({"host": {"rate": "11Gbit"}}, {}),
        ({"host": {"rate": "1Gbit", "ecn": "4KB/16KB/0.2"}}, {}),
        ({"host": {"rate": "1Gbit"}}, {"switches": {"profile": "sonic"}}),
        ({"host": {"rate": "1Gbit"}}, {"switch": "model"}),
    ],
)
def test_features_that_kernels_lack_are_refused_in_labs(
    links: dict[str, object], more: dict[str, object]
) -> None:
    fabric = NamespaceFabric.model_validate(
        {
            "kind": "namespaces",
            "topology": {"single_switch": {"hosts": 3}},
            "links": links,
            **more,
        }
    )
    assert not fabric.to_topology().is_shaped


def test_forwarding_hosts_are_refused_in_labs() -> None:
    fabric = NamespaceFabric.model_validate(
        {
            "kind": "namespaces",
            "topology": {"torus": {"dimensions": [2, 2]}},
            "links": {"host": {"rate": "1Gbit"}, "uplink": {"rate": "1Gbit"}},
        }
    )
    assert not fabric.to_topology().is_shaped


def test_loopback_has_the_configured_or_the_needed_number_of_ports() -> None:
    named = LoopbackFabric.model_validate(
        {"kind": "loopback", "ports": 4, "rate": "1Gbit"}
    )
    assert named.to_topology(9) == single_switch(4, 10**9)
    unnamed = LoopbackFabric.model_validate({"kind": "loopback"})
    assert unnamed.to_topology(2) == single_switch(2, None)
    with pytest.raises(ConfigError, match=r"fabric\.ports"):
        unnamed.to_topology()


def test_external_fabric_needs_no_topology() -> None:
    section = {
        "kind": "external",
        "hosts": [
            {
                "name": "a",
                "agent": "unix:/run/a.sock",
                "ports": [{"open": "udp:eth0", "address": "198.18.0.1/24"}],
            }
        ],
    }
    assert ExternalFabric.model_validate(section).to_topology() is None
    told = section | {"topology": {"single_switch": {"hosts": 1}}}
    assert ExternalFabric.model_validate(told).to_topology() == single_switch(
        1, None, names=["a"]
    )


def test_a_topology_without_a_shape_is_refused() -> None:
    fabric = NamespaceFabric.model_validate({"kind": "namespaces", "topology": {}})
    with pytest.raises(ConfigError, match="names no shape"):
        fabric.to_topology()


NAMESPACES = NamespaceFabric(
    kind="namespaces",
    topology=TopologySettings(single_switch=SingleSwitchShape(hosts=4)),
)


def test_ipv6_fabric_reports_its_family() -> None:
    assert NAMESPACES.describe() == (
        "namespaces, single switch, 4 hosts, hosts without rate, MTU 4200"
    )
    of_ipv6 = NAMESPACES.model_copy(update={"addressing": "ipv6"})
    assert of_ipv6.describe().startswith("namespaces, IPv6, single switch")
    loopback = LoopbackFabric(kind="loopback", addressing="ipv6")
    assert loopback.describe() == "loopback, IPv6, no rate per port"


HOSTS = [
    {
        "name": f"h{number}",
        "agent": f"192.0.2.{number}:7411",
        "ports": [{"open": "udp:ens1", "address": f"198.18.0.{number}/24"}],
    }
    for number in range(1, 5)
]


@pytest.mark.parametrize(
    ("named", "ecmp"),
    [
        ({}, DrawnPaths(seed=7)),
        ({"ecmp": "drawn"}, DrawnPaths(seed=7)),
        ({"ecmp": "crc16"}, CrcPaths(bits=16, seed=7)),
        ({"ecmp": "crc32"}, CrcPaths(bits=32, seed=7)),
        ({"ecmp": "ns3"}, Ns3Paths(first_switch=4)),
    ],
)
def test_external_fabric_uses_its_configured_hash(
    named: dict[str, str], ecmp: EcmpHash
) -> None:
    fabric = ExternalFabric.model_validate(
        {"kind": "external", "hosts": HOSTS, **named}
    )
    assert fabric.ecmp_hash(7) == ecmp


def test_labs_use_the_kernel_hash_and_loopback_has_one_path() -> None:
    lab = NamespaceFabric.model_validate(
        {"kind": "namespaces", "topology": {"single_switch": {"hosts": 3}}}
    )
    assert lab.ecmp_hash(7) == KernelPaths(seed=7)
    loopback = LoopbackFabric.model_validate({"kind": "loopback"})
    assert loopback.ecmp_hash(7) == DrawnPaths(seed=7)
