"""The bytes of saved plans: what is refused, and how small they are."""

from __future__ import annotations

import hashlib
import pickle
from array import array
from typing import Any

import pytest

from chakram.collectives.groups import world_group
from chakram.control.plan_file import MAGIC, decode, encode
from chakram.control.protocol_messages import pb, plan_pb
from chakram.errors import PlanError
from chakram.program.operations import RankProgram
from chakram.testing.plans import collective, compute, program
from tests.plans import saved_plan


def spmd(nranks: int) -> tuple[RankProgram, ...]:
    """Return programs that do the same on all ranks."""
    rows = [compute(index, after=[index - 1] if index else []) for index in range(50)]
    return tuple(
        program(
            rank,
            [world_group(nranks)],
            [*rows, collective("all_reduce", 64, after=[len(rows) - 1])],
        )
        for rank in range(nranks)
    )


def whole(message: plan_pb.PlanFile) -> bytes:
    body = message.SerializeToString()
    return MAGIC + hashlib.sha256(body).digest() + body


def test_what_ranks_do_alike_is_kept_once() -> None:
    one, many = (len(encode(saved_plan(spmd(nranks)))) for nranks in (1, 65))
    # Another rank costs its places, four bytes each, not its operations.
    assert (many - one) / 64 < 4 * 51 + 20


def test_operations_of_a_file_are_those_of_a_tuple() -> None:
    written = spmd(2)
    read = decode(encode(saved_plan(written)), where="f").jobs[0].programs
    assert read == written
    assert hash(read[0]) == hash(written[0])
    assert pickle.loads(pickle.dumps(read)) == written
    operations = read[1].operations
    assert repr(operations) == repr(written[1].operations)
    assert (operations[-1], operations[3:5]) == (
        written[1].operations[-1],
        written[1].operations[3:5],
    )
    assert operations != read[0].operations[:-1]


def test_ranks_share_what_they_do_alike() -> None:
    first, second = decode(encode(saved_plan(spmd(2))), where="f").jobs[0].programs
    assert all(a is b for a, b in zip(first.operations, second.operations, strict=True))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "f: is no saved plan"),
        (b"version: 1\n", "f: is no saved plan"),
        (b"chakram plan 9\n1234", "f: has a form of another version"),
        (encode(saved_plan(spmd(2)))[:-1], "f: is damaged: its digest is another"),
        (MAGIC + hashlib.sha256(b"\xff").digest() + b"\xff", "f: is damaged"),
    ],
)
def test_what_is_no_saved_plan_is_refused(data: bytes, told: str) -> None:
    with pytest.raises(PlanError) as caught:
        decode(data, where="f")
    assert str(caught.value).startswith(told)


def _job(**fields: Any) -> plan_pb.SavedJob:
    return plan_pb.SavedJob(name="j", **fields)


def numbers(code: str, *values: int) -> bytes:
    return array(code, values).tobytes()


def waiting(*dependencies: int, duration_ns: int = 5) -> plan_pb.SavedOperations:
    """Return the columns of one computation."""
    return plan_pb.SavedOperations(
        names="c",
        name_ends=numbers("I", 1),
        node_ids=numbers("Q", 1),
        dependencies=numbers("I", *dependencies),
        dependency_ends=numbers("I", len(dependencies)),
        computes=plan_pb.SavedComputes(durations_ns=numbers("q", duration_ns)),
    )


def changed(**fields: Any) -> plan_pb.SavedJob:
    """Return a job of one rank and one computation, with other columns."""
    operations = waiting()
    for name in fields:
        operations.ClearField(name)  # type: ignore[arg-type] # wrong on purpose
    operations.MergeFrom(plan_pb.SavedOperations(**fields))
    return _job(operations=operations, programs=[ALONE])


def message_to(peer: int) -> plan_pb.SavedOperations:
    return plan_pb.SavedOperations(
        name_ends=numbers("I", 0),
        node_ids=numbers("Q", 1),
        dependency_ends=numbers("I", 0),
        messages=plan_pb.SavedMessages(
            sends=1,
            peers=numbers("I", peer),
            numbers=numbers("I", 0),
            tags=numbers("q", 0),
            size_bytes=numbers("q", 1),
            trace_bytes=numbers("q", 1),
        ),
    )


def collective_number(number: int, **fields: bytes) -> plan_pb.SavedOperations:
    columns = {
        "groups": numbers("I", 0),
        "numbers": numbers("I", number),
        "kinds": numbers("I", 0),
        "input_bytes": numbers("q", 8),
        "trace_bytes": numbers("q", 8),
        "roots": numbers("I", 0),
    }
    return plan_pb.SavedOperations(
        name_ends=numbers("I", 0),
        node_ids=numbers("Q", 1),
        dependency_ends=numbers("I", 0),
        collectives=plan_pb.SavedCollectives(
            all_kinds=[plan_pb.SavedKind(op="barrier", algorithm="dissemination")],
            **{**columns, **fields},
        ),
    )


