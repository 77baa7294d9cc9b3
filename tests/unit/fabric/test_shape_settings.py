"""Fabric shapes in an experiment file."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.fabric.fabric_types.link_settings import (
    LinksSettings,
    with_given_queues,
)
from chakram.fabric.fabric_types.namespaces import NamespaceFabric
from chakram.fabric.fabric_types.topology_settings import MAX_HOSTS, TopologySettings
from chakram.foundation.errors import FabricError
from chakram.topology.topology import Link, check_topology

SHAPES: dict[str, dict[str, Any]] = {
    "single_switch": {"hosts": 4},
    "clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 2, "uplinks": 3},
    "fat_tree": {"pods": 2, "leaves": 1, "spines": 2, "cores": 1, "hosts_per_leaf": 2},
    "rail": {"servers": 2, "ports": 2, "spines": 1},
    "graph": {
        "hosts": ["a", "b"],
        "switches": ["s", "t"],
        "links": [
            {"ends": ["s", "a"]},
            {"ends": ["b", "t"], "rate": "5Gbit", "delay": "9us"},
            {"ends": ["s", "t"], "count": 2},
        ],
    },
    "ring": {"nodes": 4},
    "torus": {"dimensions": [2, 3]},
    "fully_connected": {"nodes": 3},
}
LINKS = LinksSettings.model_validate(
    {
        "host": {"rate": "1Gbit", "delay": "1us"},
        "uplink": {"rate": "2Gbit"},
        "core": {"rate": "4Gbit"},
    }
)


def settings(shape: str, **more: Any) -> TopologySettings:
    return TopologySettings.model_validate({shape: SHAPES[shape] | more})


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_a_valid_fabric(shape: str) -> None:
    made = settings(shape)
    assert made.check() == []
    topology = made.to_topology(LINKS)
    assert check_topology(topology) == []
    assert len(topology.hosts) == made.hosts
    assert topology.host_link(topology.hosts[0]).rate_bps == 10**9
    # As ports of an external fabric they have their own names.
    names = [f"leaf{number}" for number in range(made.hosts)]
    renamed = made.to_topology(LINKS, names)
    assert renamed.hosts == tuple(names)
    assert check_topology(renamed) == []


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ("clos", "Clos of 2 leaves x 2 spines x 2 hosts, 3 uplinks each"),
        ("fat_tree", "fat tree of 2 pods x 1 leaves x 2 spines x 2 hosts, 2 cores"),
        ("rail", "2 servers x 2 rails, 1 spines"),
        ("graph", "graph of 2 hosts, 2 switches, 4 links"),
        ("ring", "ring of 4 nodes"),
        ("torus", "torus of 2 x 3 nodes"),
        ("fully_connected", "3 nodes, fully connected"),
    ],
)
def test_shapes_are_described_in_words(shape: str, text: str) -> None:
    assert settings(shape).describe() == text


def test_link_settings_of_a_graph_override_those_of_the_link_type() -> None:
    topology = settings("graph").to_topology(LINKS)

    def values(link: Link) -> tuple[str, int | None, int]:
        return link.name, link.rate_bps, link.delay_ns

    assert [values(link) for link in topology.links] == [
        ("a-s", 10**9, 1000),
        ("b-t", 5 * 10**9, 9000),
        ("s-t", 2 * 10**9, 0),
        ("s-t-1", 2 * 10**9, 0),
    ]
    assert [link.a.node for link in topology.links[:2]] == ["a", "b"]
    assert {link.queue_bytes for link in topology.links} == {2 << 20}


def test_core_links_have_own_settings_or_those_of_uplinks() -> None:
    def rates(links: LinksSettings) -> set[int | None]:
        topology = settings("fat_tree").to_topology(links)
        return {
            link.rate_bps
            for link in topology.uplinks()
            if link.b.node.startswith("core")
        }

    assert rates(LINKS) == {4 * 10**9}
    assert rates(LINKS.model_copy(update={"core": None})) == {2 * 10**9}


def test_only_a_fat_tree_has_links_of_cores() -> None:
    for shape in SHAPES:
        warnings = settings(shape).warnings(LINKS)
        assert bool(warnings) == (shape != "fat_tree")
        assert settings(shape).warnings(LinksSettings()) == []


def test_a_fabric_of_real_switches_has_only_the_given_queue_limits() -> None:
    links = LinksSettings.model_validate(
        {
            "host": {"rate": "1Gbit"},
            "uplink": {"rate": "2Gbit", "queue": "1MiB"},
            "core": {"rate": "4Gbit", "queue": "3MiB"},
        }
    )

    def queues(shape: str, links: LinksSettings) -> set[tuple[str, int | None]]:
        made = settings(shape)
        given = with_given_queues(
            made.to_topology(links), links, has_cores=made.has_cores
        )
        return {(link.b.node[:4], link.queue_bytes) for link in given.links}

    assert queues("fat_tree", links) == {
        ("pod0", None),
        ("pod0", 1 << 20),
        ("pod1", None),
        ("pod1", 1 << 20),
        ("core", 3 << 20),
    }
    uplinks = links.model_copy(update={"core": None})
    assert ("core", 1 << 20) in queues("fat_tree", uplinks)
    assert queues("clos", links) == {("leaf", None), ("spin", 1 << 20)}


@pytest.mark.parametrize(
    ("shape", "more", "found"),
    [
        ("clos", {"uplinks": 1}, "1 uplinks do not reach 2 spines"),
        ("rail", {"spines": 3, "uplinks": 2}, "2 uplinks do not reach 3 spines"),
        ("torus", {"dimensions": [MAX_HOSTS, 2]}, f"make {2 * MAX_HOSTS} nodes"),
        ("clos", {"leaves": 1024, "hosts_per_leaf": 1024}, "has 1048576 hosts"),
        (
            "clos",
            {"leaves": 1024, "spines": 1024, "uplinks": 1024},
            "has 1048576 links between switches",
        ),
        ("rail", {"servers": 16_384, "ports": 64}, "has 1048576 hosts"),
        (
            "fat_tree",
            {"pods": 256, "leaves": 256, "hosts_per_leaf": 1024},
            "has 67108864 hosts",
        ),
        ("fat_tree", {"pods": 256, "spines": 256, "cores": 256}, "has 16842752 links"),
        ("graph", {"hosts": ["a", "b", "c"]}, "host c: has 0 links"),
        (
            "graph",
            {"links": [{"ends": ["s", "t"], "count": 64}] * 9000},
            "has 576000 links between switches",
        ),
        ("graph", {"switches": ["s"]}, "there is no node 't'"),
        ("graph", {"switches": ["s", "t", "a"]}, "a is both a host and a switch"),
    ],
)
def test_invalid_fabric_is_reported(
    shape: str, more: dict[str, Any], found: str
) -> None:
    mistakes = settings(shape, **more).check()
    assert found in mistakes[0].found


def fabric(shape: str, **more: Any) -> NamespaceFabric:
    return NamespaceFabric.model_validate(
        {"kind": "namespaces", "topology": {shape: SHAPES[shape]}} | more
    )


def test_ports_of_a_server_are_on_one_host() -> None:
    assert fabric("rail").host_names(4) == ["0", "0", "1", "1"]
    assert fabric("clos").host_names(4) == ["0", "1", "2", "3"]


def test_hosts_of_a_graph_are_captured_by_their_names() -> None:
    assert fabric("graph", capture=["b"]).check() == []
    (mistake,) = fabric("graph", capture=["h0"]).check()
    assert "'h0'" in mistake.found
    (mistake,) = fabric("graph", capture=["b", "a", "b"]).check()
    assert mistake.found == "host 'b' is listed twice"
    assert mistake.path == "fabric.capture[2]"


def test_more_links_than_addresses_are_reported() -> None:
    many = {"pods": 256, "leaves": 1, "spines": 65, "cores": 1, "hosts_per_leaf": 1}
    (mistake,) = NamespaceFabric.model_validate(
        {"kind": "namespaces", "topology": {"fat_tree": many}}
    ).check()
    assert "not enough addresses for 33280 links" in mistake.found


@pytest.mark.asyncio
async def test_forwarding_hosts_are_refused_in_labs() -> None:
    with pytest.raises(FabricError, match="a ring of 4 nodes can only be simulated"):
        await fabric("ring").start_lab("no-lab", seed=1, lifetime="run")


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        (["5Gbit", "9Gbit", "9Gbit"], 9 * 10**9),
        (["5Gbit", None, None], 10**9),
        (["5Gbit", "9Gbit", None], 9 * 10**9),
    ],
)
def test_ports_of_a_graph_have_the_rate_of_most_links_of_hosts(
    rates: list[str | None], expected: int
) -> None:
    graph = {
        "hosts": ["a", "b", "c"],
        "switches": ["s", "t"],
        "links": [
            *({"ends": [h, "s"], "rate": r} for h, r in zip("abc", rates, strict=True)),
            {"ends": ["s", "t"], "rate": "90Gbit"},
        ],
    }
    shape = settings("graph", **graph).shape
    assert shape is not None
    assert shape.port_rate_bps(LINKS) == expected
    without = LinksSettings.model_validate({})
    graph["links"] = [{"ends": [host, "s"]} for host in "abc"]
    shape = settings("graph", **graph).shape
    assert shape is not None
    assert shape.port_rate_bps(without) is None
