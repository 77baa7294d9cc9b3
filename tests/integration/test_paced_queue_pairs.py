"""A thousand paced queue pairs of one port keep their rates."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from chakram.collectives.groups import world_group
from chakram.plan.plan import Plan, RunSettings
from chakram.plan.transport import TransportPlan
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.roce.congestion.fixed_rate import FixedRate
from chakram.roce.port import PortEngine
from chakram.topology.topology import Topology
from chakram.topology.topology_helpers import single_switch
from chakram_agent.shard import build_plane
from tests.integration.test_dataplane_loop import LOOPBACK, finish
from tests.made_plans import compute, flow_rows, make_plan, program, receive, send
from tests.plans import moved
from tests.udp_ports import free_udp_ports
from tests.virtual_wire import make_queue_pair

if TYPE_CHECKING:
    from chakram.records.row_layout import RecordRows

QUEUE_PAIRS = 1_000
PATH_MTU = 1024
PACKETS = 14
UDP_PORT = free_udp_ports()
# Ethernet, IPv4, UDP, BTH and ICRC; RETH goes with the first packet, immediate data
# with the last.
PACKET_BYTES = PATH_MTU + 14 + 20 + 8 + 12 + 4
BURST_BOUND_NS = 1_000_000
ATTEMPTS = 3
LITTLE_NS = 20_000_000
"""Something else may keep the machine busy for a while: then it says less."""


def paced_plan(rate_bps: int, port_bps: int) -> tuple[Plan, Topology]:
    """Each job is one message on one queue pair from the first port to the second.

    They begin at random in the time that one takes for a packet: what is asked is
    whether rates are kept, not how fast a core gets rid of a thousand packets that are
    due at once.
    """
    world = [world_group(2)]
    size = PACKETS * PATH_MTU
    packet_ns = 8 * PACKET_BYTES * 10**9 // rate_bps
    rng = random.Random(1)
    programs = [
        program(rank, world, rows, job=f"job{job}")
        for job in range(QUEUE_PAIRS)
        for rank, rows in enumerate(
            (
                [compute(rng.randrange(1, packet_ns)), send(1, size, after=[0])],
                [receive(0, size)],
            )
        )
    ]
    topology = single_switch(2, port_bps)
    plan = make_plan(
        programs,
        topology,
        transport=TransportPlan(
            path_mtu=PATH_MTU,
            congestion_control="fixed_rate",
            congestion_parameters=(("rate_bps", rate_bps),),
        ),
        settings=RunSettings(warmup=0, measured=1),
        first_ports={each.job: 0 for each in programs},
    )
    return plan, topology


def errors_of(records: RecordRows, rate_bps: int, *, lost_ns: int = 0) -> list[float]:
    """Return how far every queue pair is off its rate, as a share of it.

    Args:
        records: Of the run.
        rate_bps: What each was to send at.
        lost_ns: A time that does not count.
    """
    flows = flow_rows(records)
    assert len(flows) == QUEUE_PAIRS
    assert sum(flow.retransmitted for flow in flows) == 0
    assert len({(flow.rank, flow.qpn) for flow in flows}) == QUEUE_PAIRS
    # The last packet is acknowledged when it has left: all others were before it.
    wire_bits = 8 * ((PACKETS - 1) * PACKET_BYTES + 16)
    return [
        1e9
        * wire_bits
        / max(1, flow.last_acked_ns - flow.first_sent_ns - lost_ns)
        / rate_bps
        - 1
        for flow in flows
    ]


def loaded_port(rates: list[int], path_mtus: list[int], port_bps: int) -> PortEngine:
    """Return a port whose queue pairs have more to send than anybody takes."""
    port = PortEngine(
        rate_bps=port_bps, burst_bound_ns=BURST_BOUND_NS, max_burst_packets=4
    )
    for qpn, (rate_bps, path_mtu) in enumerate(zip(rates, path_mtus, strict=True)):
        port.add_queue_pair(
            make_queue_pair(
                qpn,
                1 << 20 | qpn,
                path_mtu=path_mtu,
                congestion_control=FixedRate(rate_bps=rate_bps),
                burst_bound_ns=BURST_BOUND_NS,
                window_bytes=1 << 20,
            )
        )
    return port


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.08, 0.9])
def test_a_thousand_queue_pairs_keep_their_rates_in_virtual_time(load: float) -> None:
    rate_bps = int(load * 10**9 / QUEUE_PAIRS)
    plan, topology = paced_plan(rate_bps, 10**9)
    result = simulate_plan(plan, topology, seed=1, burst_packets=1)
    errors = errors_of(result.records, rate_bps)
    assert -0.001 < min(errors) <= max(errors) < 0.001


@pytest.mark.slow
@pytest.mark.parametrize(
    ("queue_pairs", "packets", "load"),
    [(QUEUE_PAIRS, 5, 0.8), (QUEUE_PAIRS, 5, 0.95), (100, 50, 0.95)],
)
def test_many_rates_share_a_port(queue_pairs: int, packets: int, load: float) -> None:
    """The fastest has four times the rate of the slowest, and packets differ in size.

    The slowest with the largest packets sends *packets*.  The fewer queue pairs, the
    more of the time between two packets is what one waits for those of the others.
    """
    rng = random.Random(1)
    port_bps = 10**10
    weights = [rng.uniform(1, 4) for _ in range(queue_pairs)]
    rates = [int(load * port_bps * each / sum(weights)) for each in weights]
    path_mtus = [rng.choice((1024, 2048, 4096)) for _ in range(queue_pairs)]
    port = loaded_port(rates, path_mtus, port_bps)
    slowest_ns = 8 * (4096 + 58) * 10**9 // min(rates)
    end_ns = packets * slowest_ns
    starts_ns = sorted((rng.randrange(slowest_ns), qpn) for qpn in range(queue_pairs))
    sent: list[list[tuple[int, int]]] = [[] for _ in range(queue_pairs)]
    now_ns = 0
    while now_ns < end_ns:
        next_ns = port.next_wakeup_ns()
        if starts_ns and starts_ns[0][0] <= next_ns:
            next_ns, qpn = starts_ns.pop(0)
            port.post_send(qpn, 0, 1 << 30, next_ns)
        now_ns = max(now_ns, next_ns)
        while (burst := port.next_burst(now_ns)) is not None:
            qpn = burst.source_qpn
            sent[qpn].append((now_ns, burst.wire_bytes))
            if burst.ack_request:
                last_psn = burst.psn + burst.count - 1
                port.queue_pair(qpn).arrivals.receive_ack(0x1F, last_psn, now_ns)
    errors = []
    for rate_bps, departures in zip(rates, sent, strict=True):
        elapsed_ns = departures[-1][0] - departures[0][0]
        wire_bits = 8 * sum(wire_bytes for _, wire_bytes in departures[:-1])
        errors.append(1e9 * wire_bits / elapsed_ns / rate_bps - 1)
    assert -0.01 < min(errors) <= max(errors) < 0.01
    # And it was these rates that filled the port, but for the first of the packets.
    statistics = port.statistics()
    filled = statistics.bytes_sent * 8e9 / now_ns / port_bps
    assert filled > load * (1 - 1 / packets)
    assert statistics.generator_wait_ns == 0


@pytest.mark.slow
@pytest.mark.parametrize("load", [pytest.param(0.08, marks=pytest.mark.soak), 0.9])
def test_a_thousand_queue_pairs_keep_their_rates_over_sockets(load: float) -> None:
    # Little for a core, also in plain Python: what it lacks is lost to all of them.
    rate_bps = 80_000
    plan, _ = paced_plan(rate_bps, int(QUEUE_PAIRS * rate_bps / load))
    (agent,) = plan.agents
    agent = moved(
        agent, [("127.18.11.1", UDP_PORT), ("127.18.11.2", UDP_PORT)], open_spec="udp:"
    )
    for _ in range(ATTEMPTS):
        plane = build_plane(agent, LOOPBACK)
        try:
            finish(plane)
            endpoint = plane.lines[0].endpoint
            # Other programs on the machine make no queue pair faster than its rate,
            # and slower only by the time for which the port's line stalled.
            lost_ns = endpoint.engine.statistics().generator_wait_ns
            assert max(errors_of(endpoint.records, rate_bps)) < 0.02
            assert min(errors_of(endpoint.records, rate_bps, lost_ns=lost_ns)) > -0.02
        finally:
            plane.close()
        if lost_ns < LITTLE_NS:
            return
