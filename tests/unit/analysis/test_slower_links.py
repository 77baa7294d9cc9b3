"""Links that became slower are proven by the fastest messages that cross them."""

from __future__ import annotations

import random

import pytest

from chakram.analysis.slower_links import Fastest, Pair, slower_links

RANKS = range(8)
Side = dict[Pair, Fastest]


def links(src: int, dst: int) -> frozenset[str]:
    """Return the links between ranks of two leaves with four hosts each."""
    ends = {f"h{src}-leaf{src // 4} up", f"h{dst}-leaf{dst // 4} down"}
    if src // 4 != dst // 4:
        ends |= {f"leaf{src // 4}-spine0 up", f"leaf{dst // 4}-spine0 down"}
    return frozenset(ends)


def side(slow: dict[str, float] | None = None, *, seed: int = 1) -> Side:
    """Return messages of all pairs, which some links prolong by a factor."""
    generator = random.Random(seed)
    return {
        ("job", src, dst): Fastest(
            bytes=1 << 20,
            time_ns=1e6
            * generator.uniform(1, 1.05)
            * max((slow or {}).get(link, 1.0) for link in links(src, dst)),
            messages=8,
            links=links(src, dst),
        )
        for src in RANKS
        for dst in RANKS
        if src != dst
    }


@pytest.mark.parametrize("seed", range(20))
def test_equal_runs_have_no_slower_link(seed: int) -> None:
    assert slower_links(side(), side(seed=seed)) == []


@pytest.mark.parametrize("factor", [1.25, 2, 10])
def test_a_slower_link_between_switches_is_named(factor: float) -> None:
    (found,) = slower_links(side(), side({"leaf0-spine0 up": factor}, seed=2))
    # With two leaves, the same messages use the link down to the other leaf.
    assert found.place == "leaf0-spine0 up or leaf1-spine0 down"
    assert (found.pairs, found.other_pairs) == (16, 40)
    assert found.ratio == pytest.approx(factor, rel=0.06)


def test_a_slower_host_link_may_be_its_host() -> None:
    both = {"h3-leaf0 up": 2.0, "h3-leaf0 down": 2.0}
    found = slower_links(side(), side(both))
    assert [each.place for each in found] == [
        "h3-leaf0 down or the host of rank 3",
        "h3-leaf0 up or the host of rank 3",
    ] or [each.place for each in found] == [
        "h3-leaf0 up or the host of rank 3",
        "h3-leaf0 down or the host of rank 3",
    ]
    assert "7 pairs of ranks: 100 % longer" in str(found[0])


def test_a_link_that_became_faster_is_not_slower() -> None:
    assert slower_links(side({"h3-leaf0 up": 2.0}), side()) == []


def test_a_slower_fabric_accuses_no_link() -> None:
    everywhere = {link: 2.0 for src in RANKS for link in links(src, (src + 1) % 8)}
    assert slower_links(side(), side(everywhere)) == []


def test_slower_pairs_without_a_common_link_accuse_none() -> None:
    before, after = side(), side()
    for pair in (("job", 0, 1), ("job", 2, 3), ("job", 4, 5)):
        after[pair] = after[pair]._replace(time_ns=3e6)
    assert slower_links(before, after) == []


def test_few_small_or_rerouted_messages_prove_nothing() -> None:
    before, slow = side(), side({"h3-leaf0 up": 2.0})
    assert slower_links(before, slow)
    few = {pair: each._replace(messages=2) for pair, each in slow.items()}
    assert slower_links(before, few) == []
    other = {pair: each._replace(links=frozenset("x")) for pair, each in slow.items()}
    assert slower_links(before, other) == []
    small: Side = {}
    for pair, each in before.items():
        small[pair] = each._replace(bytes=1000) if pair[1] == 3 else each
    resized = {
        pair: each._replace(bytes=small[pair].bytes) for pair, each in slow.items()
    }
    assert slower_links(small, resized) == []


def test_repeated_runs_have_their_fastest_message() -> None:
    one = Fastest(100, 50.0, 3, frozenset("a"))
    assert one.together(None) == one
    assert one.together(one._replace(bytes=10, time_ns=1.0)) == one
    assert one.together(one._replace(bytes=200)).bytes == 200
    again = one.together(Fastest(100, 40.0, 2, frozenset("b")))
    assert again == Fastest(100, 40.0, 5, frozenset("ab"))
