"""The ideal against a simulation of the same schedule: two models, one number.

The simulation sends every packet and acknowledgement through queue pairs and links; the
ideal knows bytes, rates and latencies.  Where nothing collides they differ by the
acknowledgements that share the wire, about 62 bytes per 4 packets of 4 KiB.
"""

from __future__ import annotations

import pytest

from chakram.controller.predictions import bounds, simulate
from chakram.core.algorithms import AUTO
from chakram.core.collectives import CollectiveOp
from chakram.core.lowering import LoweringOptions, lower_job
from chakram.core.placement import place
from chakram.core.plan import Plan, PortPlan, RunSettings, TransportPlan
from chakram.fabric.topology import Topology, clos, single_switch
from chakram.testing.graphs import collective, job

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
    ports = [
        PortPlan(
            number=number,
            agent="a",
            host=host,
            open="memory:",
            netns=None,
            address=f"198.18.0.{number + 1}",
            udp_port=4791,
            rate_bps=GBPS,
            mtu=4200,
        )
        for number, host in enumerate(topology.hosts)
    ]
    return place(
        {"j": programs},
        ports,
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
        (CollectiveOp.SCATTER, AUTO, CLOS, 0.99),
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
    simulated = simulate(plan, topology, 1)
    ((key, ideal),) = ideals.items()
    assert lowest <= ideal / simulated[key] <= 1.002