ALONE = plan_pb.SavedProgram(rank=0, operations=numbers("I", 0))
OF_GROUP = plan_pb.SavedProgram(rank=0, groups=[0], operations=numbers("I", 0))
GROUP = pb.ProcessGroup(name="g", ranks=[0])


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (_job(), ".programs: their ranks do not ascend"),
        (
            _job(operations=waiting(), programs=[ALONE, ALONE]),
            ".programs: their ranks do not ascend",
        ),
        (_job(programs=[ALONE]), ".programs[0].operations: 0 of 0 operations"),
        (
            _job(programs=[plan_pb.SavedProgram(rank=0, operations=b"123")]),
            ".programs[0].operations: 3 bytes for numbers of 4 bytes",
        ),
        (
            _job(programs=[plan_pb.SavedProgram(rank=0, groups=[1])]),
            ".programs[0].groups: 1 of 0",
        ),
        (
            _job(operations=waiting(0), programs=[ALONE]),
            ".programs: job j rank 0: dependencies form a cycle",
        ),
        (
            _job(operations=waiting(7), programs=[ALONE]),
            ".programs: job j rank 0 operation 0: depends on 7, which is not there",
        ),
        (
            changed(dependency_ends=numbers("I", 2)),
            ".operations.dependency_ends: do not divide the dependencies",
        ),
        (
            changed(name_ends=numbers("I", 2)),
            ".operations.name_ends: do not divide names into parts of 1024 characters",
        ),
        (
            changed(
                names=2000 * "n",
                name_ends=numbers("I", 2000),
            ),
            ".operations.name_ends: do not divide names into parts of 1024 characters",
        ),
        (
            changed(node_ids=numbers("Q", 1, 2)),
            ".operations.node_ids: 16 bytes for 1 numbers of 8 bytes",
        ),
        (changed(without_node=[1]), ".operations.without_node: 1 of 1 operations"),
        (
            changed(starts_ns=numbers("q", -1)),
            ".operations.starts_ns: -1 is not in 0..",
        ),
        (
            _job(operations=waiting(duration_ns=-3), programs=[ALONE]),
            ".operations.computes.durations_ns: -3 is not in 0..",
        ),
        (
            changed(name_ends=numbers("I", 1, 1), dependency_ends=numbers("I", 0, 0)),
            ".operations: 2 names for 1 operations",
        ),
        (
            _job(
                groups=[pb.ProcessGroup(name="g", ranks=[0, 1])],
                programs=[plan_pb.SavedProgram(rank=0)],
            ),
            ".groups: process group 'g' has rank 1, which has no program",
        ),
        (
            _job(operations=message_to(4), programs=[ALONE]),
            ".programs: message (source, destination, number) (0, 4, 0): does not have "
            "one send and one receive",
        ),
        (
            _job(operations=message_to(0), programs=[ALONE]),
            ".programs: job j rank 0 operation 0: sends to itself",
        ),
        (
            _job(groups=[GROUP], operations=collective_number(1), programs=[OF_GROUP]),
            ".programs: job j rank 0: the collectives of 'g' are not numbered 0..0",
        ),
        (
            _job(groups=[GROUP], operations=collective_number(0), programs=[ALONE]),
            ".programs: job j rank 0 operation 0: unknown process group 'g'",
        ),
        (
            _job(
                groups=[GROUP],
                operations=collective_number(0, groups=numbers("I", 1)),
                programs=[OF_GROUP],
            ),
            ".operations.collectives.groups: 1 of 1 process groups",
        ),
        (
            _job(
                groups=[GROUP],
                operations=collective_number(0, splits=numbers("I", 0)),
                programs=[OF_GROUP],
            ),
            ".operations.collectives.splits: 0 of 0 splits",
        ),
        (
            _job(
                groups=[GROUP],
                operations=collective_number(0, input_bytes=numbers("q", -1)),
                programs=[OF_GROUP],
            ),
            ".operations.collectives.input_bytes: -1 is not in 0..",
        ),
    ],
)
def test_what_is_wrong_in_a_plan_is_named(job: plan_pb.SavedJob, told: str) -> None:
    with pytest.raises(PlanError) as caught:
        decode(whole(plan_pb.PlanFile(jobs=[job])), where="f")
    assert str(caught.value).startswith(f"f: jobs[0]{told}")


def test_programs_whose_checks_would_take_for_ever_are_refused() -> None:
    operations = waiting(*range(2**15))
    places = numbers("I", *[0] * 2**15)
    job = _job(
        operations=operations,
        programs=[plan_pb.SavedProgram(rank=0, operations=places)],
    )
    with pytest.raises(PlanError, match=r"1073741824 is not in 0\.\.268435456"):
        decode(whole(plan_pb.PlanFile(jobs=[job])), where="f")
