"""Laws of ready-queue policies: they end, in order, with the same messages."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from chakram.chakra.lint.replay_blockers import check_trace_set
from chakram.foundation.errors import MatchingError
from chakram.plan.plan import ORDERS, POLICIES, JobSettings, Plan, RunSettings
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.program.lowering import LoweringOptions, lower_job
from chakram.program.operations import ComputeOperation, Operation
from chakram.topology.topology_helpers import single_switch
from tests.made_plans import (
    IterationRow,
    ShareRow,
    iteration_rows,
    make_plan,
    share_rows,
)
from tests.random_traces import RandomJob, random_jobs
from tests.replay_checks import MessageFabric
from tests.support import examples

MAX_TIME_NS = 5_000
LIMITED = settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
)

timed_jobs = st.booleans().flatmap(
    lambda distinct: random_jobs(distinct=distinct, timed=True, max_time_ns=MAX_TIME_NS)
)


def planned(found: RandomJob, *, policy: str, order: str) -> Plan:
    """Return the plan of a random job whose traces are clean.

    Its ranks may still disagree about their collectives: then there is none.
    """
    assert check_trace_set(found.graphs, found.groups) == []
    options = LoweringOptions(order=order, with_starts=True)
    try:
        programs = lower_job("j", found.graphs, found.groups, options).programs
    except MatchingError:
        assume(False)
    job = JobSettings(job="j", policy=policy, order=order)
    return make_plan(
        programs,
        single_switch(len(programs), 10**9),
        settings=RunSettings(warmup=0, measured=2, jobs=(job,)),
    )


def replayed(plan: Plan, seed: int) -> MessageFabric:
    """Replay over a network with arbitrary delays, with late drivers."""
    rng = random.Random(seed)
    fabric = MessageFabric(
        plan,
        delay_ns=lambda: rng.choice([1, 50, 3_000, 40_000]),
        lateness_ns=lambda: rng.choice([0, 0, 7, 2_000]),
    )
    assert fabric.run(), [each.waiting_for() for each in fabric.replays]
    assert not any(each.stray_messages() for each in fabric.replays)
    return fabric


def messages(fabric: MessageFabric) -> Counter[tuple[int, int, int]]:
    return Counter(fabric.delivered)


@LIMITED
@given(timed_jobs, st.sampled_from(ORDERS), st.integers(0, 99))
def test_every_policy_ends_with_the_same_messages(
    found: RandomJob, order: str, seed: int
) -> None:
    first, *others = (
        messages(replayed(planned(found, policy=policy, order=order), seed))
        for policy in POLICIES
    )
    for other in others:
        assert other == first


class Ends:
    """When the operations of one rank ended in one iteration, at the earliest.

    Shares say when communication began; it must not be before what it depends on.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        row: IterationRow,
        shares: Mapping[int, ShareRow],
        *,
        by_times: bool,
    ) -> None:
        self._operations = operations
        self._row = row
        self._shares = shares
        self._by_times = by_times
        self._ends_ns: dict[int, int] = {}

    def of(self, index: int) -> int:
        if index not in self._ends_ns:
            self._ends_ns[index] = self._end_ns(index)
        return self._ends_ns[index]

    def _end_ns(self, index: int) -> int:
        operation = self._operations[index]
        start_ns = self._row.start_ns
        ready_ns = max(map(self.of, operation.dependencies), default=start_ns)
        due_ns = start_ns + (operation.start_ns or 0)
        if self._by_times:
            ready_ns = max(ready_ns, due_ns)
        if isinstance(operation, ComputeOperation):
            return ready_ns + operation.duration_ns
        share = self._shares[index]
        assert share.start_ns >= ready_ns
        assert share.slip_ns == (share.start_ns - due_ns if self._by_times else 0)
        return share.end_ns


@LIMITED
@given(
    timed_jobs,
    st.sampled_from(POLICIES),
    st.sampled_from(ORDERS),
    st.integers(0, 99),
)
def test_no_policy_breaks_a_dependency(
    found: RandomJob, policy: str, order: str, seed: int
) -> None:
    plan = planned(found, policy=policy, order=order)
    fabric = replayed(plan, seed)
    for row in iteration_rows(fabric.records):
        operations = plan.ranks()[row.rank].program.operations
        ends = Ends(
            operations,
            row,
            {
                share.operation: share
                for share in share_rows(fabric.records)
                if (share.iteration, share.rank) == (row.iteration, row.rank)
            },
            by_times=order == "start_times",
        )
        latest_ns = max(map(ends.of, range(len(operations))), default=row.start_ns)
        assert latest_ns <= row.end_ns


@LIMITED
@given(timed_jobs, st.sampled_from(POLICIES), st.sampled_from(ORDERS))
def test_the_simulator_ends_under_every_policy(
    found: RandomJob, policy: str, order: str
) -> None:
    plan = planned(found, policy=policy, order=order)
    nranks = len(plan.ranks())
    result = simulate_plan(plan, single_switch(nranks, 10**9), seed=1)
    assert len(iteration_rows(result.records)) == 2 * nranks
