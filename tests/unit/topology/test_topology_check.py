from __future__ import annotations

from chakram.topology.topology import Link, Topology, check_topology
from tests.unit.fabric.links import link


def problems_of(
    *links: Link, hosts: tuple[str, ...] = ("h0",), switches: tuple[str, ...] = ("s0",)
) -> list[str]:
    return check_topology(Topology(hosts=hosts, switches=switches, links=links))


def test_check_names_every_problem_of_names() -> None:
    assert problems_of(hosts=(), switches=()) == ["there is no host"]
    assert problems_of(
        link("h0:eth0", "h0:h0", name="x"), hosts=("h0",), switches=("h0",)
    ) == [
        "switch h0: the name is used twice",
        "link x: connects h0 to itself",
        "host h0: has 2 links, but must have exactly one",
    ]
    found = problems_of(link("h0:eth0", "s0:h0", name="a/b"))
    assert len(found) == 1
    assert found[0].startswith("link 'a/b': a name has 1 to 64")
    assert "link same: the name is used twice" in problems_of(
        link("h0:eth0", "s0:h0", name="same"),
        link("h1:eth0", "s0:h1", name="same"),
        hosts=("h0", "h1"),
    )


def test_check_names_every_problem_of_links() -> None:
    assert problems_of(link("h0:eth0", "s9:h0", name="x")) == [
        "link x: there is no node 's9'"
    ]
    assert problems_of(link("h0:eth0", "s0:sixteen-letters-", name="x")) == [
        "link x: 'sixteen-letters-' is not an interface name of at most 15 letters,"
        " digits, '_', '.' or '-'"
    ]
    assert problems_of(link("h0:eth0", "h1:eth0", name="x"), hosts=("h0", "h1")) == [
        "link x: connects two hosts without a switch"
    ]
    assert problems_of(
        link("h0:eth0", "s0:p", name="x"),
        link("h1:eth0", "s0:p", name="y"),
        hosts=("h0", "h1"),
    ) == ["link y: port s0:p has two links"]
    assert problems_of() == ["host h0: has 0 links, but must have exactly one"]
