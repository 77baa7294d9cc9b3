"""Real ports that lose, repeat and disorder packets, against virtual time."""

from __future__ import annotations

import random
from statistics import fmean, median
from typing import TYPE_CHECKING

import pytest

from chakram.core.faults import FaultAction, PacketFault
from chakram.core.plan import Plan, RunSettings, TransportPlan
from chakram.core.records import RecordRows
from chakram.fabric.topology import single_switch
from chakram.simulate.job import simulate_plan
from chakram.testing.plans import collective, share_rows, world_plan
from chakram_agent.shard import build_plane
from tests.integration.test_dataplane_loop import LOOPBACK, finish
from tests.plans import moved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.core.plan import AgentPlan

SIZE = 2_000_000
ITERATIONS = 4
RATE_BPS = 100 * 10**6
"""Some 3,000 packets per second each way: next to nothing for a core."""

UDP_PORT = 14795
NRANKS = 2
ATTEMPTS = 5
"""Something else may keep the machine busy for a while."""


def lossy_plan(faults: Sequence[PacketFault]) -> Plan:
    plan, _ = world_plan(
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
        settings=RunSettings(warmup=0, measured=ITERATIONS, faults=tuple(faults)),
    )
    return plan


def on_loopback(plan: Plan) -> AgentPlan:
    (agent,) = plan.agents
    places = [(f"127.18.9.{port.number + 1}", UDP_PORT) for port in agent.ports]
    return moved(agent, places, open_spec="udp:")


def goodputs(records: RecordRows) -> list[float]:
    """Return the goodput of each rank's queue pair over all iterations, in bit/s.

    What a rank waited for the data plane, by its own account, is left out: on a busy
    machine that is most of the time. In virtual time it is nothing.
    """
    found = []
    for rank in range(NRANKS):
        shares = [row for row in share_rows(records) if row.rank == rank]
        assert [row.iteration for row in shares] == list(range(ITERATIONS))
        assert {(row.sent_bytes, row.received_bytes) for row in shares} == {
            (SIZE, SIZE)
        }
        busy_ns = sum(
            row.end_ns - row.start_ns - row.generator_wait_ns for row in shares
        )
        found.append(8e9 * ITERATIONS * SIZE / busy_ns)
    return found


def measured(plan: AgentPlan) -> list[float]:
    """Run over real sockets; check that everything arrived once."""
    plane = build_plane(plan, LOOPBACK)
    try:
        finish(plane)
        records = RecordRows()
        for line in plane.lines:
            records.extend(line.endpoint.records)
            (pair,) = line.endpoint.engine.queue_pairs()
            counters = pair.statistics()
            assert counters.bytes_received == ITERATIONS * SIZE
            assert counters.messages_received == ITERATIONS
            assert counters.messages_completed == ITERATIONS
            injected = line.endpoint.engine.statistics()
            assert (
                injected.faults_dropped
                + injected.faults_duplicated
                + injected.faults_reordered
                > 0
            )
        return goodputs(records)
    finally:
        plane.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "every"),
    [
        (FaultAction.DROP, 1000),
        (FaultAction.DROP, 100),
        (FaultAction.DROP, 20),
        (FaultAction.DUPLICATE, 100),
        (FaultAction.REORDER, 20),
    ],
    ids=["0.1% loss", "1% loss", "5% loss", "1% twice", "5% overtaken"],
)
def test_nothing_is_lost_and_goodput_is_that_of_virtual_time(
    action: FaultAction, every: int
) -> None:
    # Every so many of the packets that a port receives, in both worlds.
    plan = lossy_plan(
        [PacketFault(action=action, nth=every // 2, every=every, delay_ns=300_000)]
    )
    # Ports have the rate; between them lies what the loop takes, and nothing else.
    wires = single_switch(NRANKS, None, host_delay_ns=20_000)
    simulated = simulate_plan(plan, wires, rng=random.Random(1), burst_packets=2)
    expected = goodputs(simulated.records)
    ratios: list[float] = []
    for _ in range(ATTEMPTS):
        found = measured(on_loopback(plan))
        ratios.append(fmean(found) / fmean(expected))
        if 0.9 < median(ratios) < 1.1:
            return
    raise AssertionError(f"goodput over that in virtual time: {ratios}")
