"""Consistent and inconsistent programs of a job."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chakram.collectives.groups import ProcessGroup, world_group
from chakram.collectives.split_sizes import Splits
from chakram.program.job_check import check_job
from chakram.program.program_check import are_ends, largest
from tests.made_plans import (
    collective,
    compute,
    matrix_splits,
    program,
    receive,
    send,
)

if TYPE_CHECKING:
    from chakram.program.operations import CollectiveOperation, Operation

WORLD = world_group(2)
MATRIX = ((1, 2), (3, 4))


def both(*rows: Operation) -> list[list[Operation]]:
    return [list(rows), list(rows)]


def uneven(position: int) -> CollectiveOperation:
    return collective("all_to_all_v", 5, splits=matrix_splits(MATRIX, position))


def pair(*rows_of_rank: list[Operation], groups: tuple[ProcessGroup, ...] = (WORLD,)):
    return [program(rank, groups, rows) for rank, rows in enumerate(rows_of_rank)]


@pytest.mark.parametrize(
    "rows",
    [
        both(),
        both(compute(5, after=[1]), compute(0)),
        both(collective("all_reduce", 8), collective("all_reduce", 8, number=1)),
        [[send(1, 4), receive(1, 4)], [receive(0, 4), send(0, 4)]],
        [[send(1, 4, after=[1]), receive(1, 4)], [receive(0, 4), send(0, 4)]],
        [[send(1, 4), send(1, 5, number=7)], [receive(0, 5, number=7), receive(0, 4)]],
        [[uneven(0)], [uneven(1)]],
        # What differs for no member of the group but in name and dependencies.
        [[compute(1), collective("barrier", after=[0])], [collective("barrier")]],
    ],
)
def test_valid_job_is_accepted(rows: list[list[Operation]]) -> None:
    programs = pair(*rows)
    assert check_job(programs) == []


@pytest.mark.parametrize(
    "rows",
    [
        both(compute(5, after=[0])),
        both(compute(5, after=[1])),
        both(compute(5, after=[1]), compute(5, after=[0])),
        [[compute(5, after=[1])], [compute(5)]],
        both(collective("all_reduce", number=1)),
        both(collective("all_reduce", number=1), collective("all_reduce", number=1)),
        both(collective("all_reduce"), collective("all_reduce")),
        both(collective("broadcast", root=2)),
        [[collective("all_reduce")], []],
        [[], [collective("all_reduce")]],
        [[collective("all_reduce", 8)], [collective("all_reduce", 9)]],
        [[collective("all_reduce", 8)], [collective("reduce", 8)]],
        [[collective("reduce")], [collective("reduce", root=1)]],
        [[collective("barrier")], [collective("barrier", algorithm="tree")]],
        [
            [collective("all_reduce")],
            [replace(collective("all_reduce"), trace_bytes=1)],
        ],
        # Each waits with one collective for the other.
        [
            [collective("barrier", after=[1]), collective("barrier", number=1)],
            [collective("barrier"), collective("barrier", number=1, after=[0])],
        ],
        both(collective("all_to_all_v")),
        [
            [collective("all_reduce", splits=matrix_splits(MATRIX, rank))]
            for rank in range(2)
        ],
        both(collective("all_to_all_v", splits=Splits((1,), (1,)))),
        both(collective("all_to_all_v", splits=Splits((1, 2), (2, 1)))),
        [[uneven(0)], [replace(uneven(1), splits=Splits((2, 4), (2, 4)))]],
        [[uneven(0)], [collective("all_to_all_v", 5)]],
        [[send(1, 4)], []],
        [[], [receive(0, 4)]],
        [[send(1, 4)], [send(0, 4)]],
        [[send(0, 4), receive(0, 4)], []],
        [[send(2, 4)], []],
        [[send(1, 4), send(1, 4)], [receive(0, 4)]],
        [[send(1, 4)], [receive(0, 4), receive(0, 4)]],
        [[send(1, 4)], [receive(0, 4, number=1)]],
        [[send(1, 4)], [receive(0, 5)]],
        [[send(1, 4)], [replace(receive(0, 4), tag=1)]],
        [[send(1, 4)], [replace(receive(0, 4), trace_bytes=1)]],
        # Each sends only once it has received.
        [
            [receive(1, 4), send(1, 4, after=[0])],
            [receive(0, 4), send(0, 4, after=[0])],
        ],
    ],
)
def test_invalid_job_is_rejected(rows: list[list[Operation]]) -> None:
    programs = pair(*rows)
    assert check_job(programs)


def test_collectives_of_groups_without_the_rank_are_rejected() -> None:
    group = ProcessGroup(name="other", ranks=(0,))
    programs = pair(*both(collective("barrier", group="other")), groups=(group,))
    assert check_job(programs)


def test_columns_are_measured() -> None:
    assert largest(array("I")) == -1
    assert largest(array("I", [3, 2**32 - 1, 0])) == 2**32 - 1
    assert are_ends(array("I"), 0, 0)
    assert are_ends(array("I", [0, 2, 2, 5]), 5, 3)
    assert not are_ends(array("I", [0, 2, 2, 5]), 6, 3)
    assert not are_ends(array("I", [0, 2, 2, 5]), 5, 2)
    assert not are_ends(array("I", [2, 1]), 1, 3)
