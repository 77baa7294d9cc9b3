"""Paired simulations use equal random numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.plan.transport import TransportPlan
from chakram.predict.simulator.run_plan import Switching, simulate_plan
from chakram.switch.faults import LinkFault
from chakram.switch.profiles import Profile
from tests.unit.analysis.test_run_causes import Dealt, fabric, losing, ring


def time_ns(seed: int, *faults: LinkFault) -> int:
    transport = TransportPlan(
        window_bytes=1 << 20, retransmit_timeout_ns=500_000, retry_limit=100
    )
    plan = ring(1 << 20, transport=transport)
    (agent,) = plan.agents
    settings = replace(agent.settings, seed=seed)
    return simulate_plan(
        replace(plan, agents=(replace(agent, settings=settings),)),
        fabric(),
        switching=Switching(ecmp=Dealt(), profile=Profile()),
        faults=faults,
    ).end_ns


@pytest.mark.slow
def test_without_one_of_two_losses_nothing_takes_longer() -> None:
    both = [losing("leaf0:up1", 0.02), losing("leaf1:h6", 0.005)]
    for seed in range(6, 13):
        most_ns = 1.001 * time_ns(seed, *both)
        assert [time_ns(seed, fault) < most_ns for fault in both] == [True, True]
