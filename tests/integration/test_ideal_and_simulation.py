"""The ideal against a simulation of the same schedule: two models, one number.

The simulation sends every packet and acknowledgement through queue pairs and links; the
ideal knows bytes, rates and latencies.  Where nothing collides they differ by the
acknowledgements that share the wire, about 62 bytes per 4 packets of 4 KiB.
"""

from __future__ import annotations

from typing import Any

import pytest

from chakram.collectives.algorithms import AUTO
from chakram.collectives.groups import world_group
from chakram.collectives.ops import CollectiveOp
from chakram.controller.predictions import bounds, simulate
from chakram.fabric.shapes import clos, single_switch
from chakram.fabric.topology import Topology
from chakram.plan.placement import place
from chakram.plan.plan import Plan, RunSettings
from chakram.plan.transport import TransportPlan
from chakram.program.lowering import LoweringOptions, lower_job
from chakram.switch.ecmp import DrawnPaths
from chakram.testing.graphs import collective, job
from chakram.testing.plans import collective as operation
from chakram.testing.plans import fabric_ports, make_plan, program

GBPS = 10**9
STAR = single_switch(8, GBPS, host_delay_ns=1000)
CLOS = clos(2, 2, 4, GBPS, 2 * GBPS, host_delay_ns=1000, uplink_delay_ns=1000)
OVERSUBSCRIBED = clos(2, 1, 4, GBPS, GBPS, host_delay_ns=1000, uplink_delay_ns=1000)


def planned(op: CollectiveOp, name: str, topology: Topology, size: int) -> Plan:
    """Return a plan of one collective of eight ranks, each on a host of its own."""
    rows = [collective(1, op, size=size)]
    programs = lower_job(
        "j",
        job(*[rows] * 8),
        {},
        LoweringOptions(sync_barrier=False, algorithms={op: name}),
    ).programs
    return place(
        {"j": programs},
        fabric_ports(topology),
        {},
        TransportPlan(window_bytes=2**20, max_burst_packets=1),
        RunSettings(warmup=0, measured=1),
        shards={"a": 1},
        run_id="r",
    )


@pytest.mark.parametrize(
    ("op", "name", "topology", "lowest"),
    [
        (CollectiveOp.ALL_REDUCE, "ring", STAR, 0.99),
        (CollectiveOp.ALL_REDUCE, "ring", CLOS, 0.99),
        (CollectiveOp.ALL_GATHER, AUTO, STAR, 0.99),
        (CollectiveOp.REDUCE_SCATTER, AUTO, OVERSUBSCRIBED, 0.99),
        (CollectiveOp.SEND_RECV, AUTO, CLOS, 0.99),
        (CollectiveOp.GATHER, AUTO, CLOS, 0.99),
        # The last one is for a host of the other leaf.
        (CollectiveOp.SCATTER, AUTO, CLOS, 0.98),
        (CollectiveOp.REDUCE, AUTO, STAR, 0.99),
        (CollectiveOp.ALL_REDUCE, "bidirectional_ring", STAR, 0.9),
        (CollectiveOp.ALL_REDUCE, "halving_doubling", STAR, 0.99),
        (CollectiveOp.ALL_REDUCE, "recursive_doubling", STAR, 0.99),
        (CollectiveOp.ALL_REDUCE, "hierarchical(ranks_per_node=4)", CLOS, 0.9),
        (CollectiveOp.ALL_GATHER, "bruck", STAR, 0.99),
        (CollectiveOp.REDUCE_SCATTER, "recursive_halving", STAR, 0.99),
        (CollectiveOp.ALL_TO_ALL, "pairwise", STAR, 0.9),
        (CollectiveOp.ALL_TO_ALL, "bruck", STAR, 0.9),
        (CollectiveOp.ALL_TO_ALL, "pxn(ranks_per_node=4)", CLOS, 0.9),
        (CollectiveOp.BROADCAST, "ring", CLOS, 0.99),
        # Eight senders share eight receivers, and the transport decides how.
        (CollectiveOp.ALL_TO_ALL, AUTO, STAR, 0.9),
        (CollectiveOp.ALL_TO_ALL, AUTO, OVERSUBSCRIBED, 0.9),
        (CollectiveOp.ALL_GATHER, "direct", STAR, 0.9),
        (CollectiveOp.BARRIER, AUTO, CLOS, 0.9),
    ],
)
def test_a_simulated_collective_takes_its_ideal_time(
    op: CollectiveOp, name: str, topology: Topology, lowest: float
) -> None:
    plan = planned(op, name, topology, 2**18)
    ideals, _ = bounds(plan, topology)
    simulated = simulate(plan, topology, 1, DrawnPaths(seed=1))
    ((key, ideal),) = ideals.items()
    assert lowest <= ideal / simulated[key] <= 1.002


