"""Mistakes found in the program of one rank."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.collectives.groups import ProcessGroup
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.program.operations import (
    CollectiveOperation,
    ComputeOperation,
    ReceiveOperation,
    SendOperation,
    program_of,
)
from chakram.program.program_check import ProgramChecks

GROUPS = (
    ProcessGroup(name="g", ranks=(0, 1)),
    ProcessGroup(name="others", ranks=(1, 2)),
)


def together(**more) -> CollectiveOperation:
    fields = {
        "node_id": None,
        "name": "c",
        "dependencies": (),
        "group": "g",
        "number": 0,
        "op": CollectiveOp.ALL_REDUCE,
        "algorithm": "ring",
        "input_bytes": 8,
        "trace_bytes": 8,
    }
    return CollectiveOperation(**{**fields, **more})


def message(kind: type = SendOperation, **more):
    fields = {
        "node_id": None,
        "name": "m",
        "dependencies": (),
        "peer": 1,
        "number": 0,
        "tag": 0,
        "size_bytes": 1,
        "trace_bytes": 1,
    }
    return kind(**{**fields, **more})


def uneven(sent: tuple[int, ...], received: tuple[int, ...]) -> CollectiveOperation:
    return together(op=CollectiveOp.ALL_TO_ALL_V, splits=Splits(sent, received))


def wait(*dependencies: int, duration_ns: int = 1) -> ComputeOperation:
    return ComputeOperation(
        node_id=None, name="w", dependencies=dependencies, duration_ns=duration_ns
    )


def problems(*operations) -> list[str]:
    return ProgramChecks().problems(
        program_of(operations, job="j", rank=0, groups=GROUPS)
    )


def test_valid_program_has_no_problems() -> None:
    assert (
        problems(
            together(),
            wait(0),
            message(dependencies=(1,)),
            message(ReceiveOperation),
            together(number=1, dependencies=(0,), root=1),
            replace(uneven((3, 2), (3, 0)), number=2),
        )
        == []
    )


@pytest.mark.parametrize(
    ("operations", "wanted"),
    [
        ([wait(4)], "job j rank 0 operation 0: depends on 4, which does not exist"),
        ([together(group="others")], "job j rank 0 operation 0: not a member of"),
        ([together(root=2)], "job j rank 0 operation 0: root 2 is not in the group"),
        ([together(input_bytes=-1)], "job j rank 0 operation 0: negative size -1"),
        ([message(peer=0)], "job j rank 0 operation 0: sends to itself"),
        ([message(size_bytes=-2)], "job j rank 0 operation 0: negative size -2"),
        ([wait(duration_ns=-3)], "job j rank 0 operation 0: negative duration -3"),
        ([together(number=1)], "the collectives of 'g' are not numbered 0..0"),
        ([wait(1), wait(0)], "job j rank 0: dependencies form a cycle"),
        (
            [together(op=CollectiveOp.ALL_TO_ALL_V)],
            "job j rank 0 operation 0: all_to_all_v without splits",
        ),
        (
            [together(op=CollectiveOp.ALL_TO_ALL, splits=Splits((1, 2), (1, 0)))],
            "job j rank 0 operation 0: all_to_all with splits",
        ),
        ([uneven((1,), (1,))], "splits for a number of ranks other than 2"),
        ([uneven((1, 2), (1, 2, 3))], "splits for a number of ranks other than 2"),
        ([uneven((), ())], "splits for a number of ranks other than 2"),
        ([uneven((1, -1), (1, 0))], "a negative split"),
        ([uneven((1, 2), (3, 2))], "its two splits for itself differ"),
    ],
)
def test_every_problem_is_found(operations: list, wanted: str) -> None:
    assert any(wanted in text for text in problems(*operations))


def test_unknown_indexes_are_found() -> None:
    sound = program_of(
        [together(), message(), replace(uneven((3, 2), (3, 0)), number=1)],
        job="j",
        rank=0,
        groups=GROUPS,
    )
    assert ProgramChecks().problems(sound) == []
    for fields, wanted in (
        ({"groups": ()}, "operation 0: unknown process group: 0 of 0"),
        ({"peers": ()}, "operation 1: peer 0 of 0"),
        (
            {"splits": ()},
            "operation 2: refers to splits 0, but the next ones are 0 of 0",
        ),
    ):
        assert any(
            wanted in text
            for text in ProgramChecks().problems(replace(sound, **fields))
        )


def test_operations_of_unknown_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown process group 'x'"):
        problems(together(group="x"))


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [wait(1), replace(wait(), stream=-2, start_ns=0, node_id=2**64 - 1)],
        [message(), message(ReceiveOperation, peer=7, tag=-1, name="\ud800")],
        [together(root=1), replace(uneven((3, 2), (3, 0)), number=1)],
    ],
)
def test_program_returns_its_operations(rows: list) -> None:
    made = program_of(rows, job="j", rank=0, groups=GROUPS)
    assert list(made.operations) == rows
