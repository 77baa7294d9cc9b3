"""The bytes of a saved plan: what all ranks of an experiment do, each thing once.

Programs stand in a file as an agent gets them (``chakram.control.program_codec``).
Reading it costs a fraction of reading the trace.  It is untrusted: the programs are
checked by themselves and against one another, and whatever a file holds, only
``PlanError`` comes out.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Final

from google.protobuf.message import DecodeError

from chakram.control.message_mapping import Mapper
from chakram.control.program_codec import decode_programs, encode_programs
from chakram.control.protocol_messages import plan_pb
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
"""First line of a file; its number grows with incompatible changes."""

MAX_FILE_BYTES: Final = 2**30
_MAX_JOBS = 256
_MAX_WARNINGS = 2**12

_SAVE_AGAIN = "save it again with `chakram plan ... --save`"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedInput:
    """A file that programs were made from, and when it was last changed."""

    path: Name
    size_bytes: int
    changed_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedJob:
    """The programs of a job, ascending, and what is known of their trace.

    ``settings`` is the digest of what the programs depend on in the experiment.
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
    """What a file holds; ``made_by`` is the version of chakram that wrote it."""

    made_by: Text
    jobs: tuple[SavedJob, ...]
    inputs: Annotated[tuple[SavedInput, ...], AtMost(2**17)]


_PLANS = Mapper(SavedPlan, plan_pb.PlanFile, without=["jobs"], beyond=["jobs"])
_JOBS = Mapper(SavedJob, plan_pb.SavedJob, without=["programs"], beyond=["programs"])


def encode(plan: SavedPlan) -> bytes:
    """Return the bytes of a file."""
    message = _PLANS.encode(plan)
    for job in plan.jobs:
        encoded = _JOBS.encode(job)
        encoded.programs.CopyFrom(encode_programs(job.name, job.programs))
        message.jobs.append(encoded)
    body = message.SerializeToString(deterministic=True)
    return MAGIC + hashlib.sha256(body).digest() + body


def decode(data: bytes, *, where: str) -> SavedPlan:
    """Return what the bytes of a file hold.

    Raises:
        PlanError: At *where*, if they are no file of this version, or damaged.
    """
    if not data.startswith(MAGIC):
        line = data[: data.find(b"\n", 0, 40) + 1]
        if line.startswith(MAGIC[:13]):
            raise PlanError(where, "has a form of another version", _SAVE_AGAIN)
        raise PlanError(
            where, "is no saved plan", "`chakram plan ... --save` makes one"
        )
    digest = data[len(MAGIC) : len(MAGIC) + 32]
    body = data[len(MAGIC) + 32 :]
    if hashlib.sha256(body).digest() != digest:
        raise PlanError(where, "is damaged: its digest is another", _SAVE_AGAIN)
    message = plan_pb.PlanFile()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise PlanError(where, "is damaged: it is no message", _SAVE_AGAIN) from error
    try:
        jobs = rows("jobs", message.jobs, _decode_job, most=_MAX_JOBS)
        return _PLANS.decode(message, jobs=jobs)
    except Fault as fault:
        raise PlanError(f"{where}: {fault.path}", fault.found, fault.hint) from None


def _decode_job(message: plan_pb.SavedJob) -> SavedJob:
    programs = inside(
        "programs",
        message.programs,
        # They are checked together.
        lambda each: decode_programs(each, is_checked=True),
    )
    ranks = [program.rank for program in programs]
    if not ranks or ranks != sorted(set(ranks)):
        raise Fault("programs", "their ranks do not ascend")
    if message.programs.job != message.name:
        raise Fault("programs", f"are of job {message.programs.job!r}")
    for problem in check_job(programs):
        raise Fault("programs", problem)
    return _JOBS.decode(message, programs=programs)
