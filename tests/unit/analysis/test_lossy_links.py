"""Lossy ports are found from paths and switch counters."""

from __future__ import annotations

import pytest

from chakram.analysis.lossy_links import Crossing, lossy_ports


def of_paths(sent: float = 1000.0, **lost: int) -> list[Crossing]:
    """Return the losses of paths; the path from h0 to h1 is named p01."""
    return [
        Crossing({f"h{name[1]}": sent, f"s0:h{name[2]}": sent}, lost.get(name, 0))
        for name in ("p01", "p02", "p31")
    ]


@pytest.mark.parametrize(
    ("lost", "port"),
    [
        ({"p01": 20, "p02": 22}, "h0"),
        ({"p01": 20, "p31": 22}, "s0:h1"),
        # One other packet was lost by something else.
        ({"p01": 20, "p02": 22, "p31": 1}, "h0"),
    ],
)
def test_lossy_port_affects_all_its_paths_equally(
    lost: dict[str, int], port: str
) -> None:
    ((found, share), *_) = lossy_ports(of_paths(**lost))
    assert found == port
    assert share == pytest.approx(0.021, abs=0.001)


def test_no_port_is_named_without_losses_or_for_a_few() -> None:
    assert lossy_ports(of_paths()) == []
    assert lossy_ports(of_paths(p01=1, p02=1)) == []


def test_shares_of_two_lossy_ports_are_estimated_together() -> None:
    crossings = of_paths(sent=10_000, p01=1900, p02=1000, p31=1000)
    ((first, share), *_) = lossy_ports(crossings)
    assert first in ("h0", "s0:h1")
    assert share == pytest.approx(0.1, abs=0.01)
    ((second, share), *_) = lossy_ports(crossings, known=[first])
    assert {first, second} == {"h0", "s0:h1"}
    assert share == pytest.approx(0.1, abs=0.01)
    assert lossy_ports(crossings, known=["h0", "s0:h1"]) == []


def test_ports_that_the_same_paths_cross_are_as_likely() -> None:
    crossings = [Crossing({"h0": 100, "s0:h1": 100}, 30), Crossing({"h1": 100}, 0)]
    found = lossy_ports(crossings)
    assert [port for port, _ in found] == ["h0", "s0:h1"]
    # A switch that sends on all it is sent loses nothing before it.
    assert [
        port for port, _ in lossy_ports([*crossings, Crossing({"h0": 100}, 0)])
    ] == ["s0:h1"]
