"""The bytes of a saved plan: what all ranks of an experiment do, each thing once.

Programs stand in a file as an agent gets them (``chakram.control.program_codec``).
Reading it costs a fraction of reading the trace.  It is untrusted: the programs are
checked by themselves and against one another, and whatever a file holds, only
``PlanError`` comes out.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from chakram.control.field_checks import (
    Fault,
    check_count,
    inside,
    name_text,
    rows,
    text,
)
from chakram.control.program_codec import decode_programs, encode_programs
from chakram.control.protocol_messages import plan_pb
from chakram.errors import PlanError
from chakram.program.check import check_job

if TYPE_CHECKING:
    from chakram.program.operations import RankProgram

__all__ = [
    "MAX_FILE_BYTES",
    "SavedInput",
    "SavedJob",
    "SavedPlan",
    "decode",
    "encode",
]

MAGIC: Final = b"chakram plan 3\n"
"""First line of a file; its number grows with incompatible changes."""

MAX_FILE_BYTES: Final = 2**30
_MAX_JOBS = 256
_MAX_INPUTS = 2**17
_MAX_WARNINGS = 2**12
_MAX_WARNING = 2**14

_SAVE_AGAIN = "save it again with `chakram plan ... --save`"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedInput:
    """A file that programs were made from, and when it was last changed."""

    path: str
    size_bytes: int
    changed_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedJob:
    """The programs of a job, ascending, and what is known of their trace.

    ``settings`` is the digest of what the programs depend on in the experiment.
    """

    name: str
    settings: str
    trace: str
    producer: str
    digest: str
    nodes: int
    warnings: tuple[str, ...]
    programs: tuple[RankProgram, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """What a file holds; ``made_by`` is the version of chakram that wrote it."""

    made_by: str
    jobs: tuple[SavedJob, ...]
    inputs: tuple[SavedInput, ...]


def encode(plan: SavedPlan) -> bytes:
    """Return the bytes of a file."""
    message = plan_pb.PlanFile(
        made_by=plan.made_by,
        jobs=[_encode_job(job) for job in plan.jobs],
        inputs=[
            plan_pb.SavedInput(
                path=each.path, size_bytes=each.size_bytes, changed_ns=each.changed_ns
            )
            for each in plan.inputs
        ],
    )
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
        return SavedPlan(
            made_by=text("made_by", message.made_by),
            jobs=rows("jobs", message.jobs, _decode_job, most=_MAX_JOBS),
            inputs=rows("inputs", message.inputs, _decode_input, most=_MAX_INPUTS),
        )
    except Fault as fault:
        raise PlanError(f"{where}: {fault.path}", fault.found, fault.hint) from None


def _decode_input(message: plan_pb.SavedInput) -> SavedInput:
    return SavedInput(
        path=name_text("path", message.path),
        size_bytes=message.size_bytes,
        changed_ns=message.changed_ns,
    )


def _encode_job(job: SavedJob) -> plan_pb.SavedJob:
    return plan_pb.SavedJob(
        name=job.name,
        settings=job.settings,
        trace=job.trace,
        producer=job.producer,
        digest=job.digest,
        nodes=job.nodes,
        warnings=job.warnings,
        programs=encode_programs(job.name, job.programs),
    )


def _decode_job(message: plan_pb.SavedJob) -> SavedJob:
    name = name_text("name", message.name)
    programs = inside(
        "programs",
        message.programs,
        # They are checked together.
        lambda each: decode_programs(each, is_checked=True),
    )
    ranks = [program.rank for program in programs]
    if not ranks or ranks != sorted(set(ranks)):
        raise Fault("programs", "their ranks do not ascend")
    if message.programs.job != name:
        raise Fault("programs", f"are of job {message.programs.job!r}")
    for problem in check_job(programs):
        raise Fault("programs", problem)
    check_count("warnings", message.warnings, _MAX_WARNINGS)
    return SavedJob(
        name=name,
        settings=text("settings", message.settings),
        trace=text("trace", message.trace),
        producer=text("producer", message.producer),
        digest=text("digest", message.digest),
        nodes=message.nodes,
        warnings=tuple(each[:_MAX_WARNING] for each in message.warnings),
        programs=programs,
    )
