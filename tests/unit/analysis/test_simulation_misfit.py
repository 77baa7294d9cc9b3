"""Distance between a simulated and a measured run."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest

from chakram.analysis.simulation_misfit import (
    Message,
    Observed,
    Pair,
    intact,
    late_hosts,
    misfit,
    observed,
    pauses,
    slow_ports,
    takes_longer,
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
    flows = [
        Message(A, 100, 4, 0),
        Message(A, 300, 4, 2),
        Message(B, 50, 1, 0),
        Message(B, 70, 1, 1),
    ]
    found = observed(flows, [1000, 1200])
    assert found.iteration_ns == 1100
    assert found.flow_ns == {A: 200, B: 60}
    assert found.packets == {A: 4, B: 1}
    assert found.resent == {A: 1, B: 0.5}
    assert found.resent_share == pytest.approx(1.5 / 5)


def test_no_iteration_is_refused() -> None:
    with pytest.raises(ValueError, match="no iteration"):
        observed([], [])


def test_run_has_no_misfit_with_itself() -> None:
    assert misfit(seen(), seen()) == 0


def test_misfit_sums_iterations_messages_and_retransmissions() -> None:
    measured, simulated = seen(b=200), seen()
    weighted = 200 * log(2) / (100 + 200 + 100)
    assert misfit(measured, simulated) == pytest.approx(log(400 / 300) + weighted)
    assert misfit(simulated, measured) == pytest.approx(misfit(measured, simulated))
    assert misfit(seen(resent=80), seen()) == pytest.approx(0.5 * 80 / (80 + 20))


def test_delivery_tells_late_messages_from_late_acknowledgments() -> None:
    def run(delivered_ns: float) -> Observed:
        return replace(seen(b=300), delivered_ns={A: 50.0, B: delivered_ns})

    late_data, late_acknowledgments = run(290.0), run(90.0)
    assert misfit(late_data, late_data) == 0
    weighted = 290 * log(290 / 90) / (100 + 300 + 100 + 50 + 290)
    assert misfit(late_data, late_acknowledgments) == pytest.approx(weighted)
    assert misfit(late_data, seen(b=300)) == 0, "the other run does not tell"


def test_delivery_of_a_pair_is_unknown_if_one_message_lacks_it() -> None:
    messages = [Message(A, 100, 4, 0, 90), Message(B, 50, 1, 0, 40)]
    assert observed(messages, [1000, 1000]).delivered_ns == {A: 45, B: 20}
    assert observed([*messages, Message(A, 70, 1, 0)], [1000]).delivered_ns == {B: 40}
    assert intact([*messages, Message(B, 9, 1, 1)]).delivered_ns == {A: 90, B: 40}


def test_ports_that_slow_messages_cross_come_first() -> None:
    found = slow_ports(WAYS, seen(b=300), seen(), least=0.04)
    assert set(found) == WAYS[B], "and no port has an excess that they do not cross"


def test_a_port_that_all_messages_cross_is_compared_with_nothing() -> None:
    ways = dict.fromkeys((A, B, C), frozenset({"s0:s1"}))
    assert slow_ports(ways, seen(200, 200, 200), seen(), least=0.6) == ["s0:s1"]
    assert slow_ports(ways, seen(200, 200, 200), seen(), least=0.7) == []


def test_very_short_messages_prove_no_excess() -> None:
    assert slow_ports(WAYS, seen(b=0.2), seen(b=0.01), least=0.1) == []


def test_a_shared_port_that_explains_most_is_among_the_first() -> None:
    # All messages of five pairs share a slow port; a single one of them is slower.
    pairs = [Pair("job", 0, dst) for dst in range(1, 11)]
    ways = {
        pair: frozenset({f"s0:h{pair.dst}", "s0:s1" if pair.dst <= 5 else "s0:s2"})
        for pair in pairs
    }

    def run(slow: float, slowest: float) -> Observed:
        flow_ns = {
            pair: slowest if pair.dst == 1 else slow if pair.dst <= 5 else 100.0
            for pair in pairs
        }
        return Observed(iteration_ns=1000.0, flow_ns=flow_ns)

    found = slow_ports(ways, run(300.0, 330.0), run(100.0, 100.0), least=0.04)
    assert "s0:s1" in found[:2]


def test_hosts_are_late_that_wait_longer_than_the_others() -> None:
    waits = {"h0": 0.02, "h1": 0.5, "h2": 0.03, "h3": 0.7}
    assert list(late_hosts(waits)) == ["h3", "h1"]
    assert late_hosts(dict.fromkeys(waits, 0.2)) == {}
    assert late_hosts({"h0": 0.0, "h1": 0.09, "h2": 0.0}) == {}
    assert late_hosts({}) == {}
    # One that is later than all others needs less.
    assert list(late_hosts({"h0": 0.2, "h1": 0.31, "h2": 0.2})) == ["h1"]
    assert late_hosts({"h0": 0.2, "h1": 0.31, "h2": 0.2, "h3": 0.25}) == {}
    assert late_hosts({"h0": 0.2, "h1": 0.31}) == {}


@pytest.mark.parametrize(
    ("samples", "spans"),
    [
        ([(0, 0), (10, 0), (20, 0)], []),
        ([(0, 0), (10, 4), (20, 14), (30, 17), (40, 17)], [(6, 23)]),
        ([(0, 0), (10, 10), (20, 10), (30, 15)], [(0, 10), (25, 30)]),
        ([(0, 0), (10, 5), (20, 8), (30, 10)], [(5, 13), (28, 30)]),
        ([(-20, 0), (-10, 5), (0, 5)], []),
        ([(-5, 0), (5, 10)], [(0, 5)]),
    ],
)
def test_pauses_are_where_counters_of_paused_time_grow(
    samples: list[tuple[int, int]], spans: list[tuple[int, int]]
) -> None:
    assert pauses(samples) == spans


def test_intact_messages_have_no_retransmissions() -> None:
    found = intact(
        [
            Message(A, 100, 4, 0),
            Message(A, 300, 4, 0),
            Message(A, 900, 4, 1),
            Message(B, 70, 1, 1),
        ]
    )
    assert found.flow_ns == {A: 200}
    assert found.resent_share == 0
    assert misfit(found, intact([Message(A, 200, 1, 0), Message(B, 5, 1, 0)])) == 0


def test_longer_run_is_found_by_iterations_or_common_pairs() -> None:
    assert takes_longer(seen(a=101), seen())
    assert not takes_longer(seen(), seen())
    slow, fast = (
        intact([Message(A, 9, 1, 0)]),
        intact([Message(A, 7, 1, 0), Message(B, 99, 1, 0)]),
    )
    assert takes_longer(slow, fast)
    assert not takes_longer(fast, slow)
