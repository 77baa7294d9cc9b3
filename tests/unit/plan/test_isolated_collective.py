"""Plans reduced to one collective."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.collectives.groups import ProcessGroup, world_group
from chakram.plan.isolated_collective import collective_alone, is_collective_alone
from chakram.plan.plan import RunSettings
from chakram.topology.topology_helpers import single_switch
from tests.made_plans import collective, compute, make_plan, program

WORLD = world_group(4)
HALF = ProcessGroup(name="half", ranks=(1, 3))


def planned():
    rows = [
        compute(1000),
        collective("all_reduce", 100, after=[0], start_ns=7),
        collective("all_gather", 200, number=1, after=[1]),
    ]
    more = [*rows, collective("broadcast", 300, group="half", after=[2])]
    return make_plan(
        [
            program(rank, (WORLD, HALF), more if rank in HALF.ranks else rows)
            for rank in range(4)
        ],
        single_switch(4, 10**9),
        settings=RunSettings(warmup=3, measured=5, drop_ratio=0.1, gap_ns=9),
    )


def test_ranks_of_an_isolated_collective_run_it_once() -> None:
    plan = planned()
    alone = collective_alone(plan, "job", "half", 0)
    assert [rank.program.rank for rank in alone.ranks()] == [1, 3]
    assert [rank.number for rank in alone.ranks()] == [0, 1]
    for rank in alone.ranks():
        (operation,) = rank.program.operations
        assert (operation.name, operation.dependencies) == ("broadcast", ())
    settings = alone.agents[0].settings
    assert (settings.iterations, settings.drop_ratio, settings.gap_ns) == (1, 0, 0)


def test_isolated_collective_keeps_ports_and_queue_pairs() -> None:
    plan = planned()
    alone = collective_alone(plan, "job", "world", 1)
    assert alone.ports() == plan.ports()
    of_plan = [rank.queue_pairs for rank in plan.ranks()]
    for rank, pairs in zip(alone.ranks(), of_plan, strict=True):
        assert rank.queue_pairs == tuple(
            pair for pair in pairs if pair.group == "world"
        )
        assert rank.program.operation(0).number == 1


def test_unknown_collective_is_refused() -> None:
    with pytest.raises(ValueError, match="no collective 2 of job world"):
        collective_alone(planned(), "job", "world", 2)


def test_isolated_plan_contains_nothing_else() -> None:
    plan = planned()
    alone = collective_alone(plan, "job", "world", 1)
    assert is_collective_alone(alone)
    assert not is_collective_alone(plan)
    (agent,) = alone.agents
    for changed in (
        {"measured": 2},
        {"warmup": 1},
        {"sync": "gap", "gap_ns": 1},
        {"drop_ratio": 0.1},
    ):
        settings = replace(agent.settings, **changed)
        other = replace(alone, agents=(replace(agent, settings=settings),))
        assert not is_collective_alone(other)
    started = make_plan(
        [
            program(rank, WORLD, [collective("all_reduce", 100, start_ns=7)])
            for rank in range(4)
        ],
        single_switch(4, 10**9),
        settings=agent.settings,
    )
    assert not is_collective_alone(started)
