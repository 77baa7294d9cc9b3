"""Marks at switch queues, and reactions of DCQCN."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.collectives.groups import world_group
from chakram.plan.queue_pairs import QueuePairLayout
from chakram.plan.transport import TransportPlan
from chakram.predict.simulator.run_plan import SimulationResult, simulate_plan
from chakram.topology.topology import EcnThresholds
from chakram.topology.topology_helpers import single_switch
from tests.made_plans import (
    compute,
    flow_rows,
    make_plan,
    program,
    receive,
    send,
)
from tests.unit.config.test_dcqcn import (
    DcqcnKnobs,
    DcqcnSettings,
    dcqcn_parameters,
)

LINE = 10**10
MS = 10**6
THRESHOLDS = EcnThresholds(kmin_bytes=40_000, kmax_bytes=160_000, probability=0.2)


@pytest.mark.parametrize("values", [(2, 1, 0.5), (-1, 1, 0.5), (1, 2, 1.5)])
def test_thresholds_out_of_range_are_refused(values: tuple[int, int, float]) -> None:
    with pytest.raises(ValueError, match=r"is not a probability|are not a range"):
        EcnThresholds(kmin_bytes=values[0], kmax_bytes=values[1], probability=values[2])


def flows_into_one(
    transport: TransportPlan,
    *,
    senders: int = 2,
    ecn: EcnThresholds | None = THRESHOLDS,
    messages: int = 240,
    late_ns: int = 2 * MS,
    line_bps: int = LINE,
    size: int = 250_000,
    seed: int = 3,
    queue_pairs: int = 1,
) -> SimulationResult:
    """Ranks send to the first one, each of them *late_ns* later than the one before."""
    numbers = range(messages)
    ranks = range(1, senders + 1)
    world = world_group(senders + 1)
    programs = [
        program(
            0,
            world,
            [receive(peer, size, number=n) for peer in ranks for n in numbers],
        ),
        *(
            program(
                rank,
                world,
                [
                    compute((rank - 1) * late_ns),
                    *(send(0, size, number=n, after=[0]) for n in numbers),
                ],
            )
            for rank in ranks
        ),
    ]
    topology = single_switch(senders + 1, line_bps, host_delay_ns=1_000, host_ecn=ecn)
    layout = QueuePairLayout(count=queue_pairs)
    plan = make_plan(programs, topology, transport=transport, layout=layout)
    return simulate_plan(plan, topology, seed=seed, burst_packets=1)


def dcqcn(profile: str, *, line_bps: int = LINE, **overrides: object) -> TransportPlan:
    """DCQCN with a window of about 0.8 ms, which is not the limit."""
    settings = DcqcnSettings(
        profile=profile, overrides=DcqcnKnobs.model_validate(overrides)
    )
    return TransportPlan(
        window_bytes=line_bps // 10**9 << 17,
        congestion_control="dcqcn",
        congestion_parameters=dcqcn_parameters(settings, line_bps),
    )


def test_the_same_seed_gives_the_same_marks() -> None:
    first, second = (
        flows_into_one(dcqcn("dcqcn-nvidia"), messages=5) for _ in range(2)
    )
    assert first.marked_packets == second.marked_packets
    assert flow_rows(first.records) == flow_rows(second.records)


def test_packets_that_cannot_be_marked_are_not() -> None:
    window = TransportPlan(window_bytes=1 << 20, ecn=0)
    result = flows_into_one(window, messages=5, late_ns=0)
    assert sum(result.marked_packets.values()) == 0


def test_marks_without_dcqcn_are_counted_and_change_nothing() -> None:
    window = TransportPlan(window_bytes=1 << 20)
    marked = flows_into_one(window, messages=5, late_ns=0)
    unmarked = flows_into_one(window, ecn=None, messages=5, late_ns=0)
    assert marked.marked_packets["s0:h0"] > 100
    assert flow_rows(marked.records) == flow_rows(unmarked.records)


@pytest.mark.parametrize(
    ("scope", "limiters"), [("queue_pair", 4), ("destination", 2), ("port", 1)]
)
def test_receiver_limits_notifications_by_scope(scope: str, limiters: int) -> None:
    # All that waits at all is marked, and senders that keep to line rate make it wait.
    always = EcnThresholds(kmin_bytes=0, kmax_bytes=0, probability=1.0)
    transport = replace(
        dcqcn("dcqcn-paper", min_rate="100%", cnp_scope=scope),
        window_bytes=TransportPlan().window_bytes,
    )
    result = flows_into_one(
        transport, ecn=always, messages=16, late_ns=0, queue_pairs=2
    )
    notifications = sum(flow.cnp for flow in flow_rows(result.records))

    # One that comes while two messages are in flight is counted for both.
    intervals = result.end_ns / 50_000
    assert 0.8 * limiters < notifications / intervals < 1.3 * limiters
