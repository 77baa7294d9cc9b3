"""The format of saved plans: refused files and size."""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import replace
from typing import Any

import pytest

from chakram.collectives.groups import world_group
from chakram.control.plan_file import MAGIC, decode, encode
from chakram.control.protobuf_messages import pb, plan_pb
from chakram.foundation.errors import PlanError
from chakram.program.operations import RankProgram
from tests.made_plans import collective, compute, program
from tests.plans import saved_plan


def spmd(nranks: int) -> tuple[RankProgram, ...]:
    """Return programs that do the same on all ranks."""
    rows = [compute(index, after=[index - 1] if index else []) for index in range(50)]
    rows.append(collective("all_reduce", 64, after=[len(rows) - 1]))
    first = program(0, [world_group(nranks)], rows)
    return tuple(replace(first, rank=rank) for rank in range(nranks))


def whole(message: plan_pb.PlanFile) -> bytes:
    body = message.SerializeToString()
    return MAGIC + hashlib.sha256(body).digest() + body


def test_equal_programs_of_ranks_are_stored_once() -> None:
    one, many = (len(encode(saved_plan(spmd(nranks)))) for nranks in (1, 65))
    # Another rank costs its places, not its operations.
    assert (many - one) / 64 < 20


@pytest.mark.slow
def test_a_plan_of_thousands_of_ranks_is_read_as_written() -> None:
    written = spmd(5_000)
    assert decode(encode(saved_plan(written)), where="f").jobs[0].programs == written


def test_operations_of_a_file_equal_the_written_ones() -> None:
    written = spmd(2)
    read = decode(encode(saved_plan(written)), where="f").jobs[0].programs
    assert read == written
    assert read[1].operations == written[1].operations


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "f: is not a saved plan"),
        (b"version: 1\n", "f: is not a saved plan"),
        (b"chakram plan 9\n1234", "f: has the format of another version"),
        (encode(saved_plan(spmd(2)))[:-1], "f: is damaged: its digest does not match"),
        (MAGIC + hashlib.sha256(b"\xff").digest() + b"\xff", "f: is damaged"),
    ],
)
def test_invalid_saved_plan_is_refused(data: bytes, told: str) -> None:
    with pytest.raises(PlanError) as caught:
        decode(data, where="f")
    assert str(caught.value).startswith(told)


def _job(**fields: Any) -> plan_pb.SavedJob:
    return plan_pb.SavedJob(name="j", programs=pb.JobPrograms(job="j", **fields))


def numbers(code: str, *values: int) -> bytes:
    return array(code, values).tobytes()


def row(**fields: Any) -> pb.OperationColumns:
    """Return the columns of one operation: a computation, but for *fields*."""
    columns = {
        "kinds": b"\0",
        "node_ids": numbers("Q", 1),
        "names": b"c",
        "name_ends": numbers("I", 1),
        "dependency_ends": numbers("I", 0),
        "amounts": numbers("q", 5),
        "trace_bytes": numbers("q", 5),
        "targets": numbers("I", 0),
        "numbers": numbers("I", 0),
        "details": numbers("q", 0),
        "algorithms": numbers("I", 0),
    }
    return pb.OperationColumns(**{**columns, **fields})


def waiting(*others: int, **fields: Any) -> pb.OperationColumns:
    return row(
        dependencies=numbers("I", *others),
        dependency_ends=numbers("I", len(others)),
        **fields,
    )


def changed(**fields: Any) -> plan_pb.SavedJob:
    """Return a job of one rank and one computation, with other columns."""
    return _job(columns=[row(**fields)], programs=[ALONE])


def collective_row(**fields: Any) -> pb.OperationColumns:
    barrier = pb.OperationAlgorithm(op="barrier", algorithm="dissemination")
    return row(**{"kinds": b"\1", "all_algorithms": [barrier], **fields})


