"""Real ports that lose, repeat and disorder packets, against virtual time."""

from __future__ import annotations

import random
import time
from statistics import fmean
from typing import TYPE_CHECKING

import pytest

from chakram.core.faults import FaultAction, PacketFault
from chakram.core.plan import Plan, RunSettings, TransportPlan
from chakram.simulate.job import simulate_plan
from chakram.testing.plans import collective, share_rows, world_plan
from chakram_agent.policy import Policy
from chakram_agent.shard import build_plane
from tests.integration.test_dataplane_loop import LOOPBACK, finish
from tests.plans import moved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.core.plan import AgentPlan
    from chakram.fabric.topology import Topology

SIZE = 3_000_000
RATE_BPS = 200 * 10**6
UDP_PORT = 14795
NRANKS = 2
ATTEMPTS = 4
"""Something else may keep the machine busy for a while."""


def lossy_plan(faults: Sequence[PacketFault]) -> tuple[Plan, Topology]:
    return world_plan(
        [collective("all_gather", SIZE)],
        nranks=NRANKS,
        rate_bps=RATE_BPS,
        transport=TransportPlan(
            path_mtu=4096,
            max_burst_packets=2,
            ack_interval_packets=4,
            retransmit_timeout_ns=4_000_000,
            retry_limit=100,
        ),
        settings=RunSettings(warmup=0, measured=4, faults=tuple(faults)),
    )


def on_loopback(plan: Plan) -> AgentPlan:
    (agent,) = plan.agents
    places = [(f"127.18.9.{port.number + 1}", UDP_PORT) for port in agent.ports]
    return moved(agent, places, open_spec="udp:")


def measured_ns(plan: AgentPlan, policy: Policy) -> int:
    """Run over real sockets; check that everything arrived once; return how long."""
    plane = build_plane(plan, policy)
    try:
        began_ns = time.monotonic_ns()
        finish(plane)
        took_ns = time.monotonic_ns() - began_ns
        rows = [
            row for line in plane.lines for row in share_rows(line.endpoint.records)
        ]
        assert len(rows) == 4 * NRANKS
        assert {(row.sent_bytes, row.received_bytes) for row in rows} == {(SIZE, SIZE)}
        for line in plane.lines:
            (pair,) = line.endpoint.engine.queue_pairs()
            counters = pair.statistics()
            assert counters.bytes_received == 4 * SIZE
            assert counters.messages_received == counters.messages_completed == 4
        return took_ns
    finally:
        plane.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [
        [(FaultAction.DROP, 0.001)],
        [(FaultAction.DROP, 0.01)],
        [(FaultAction.DROP, 0.05)],
        [(FaultAction.DUPLICATE, 0.01)],
        [(FaultAction.REORDER, 0.05)],
    ],
    ids=["0.1% loss", "1% loss", "5% loss", "1% twice", "5% overtaken"],
)
def test_nothing_is_lost_and_faults_cost_what_they_do_in_virtual_time(
    faults: list[tuple[FaultAction, float]],
) -> None:
    lossy, topology = lossy_plan(
        [
            PacketFault(action=action, probability=share, delay_ns=300_000)
            for action, share in faults
        ]
    )
    lossless, _ = lossy_plan([])
    # What faults cost is compared, not times: another load on the machine makes both
    # measured times longer.
    expected = virtual_ns(lossy, topology) / virtual_ns(lossless, topology)
    ratios = []
    for _ in range(ATTEMPTS):
        base_ns = measured_ns(on_loopback(lossless), LOOPBACK)
        cost = measured_ns(on_loopback(lossy), LOOPBACK) / base_ns
        ratios.append(cost / expected)
        if ratios[-1] < 1.1:
            return
    raise AssertionError(f"cost measured over cost in virtual time: {ratios}")


def virtual_ns(plan: Plan, topology: Topology) -> float:
    """Return how long a plan takes in virtual time, mean over some seeds."""
    return fmean(
        simulate_plan(plan, topology, rng=random.Random(seed), burst_packets=2).end_ns
        for seed in range(5)
    )
