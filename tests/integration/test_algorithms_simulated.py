"""Every algorithm completes in simulation and moves its bytes."""

from __future__ import annotations

import pytest

from chakram.collectives.algorithms import algorithm, algorithm_names
from chakram.collectives.ops import CollectiveOp
from chakram.plan.plan import RunSettings
from chakram.plan.plan_check import check_plan
from chakram.predict.simulator.run_plan import simulate_plan
from tests.made_plans import (
    collective,
    flow_rows,
    share_rows,
    world_plan,
)
from tests.schedules import received_bytes, sent_bytes

SIZE = 100_003

EVERY = [
    *(
        (op, name)
        for op in CollectiveOp
        if op != CollectiveOp.ALL_TO_ALL_V  # without splits it is nothing
        for name in algorithm_names(op)
    ),
    (CollectiveOp.ALL_REDUCE, "ring(channels=2,chunks=4,order=interleaved)"),
    (CollectiveOp.ALL_REDUCE, "hierarchical(ranks_per_node=2)"),
    (CollectiveOp.ALL_TO_ALL, "pxn(ranks_per_node=2)"),
]


@pytest.mark.parametrize("nranks", [2, 5, 8])
@pytest.mark.parametrize(("op", "name"), EVERY)
def test_simulated_algorithm_sends_its_number_of_bytes(
    op: CollectiveOp, name: str, nranks: int
) -> None:
    plan, topology = world_plan([collective(op, SIZE, algorithm=name)], nranks=nranks)
    assert check_plan(plan) == []
    result = simulate_plan(plan, topology, seed=1, warmup=0, measured=1)
    how = algorithm(op, name)
    counted = [
        tuple(
            count(how, position=p, nranks=nranks, root=0, input_bytes=SIZE)
            for count in (sent_bytes, received_bytes)
        )
        for p in range(nranks)
    ]
    shares = {share.rank: share for share in share_rows(result.records)}
    assert [
        (shares[p].sent_bytes, shares[p].received_bytes) for p in range(nranks)
    ] == counted
    flows = flow_rows(result.records)
    assert sum(flow.size_bytes for flow in flows) == sum(sent for sent, _ in counted)
    assert {flow.channel for flow in flows} == {
        channel
        for p in range(nranks)
        for channel, _ in how.peers(p, nranks=nranks, root=0)
    }


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (CollectiveOp.ALL_REDUCE, "ring(channels=2,chunks=4)"),
        (CollectiveOp.ALL_TO_ALL, "direct"),
        (CollectiveOp.BROADCAST, "ring"),
    ],
)
def test_credits_cost_time_and_no_bytes(op: CollectiveOp, name: str) -> None:
    def run(credits: int) -> tuple[int, int]:
        plan, topology = world_plan(
            [collective(op, SIZE, algorithm=name)],
            nranks=4,
            settings=RunSettings(warmup=0, measured=3, sync="free", credits=credits),
        )
        assert check_plan(plan) == []
        result = simulate_plan(plan, topology, seed=1)
        return result.end_ns, sum(row.size_bytes for row in flow_rows(result.records))

    (free_ns, free_bytes), (one_ns, one_bytes) = run(0), run(1)
    assert free_bytes == one_bytes
    assert one_ns > free_ns