def ratio(
    op: CollectiveOp, name: str, topology: Topology, **more: Any
) -> tuple[float, float]:
    """Return ideal and ceiling over the simulated time."""
    ranks = more.pop("nranks", 8)
    group = world_group(ranks)
    rows = [operation(op, more.pop("size", 2**18), algorithm=name)]
    plan = make_plan(
        [program(rank, group, rows) for rank in group.ranks],
        topology,
        transport=TransportPlan(window_bytes=2**20, max_burst_packets=1),
        settings=RunSettings(
            warmup=0,
            measured=1,
            credits=more.pop("credits", 0),
        ),
        **more,
    )
    ideals, ceilings = bounds(plan, topology)
    simulated = simulate(plan, topology, 1, DrawnPaths(seed=1))
    ((key, ideal),) = ideals.items()
    return ideal / simulated[key], ceilings.get(key, 0) / simulated[key]


@pytest.mark.parametrize("credits", [1, 2, 3, 8])
@pytest.mark.parametrize(
    ("name", "nranks", "size"),
    [
        ("ring(chunks=16)", 2, 2**20),
        ("ring(chunks=64)", 2, 2**18),
        ("ring(chunks=5)", 2, 100_001),
        ("ring(chunks=8)", 4, 2**22),
    ],
)
@pytest.mark.parametrize("delay_ns", [0, 50_000])
def test_with_credits_it_takes_its_ideal_time_where_nothing_is_in_a_grants_way(
    name: str, nranks: int, size: int, credits: int, delay_ns: int
) -> None:
    topology = single_switch(nranks, GBPS, host_delay_ns=delay_ns)
    found, _ = ratio(
        CollectiveOp.BROADCAST,
        name,
        topology,
        nranks=nranks,
        size=size,
        credits=credits,
    )
    assert 0.98 <= found <= 1.002


def test_credits_slow_down_what_they_should() -> None:
    topology = single_switch(2, GBPS, host_delay_ns=50_000)

    def ideal(credits: int) -> int:
        rows = [operation("broadcast", 2**18, algorithm="ring(chunks=64)")]
        plan = make_plan(
            [program(rank, world_group(2), rows) for rank in range(2)],
            topology,
            settings=RunSettings(warmup=0, measured=1, credits=credits),
        )
        (time_ns,) = bounds(plan, topology)[0].values()
        return time_ns

    assert ideal(0) < ideal(4) < ideal(2) < ideal(1)
    assert ideal(1) > 2 * ideal(0)


@pytest.mark.parametrize("rate", [0, 4 * GBPS])
@pytest.mark.parametrize(("ranks_per_port", "ports_per_host"), [(2, 1), (1, 4), (2, 2)])
@pytest.mark.parametrize(
    ("op", "name"),
    [
        (CollectiveOp.ALL_REDUCE, "ring"),
        (CollectiveOp.ALL_REDUCE, "hierarchical(ranks_per_node=4)"),
        (CollectiveOp.ALL_TO_ALL, "direct"),
        (CollectiveOp.ALL_TO_ALL, "pxn(ranks_per_node=4)"),
        (CollectiveOp.ALL_GATHER, "ring"),
        (CollectiveOp.REDUCE_SCATTER, "direct"),
        (CollectiveOp.BROADCAST, "ring"),
        (CollectiveOp.GATHER, "direct"),
    ],
)
def test_what_stays_within_a_host_is_no_traffic_of_the_fabric(
    op: CollectiveOp, name: str, ranks_per_port: int, ports_per_host: int, rate: int
) -> None:
    ideal, ceiling = ratio(
        op,
        name,
        STAR,
        size=2**18,
        ranks_per_port=ranks_per_port,
        local_rate_bps=rate,
        host_of=lambda port: str(port.number // ports_per_host),
    )
    assert 0 < ceiling <= ideal
    assert 0.88 <= ideal <= 1.002
