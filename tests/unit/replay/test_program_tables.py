from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.collectives.groups import POINT_TO_POINT, ProcessGroup, world_group
from chakram.foundation.errors import PlanError
from chakram.plan.plan import RankPlan
from chakram.replay.program_tables import MOST_RANKS, ProgramTables
from chakram.topology.topology_helpers import single_switch
from tests.made_plans import (
    collective,
    compute,
    make_plan,
    program,
    receive,
    send,
)

WORLD = world_group(2)


def rank_plan() -> RankPlan:
    pair = ProcessGroup(name="pair", ranks=(1, 0))
    rows = [
        collective("all_reduce", 8),
        compute(70, stream=3, after=[0]),
        collective("all_gather", 8, group="pair", after=[1]),
        collective("barrier", group="pair", number=1, after=[2]),
    ]
    plan = make_plan(
        [
            program(0, [WORLD, pair], [*rows, send(1, 5), send(1, 6, number=1)]),
            program(1, [WORLD, pair], [*rows, receive(0, 5), receive(0, 6, number=1)]),
        ],
        single_switch(2, None),
    )
    return plan.ranks()[0]


def test_operations_are_counted_by_group_and_by_peer() -> None:
    tables = ProgramTables(rank_plan())
    assert tables.groups == {"world": 0, "pair": 1}
    assert tables.collectives == [1, 2]
    assert tables.sends == {1: 2}
    assert tables.receives == {}


def test_compute_operations_have_a_duration_and_a_stream() -> None:
    tables = ProgramTables(rank_plan())
    assert tables.durations_ns == [0, 70, 0, 0, 0, 0]
    assert tables.streams == [None, 3, None, None, None, None]


def test_operations_have_targets_and_numbers() -> None:
    tables = ProgramTables(rank_plan())
    assert tables.targets == [0, 0, 1, 1, 1, 1]
    assert tables.numbers == [0, 0, 0, 1, 0, 1]
    assert list(tables.are_barriers) == [0, 0, 0, 1, 0, 0]


def test_a_queue_pair_belongs_to_a_group_or_to_messages_from_rank_to_rank() -> None:
    plan = rank_plan()
    tables = ProgramTables(plan)
    assert tables.point_to_point == 2
    assert {pair.group: tables.pairs[pair.qpn].group for pair in plan.queue_pairs} == {
        "world": 0,
        "pair": 1,
        POINT_TO_POINT: 2,
    }
    assert {pair.peer for pair in tables.pairs.values()} == {1}
    assert [pair.place for pair in ProgramTables(plan, 5).pairs.values()] == [5, 6, 7]


def test_a_queue_pair_of_an_unknown_group_is_refused() -> None:
    plan = rank_plan()
    wrong = replace(plan, program=program(0, WORLD, []))
    with pytest.raises(PlanError, match="is for process group 'pair'"):
        ProgramTables(wrong)


def test_group_name_reserved_for_point_to_point_is_refused() -> None:
    plan = rank_plan()
    group = ProcessGroup(name=POINT_TO_POINT, ranks=(0, 1))
    wrong = replace(plan, program=program(0, [WORLD, group], []))
    with pytest.raises(PlanError, match="rename the group"):
        ProgramTables(wrong)


@pytest.mark.parametrize("peer", [-1, MOST_RANKS])
def test_rank_outside_of_all_jobs_is_refused(peer: int) -> None:
    plan = rank_plan()
    pair = replace(plan.queue_pairs[0], peer_rank=peer)
    with pytest.raises(PlanError, match=f"leads to rank {peer}"):
        ProgramTables(replace(plan, queue_pairs=(pair,)))


@pytest.mark.parametrize("build", [send, receive])
@pytest.mark.parametrize("numbers", [(1,), (0, 0), (0, 2)])
def test_messages_to_one_rank_have_to_be_numbered(
    build: type, numbers: tuple[int, ...]
) -> None:
    rows = [build(1, 8, number=number) for number in numbers]
    wrong = replace(rank_plan(), program=program(0, WORLD, rows), queue_pairs=())
    with pytest.raises(PlanError, match=f"not numbered 0..{len(numbers) - 1}"):
        ProgramTables(wrong)
