"""Ranks on ports, and the queue pairs between them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.collectives.algorithms import algorithm_names
from chakram.collectives.groups import ProcessGroup, world_group
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import PlanError
from chakram.plan.placement import PlacementOptions
from chakram.plan.plan import Plan
from chakram.plan.plan_check import check_plan
from chakram.plan.queue_pairs import FIRST_QUEUE_PAIR
from tests.made_plans import collective
from tests.unit.plan.placing import (
    ALL_TO_ALL,
    RING,
    make_job,
    make_plan,
    make_port,
    make_ports,
)

ALGORITHMS = [(op, name) for op in CollectiveOp for name in algorithm_names(op)]


@given(
    kind=st.sampled_from(ALGORITHMS),
    nranks=st.integers(2, 12),
    ranks_per_port=st.integers(1, 3),
    shards=st.integers(1, 5),
)
def test_every_plan_is_valid(
    kind: tuple[CollectiveOp, str], nranks: int, ranks_per_port: int, shards: int
) -> None:
    op, name = kind
    nranks = 2 if op is CollectiveOp.SEND_RECV else nranks
    plan = make_plan(
        {"job": make_job(nranks, collective(op, 1024, algorithm=name))},
        make_ports(nranks),
        {"job": PlacementOptions(ranks_per_port=ranks_per_port)},
        shards=shards,
    )
    assert check_plan(plan) == []
    assert all(rank.queue_pairs for rank in plan.ranks())


def test_ranks_of_several_jobs_are_numbered_one_after_another() -> None:
    plan = make_plan(
        {"x": make_job(2, RING, job="x"), "y": make_job(3, RING, job="y")},
        make_ports(5),
    )
    assert check_plan(plan) == []
    assert [(rank.program.job, rank.port) for rank in plan.ranks()] == [
        ("x", 0),
        ("x", 1),
        ("y", 2),
        ("y", 3),
        ("y", 4),
    ]
    assert plan.agents[0].numbers()["y", 2] == 4


def test_jobs_may_share_ports() -> None:
    plan = make_plan(
        {"x": make_job(2, RING, job="x"), "y": make_job(2, RING, job="y")},
        make_ports(2),
        {"y": PlacementOptions(first_port=0)},
    )
    assert check_plan(plan) == []
    assert [rank.port for rank in plan.ranks()] == [0, 1, 0, 1]


def test_ranks_follow_the_given_order() -> None:
    plan = make_plan(
        {"job": make_job(4, RING)},
        make_ports(4),
        {"job": PlacementOptions(order=(3, 1, 0, 2), ranks_per_port=2)},
    )
    assert [rank.port for rank in plan.ranks()] == [1, 0, 1, 0]
    assert [port.number for port in plan.ports()] == [0, 1]


def test_shards_get_equally_many_ranks_without_dividing_ports() -> None:
    plan = make_plan(
        {"job": make_job(8, ALL_TO_ALL)},
        make_ports(4),
        {"job": PlacementOptions(ranks_per_port=2)},
        shards=2,
    )
    assert Counter(rank.shard for rank in plan.ranks()) == {0: 4, 1: 4}
    by_port = {(rank.port, rank.shard) for rank in plan.ranks()}
    assert len(by_port) == 4
    assert all(
        pair.qpn & 63 == rank.shard and pair.qpn >> 6 >= FIRST_QUEUE_PAIR
        for rank in plan.ranks()
        for pair in rank.queue_pairs
    )


def test_there_are_no_more_shards_than_ports() -> None:
    plan = make_plan({"job": make_job(2, RING)}, make_ports(2), shards=8)
    assert plan.agents[0].shards == 2
    assert check_plan(plan) == []


def test_agents_get_their_own_ports_and_all_peers() -> None:
    ports = [make_port(0, agent="a"), make_port(1, agent="b"), make_port(2, agent="c")]
    plan = make_plan({"job": make_job(2, RING)}, ports)
    assert [agent.agent for agent in plan.agents] == ["a", "b"]
    assert [len(agent.ports) for agent in plan.agents] == [1, 1]
    assert plan.agents[0].peers == (ports[0].address, ports[1].address)


def test_the_same_input_gives_the_same_plan_and_another_seed_other_psns() -> None:
    jobs = {"job": make_job(4, ALL_TO_ALL)}
    assert make_plan(jobs, make_ports(4)) == make_plan(jobs, make_ports(4))

    def psns(seed: int) -> list[int]:
        plan = make_plan(jobs, make_ports(4), seed=seed)
        return [pair.send_psn for rank in plan.ranks() for pair in rank.queue_pairs]

    assert len(set(psns(1))) == 12
    assert not set(psns(1)) & set(psns(2))


def test_first_psns_can_have_their_own_seed() -> None:
    jobs = {"job": make_job(4, ALL_TO_ALL)}

    def plan(psn_seed: int | None, seed: int = 1) -> Plan:
        return make_plan(jobs, make_ports(4), seed=seed, psn_seed=psn_seed)

    def psns(plan: Plan) -> list[int]:
        return [pair.send_psn for rank in plan.ranks() for pair in rank.queue_pairs]

    assert not set(psns(plan(7))) & set(psns(plan(8)))
    assert psns(plan(7, seed=1)) == psns(plan(7, seed=2))
    assert plan(1) == plan(None)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (PlacementOptions(order=(0, 1, 1)), "rank 1 occurs twice"),
        (PlacementOptions(order=(0, 1)), "rank 2 is missing"),
        (PlacementOptions(order=(0, 1, 3)), "there is no rank 3"),
        (PlacementOptions(first_port=1), "need ports 1 to 3, but the fabric has 3"),
    ],
)
def test_a_placement_that_does_not_fit_is_refused(
    options: PlacementOptions, expected: str
) -> None:
    with pytest.raises(PlanError, match=expected):
        make_plan({"job": make_job(3, RING)}, make_ports(3), {"job": options})


def test_too_few_ports_are_refused() -> None:
    with pytest.raises(PlanError, match="need ports 0 to 3, but the fabric has 2"):
        make_plan({"job": make_job(4, RING)}, make_ports(2))


def test_a_rank_with_two_programs_is_refused() -> None:
    programs = make_job(2, RING)
    with pytest.raises(PlanError, match="two programs for one rank"):
        make_plan({"job": [*programs, programs[0]]}, make_ports(3))


def test_groups_with_contradictory_members_are_refused() -> None:
    programs = make_job(2, RING)
    other = replace(programs[1], groups=(ProcessGroup(name="world", ranks=(1, 0)),))
    with pytest.raises(PlanError, match="has different ranks than"):
        make_plan({"job": [programs[0], other]}, make_ports(2))


def test_group_with_an_unknown_rank_is_refused() -> None:
    with pytest.raises(PlanError, match="has rank 2, which is not in the job"):
        make_plan({"job": make_job(2, RING, groups=(world_group(3),))}, make_ports(2))


def test_impossible_shards_are_refused() -> None:
    with pytest.raises(PlanError, match="65 shards are not supported"):
        make_plan({"job": make_job(2, RING)}, make_ports(2), shards=65)