ALONE = pb.RankProgram(rank=0)
OF_GROUP = pb.RankProgram(rank=0, groups=[0])
TO_FOUR = pb.RankProgram(rank=0, peers=[4])
TO_ITSELF = pb.RankProgram(rank=0, peers=[0])
GROUP = pb.ProcessGroup(name="g", ranks=[0])


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (_job(), ".programs: ranks are not in ascending order"),
        (
            _job(columns=[row()], programs=[ALONE, ALONE]),
            ".programs: ranks are not in ascending order",
        ),
        (
            plan_pb.SavedJob(
                name="k",
                programs=pb.JobPrograms(job="j", columns=[row()], programs=[ALONE]),
            ),
            ".programs: belong to job 'j'",
        ),
        (
            _job(programs=[ALONE]),
            ".programs.programs[0].columns: 0 is out of range: there are 0",
        ),
        (
            _job(columns=[row()], programs=[OF_GROUP]),
            ".programs.programs[0].groups: 0 is out of range: there are 0",
        ),
        (
            _job(
                columns=[row()],
                groups=[GROUP],
                programs=[pb.RankProgram(groups=[0, 0])],
            ),
            ".programs.programs[0].groups: a process group is listed twice",
        ),
        (
            _job(columns=[row()], programs=[pb.RankProgram(peers=[1, 1])]),
            ".programs.programs[0].peers: a rank is listed twice",
        ),
        (
            _job(columns=[row()], groups=[GROUP, GROUP], programs=[ALONE]),
            ".programs.groups: two process groups have the same name",
        ),
        (
            _job(columns=[waiting(0)], programs=[ALONE]),
            ".programs: job j rank 0: dependencies form a cycle",
        ),
        (
            _job(columns=[waiting(7)], programs=[ALONE]),
            ".programs: job j rank 0 operation 0: depends on 7, which does not exist",
        ),
        (
            changed(dependency_ends=numbers("I", 2)),
            ".programs.columns[0].dependency_ends: do not divide the dependencies",
        ),
        (
            changed(dependencies=b"123"),
            ".programs.columns[0].dependencies: 3 bytes for numbers of 4 bytes",
        ),
        (
            changed(name_ends=numbers("I", 2)),
            ".programs.columns[0].name_ends: do not divide names into parts of 1024",
        ),
        (
            changed(names=2000 * b"n", name_ends=numbers("I", 2000)),
            ".programs.columns[0].name_ends: do not divide names into parts of 1024",
        ),
        (changed(names=b"\xff"), ".programs.columns[0].names: are not valid UTF-8"),
        (
            changed(
                kinds=b"\0\0",
                names="é".encode(),
                name_ends=numbers("I", 1, 2),
                dependency_ends=numbers("I", 0, 0),
                **{
                    name: 2 * numbers(code, 0)
                    for name, code in (
                        ("node_ids", "Q"),
                        ("amounts", "q"),
                        ("trace_bytes", "q"),
                        ("targets", "I"),
                        ("numbers", "I"),
                        ("details", "q"),
                        ("algorithms", "I"),
                    )
                },
            ),
            ".programs.columns[0].name_ends: split a character",
        ),
        (
            changed(kinds=b"\4"),
            ".programs.columns[0].kinds: contains an unknown kind of operation",
        ),
        (
            changed(node_ids=numbers("Q", 1, 2)),
            ".programs.columns[0].node_ids: 16 bytes for 1 numbers of 8 bytes",
        ),
        (
            changed(without_node=[1]),
            ".programs.columns[0].without_node: 1 is out of range: there are 1 "
            "operations",
        ),
        (
            changed(starts_ns=numbers("q", -1)),
            ".programs: job j rank 0 operation 0: negative start -1",
        ),
        (
            changed(amounts=numbers("q", -3)),
            ".programs: job j rank 0 operation 0: negative duration -3",
        ),
        (
            _job(
                columns=[row()],
                groups=[pb.ProcessGroup(name="g", ranks=[0, 1])],
                programs=[OF_GROUP],
            ),
            ".programs: process group 'g': rank 1 has no program",
        ),
        (
            _job(columns=[row(kinds=b"\2")], programs=[TO_FOUR]),
            ".programs: message (source, destination, number) (0, 4, 0): does not have "
            "one send and one receive",
        ),
        (
            _job(columns=[row(kinds=b"\2")], programs=[TO_ITSELF]),
            ".programs: job j rank 0 operation 0: sends to itself",
        ),
        (
            _job(columns=[row(kinds=b"\3")], programs=[ALONE]),
            ".programs: job j rank 0 operation 0: peer 0 of 0",
        ),
        (
            _job(
                groups=[GROUP],
                columns=[collective_row(numbers=numbers("I", 1))],
                programs=[OF_GROUP],
            ),
            ".programs: job j rank 0: the collectives of 'g' are not numbered 0..0",
        ),
        (
            _job(groups=[GROUP], columns=[collective_row()], programs=[ALONE]),
            ".programs: job j rank 0 operation 0: unknown process group: 0 of 0",
        ),
        (
            changed(kinds=b"\1"),
            ".programs.columns[0].algorithms: 0 is out of range: there are 0",
        ),
        (
            _job(
                groups=[GROUP],
                columns=[collective_row(splits=numbers("I", 0))],
                programs=[OF_GROUP],
            ),
            ".programs: job j rank 0 operation 0: barrier with splits",
        ),
        (
            _job(
                groups=[GROUP],
                columns=[collective_row(amounts=numbers("q", -1))],
                programs=[OF_GROUP],
            ),
            ".programs: job j rank 0 operation 0: negative size -1",
        ),
    ],
)
def test_errors_in_a_plan_are_named(job: plan_pb.SavedJob, told: str) -> None:
    with pytest.raises(PlanError) as caught:
        decode(whole(plan_pb.PlanFile(jobs=[job])), where="f")
    assert str(caught.value).startswith(f"f: jobs[0]{told}")


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (
            _job(
                columns=[waiting(*range(2**17))],
                programs=[pb.RankProgram(rank=rank) for rank in range(2**11 + 1)],
            ),
            "268566528 dependencies in total, but at most 268435456 are allowed",
        ),
        (
            _job(
                columns=[row()],
                groups=[pb.ProcessGroup(name="g", ranks=[2**17, *range(2**17 - 1)])],
                programs=[
                    pb.RankProgram(rank=rank, groups=[0]) for rank in range(2**11 + 1)
                ],
            ),
            "members of groups to compare in total, but at most 268435456 are allowed",
        ),
        (
            _job(
                columns=[row()],
                splits=[pb.RankSplits(sent_bytes=[0] * 2**16)],
                programs=[pb.RankProgram(rank=0, splits=[0] * (2**12 + 1))],
            ),
            "268500992 parts of splits in total, but at most 268435456 are allowed",
        ),
    ],
)
def test_programs_too_expensive_to_check_are_refused(
    job: plan_pb.SavedJob, told: str
) -> None:
    with pytest.raises(PlanError, match=told):
        decode(whole(plan_pb.PlanFile(jobs=[job])), where="f")


def test_many_ranks_may_share_large_regular_groups() -> None:
    count = 2**14 + 1
    job = _job(
        columns=[row()],
        groups=[pb.ProcessGroup(name="g", ranks=range(count))],
        programs=[pb.RankProgram(rank=rank, groups=[0]) for rank in range(count)],
    )
    decoded = decode(whole(plan_pb.PlanFile(jobs=[job])), where="f")
    assert len(decoded.jobs[0].programs) == count
