"""Mismatches between the programs of a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.collectives.groups import ProcessGroup
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.program.job_check import check_job
from chakram.program.operations import (
    CollectiveOperation,
    ComputeOperation,
    RankProgram,
    ReceiveOperation,
    SendOperation,
    program_of,
)

PAIR = ProcessGroup(name="g", ranks=(0, 1))


def together(number: int, *dependencies: int, size: int = 8) -> CollectiveOperation:
    return CollectiveOperation(
        node_id=None,
        name=f"c{number}",
        dependencies=dependencies,
        group="g",
        number=number,
        op=CollectiveOp.ALL_REDUCE,
        algorithm="ring",
        input_bytes=size,
        trace_bytes=size,
    )


def uneven(sent: tuple[int, ...], received: tuple[int, ...]) -> CollectiveOperation:
    op = CollectiveOp.ALL_TO_ALL_V
    return replace(together(0), op=op, splits=Splits(sent, received))


def message(kind: type, peer: int, *dependencies: int, number: int = 0, tag: int = 0):
    return kind(
        node_id=None,
        name=kind.__name__,
        dependencies=dependencies,
        peer=peer,
        number=number,
        tag=tag,
        size_bytes=1,
        trace_bytes=1,
    )


def program(rank: int, *operations, groups=(PAIR,)) -> RankProgram:
    return program_of(operations, job="j", rank=rank, groups=groups)


def test_matching_programs_pass() -> None:
    wait = ComputeOperation(node_id=1, name="w", dependencies=(0,), duration_ns=3)
    assert (
        check_job(
            [
                program(0, together(0), wait, message(SendOperation, 1, 1)),
                program(1, message(ReceiveOperation, 0), together(0)),
            ]
        )
        == []
    )


@pytest.mark.parametrize(
    ("programs", "wanted"),
    [
        (
            [program(0, together(1)), program(1, together(1))],
            "the collectives of 'g' are not numbered 0..0",
        ),
        (
            [
                program(0, together(0)),
                program(1, together(0), groups=(replace(PAIR, ranks=(1, 0)),)),
            ],
            "rank 1: process group 'g' has different ranks than in other programs",
        ),
        ([program(0, together(0))], "process group 'g': rank 1 has no program"),
        (
            [program(0, together(0)), program(1)],
            "collective 0 of process group 'g': does not occur exactly once on every "
            "member",
        ),
        (
            [program(0, together(0)), program(1, together(0, size=9))],
            "collective 0 of process group 'g': its members disagree",
        ),
        (
            [program(0, uneven((1, 2), (1, 3))), program(1, uneven((4, 5), (2, 5)))],
            "collective 0 of process group 'g': its members' splits disagree",
        ),
        (
            [program(0, message(SendOperation, 1)), program(1)],
            "message (source, destination, number) (0, 1, 0): does not have one send "
            "and one receive",
        ),
        (
            [
                program(0, message(SendOperation, 1)),
                program(1, message(ReceiveOperation, 0, tag=1)),
            ],
            "message (source, destination, number) (0, 1, 0): its two ends disagree",
        ),
        (
            [
                program(0, together(0, 1), together(1)),
                program(1, together(0), together(1, 0)),
            ],
            "rank 0: 'c0' (operation 0) never ends",
        ),
        (
            [
                program(0, message(ReceiveOperation, 1), message(SendOperation, 1, 0)),
                program(1, message(ReceiveOperation, 0), message(SendOperation, 0, 0)),
            ],
            "rank 1: 'SendOperation' (operation 1) never ends",
        ),
    ],
)
def test_mismatched_programs_are_reported(
    programs: list[RankProgram], wanted: str
) -> None:
    assert any(wanted in text for text in check_job(programs))
