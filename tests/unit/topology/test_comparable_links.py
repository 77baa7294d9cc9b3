"""Tests of the usual rates of comparable links."""

import pytest

from chakram.topology.comparable_links import slower_by_design, usual_rates_bps


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


def star(**rates_bps: int) -> tuple[list[str], dict[str, tuple[str, str]]]:
    """Return hosts and ends of links to switches, the last letter of each name."""
    return list(rates_bps), {name: (name, name[-1]) for name in rates_bps}


@pytest.mark.parametrize(
    ("rates_bps", "design"),
    [
        ({"ap": 9, "bp": 9, "cp": 5, "dp": 9}, []),
        ({"ap": 9, "bp": 9, "cp": 5, "dp": 5}, [(["cp", "dp"], 9)]),  # half of all
        ({"ap": 9, "bp": 9, "cp": 5, "dp": 4}, []),  # but not if each differs
        # Two of five are a fault, unless a switch has no others.
        ({"ap": 9, "bp": 9, "cp": 9, "dp": 5, "ep": 5}, []),
        ({"ap": 9, "bp": 9, "cp": 9, "dq": 5, "eq": 5}, [(["dq", "eq"], 9)]),
        (dict.fromkeys(["ap", "bp", "cp", "dp", "ep"], 9) | {"fq": 5}, []),
        (
            dict.fromkeys(["ap", "bp", "cp", "dp", "ep"], 9)
            | dict.fromkeys(["fp", "gp", "hp"], 5),
            [(["fp", "gp", "hp"], 9)],
        ),
    ],
)
def test_slower_links_of_one_generation_are_a_design(
    rates_bps: dict[str, int], design: list[tuple[list[str], int]]
) -> None:
    hosts, ends = star(**rates_bps)
    assert slower_by_design(hosts, ends, rates_bps) == design
    slow = {name for names, _ in design for name in names}
    expected = {name: rates_bps[name] if name in slow else 9 for name in rates_bps}
    assert usual_rates_bps(hosts, ends, rates_bps) == expected
