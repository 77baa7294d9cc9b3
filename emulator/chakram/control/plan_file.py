"""Format of saved plans: the programs of all ranks of an experiment.

A file contains each program once, in the format that agents receive
(``chakram.control.program_codec``). You can read a file in a fraction of the time that
reading the trace takes. The decoder does not trust files. It checks all programs
individually and against each other, and raises a ``PlanError`` for an invalid file.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Final

from google.protobuf.message import DecodeError

from chakram.control.dataclass_codec import Mapper
from chakram.control.program_codec import decode_programs, encode_programs
from chakram.control.protobuf_messages import plan_pb
from chakram.foundation.errors import PlanError
from chakram.foundation.field_bounds import (
    AtMost,
    Clipped,
    Fault,
    Name,
    Text,
    inside,
    rows,
)
from chakram.program.job_check import check_job
from chakram.program.operations import RankProgram

MAGIC: Final = b"chakram plan 3\n"
"""First line of a file. Each incompatible change increments the number in it."""

MAX_FILE_BYTES: Final = 2**30
_MAX_JOBS = 256
_MAX_WARNINGS = 2**12

_SAVE_AGAIN = "save it again with `chakram plan ... --save`"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedInput:
    """An input file that programs derive from, with its size and modification time."""

    path: Name
    size_bytes: int
    changed_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedJob:
    """The programs of a job, in rank order, and facts about the job's trace.

    ``settings`` is a digest of the experiment settings that determine the programs.
    """

    name: Name
    settings: Text
    trace: Text
    producer: Text
    digest: Text
    nodes: int
    warnings: Annotated[
        tuple[str, ...], AtMost(_MAX_WARNINGS), Clipped(_MAX_WARNINGS, 2**14)
    ]
    programs: tuple[RankProgram, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """The contents of a file. ``made_by`` is the Chakram version that wrote it."""

    made_by: Text
    jobs: tuple[SavedJob, ...]
    inputs: Annotated[tuple[SavedInput, ...], AtMost(2**17)]


_PLANS = Mapper(SavedPlan, plan_pb.PlanFile, without=["jobs"], beyond=["jobs"])
_JOBS = Mapper(SavedJob, plan_pb.SavedJob, without=["programs"], beyond=["programs"])


def encode(plan: SavedPlan) -> bytes:
    """Encode a saved plan as the bytes of a file."""
    message = _PLANS.encode(plan)
    for job in plan.jobs:
        encoded = _JOBS.encode(job)
        encoded.programs.CopyFrom(encode_programs(job.name, job.programs))
        message.jobs.append(encoded)
    body = message.SerializeToString(deterministic=True)
    return MAGIC + hashlib.sha256(body).digest() + body


def decode(data: bytes, *, where: str) -> SavedPlan:
    """Decode the bytes of a file.

    Raises:
        PlanError: If the bytes are damaged or not a file of this version. *where* is
            the error's location.
    """
    if not data.startswith(MAGIC):
        line = data[: data.find(b"\n", 0, 40) + 1]
        if line.startswith(MAGIC[:13]):
            raise PlanError(where, "has the format of another version", _SAVE_AGAIN)
        raise PlanError(
            where, "is not a saved plan", "create one with `chakram plan ... --save`"
        )
    digest = data[len(MAGIC) : len(MAGIC) + 32]
    body = data[len(MAGIC) + 32 :]
    if hashlib.sha256(body).digest() != digest:
        raise PlanError(where, "is damaged: its digest does not match", _SAVE_AGAIN)
    message = plan_pb.PlanFile()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise PlanError(
            where, "is damaged: it is not a valid message", _SAVE_AGAIN
        ) from error
    try:
        jobs = rows("jobs", message.jobs, _decode_job, most=_MAX_JOBS)
        return _PLANS.decode(message, jobs=jobs)
    except Fault as fault:
        raise PlanError(f"{where}: {fault.path}", fault.found, fault.hint) from None


def _decode_job(message: plan_pb.SavedJob) -> SavedJob:
    programs = inside(
        "programs",
        message.programs,
        # check_job below checks all programs together.
        lambda each: decode_programs(each, is_checked=True),
    )
    ranks = [program.rank for program in programs]
    if not ranks or ranks != sorted(set(ranks)):
        raise Fault("programs", "ranks are not in ascending order")
    if message.programs.job != message.name:
        raise Fault("programs", f"belong to job {message.programs.job!r}")
    for problem in check_job(programs):
        raise Fault("programs", problem)
    return _JOBS.decode(message, programs=programs)
