"""Slowdown of a job by others, and a job alone in its placement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

import pytest

from chakram.analysis.interference import interference
from chakram.collectives.groups import world_group
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import PlanError
from chakram.plan.isolated_collective import job_alone
from chakram.plan.plan import JobSettings, Plan, RunSettings
from chakram.plan.plan_check import check_plan
from chakram.records.run_records import (
    CollectiveIdentity,
    CollectiveKey,
    CollectiveRecord,
    RankRecord,
)
from chakram.summary.run_summary import Measurements, RunFacts
from chakram.topology.topology_helpers import single_switch
from tests.made_plans import collective, make_plan, program


def iteration(
    job: str, number: int, start_ns: int, end_ns: int, *, rank: int = 0
) -> RankRecord:
    return RankRecord(
        number=rank,
        job=job,
        rank=rank,
        iteration=number,
        measured=number > 0,
        start_ns=start_ns,
        end_ns=end_ns,
        compute_ns=0,
        communication_ns=0,
        exposed_ns=0,
        idle_ns=0,
    )


def gathered(
    job: str,
    duration_ns: int,
    *,
    wait_ns: int = 0,
    size: int = 64,
    measured: bool = True,
) -> CollectiveRecord:
    identity = CollectiveIdentity(
        key=CollectiveKey(job, "world", 0),
        name="x",
        op=CollectiveOp.ALL_REDUCE,
        algorithm="ring",
        nranks=2,
        root=None,
        input_bytes=size,
        trace_bytes=size,
        shares=2,
    )
    return CollectiveRecord(
        identity=identity,
        iteration=1,
        measured=measured,
        shares=2,
        start_ns=0,
        end_ns=duration_ns,
        mean_duration_ns=duration_ns,
        start_spread_ns=0,
        sent_bytes=0,
        packets=0,
        retransmitted=0,
        ce=0,
        generator_wait_ns=wait_ns,
        critical=None,
    )


def measured(
    ranks: Sequence[RankRecord],
    collectives: Sequence[CollectiveRecord] = (),
    *,
    dilation: int = 1,
) -> Measurements:
    facts = RunFacts(run_id="r", name="n", world="simulate", dilation=dilation)
    return Measurements(facts=facts, ranks=ranks, collectives=collectives)


ALONE = measured(
    [
        iteration("a", 0, 0, 77),  # of warm-up
        iteration("a", 1, 100, 180, rank=0),
        iteration("a", 1, 110, 200, rank=1),
        iteration("a", 2, 200, 300),
    ],
    [gathered("a", 40), gathered("a", 60), gathered("a", 9, size=8)],
)
TOGETHER = measured(
    [
        iteration("a", 1, 1_000, 1_150),
        iteration("a", 2, 1_150, 1_400),
        iteration("b", 0, 900, 1_100),
        iteration("b", 1, 1_050, 1_200),
        iteration("b", 2, 1_300, 2_000),
    ],
    [
        gathered("a", 100),
        gathered("a", 100, wait_ns=6),
        gathered("a", 999, measured=False),
        gathered("b", 1),
    ],
)


def test_factor_is_the_ratio_of_means() -> None:
    (found,) = interference(TOGETHER, {"a": ALONE})
    factor = found.factor
    assert (factor.alone_ns, factor.together_ns, factor.factor) == (100, 200, 2)
    assert (factor.alone_samples, factor.together_samples) == (2, 2)
    # Alone it never varies; together it is 150 or 250.
    assert factor.spread == pytest.approx(2 * (50 / 200) / sqrt(2))
    assert factor.p99_factor == 2.5


def test_the_overlap_counts_every_time_once() -> None:
    (found,) = interference(TOGETHER, {"a": ALONE})
    assert found.overlap == pytest.approx((200 + 100) / 400)


def test_background_job_is_active_until_the_end() -> None:
    ranks = [each for each in TOGETHER.ranks if each.iteration < 2 or each.job == "a"]
    cut = replace(TOGETHER, ranks=ranks)
    (found,) = interference(cut, {"a": ALONE})
    assert found.overlap == pytest.approx(200 / 400)
    (found,) = interference(cut, {"a": ALONE}, endless=["a", "b"])
    assert found.overlap == 1


def test_collectives_have_separate_factors() -> None:
    (found,) = interference(TOGETHER, {"a": ALONE})
    (kind,) = found.collectives  # of 8 bytes there are none together
    assert (kind.op, kind.nranks, kind.size_bytes) == (CollectiveOp.ALL_REDUCE, 2, 64)
    assert kind.factor.factor == 2
    assert kind.factor.spread == pytest.approx(2 * 0.2 / sqrt(2))


def test_generator_bound_times_are_counted() -> None:
    (found,) = interference(TOGETHER, {"a": ALONE})
    assert (found.bound, found.verdicts) == (1, 5)
    assert found.collectives[0].bound == 1


def test_dilated_runs_are_compared_undilated() -> None:
    facts = replace(TOGETHER.facts, dilation=10)
    (found,) = interference(replace(TOGETHER, facts=facts), {"a": ALONE})
    assert found.factor.factor == pytest.approx(0.2)


def test_a_job_that_was_not_measured_has_no_factor() -> None:
    assert interference(TOGETHER, {"c": ALONE}) == []
    assert interference(TOGETHER, {"b": measured([])}) == []


# A job alone.


def two_jobs() -> Plan:
    world = world_group(2)
    programs = [
        program(rank, world, [collective("all_reduce", 8)], job=job)
        for job in ("a", "b")
        for rank in range(2)
    ]
    settings = RunSettings(
        jobs=(
            JobSettings(job="a", policy="start_time"),
            JobSettings(job="b", offset_ns=5, is_background=True),
        )
    )
    return make_plan(
        programs,
        single_switch(3, None),
        first_ports={"a": 0, "b": 1},
        agents=2,
        settings=settings,
    )


def test_isolated_job_keeps_its_placement() -> None:
    plan = two_jobs()
    alone = job_alone(plan, "b")
    assert check_plan(alone) == []
    before = [rank for rank in plan.ranks() if rank.program.job == "b"]
    assert alone.ranks() == [
        replace(rank, number=number) for number, rank in enumerate(before)
    ]
    assert [port.number for port in alone.ports()] == [1, 2]
    assert alone.iterations_of() == {0: 22, 1: 22}
    assert all(agent.settings.jobs == () for agent in alone.agents)
    assert job_alone(plan, "a").agents[0].settings.of("a").policy == "start_time"


def test_unknown_job_is_refused() -> None:
    with pytest.raises(
        PlanError, match=r"job c: is not in the experiment \(choose from a, b\)"
    ):
        job_alone(two_jobs(), "c")
