"""Laws of replay: any program ends in order with every message once."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chakram.plan.plan import RunSettings
from chakram.plan.plan_check import check_plan
from chakram.plan.queue_pairs import QueuePairLayout
from chakram.plan.transport import TransportPlan
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.program.operations import RankProgram
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos
from tests.made_plans import flow_rows, iteration_rows, make_plan, share_rows
from tests.property.replay_laws import assert_laws
from tests.random_jobs import jobs
from tests.replay_checks import MessageFabric
from tests.support import examples

LIMITED = settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
)
FEW = settings(LIMITED, max_examples=examples(25))

iterations = st.builds(
    RunSettings,
    warmup=st.integers(0, 1),
    measured=st.integers(1, 3),
    sync=st.sampled_from(["barrier", "free", "gap"]),
    gap_ns=st.sampled_from([0, 1, 100_000]),
)


@LIMITED
@given(programs=jobs(), chosen=iterations, seed=st.integers(0, 99))
def test_any_job_ends_with_any_reordering(
    programs: list[RankProgram], chosen: RunSettings, seed: int
) -> None:
    plan = make_plan(programs, single_switch(len(programs), None), settings=chosen)
    assert check_plan(plan) == []
    rng = random.Random(seed)
    fabric = MessageFabric(plan, delay_ns=lambda: rng.choice((1, 500, 90_000)))
    assert fabric.run()
    assert len(set(fabric.delivered)) == len(fabric.delivered)
    assert [each.early_messages() for each in fabric.replays] == [0] * len(programs)
    assert [each.stray_messages() for each in fabric.replays] == [0] * len(programs)
    assert_laws(plan, fabric.records)


@LIMITED
@given(programs=jobs(), chosen=iterations, seed=st.integers(0, 99))
def test_replay_laws_hold_with_late_processing(
    programs: list[RankProgram], chosen: RunSettings, seed: int
) -> None:
    plan = make_plan(programs, single_switch(len(programs), None), settings=chosen)
    rng = random.Random(seed)
    fabric = MessageFabric(
        plan,
        delay_ns=lambda: rng.choice((1, 500, 90_000)),
        lateness_ns=lambda: rng.choice((0, 0, 7, 3_000, 200_000)),
    )
    assert fabric.run()
    assert_laws(plan, fabric.records)
    # Between ready and posted, only late processing delayed the message.
    for flow in flow_rows(fabric.records):
        assert flow.generator_wait_ns == flow.posted_ns - flow.ready_ns


@LIMITED
@given(programs=jobs(max_ranks=1, max_items=20), chosen=iterations)
def test_late_processing_changes_nothing_without_messages(
    programs: list[RankProgram], chosen: RunSettings
) -> None:
    plan = make_plan(programs, single_switch(1, None), settings=chosen)
    prompt = MessageFabric(plan)
    late = MessageFabric(plan, lateness_ns=lambda: 1_000_000)
    assert prompt.run()
    assert late.run()
    assert iteration_rows(late.records) == iteration_rows(prompt.records)
    assert share_rows(late.records) == share_rows(prompt.records)


@FEW
@given(
    programs=jobs(max_ranks=4, max_items=8),
    chosen=iterations,
    ranks_per_port=st.sampled_from([1, 1, 2]),
    verb=st.sampled_from(["write", "send"]),
)
def test_any_job_ends_over_queue_pairs(
    programs: list[RankProgram], chosen: RunSettings, ranks_per_port: int, verb: str
) -> None:
    topology = single_switch(len(programs), 10**9, host_delay_ns=500)
    plan = make_plan(
        programs,
        topology,
        ranks_per_port=ranks_per_port,
        settings=chosen,
        transport=TransportPlan(verb=verb, path_mtu=1024),
    )
    result = simulate_plan(plan, topology, seed=1)
    assert_laws(plan, result.records)
    assert all(flow.generator_wait_ns == 0 for flow in flow_rows(result.records))


@FEW
@given(first=jobs(job="first", max_ranks=3), second=jobs(job="second", max_ranks=3))
def test_two_jobs_on_the_same_ports_do_not_mix(
    first: list[RankProgram], second: list[RankProgram]
) -> None:
    nhosts = max(len(first), len(second))
    topology = single_switch(nhosts, 10**9)
    plan = make_plan([*first, *second], topology, first_ports={"first": 0, "second": 0})
    result = simulate_plan(plan, topology, seed=1)
    assert_laws(plan, result.records)


@pytest.mark.parametrize("drop_ratio", [0.01, 0.05])
@FEW
@given(programs=jobs(max_ranks=4, max_items=6), seed=st.integers(0, 99))
def test_every_byte_arrives_once_when_packets_are_lost(
    drop_ratio: float, programs: list[RankProgram], seed: int
) -> None:
    topology = clos(2, 2, 2, 10**9, 10**9)
    plan = make_plan(
        programs,
        topology,
        settings=RunSettings(warmup=0, measured=2, drop_ratio=drop_ratio),
        # Longer than all windows take that may queue at one port.
        transport=TransportPlan(
            path_mtu=1024, retransmit_timeout_ns=5_000_000, retry_limit=20
        ),
    )
    result = simulate_plan(plan, topology, seed=seed)
    assert_laws(plan, result.records)


@FEW
@given(programs=jobs(max_ranks=4, max_items=6), seed=st.integers(0, 99))
def test_the_same_seed_gives_the_same_records(
    programs: list[RankProgram], seed: int
) -> None:
    topology = clos(2, 2, 2, 10**9, 10**9)
    plan = make_plan(
        programs,
        topology,
        settings=RunSettings(warmup=0, measured=2, drop_ratio=0.02, seed=seed),
    )
    one = simulate_plan(plan, topology, seed=seed)
    other = simulate_plan(plan, topology, seed=seed)
    assert one == other


@FEW
@given(
    programs=jobs(max_ranks=4, max_items=6),
    count=st.integers(1, 5),
    split=st.sampled_from(["round_robin", "even"]),
    message_bytes=st.sampled_from([0, 256, 5_000]),
    drop_ratio=st.sampled_from([0.0, 0.02]),
    seed=st.integers(0, 99),
)
def test_replay_laws_hold_with_any_number_of_queue_pairs(
    programs: list[RankProgram],
    count: int,
    split: str,
    message_bytes: int,
    drop_ratio: float,
    seed: int,
) -> None:
    topology = clos(2, 2, 2, 10**9, 10**9)
    plan = make_plan(
        programs,
        topology,
        settings=RunSettings(warmup=0, measured=2, drop_ratio=drop_ratio),
        transport=TransportPlan(
            path_mtu=1024,
            retransmit_timeout_ns=5_000_000,
            retry_limit=20,
            split=split,
            message_bytes=message_bytes,
        ),
        layout=QueuePairLayout(count=count),
    )
    assert check_plan(plan) == []
    result = simulate_plan(plan, topology, seed=seed)
    assert_laws(plan, result.records)
