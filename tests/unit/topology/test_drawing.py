"""Drawings of fabrics: positions of nodes, and terminal output."""

from __future__ import annotations

import pytest

from chakram.topology.drawing import laid_out, terminal_lines
from chakram.topology.topology import Topology
from chakram.topology.topology_builders import fat_tree
from chakram.topology.topology_helpers import LinkKind, single_switch
from tests.leaf_spines import clos

MBIT = 10**6
LINKS = LinkKind(rate_bps=MBIT)


def leaf_spine(*, leaves: int = 2, hosts: int = 4) -> Topology:
    return clos(leaves, 2, hosts, 125 * MBIT, 250 * MBIT)


def test_switches_are_drawn_above_their_children() -> None:
    drawing = laid_out(leaf_spine(), most_hosts=64)
    assert [len(tier) for tier in drawing.tiers] == [8, 2, 2]
    assert drawing.tiers[1] == ("leaf0", "leaf1")
    # Hosts of the first leaf are left of those of the second.
    left = [drawing.places[host][0] for host in drawing.tiers[0]]
    assert left == sorted(left)
    assert sum(map(len, drawing.lines.values())) == 8 + 4


def test_one_host_represents_many_hosts_of_a_switch() -> None:
    drawing = laid_out(leaf_spine(hosts=40), most_hosts=64)
    assert [len(tier) for tier in drawing.tiers] == [2, 2, 2]
    assert [drawing.labels[host] for host in drawing.tiers[0]] == ["x40", "x40"]
    assert sorted(map(len, drawing.lines.values())) == [1, 1, 1, 1, 40, 40]


def test_terminal_drawing_shows_all_nodes_and_links() -> None:
    topology = leaf_spine()
    lines = terminal_lines(topology, width=100)
    text = "\n".join(lines)
    for node in (*topology.hosts, *topology.switches):
        assert node in text
    assert "4 links of 250Mbit/s" in text
    assert "8 links of 125Mbit/s" in text
    assert any(0x2800 < ord(each) < 0x2900 for each in text)
    # Every line ends at a node: there are dots below each spine and above each leaf.
    rows = {
        line.split()[0]: number for number, line in enumerate(lines) if line.split()
    }
    for node in ("spine0", "spine1"):
        at = lines[rows["spine0"]].index(node) + len(node) // 2
        below = lines[rows["spine0"] + 1].ljust(100)[at - 1 : at + 3]
        assert below.strip(), node
    for node in ("leaf0", "leaf1"):
        at = lines[rows["leaf0"]].index(node) + len(node) // 2
        above = lines[rows["leaf0"] - 2].ljust(100)[at - 1 : at + 3]
        assert above.strip(), node


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize(
    "topology",
    [
        leaf_spine(),
        leaf_spine(leaves=12, hosts=16),
        single_switch(300, MBIT),
        fat_tree(2, 2, 2, 2, 2, host=LINKS, uplink=LINKS, core=LINKS),
        single_switch(1, None),
    ],
)
def test_a_drawing_is_no_wider_than_the_terminal(
    topology: Topology, width: int
) -> None:
    lines = terminal_lines(topology, width=width)
    shown = [
        line for line in lines if " links of " not in line and "nodes:" not in line
    ]
    assert all(len(line) <= width for line in shown)
    assert len(lines) < 40
    plain = terminal_lines(topology, width=width, lines=False)
    assert all(line.isascii() for line in plain)
