"""How near a simulated run is to a measured one, and where the difference begins."""

from __future__ import annotations

from math import log

import pytest

from chakram.results.fitting import (
    Observed,
    Pair,
    excess_at,
    losses_at,
    misfit,
    observed,
)

A, B, C = Pair("job", 0, 1), Pair("job", 1, 2), Pair("job", 2, 0)
WAYS = {
    A: frozenset({"h0:eth0", "s0:h1"}),
    B: frozenset({"h1:eth0", "s0:h2"}),
    C: frozenset({"h2:eth0", "s0:h0"}),
}


def seen(
    a: float = 100.0, b: float = 100.0, c: float = 100.0, resent: float = 0.0
) -> Observed:
    return Observed(
        iteration_ns=a + b + c,
        flow_ns={A: a, B: b, C: c},
        resent={B: resent},
        packets={A: 1000.0, B: 1000.0, C: 1000.0},
    )


def test_messages_are_summed_by_pair_and_averaged_over_iterations() -> None:
    flows = [(A, 100, 4, 0), (A, 300, 4, 2), (B, 50, 1, 0), (B, 70, 1, 1)]
    found = observed(flows, [1000, 1200])
    assert found.iteration_ns == 1100
    assert found.flow_ns == {A: 200, B: 60}
    assert found.packets == {A: 4, B: 1}
    assert found.resent == {A: 1, B: 0.5}
    assert found.resent_share == pytest.approx(1.5 / 5)


def test_no_iteration_is_refused() -> None:
    with pytest.raises(ValueError, match="no iteration"):
        observed([], [])


def test_a_run_fits_itself() -> None:
    assert misfit(seen(), seen()) == 0


def test_misfit_adds_iterations_messages_and_packets_sent_again() -> None:
    measured, simulated = seen(b=200), seen()
    weighted = 200 * log(2) / (100 + 200 + 100)
    assert misfit(measured, simulated) == pytest.approx(log(400 / 300) + weighted)
    assert misfit(simulated, measured) == pytest.approx(misfit(measured, simulated))
    assert misfit(seen(resent=80), seen()) == pytest.approx(0.5 * 80 / (80 + 20))


def test_the_port_that_slow_messages_cross_has_the_excess() -> None:
    excess = excess_at(WAYS, seen(b=300), seen())
    assert excess["h1:eth0"] == excess["s0:h2"] == pytest.approx(log(3))
    assert excess["h0:eth0"] < 0
    assert max(excess, key=lambda port: excess[port]) in WAYS[B]


def test_a_port_that_all_messages_cross_has_the_whole_excess() -> None:
    ways = dict.fromkeys((A, B, C), frozenset({"s0:s1"}))
    assert excess_at(ways, seen(200, 200, 200), seen()) == {
        "s0:s1": pytest.approx(log(2))
    }


def test_losses_count_beyond_those_that_are_simulated() -> None:
    lost = losses_at(WAYS, seen(resent=30), seen(resent=10))
    assert lost["h1:eth0"] == pytest.approx(0.02)
    assert lost["h2:eth0"] == pytest.approx(-0.01)
    assert losses_at(WAYS, seen(resent=10), seen(resent=30))["h1:eth0"] == 0
