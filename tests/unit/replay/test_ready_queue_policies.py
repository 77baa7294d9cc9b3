"""Order of ready operations."""

from __future__ import annotations

import pytest

from chakram.collectives.groups import world_group
from chakram.plan.plan import POLICIES
from chakram.replay.ready_queue_policies import preferences
from tests.made_plans import collective, compute, program, receive, send

COLUMNS = program(
    0,
    world_group(2),
    [
        compute(1, start_ns=30),
        compute(1, after=[0], start_ns=20),
        collective("all_reduce", 8, after=[1], start_ns=40),
        compute(1, start_ns=10),
        compute(1, after=[3]),
        send(1, 8, after=[0, 3]),
        receive(1, 8),
        compute(1, start_ns=5),
    ],
).columns


def in_order(policy: str) -> list[int]:
    numbers = preferences(policy, COLUMNS)
    return sorted(range(len(COLUMNS)), key=numbers.__getitem__)


def test_first_in_first_out_prefers_nothing() -> None:
    assert in_order("fifo") == list(range(8))


def test_operations_are_ordered_by_start_time_with_unknown_ones_last() -> None:
    assert in_order("start_time") == [7, 3, 1, 0, 2, 4, 5, 6]


def test_communication_and_its_predecessors_are_preferred() -> None:
    numbers = preferences("communication_first", COLUMNS)
    assert [numbers[each] for each in (2, 5, 6)] == [0, 0, 0]
    assert [numbers[each] for each in (0, 1, 3)] == [1, 1, 1]
    assert numbers[4] == numbers[7] > 1


def test_all_policies_are_registered() -> None:
    for policy in POLICIES:
        assert len(preferences(policy, COLUMNS)) == len(COLUMNS)
    with pytest.raises(KeyError):
        preferences("lifo", COLUMNS)
