"""InfraGraph documents: reading, refusals, and writing."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import yaml

from chakram.fabric.fabric_types.topology_settings import (
    LinksSettings,
    TopologySettings,
)
from chakram.fabric.infragraph import graph_section, read_infragraph, to_infragraph
from chakram.foundation.errors import ConfigError
from chakram.topology.topology import Topology
from chakram.topology.topology_builders import fat_tree, leaf_spine, rails
from chakram.topology.topology_helpers import LinkKind

HOST = LinkKind(rate_bps=100 * 10**9, delay_ns=500)
UPLINK = LinkKind(rate_bps=400 * 10**9)
CORE = LinkKind(rate_bps=12_500_000)


def document() -> dict[str, Any]:
    """Return two servers of two cards on two leaves, one for each rail, and a spine."""

    def edge(one: str, card: str, other: str, port: str, link: str) -> dict[str, Any]:
        return {
            "ep1": {"instance": one, "component": card},
            "ep2": {"instance": other, "component": port},
            "scheme": "one2one",
            "link": link,
        }

    return {
        "name": "small",
        "devices": [
            {
                "name": "server",
                "components": [
                    {"name": "cpu", "count": 1, "choice": "cpu"},
                    {"name": "nic", "count": 2, "choice": "nic"},
                ],
                "links": [{"name": "pcie"}],
                "edges": [
                    {
                        "ep1": {"component": "nic"},
                        "ep2": {"component": "cpu"},
                        "scheme": "many2many",
                        "link": "pcie",
                    }
                ],
            },
            {
                "name": "switch",
                "components": [{"name": "port", "count": 4, "choice": "port"}],
            },
        ],
        "links": [
            {
                "name": "access",
                "physical": {
                    "bandwidth": {
                        "choice": "gigabits_per_second",
                        "gigabits_per_second": 100,
                    },
                    "latency": {"choice": "us", "us": 0.5},
                },
            },
            {
                "name": "up",
                "physical": {
                    "bandwidth": {
                        "choice": "gigabytes_per_second",
                        "gigabytes_per_second": 50,
                    }
                },
            },
        ],
        "instances": [
            {"name": "host", "device": "server", "count": 2},
            {"name": "leaf", "device": "switch", "count": 2},
            {"name": "spine", "device": "switch", "count": 1},
        ],
        "edges": [
            edge("host", "nic[0]", "leaf[0]", "port[0:2]", "access"),
            edge("host", "nic[1]", "leaf[1]", "port[:2]", "access"),
            edge("leaf[0]", "port[2:]", "spine", "port[0:2]", "up"),
            edge("leaf[1]", "port[2:4]", "spine[0]", "port[2:4]", "up"),
        ],
    }


def read(data: dict[str, Any]) -> Topology:
    return read_infragraph(yaml.safe_dump(data).encode(), source="f.yaml")


def test_cards_are_hosts_and_instances_with_ports_are_switches() -> None:
    topology = read(document())
    assert topology.hosts == ("host0-nic0", "host0-nic1", "host1-nic0", "host1-nic1")
    assert topology.switches == ("leaf0", "leaf1", "spine")
    assert [topology.switch_of(host) for host in topology.hosts] == [
        "leaf0",
        "leaf1",
    ] * 2
    link = topology.host_link("host1-nic1")
    assert (link.rate_bps, link.delay_ns) == (100 * 10**9, 500)
    # Two links side by side on either way up.
    assert len(topology.paths("host0-nic0", "host0-nic1")) == 4
    assert {link.rate_bps for link in topology.uplinks()} == {400 * 10**9}


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("edges", 0, "link"), "no", "edges[0].link: there is no link 'no'"),
        (("edges", 0, "ep2", "component"), "port[0:9]", "out of range: there are 4"),
        (("edges", 0, "ep2", "component"), "port[2:1]", "out of range: there are 4"),
        (("edges", 0, "ep2", "component"), "port[]", "out of range: there are 4"),
        (
            ("edges", 0, "ep2", "component"),
            "port[0:2:1]",
            "is not a valid component with",
        ),
        (
            ("edges", 0, "ep2", "component"),
            "port[0:3]",
            "connects 2 endpoints one to one with 3",
        ),
        (("edges", 0, "ep1", "instance"), "hosts", "there is no instance 'hosts'"),
        (("edges", 0, "ep1", "component"), "cpu", "cpu is a cpu"),
        (("edges", 0, "scheme"), "ring", "rings of ports"),
        (("edges", 0, "scheme"), "many2many", "is already used by edges[0]"),
        (
            ("edges", 2, "ep1", "component"),
            "port[0:2]",
            "leaf.0.port.0 is already used by",
        ),
        (("instances", 0, "count"), 3, "connects 3 endpoints one to one with 2"),
        (("instances", 1, "count"), 3, "leaf[2] has no edge"),
        (("instances", 2, "device"), "box", "there is no device 'box'"),
        (("instances", 2, "name"), "leaf", "'leaf' is used twice"),
        (("instances", 2, "count"), 0, "count: 0 is too small"),
        (("edges", 0, "color"), "red", "color: unknown key"),
        (
            ("links", 1, "physical", "bandwidth", "choice"),
            "gigatransfers_per_second",
            "has no value",
        ),
        (("links", 1, "physical", "latency"), {"choice": "ns"}, "ns has no value"),
        *(
            (
                ("links", 1, "physical", "bandwidth"),
                {"choice": "gigabits_per_second", "gigabits_per_second": value},
                "links[1].physical.bandwidth.gigabits_per_second",
            )
            for value in (math.inf, math.nan, 1e-300, -1)
        ),
        (
            ("links", 1, "physical", "latency"),
            {"choice": "ms", "ms": math.inf},
            "links[1].physical.latency.ms",
        ),
        (
            ("links", 1, "physical", "bandwidth", "gigabytes_per_second"),
            20_000,
            "links: up: bandwidth: 160Tbit is not a valid network rate (1kbit to 100T",
        ),
    ],
)
def test_unsupported_infragraph_is_refused(
    path: tuple[str | int, ...], value: Any, text: str
) -> None:
    data: Any = document()
    at = data
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    with pytest.raises(ConfigError) as caught:
        read(data)
    assert text in str(caught.value)
    assert "f.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "old", "text"),
    [
        ("leaf1", "spine", "leaf[1] and leaf1[0] are both called 'leaf1'"),
        (
            "host0-nic0",
            "host",
            "host[0], nic[0] and host0-nic0[0], nic[0] are both called 'host0-nic0'",
        ),
    ],
)
def test_two_nodes_of_one_name_are_not_merged(name: str, old: str, text: str) -> None:
    data = document()
    data["instances"].append({"name": name, "device": "switch", "count": 1})
    component = "port"
    if old == "host":
        data["devices"].append(
            {
                "name": "box",
                "components": [{"name": "nic", "count": 1, "choice": "nic"}],
            }
        )
        data["instances"][-1]["device"] = "box"
        component = "nic"
    data["edges"].append(
        {
            "ep1": {"instance": name, "component": f"{component}[0]"},
            "ep2": {"instance": "sides", "component": "port[0]"},
            "scheme": "one2one",
            "link": "up",
        }
    )
    data["instances"].append({"name": "sides", "device": "switch", "count": 1})
    with pytest.raises(ConfigError) as caught:
        read(data)
    assert text in str(caught.value)
    assert "(rename an instance)" in str(caught.value)


SHAPES = [
    leaf_spine(2, 2, 2, uplinks=3, host=HOST, uplink=UPLINK),
    fat_tree(2, 2, 2, 2, 1, host=HOST, uplink=UPLINK, core=CORE),
    rails(2, 2, 2, uplinks=2, host=LinkKind(), uplink=UPLINK),
    # More parallel links than one entry of a graph may have.
    leaf_spine(2, 1, 1, uplinks=130, host=HOST, uplink=UPLINK),
]
IDS = ["clos", "fat tree", "rails", "parallel links"]


def facts(topology: Topology) -> tuple[object, ...]:
    """Return the parts of a fabric that do not depend on port names."""
    links = Counter(
        (link.a.node, link.b.node, link.rate_bps, link.delay_ns)
        for link in topology.links
    )
    return topology.hosts, topology.switches, links


@pytest.mark.parametrize("topology", SHAPES, ids=IDS)
def test_written_infragraph_is_read_back(topology: Topology) -> None:
    assert facts(read(to_infragraph(topology, "x"))) == facts(topology)


def test_switches_without_links_are_not_written() -> None:
    linked = SHAPES[0]
    lone = replace(linked, switches=(*linked.switches, "lone"))
    assert facts(read(to_infragraph(lone, "x"))) == facts(linked)


@pytest.mark.parametrize("topology", SHAPES, ids=IDS)
def test_a_fabric_is_a_graph_of_an_experiment(topology: Topology) -> None:
    section = TopologySettings.model_validate({"graph": graph_section(topology)})
    assert section.check() == []
    assert facts(section.to_topology(LinksSettings())) == facts(topology)
