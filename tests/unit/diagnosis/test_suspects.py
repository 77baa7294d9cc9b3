"""Parts of a fabric that differ from their peers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.diagnosis.suspects import slow_links
from chakram.topology.topology import Link, PortRef, Topology
from chakram.topology.topology_builders import leaf_spine
from chakram.topology.topology_helpers import LinkKind, single_switch

GIGABIT = 10**9
KIND = LinkKind(rate_bps=GIGABIT)


def with_rates(topology: Topology, **rates_bps: int) -> Topology:
    """Return a topology in which links have other rates; h0_s0 represents h0-s0."""
    rates = {name.replace("_", "-"): rate for name, rate in rates_bps.items()}
    links = tuple(
        replace(link, rate_bps=rates.get(link.name, link.rate_bps))
        for link in topology.links
    )
    return replace(topology, links=links)


def named(topology: Topology) -> list[tuple[str, str]]:
    found = slow_links(topology, 1)
    return [(case.suspect.cause, case.suspect.place) for case in found]


def test_equal_links_are_no_suspects() -> None:
    assert named(single_switch(4, GIGABIT)) == []
    fabric = leaf_spine(
        2, 2, 2, uplinks=2, host=KIND, uplink=LinkKind(rate_bps=GIGABIT // 10)
    )
    assert named(fabric) == [], "uplinks are compared with uplinks"


@pytest.mark.parametrize(("percent", "suspects"), [(99, 0), (97, 1)])
def test_a_link_slower_than_its_peers_is_one(percent: int, suspects: int) -> None:
    fabric = single_switch(4, GIGABIT)
    slow = fabric.links[2].name
    rates = {slow.replace("-", "_"): GIGABIT * percent // 100}
    assert named(with_rates(fabric, **rates)) == [("slow link", slow)] * suspects


def test_of_two_links_the_slower_one_is_the_suspect() -> None:
    fabric = leaf_spine(1, 2, 2, uplinks=2, host=KIND, uplink=KIND)
    slow = fabric.uplinks()[1].name
    changed = with_rates(fabric, **{slow.replace("-", "_"): GIGABIT // 2})
    assert named(changed) == [("slow link", slow)]
    (case,) = slow_links(changed, 100)
    assert case.suspect.evidence == "50Gbit/s; similar links have 100Gbit/s"
    assert case.suspect.remedy == "at 100Gbit/s"


def test_links_between_switches_of_one_tier_are_peers_whatever_their_names() -> None:
    ends = [("n0", "mid"), ("n1", "west"), ("n2", "east"), ("mid", "west")]
    ends += [("east", "mid"), ("mid", "top"), ("west", "top")]
    fabric = Topology(
        hosts=("n0", "n1", "n2"),
        switches=("mid", "west", "east", "top"),
        links=tuple(
            Link(
                a=PortRef(node=a, port=f"to-{b}"),
                b=PortRef(node=b, port=f"to-{a}"),
                rate_bps=GIGABIT if "top" not in (a, b) else GIGABIT // 4,
                name=f"{a}-{b}",
            )
            for a, b in ends
        ),
    )
    assert named(fabric) == [], "links to a switch without hosts are of another tier"
    slower = with_rates(fabric, mid_west=GIGABIT // 2)
    assert named(slower) == [("slow link", "mid-west")]


def test_links_without_a_rate_are_no_suspects() -> None:
    assert named(single_switch(3, None)) == []


@pytest.mark.timeout(20)
def test_many_links_are_compared_in_little_time() -> None:
    fabric = single_switch(30_000, GIGABIT)
    slow = fabric.links[7].name
    assert named(with_rates(fabric, **{slow.replace("-", "_"): 1})) == [
        ("slow link", slow)
    ]
