"""Predictions with hosts that delay packets for longer than a window lasts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.collectives.groups import world_group
from chakram.config.transport import Faults
from chakram.plan.plan import Plan
from chakram.plan.transport import TransportPlan
from chakram.predict.simulator.run_plan import SimulationResult, simulate_plan
from chakram.preparation import host_delay_predictions
from chakram.preparation.host_delay_predictions import (
    as_range,
    differs,
    may_stall,
    times_with_host_delays,
)
from chakram.preparation.predictions import durations, simulate_draws
from chakram.records.counter_slots import FCT_BUCKET_BOUNDS_NS
from chakram.records.run_records import CollectiveKey
from chakram.summary.generator_health import median_ns
from chakram.switch.ecmp import DrawnPaths
from chakram.switch.profiles import Switching
from chakram.topology.topology import Topology
from chakram.topology.topology_helpers import single_switch
from tests.made_plans import collective, make_plan, program

STAR = single_switch(4, 10**9)
DRAWS = [Switching(ecmp=DrawnPaths(seed=1))]
KEY = CollectiveKey("j", "g", 0)


def plan_with(window_bytes: int) -> Plan:
    """Return a plan of a ring and a barrier over four hosts."""
    group = world_group(4)
    rows = [collective("all_reduce", 400_000), collective("barrier", 0, after=[0])]
    transport = TransportPlan(
        path_mtu=1024,
        window_bytes=window_bytes,
        ack_interval_packets=1,
        max_burst_packets=2,
    )
    programs = [program(rank, group, rows) for rank in range(4)]
    return make_plan(programs, STAR, transport=transport, agents=2)


def with_delay(delay_ns: int) -> Topology:
    """Return the star with hosts that delay packets."""
    return replace(
        STAR, links=tuple(replace(each, delay_ns=delay_ns) for each in STAR.links)
    )


def simulated(plan: Plan, topology: Topology) -> SimulationResult:
    return simulate_plan(plan, topology, warmup=0, measured=1, switching=DRAWS[0])


def medians_of(result: SimulationResult) -> dict[str, float]:
    found = {agent: median_ns(each) for agent, each in result.round_trips.items()}
    return {agent: each for agent, each in found.items() if each is not None}


def test_delay_of_hosts_is_fitted_to_round_trips() -> None:
    plan = plan_with(2048)
    real = simulated(plan, with_delay(20_000))
    measured_ns = medians_of(real)
    assert len(measured_ns) == 2
    assert may_stall(plan, STAR, measured_ns.values())
    delay_ns, delayed = times_with_host_delays(
        plan, STAR, 1, DRAWS, Faults(), measured_ns
    )
    assert delay_ns == pytest.approx(20_000, rel=0.1)
    undelayed, *_ = simulate_draws(plan, STAR, 1, DRAWS, Faults())
    assert differs(undelayed, delayed)
    (key,) = delayed["simulate"]  # no barrier
    wanted_ns = durations(plan, real)[key]
    assert delayed["simulate"][key] == pytest.approx(wanted_ns, rel=0.1)
    assert undelayed["simulate"][key] < 0.7 * wanted_ns
    assert as_range(undelayed, delayed) == {
        "simulate.0": undelayed["simulate"],
        "simulate.1": delayed["simulate"],
    }


def test_a_long_path_of_one_agent_is_no_delay_of_all_hosts() -> None:
    plan = plan_with(2048)
    first, second = medians_of(simulated(plan, STAR))
    measured_ns = {first: 10e6, second: 1.0}
    found = times_with_host_delays(plan, STAR, 1, DRAWS, Faults(), measured_ns)
    assert found == (0, {})


def test_long_simulations_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_with(2048)
    measured_ns = medians_of(simulated(plan, with_delay(20_000)))
    monkeypatch.setattr(host_delay_predictions, "MAX_EVENTS", 10)
    found = times_with_host_delays(plan, STAR, 1, DRAWS, Faults(), measured_ns)
    assert found == (0, {})


def test_a_window_that_outlasts_round_trips_never_stalls() -> None:
    # 64 packets of 1 KiB take 524 us at 1 Gbit/s.
    assert not may_stall(plan_with(65_536), STAR, [500e3])
    assert may_stall(plan_with(65_536), STAR, [530e3])
    assert not may_stall(plan_with(2048), STAR, [])


def test_small_effects_are_no_range() -> None:
    assert not differs({"simulate": {KEY: 100}}, {"simulate": {KEY: 105}})
    assert differs({"simulate": {KEY: 100}}, {"simulate": {KEY: 106}})


def test_median_is_interpolated() -> None:
    counts = [0] * (len(FCT_BUCKET_BOUNDS_NS) + 1)
    assert median_ns(counts) is None
    counts[0], counts[1] = 1, 3
    assert median_ns(counts) == pytest.approx(1000 + 1000 / 3)
    counts[-1] = 9
    assert median_ns(counts) is None  # longer than the last bound
