"""Tests of the usual rates of comparable links."""

from chakram.topology.comparable_links import usual_rates_bps


def test_links_are_compared_with_links_between_the_same_tiers() -> None:
    ends = {
        "in": ("a", "left"),
        "out": ("b", "right"),
        "west": ("left", "top"),
        "east": ("right", "top"),
        "far": ("lost", "away"),
    }
    rates_bps = {"in": 10, "out": 40, "west": 80, "east": 20}
    assert usual_rates_bps(["a", "b"], ends, rates_bps) == {
        "in": 40,
        "out": 40,
        "west": 80,
        "east": 80,
    }


def test_links_without_peers_or_hosts_are_usual() -> None:
    ends = {"in": ("a", "left"), "up": ("left", "top")}
    assert usual_rates_bps(["a"], ends, {"in": 10, "up": 5}) == {"in": 10, "up": 5}
    assert usual_rates_bps([], ends, {"in": 10}) == {"in": 10}
