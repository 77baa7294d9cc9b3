"""Laws of replay: whatever the program, it ends, in order, with every message once."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chakram.core.algorithms import algorithm
from chakram.core.plan import Plan, RunSettings, TransportPlan
from chakram.core.plan_check import check_plan
from chakram.core.program import (
    CollectiveOperation,
    ComputeOperation,
    RankProgram,
    ReceiveOperation,
    SendOperation,
)
from chakram.core.queue_pairs import QueuePairLayout
from chakram.core.records import (
    CAUSE_MESSAGE,
    CAUSE_OPERATION,
    CAUSE_START,
    RecordRows,
)
from chakram.core.schedule import rank_schedule, transfer_bytes, uneven_schedule
from chakram.fabric.topology import clos, single_switch
from chakram.simulate.job import simulate_plan
from chakram.testing.jobs import jobs
from chakram.testing.plans import (
    FlowRow,
    ShareRow,
    flow_rows,
    iteration_rows,
    make_plan,
    share_rows,
)
from chakram.testing.replays import MessageFabric

LIMITED = settings(
    max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None
)
FEW = settings(LIMITED, max_examples=25)

iterations = st.builds(
    RunSettings,
    warmup=st.integers(0, 1),
    measured=st.integers(1, 3),
    sync=st.sampled_from(["barrier", "free", "gap"]),
    gap_ns=st.sampled_from([0, 1, 100_000]),
)


def identity(program: RankProgram, operation: int) -> tuple[object, ...]:
    """What an operation and its counterparts on other ranks have in common."""
    row = program.operations[operation]
    if isinstance(row, CollectiveOperation):
        return ("collective", program.job, row.group, row.number)
    if isinstance(row, SendOperation):
        return ("message", program.job, program.rank, row.peer, row.number)
    assert isinstance(row, ReceiveOperation)
    return ("message", program.job, row.peer, program.rank, row.number)


def expected_sends(
    program: RankProgram, operation: int
) -> list[tuple[int, int, int, int]]:
    """(step, channel, peer rank, size) of the messages of an operation."""
    row = program.operations[operation]
    if isinstance(row, SendOperation):
        return [(0, 0, row.peer, row.size_bytes)]
    if not isinstance(row, CollectiveOperation):
        return []
    group = next(each for each in program.groups if each.name == row.group)
    how = algorithm(row.op, row.algorithm)
    n = len(group.ranks)
    position = group.position(program.rank)
    if row.splits is not None:
        return [
            (step, 0, group.ranks[peer], row.splits.sent_bytes[peer])
            for step, peer in _partners(row.algorithm, position, n)
            if row.splits.sent_bytes[peer]
        ]
    share = rank_schedule(how, position=position, nranks=n, root=row.root)
    return [
        (
            send.step,
            send.channel,
            group.ranks[send.peer],
            transfer_bytes(how, send, nranks=n, input_bytes=row.input_bytes),
        )
        for send in share.sends
    ]


def _partners(name: str, position: int, n: int) -> list[tuple[int, int]]:
    """(step, peer) of an all_to_all_v, in the order of its algorithm."""
    if name == "direct":
        return [(0, (position + distance) % n) for distance in range(1, n)]
    if n & n - 1:
        return [(step, (position + step + 1) % n) for step in range(n - 1)]
    return [(step, position ^ (step + 1)) for step in range(n - 1)]


class Ran:
    """What a run recorded, by what it belongs to."""

    def __init__(self, plan: Plan, records: RecordRows) -> None:
        self.plan = plan
        self.programs = [rank.program for rank in plan.ranks()]
        self.settings = plan.agents[0].settings
        self.iterations = iteration_rows(records)
        self.shares: dict[tuple[int, int, int], ShareRow] = {}
        for share in share_rows(records):
            key = (share.iteration, share.rank, share.operation)
            assert key not in self.shares
            self.shares[key] = share
        self.flows: dict[tuple[int, int, int], list[FlowRow]] = defaultdict(list)
        for flow in flow_rows(records):
            self.flows[flow.iteration, flow.rank, flow.operation].append(flow)

    def communications(self) -> list[tuple[int, int, int]]:
        return [
            (iteration, rank, index)
            for iteration in range(self.settings.iterations)
            for rank, program in enumerate(self.programs)
            for index, row in enumerate(program.operations)
            if not isinstance(row, ComputeOperation)
        ]


def assert_every_operation_ran_once(ran: Ran) -> None:
    assert sorted(ran.shares) == ran.communications()
    assert sorted((row.iteration, row.rank) for row in ran.iterations) == [
        (iteration, rank)
        for iteration in range(ran.settings.iterations)
        for rank in range(len(ran.programs))
    ]


def assert_exactly_the_messages_of_the_schedules(ran: Ran) -> None:
    number_of = {
        (each.job, each.rank): number for number, each in enumerate(ran.programs)
    }
    received: Counter[tuple[object, ...]] = Counter()
    for iteration, rank, index in ran.communications():
        program = ran.programs[rank]
        flows = ran.flows[iteration, rank, index]
        sent = Counter((f.step, f.channel, f.peer, f.size_bytes) for f in flows)
        assert sent == Counter(
            (step, channel, number_of[program.job, peer], size_bytes)
            for step, channel, peer, size_bytes in expected_sends(program, index)
        )
        share = ran.shares[iteration, rank, index]
        assert share.sent_bytes == sum(flow.size_bytes for flow in flows)
        for flow in flows:
            what = identity(program, index)
            received[iteration, flow.peer, *what] += flow.size_bytes
    for iteration, rank, index in ran.communications():
        share = ran.shares[iteration, rank, index]
        program = ran.programs[rank]
        if isinstance(program.operations[index], SendOperation):
            assert share.received_bytes == 0
        else:
            key = (iteration, rank, *identity(program, index))
            assert share.received_bytes == received[key]


def earliest_ends_ns(ran: Ran, iteration: int, rank: int, start_ns: int) -> list[int]:
    """When operations ended: communication as recorded, compute at the earliest."""
    rows = ran.programs[rank].operations
    ends: dict[int, int] = {}

    def end(index: int) -> int:
        if index not in ends:
            row = rows[index]
            if isinstance(row, ComputeOperation):
                ready_ns = max([start_ns, *map(end, row.dependencies)])
                ends[index] = ready_ns + row.duration_ns
            else:
                ends[index] = ran.shares[iteration, rank, index].end_ns
        return ends[index]

    return [end(index) for index in range(len(rows))]


def assert_dependencies_hold(ran: Ran) -> None:
    for row in ran.iterations:
        program = ran.programs[row.rank]
        ends_ns = earliest_ends_ns(ran, row.iteration, row.rank, row.start_ns)
        # A compute operation that nothing waits for ends with the iteration at most.
        assert row.end_ns >= max([row.start_ns, *ends_ns])
        for index, operation in enumerate(program.operations):
            if isinstance(operation, ComputeOperation):
                continue
            share = ran.shares[row.iteration, row.rank, index]
            dependencies = [ends_ns[each] for each in operation.dependencies]
            assert share.ready_ns >= max([row.start_ns, *dependencies])
            computes = any(
                isinstance(program.operations[each], ComputeOperation)
                for each in operation.dependencies
            )
            if not computes:
                assert share.ready_ns == max([row.start_ns, *dependencies])
            assert share.ready_ns <= share.start_ns <= share.end_ns <= row.end_ns
            for flow in ran.flows[row.iteration, row.rank, index]:
                assert share.ready_ns <= flow.ready_ns <= flow.posted_ns
                assert flow.posted_ns <= flow.first_sent_ns <= flow.last_acked_ns
                assert flow.last_acked_ns <= share.end_ns
                assert_cause_holds(ran, flow)


def assert_cause_holds(ran: Ran, flow: FlowRow) -> None:
    program = ran.programs[flow.rank]
    share = ran.shares[flow.iteration, flow.rank, flow.operation]
    if flow.cause_kind == CAUSE_MESSAGE:
        what = identity(program, flow.operation)
        causes = [
            each
            for (iteration, rank, index), flows in ran.flows.items()
            if iteration == flow.iteration and rank == flow.cause_rank
            if identity(ran.programs[rank], index) == what
            for each in flows
            if each.peer == flow.rank and each.step < flow.step
        ]
        assert any(each.posted_ns <= flow.ready_ns for each in causes)
    else:
        assert flow.ready_ns == share.ready_ns
        assert flow.cause_rank == flow.rank
        dependencies = program.operations[flow.operation].dependencies
        if flow.cause_kind == CAUSE_OPERATION:
            assert flow.cause_number in dependencies
        else:
            assert flow.cause_kind == CAUSE_START
            assert not dependencies


def assert_messages_wait_for_those_they_carry_on(ran: Ran) -> None:
    """No rank passes on a chunk before the one that has it could have sent it.

    Flows of one step between the same ranks are not told apart.
    """
    posted: dict[tuple[object, ...], int] = {}
    for (iteration, rank, index), flows in ran.flows.items():
        for flow in flows:
            what = identity(ran.programs[rank], index)
            key = (iteration, *what, rank, flow.peer, flow.channel, flow.step)
            posted[key] = min(posted.get(key, flow.posted_ns), flow.posted_ns)
    number_of = {
        (each.job, each.rank): number for number, each in enumerate(ran.programs)
    }
    for (iteration, rank, index), flows in ran.flows.items():
        program = ran.programs[rank]
        row = program.operations[index]
        if not isinstance(row, CollectiveOperation):
            continue
        group = next(each for each in program.groups if each.name == row.group)
        how = algorithm(row.op, row.algorithm)
        position = group.position(program.rank)
        share = (
            rank_schedule(
                how, position=position, nranks=len(group.ranks), root=row.root
            )
            if row.splits is None
            else uneven_schedule(how, row.splits, position=position)
        )
        ready: dict[tuple[int, int, int], int] = {}
        for flow in flows:
            sent = (flow.step, flow.peer, flow.channel)
            ready[sent] = max(ready.get(sent, 0), flow.ready_ns)
        for send in share.sends:
            peer = number_of[program.job, group.ranks[send.peer]]
            for need in (share.receives[each] for each in send.needs):
                source = number_of[program.job, group.ranks[need.peer]]
                what = identity(program, index)
                key = (iteration, *what, source, rank, need.channel, need.step)
                assert posted[key] <= ready[send.step, peer, send.channel]


def assert_iterations_follow_each_other(ran: Ran) -> None:
    gap_ns = ran.settings.gap_ns if ran.settings.sync == "gap" else 0
    ends_ns: dict[int, int] = {}
    for row in sorted(ran.iterations):
        if row.iteration:
            assert row.start_ns == ends_ns[row.rank] + gap_ns
        else:
            assert row.start_ns == 0
        ends_ns[row.rank] = row.end_ns


def assert_time_is_accounted_for(ran: Ran) -> None:
    for row in ran.iterations:
        spent_ns = row.compute_ns + row.exposed_ns + row.idle_ns
        assert spent_ns == row.end_ns - row.start_ns
        hidden_ns = row.communication_ns - row.exposed_ns
        assert 0 <= hidden_ns <= row.compute_ns


def assert_laws(plan: Plan, records: RecordRows) -> None:
    ran = Ran(plan, records)
    assert_every_operation_ran_once(ran)
    assert_exactly_the_messages_of_the_schedules(ran)
    assert_dependencies_hold(ran)
    assert_messages_wait_for_those_they_carry_on(ran)
    assert_iterations_follow_each_other(ran)
    assert_time_is_accounted_for(ran)


@LIMITED
@given(programs=jobs(), chosen=iterations, seed=st.integers(0, 99))
def test_any_job_ends_whatever_overtakes_what(
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
def test_the_laws_hold_when_ranks_are_looked_at_late(
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
    # From ready to posted nothing but the one who looked late stood in the way.
    for flow in flow_rows(fabric.records):
        assert flow.generator_wait_ns == flow.posted_ns - flow.ready_ns


@LIMITED
@given(programs=jobs(max_ranks=1, max_items=20), chosen=iterations)
def test_lateness_changes_nothing_where_nothing_is_sent(
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
    result = simulate_plan(plan, topology, rng=random.Random(1))
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
    result = simulate_plan(plan, topology, rng=random.Random(1))
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
    result = simulate_plan(plan, topology, rng=random.Random(seed))
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
    one = simulate_plan(plan, topology, rng=random.Random(seed))
    other = simulate_plan(plan, topology, rng=random.Random(seed))
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
def test_the_laws_hold_over_any_number_of_queue_pairs(
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
    result = simulate_plan(plan, topology, rng=random.Random(seed))
    assert_laws(plan, result.records)
