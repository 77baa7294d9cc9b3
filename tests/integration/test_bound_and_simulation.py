"""The bound compared with a simulation of the same schedule.

The simulation sends every packet and acknowledgment through queue pairs and links; the
bound knows bytes, rates and latencies.  Where nothing collides they differ by the
acknowledgments that share the wire, about 62 bytes per 4 packets of 4 KiB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chakram.collectives.algorithms import AUTO
from chakram.collectives.groups import world_group
from chakram.collectives.ops import CollectiveOp
from chakram.plan.placement import place
from chakram.plan.plan import Plan, RunSettings
from chakram.plan.transport import TransportPlan
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.preparation.predictions import (
    alone_events,
    alone_times,
    durations,
)
from chakram.preparation.schedule_bounds import (
    bounds,
)
from chakram.program.lowering import LoweringOptions, lower_job
from chakram.records.run_records import CollectiveKey
from chakram.switch.ecmp import DrawnPaths, Flow
from chakram.switch.profiles import Switching
from chakram.topology.topology import Topology
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos
from tests.made_graphs import collective, job
from tests.made_plans import collective as operation
from tests.made_plans import fabric_ports, make_plan, program

GBPS = 10**9
STAR = single_switch(8, GBPS, host_delay_ns=1000)
CLOS = clos(2, 2, 4, GBPS, 2 * GBPS, host_delay_ns=1000, uplink_delay_ns=1000)
OVERSUBSCRIBED = clos(2, 1, 4, GBPS, GBPS, host_delay_ns=1000, uplink_delay_ns=1000)


def simulated_times(plan: Plan, topology: Topology) -> dict[CollectiveKey, int]:
    switching = Switching(ecmp=DrawnPaths(seed=1))
    result = simulate_plan(
        plan, topology, seed=1, warmup=0, measured=1, switching=switching
    )
    return durations(plan, result)


def planned(op: CollectiveOp, name: str, topology: Topology, size: int) -> Plan:
    """Return a plan of one collective of eight ranks, each on its own host."""
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
def test_simulated_collective_takes_little_more_than_its_bound(
    op: CollectiveOp, name: str, topology: Topology, lowest: float
) -> None:
    plan = planned(op, name, topology, 2**18)
    least = bounds(plan, topology).times_ns
    simulated = simulated_times(plan, topology)
    ((key, bound_ns),) = least.items()
    assert lowest <= bound_ns / simulated[key] <= 1


def ratio(
    op: CollectiveOp, name: str, topology: Topology, **more: Any
) -> tuple[float, float]:
    """Return bound and ceiling over the simulated time."""
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
    least, ceilings, _ = bounds(plan, topology)
    simulated = simulated_times(plan, topology)
    ((key, bound_ns),) = least.items()
    return bound_ns / simulated[key], ceilings.get(key, 0) / simulated[key]


def test_credits_slow_down_rendezvous_messages() -> None:
    topology = single_switch(2, GBPS, host_delay_ns=50_000)

    def times(credits: int) -> tuple[int, int]:
        """Return bound, and time alone."""
        rows = [operation("broadcast", 2**18, algorithm="ring(chunks=64)")]
        plan = make_plan(
            [program(rank, world_group(2), rows) for rank in range(2)],
            topology,
            settings=RunSettings(warmup=0, measured=1, credits=credits),
        )
        (bound_ns,) = bounds(plan, topology).times_ns.values()
        alone = alone_times(plan, topology, 1, Switching(ecmp=DrawnPaths(seed=1)))
        (alone_ns,) = alone.times_ns.values()
        return bound_ns, alone_ns

    of_credits = [times(credits) for credits in (0, 4, 2, 1)]
    assert len({bound_ns for bound_ns, _ in of_credits}) == 1
    alone_ns = [each for _, each in of_credits]
    assert alone_ns == sorted(alone_ns)
    assert alone_ns[-1] > 2 * alone_ns[0]


class _Balanced:
    """Every host of a leaf has its own spine."""

    def chooser(self, flow: Flow) -> Callable[[int, int], int]:
        """Return the path choice of a flow."""
        return lambda _switch, choices: flow.sender % choices


def test_hash_determines_the_distance_from_the_bound_on_a_clos() -> None:
    topology = clos(2, 4, 4, GBPS, GBPS, host_delay_ns=1000, uplink_delay_ns=1000)
    plan = planned(CollectiveOp.REDUCE_SCATTER, "recursive_halving", topology, 2**18)
    ((key, bound_ns),) = bounds(plan, topology).times_ns.items()
    balanced = alone_times(plan, topology, 1, Switching(ecmp=_Balanced())).times_ns[key]
    assert bound_ns <= balanced <= 1.02 * bound_ns
    # The fabric is the same, and so is its bound: that is what collisions cost.
    collided = alone_times(
        plan, topology, 1, Switching(ecmp=DrawnPaths(seed=1))
    ).times_ns[key]
    assert collided > 1.3 * bound_ns


def test_long_collectives_are_not_simulated_alone() -> None:
    topology = single_switch(4, GBPS)
    group = world_group(4)
    rows = [
        operation("all_reduce", 2**10),
        operation("all_reduce", 2**20, number=1, after=[0]),
    ]
    plan = make_plan([program(rank, group, rows) for rank in range(4)], topology)
    switching = Switching(ecmp=DrawnPaths(seed=1))
    every = alone_times(plan, topology, 1, switching)
    assert (len(every.times_ns), every.left_out, every.notes) == (2, 0, ())
    some = alone_times(plan, topology, 1, switching, events=1500)
    assert (some.left_out, some.kinds) == (1, 2)
    ((key, time_ns),) = some.times_ns.items()
    assert (key.k, time_ns) == (0, every.times_ns[key])
    assert "1 of 2 kinds" in some.notes[0]
    assert alone_events(plan, topology) > 1500


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
def test_traffic_within_a_host_does_not_count_for_the_fabric(
    op: CollectiveOp, name: str, ranks_per_port: int, ports_per_host: int, rate: int
) -> None:
    bound, ceiling = ratio(
        op,
        name,
        STAR,
        size=2**18,
        ranks_per_port=ranks_per_port,
        local_rate_bps=rate,
        host_of=lambda port: str(port.number // ports_per_host),
    )
    assert 0 < ceiling <= bound
    assert 0.85 <= bound <= 1
