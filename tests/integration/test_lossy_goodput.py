"""Goodput of real ports with loss and reordering, compared with virtual time."""

from __future__ import annotations

from statistics import fmean, median
from typing import TYPE_CHECKING

import pytest

from chakram.plan.packet_faults import FaultAction, PacketFault
from chakram.plan.plan import Plan, RunSettings
from chakram.plan.transport import TransportPlan
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.records.row_layout import RecordRows
from chakram.topology.topology_helpers import single_switch
from chakram_agent.shard import build_plane
from tests.integration.test_dataplane_loop import LOOPBACK, finish
from tests.made_plans import collective, share_rows, world_plan
from tests.plans import moved
from tests.process_priority import before_others
from tests.udp_ports import free_udp_ports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.plan.plan import AgentPlan

SIZE = 2_000_000
ITERATIONS = 4
RATE_BPS = 100 * 10**6
"""Some 3,000 packets per second each way: next to nothing for a core."""

UDP_PORT = free_udp_ports()
NRANKS = 2
ATTEMPTS = 12
"""Something else may keep the machine busy for a while."""

PROOF = 0.95
"""Goodput at least, over goodput at most, of an attempt that says anything."""


def lossy_plan(faults: Sequence[PacketFault]) -> Plan:
    plan, _ = world_plan(
        [collective("all_gather", SIZE)],
        nranks=NRANKS,
        rate_bps=RATE_BPS,
        transport=TransportPlan(
            path_mtu=4096,
            # One by one: virtual time has a burst arrive with its last bit, a socket
            # hands all of it over at once, and each loss costs what follows it.
            max_burst_packets=1,
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


def goodput(records: RecordRows) -> tuple[float, float]:
    """Return the goodput of a rank over all iterations in bit/s, at least and at most.

    At most counts no time in which a rank waited for the data plane, by its own
    account: on a busy machine that is most of the time.  Some of it would have passed
    anyhow, so the goodput of an idle machine lies between the two.  In virtual time
    there is no such wait.
    """
    least, most = [], []
    for rank in range(NRANKS):
        shares = [row for row in share_rows(records) if row.rank == rank]
        assert [row.iteration for row in shares] == list(range(ITERATIONS))
        assert {(row.sent_bytes, row.received_bytes) for row in shares} == {
            (SIZE, SIZE)
        }
        passed_ns = sum(row.end_ns - row.start_ns for row in shares)
        wait_ns = sum(row.generator_wait_ns for row in shares)
        least.append(8e9 * ITERATIONS * SIZE / passed_ns)
        most.append(8e9 * ITERATIONS * SIZE / (passed_ns - wait_ns))
    return fmean(least), fmean(most)


def measured(plan: AgentPlan) -> tuple[float, float]:
    """Return the goodput over real sockets; check that everything arrived once."""
    plane = build_plane(plan, LOOPBACK)
    try:
        with before_others():
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
        return goodput(records)
    finally:
        plane.close()


def in_virtual_time(plan: Plan, seed: int) -> float:
    """Return the goodput of the same ranks, faults and timers in virtual time."""
    # Ports have the rate; between them lies what the loop takes, and nothing else.
    wires = single_switch(NRANKS, None, host_delay_ns=20_000)
    simulated = simulate_plan(plan, wires, seed=seed, burst_packets=1)
    least, most = goodput(simulated.records)
    assert least == most
    return least


def every(action: FaultAction, number: int) -> PacketFault:
    """One in *number* of the packets of data that a port receives, in both worlds."""
    return PacketFault(action=action, nth=number // 2, every=number, delay_ns=300_000)


def at_random(probability: float) -> PacketFault:
    """Packets of any kind, acknowledgments too."""
    return PacketFault(action=FaultAction.DROP, packets="any", probability=probability)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "seeds"),
    [
        pytest.param(every(FaultAction.DROP, 1000), 1, marks=pytest.mark.soak),
        (every(FaultAction.DROP, 100), 1),
        (every(FaultAction.DROP, 20), 1),
        (every(FaultAction.DUPLICATE, 100), 1),
        (every(FaultAction.REORDER, 20), 1),
        pytest.param(at_random(0.01), 8, marks=pytest.mark.soak),
        (at_random(0.05), 8),
    ],
    ids=[
        *("0.1% loss", "1% loss", "5% loss", "1% twice", "5% overtaken"),
        *("1% loss at random", "5% loss at random"),
    ],
)
def test_goodput_over_sockets_equals_that_in_virtual_time(
    fault: PacketFault, seeds: int
) -> None:
    plan = lossy_plan([fault])
    expected = fmean(in_virtual_time(plan, seed) for seed in range(seeds))
    ratios: list[tuple[float, float]] = []
    for _ in range(ATTEMPTS):
        least, most = measured(on_loopback(plan))
        ratios.append((least / expected, most / expected))
        # Where the data plane had to wait for a core, nothing is proven.
        proven = [each for each in ratios if each[0] > PROOF * each[1]]
        if len(proven) >= seeds / 4 and (
            0.9 < median(each for each, _ in proven) < 1.1
        ):
            return
    raise AssertionError(f"goodput over that in virtual time: {ratios}")
