"""Hosts of modeled switches are simulated as they run: ahead of their wire."""

from __future__ import annotations

import pytest

from chakram.plan.transport import TransportPlan
from chakram.predict.simulator.run_plan import Switching, simulate_plan
from chakram.switch.faults import LinkFault
from chakram.switch.profiles import Profile
from tests.made_plans import flow_rows
from tests.unit.analysis.test_run_causes import Dealt, fabric, losing, ring


def simulated(*faults: LinkFault, saves_up: bool) -> tuple[int, int]:
    """Return the end, and the number of packets that were sent again."""
    transport = TransportPlan(
        window_bytes=1 << 20,
        retransmit_timeout_ns=20_000_000,
        retry_limit=100,
        saves_up=saves_up,
    )
    result = simulate_plan(
        ring(1 << 20, transport=transport),
        fabric(),
        switching=Switching(ecmp=Dealt(), profile=Profile()),
        faults=faults,
    )
    return result.end_ns, sum(flow.retransmitted for flow in flow_rows(result.records))


def test_packets_ahead_of_the_wire_are_sent_again_after_a_loss() -> None:
    loss = losing("leaf0:up1", 0.02)
    _, from_the_wire = simulated(loss, saves_up=False)
    _, ahead = simulated(loss, saves_up=True)
    assert ahead > 1.2 * from_the_wire > 0


def test_packets_of_the_same_message_ahead_of_the_wire_are_transfer() -> None:
    result = simulate_plan(
        ring(1 << 20, transport=TransportPlan(window_bytes=1 << 20, saves_up=True)),
        fabric(),
        switching=Switching(ecmp=Dealt(), profile=Profile()),
    )
    for flow in flow_rows(result.records):
        time_ns = flow.last_acked_ns - flow.first_sent_ns
        assert flow.own_port_ns < 0.05 * time_ns < flow.transfer_ns


def test_without_loss_it_makes_no_difference_to_be_ahead() -> None:
    on_time_ns, _ = simulated(saves_up=False)
    ahead_ns, _ = simulated(saves_up=True)
    assert ahead_ns == pytest.approx(on_time_ns, rel=0.01)
