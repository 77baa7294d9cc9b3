"""Laws of bounds: no simulation beats them, and unshared links reach them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakram.collectives.algorithms import algorithm_names
from chakram.collectives.groups import world_group
from chakram.collectives.ops import ROOTED, CollectiveOp
from chakram.plan.plan import TransportPlan
from chakram.plan.queue_pairs import QueuePairLayout
from chakram.predict.fabric_model import FabricModel
from chakram.predict.topology_to_fabric_model import fabric_model
from chakram.preparation.predictions import alone_times
from chakram.preparation.schedule_bounds import bounds
from chakram.program.operations import Operation
from chakram.switch.ecmp import DrawnPaths
from chakram.switch.profiles import Profile, Switching
from chakram.topology.topology import Topology
from chakram.topology.topology_builders import (
    forwarding_nodes,
    fully_connected_pairs,
    torus_pairs,
)
from chakram.topology.topology_helpers import LinkKind, single_switch
from tests.leaf_spines import clos
from tests.made_plans import collective, make_plan, matrix_splits, program

RATES = st.sampled_from([None, 10**9, 400 * 10**9, 999_999_937])
SIZES = st.one_of(st.just(0), st.integers(0, 5000), st.integers(0, 2**33))
"""Of messages, for formulas."""

SENT = st.one_of(
    st.just(0), st.integers(0, 5000), st.integers(0, 2**17), st.just(2**18)
)
"""Of messages that are simulated."""


@st.composite
def forwarding(draw: st.DrawFn, nodes: int) -> Topology:
    """Return so many nodes that forward for one another."""
    pairs = torus_pairs([nodes])
    if draw(st.booleans()):
        pairs = fully_connected_pairs(nodes)
    elif nodes % 2 == 0 and draw(st.booleans()):
        pairs = torus_pairs([nodes // 2, 2])
    return forwarding_nodes(
        nodes,
        pairs,
        host=LinkKind(rate_bps=draw(RATES)),
        between=LinkKind(rate_bps=draw(RATES), delay_ns=draw(st.integers(0, 2000))),
    )


@st.composite
def topologies(draw: st.DrawFn, nhosts: int) -> Topology:
    """Return a fabric with room for so many hosts."""
    delay_ns = draw(st.integers(0, 2000))
    shape = draw(st.sampled_from(["star", "clos", "clos", "forwarding"]))
    if shape == "star":
        return single_switch(nhosts, draw(RATES), host_delay_ns=delay_ns)
    if shape == "forwarding":
        return draw(forwarding(nhosts))
    per_leaf = draw(st.integers(1, nhosts))
    return clos(
        -(-nhosts // per_leaf),
        draw(st.integers(1, 4)),
        per_leaf,
        draw(RATES),
        draw(RATES),
        host_delay_ns=delay_ns,
        uplink_delay_ns=draw(st.integers(0, 500)),
    )


@st.composite
def fabrics(draw: st.DrawFn, nranks: int) -> FabricModel:
    """Return the topology facts of a fabric with a number of ranks."""
    nports = draw(st.integers(1, nranks))
    topology = draw(topologies(nports))
    ranks = st.integers(0, nranks - 1)
    pairs = draw(st.lists(st.tuples(ranks, ranks), max_size=6))
    ports = st.integers(0, nports - 1)
    return replace(
        fabric_model(topology, {rank: f"h{draw(ports)}" for rank in range(nranks)}),
        local_bps={pair: draw(st.sampled_from([0, 10**9])) for pair in pairs},
    )


@st.composite
def operations(draw: st.DrawFn, nranks: int) -> tuple[list[Operation], ...]:
    """Return the program of each rank: one collective."""
    op = draw(st.sampled_from(CollectiveOp))
    if op is CollectiveOp.ALL_TO_ALL_V:
        name = draw(st.sampled_from(["direct", "pairwise"]))
        row = st.tuples(*[SENT] * nranks)
        matrix = draw(st.tuples(*[row] * nranks))
        return tuple(
            [
                collective(
                    op,
                    sum(matrix[rank]),
                    algorithm=name,
                    splits=matrix_splits(matrix, rank),
                )
            ]
            for rank in range(nranks)
        )
    name = draw(st.sampled_from(algorithm_names(op)))
    root = draw(st.integers(0, nranks - 1)) if op in ROOTED else 0
    size = draw(SENT)
    return tuple(
        [collective(op, size, algorithm=name, root=root)] for _ in range(nranks)
    )


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_no_simulation_beats_the_bound(data: st.DataObject) -> None:
    nranks = data.draw(st.integers(2, 16))
    per_port = data.draw(st.sampled_from([1, 1, 2]))
    shape = data.draw(st.sampled_from(["stored", "shaped", "cut through"]))
    topology = replace(
        data.draw(topologies(-(-nranks // per_port))),
        is_shaped=shape == "shaped",
        cuts_through=shape == "cut through",
    )
    group = world_group(nranks)
    rows = data.draw(operations(nranks))
    transport = TransportPlan(
        window_bytes=data.draw(st.sampled_from([2**15, 2**18, 2**22])),
        max_burst_packets=data.draw(st.integers(1, 4)),
        path_mtu=data.draw(st.sampled_from([1024, 4096])),
        split=data.draw(st.sampled_from(["round_robin", "even"])),
        message_bytes=data.draw(st.sampled_from([0, 0, 5000])),
    )
    plan = make_plan(
        [program(rank, group, rows[rank]) for rank in range(nranks)],
        topology,
        ranks_per_port=per_port,
        local_rate_bps=data.draw(st.sampled_from([None, None, 0, 10**9])),
        transport=transport,
        layout=QueuePairLayout(count=data.draw(st.sampled_from([1, 1, 3]))),
    )
    least = bounds(plan, topology)
    ((key, bound_ns),) = least.times_ns.items()
    seed = data.draw(st.integers(0, 9))
    alone_ns = alone_times(
        plan,
        topology,
        1,
        Switching(
            ecmp=DrawnPaths(seed=seed),
            profile=Profile(cut_through=topology.cuts_through),
        ),
    ).times_ns[key]
    assert least.ceilings_ns.get(key, 0) <= bound_ns <= alone_ns


@pytest.mark.parametrize("nranks", [2, 3, 5, 8, 16])
@pytest.mark.parametrize("topology", ["star", "clos"])
def test_a_ring_takes_its_bound(nranks: int, topology: str) -> None:
    fabric = (
        single_switch(16, 10**9, host_delay_ns=1000)
        if topology == "star"
        else clos(4, 4, 4, 10**9, 4 * 10**9, host_delay_ns=1000, uplink_delay_ns=500)
    )
    rows = [collective(CollectiveOp.ALL_REDUCE, 2**20, algorithm="ring")]
    group = world_group(nranks)
    plan = make_plan(
        [program(rank, group, rows) for rank in range(nranks)],
        fabric,
        transport=TransportPlan(window_bytes=2**20, max_burst_packets=1),
    )
    ((key, bound_ns),) = bounds(plan, fabric).times_ns.items()
    alone_ns = alone_times(
        plan, fabric, 1, Switching(ecmp=DrawnPaths(seed=1))
    ).times_ns[key]
    assert bound_ns <= alone_ns <= 1.02 * bound_ns
