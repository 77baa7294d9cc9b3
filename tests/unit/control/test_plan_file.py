"""The bytes of saved plans: what is refused, and how small they are."""

from __future__ import annotations

import hashlib

import pytest

from chakram.control.messages import pb, plan_pb
from chakram.control.plan_file import MAGIC, SavedJob, SavedPlan, decode, encode
from chakram.core.groups import world_group
from chakram.core.program import RankProgram
from chakram.errors import PlanError
from chakram.testing.plans import collective, compute, program


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


def plan_of(programs: tuple[RankProgram, ...]) -> SavedPlan:
    job = SavedJob(
        name="job",
        settings="",
        trace="",
        producer="",
        digest="",
        nodes=0,
        warnings=(),
        programs=programs,
    )
    return SavedPlan(made_by="1", jobs=(job,), inputs=())


def whole(message: plan_pb.PlanFile) -> bytes:
    body = message.SerializeToString()
    return MAGIC + hashlib.sha256(body).digest() + body


def test_what_ranks_do_alike_is_kept_once() -> None:
    one, many = (len(encode(plan_of(spmd(nranks)))) for nranks in (1, 65))
    # Another rank costs its places, one or two bytes each, not its operations.
    assert (many - one) / 64 < 2 * 51 + 20


def test_ranks_share_what_they_do_alike() -> None:
    first, second = decode(encode(plan_of(spmd(2))), where="f").jobs[0].programs
    assert all(a is b for a, b in zip(first.operations, second.operations, strict=True))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "f: is no saved plan"),
        (b"version: 1\n", "f: is no saved plan"),
        (b"chakram plan 9\n1234", "f: has a form of another version"),
        (encode(plan_of(spmd(2)))[:-1], "f: is damaged: its digest is another"),
        (MAGIC + hashlib.sha256(b"\xff").digest() + b"\xff", "f: is damaged"),
    ],
)
def test_what_is_no_saved_plan_is_refused(data: bytes, told: str) -> None:
    with pytest.raises(PlanError) as caught:
        decode(data, where="f")
    assert str(caught.value).startswith(told)


def _job(**fields: object) -> plan_pb.SavedJob:
    return plan_pb.SavedJob(name="j", **fields)  # type: ignore[arg-type]


COMPUTES = plan_pb.SavedComputes(
    names=["c"], node_ids=[1], durations_ns=[5], dependency_counts=[0]
)
WAITING = plan_pb.SavedComputes(
    names=["c"],
    node_ids=[1],
    durations_ns=[5],
    dependency_counts=[1],
    dependencies=[0],
)


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (_job(), "jobs[0].programs: their ranks do not ascend"),
        (
            _job(programs=[plan_pb.SavedProgram(rank=0, operations=[3])]),
            "jobs[0].programs[0].operations: 3 of 0 operations",
        ),
        (
            _job(programs=[plan_pb.SavedProgram(rank=0, groups=[1])]),
            "jobs[0].programs[0].groups: 1 of 0",
        ),
        (
            _job(
                computes=WAITING,
                programs=[plan_pb.SavedProgram(rank=0, operations=[0])],
            ),
            "jobs[0].programs[0].operations: job j rank 0: dependencies form a cycle",
        ),
        (
            _job(computes=plan_pb.SavedComputes(names=["c"])),
            "jobs[0].computes: its columns have different lengths",
        ),
        (
            _job(
                groups=[pb.ProcessGroup(name="g", ranks=[0, 1])],
                programs=[plan_pb.SavedProgram(rank=0)],
            ),
            "jobs[0].groups: process group 'g' has rank 1, which has no program",
        ),
        (
            _job(
                operations=[pb.Operation(send=pb.PointToPoint(peer=4))],
                programs=[plan_pb.SavedProgram(rank=0, operations=[0])],
            ),
            "jobs[0].operations: a message with rank 4",
        ),
        (
            _job(
                computes=COMPUTES,
                groups=[pb.ProcessGroup(name="g", ranks=[0])],
                operations=[
                    pb.Operation(
                        collective=pb.Collective(
                            group="g", number=1, op="barrier", algorithm="dissemination"
                        )
                    )
                ],
                programs=[plan_pb.SavedProgram(rank=0, groups=[0], operations=[0, 1])],
            ),
            "jobs[0].programs[0].operations: job j rank 0: the collectives of 'g' are "
            "not numbered 0..0",
        ),
    ],
)
def test_what_is_wrong_in_a_plan_is_named(job: plan_pb.SavedJob, told: str) -> None:
    with pytest.raises(PlanError) as caught:
        decode(whole(plan_pb.PlanFile(jobs=[job])), where="f")
    assert str(caught.value).startswith(f"f: {told}")
