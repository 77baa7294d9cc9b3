"""The bytes of a saved plan: what all ranks of an experiment do, each thing once.

Ranks do much the same, so every different operation stands in a file once, in columns,
and becomes an object when somebody looks at it.  Reading a file costs a fraction of
reading the trace.  It is untrusted: the programs are checked by themselves and against
one another, and whatever a file holds, only ``PlanError`` comes out.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from google.protobuf.message import DecodeError

from chakram.control.decoding import MAX_RANKS
from chakram.control.field_checks import (
    MAX_NAMES,
    Fault,
    between,
    check_count,
    inside,
    name_text,
    rows,
    text,
)
from chakram.control.listed_codec import decode_listed, encode_listed
from chakram.control.plan_columns import (
    Places,
    decode_columns,
    encode_places,
    read_places,
)
from chakram.control.program_decoding import (
    MAX_GROUPS,
    MAX_LISTED,
    MAX_OPERATIONS,
    decode_group,
)
from chakram.control.protocol_messages import pb, plan_pb
from chakram.errors import PlanError
from chakram.program.job_check import check_job
from chakram.program.operation_table import OperationTable, TableOperations
from chakram.program.operations import RankProgram
from chakram.program.table_check import TableCheck

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chakram.collectives.algorithms.listed import ListedAlgorithm
    from chakram.collectives.groups import ProcessGroup
    from chakram.program.operation_table import Column

__all__ = [
    "MAX_ALL_OPERATIONS",
    "MAX_FILE_BYTES",
    "SavedInput",
    "SavedJob",
    "SavedPlan",
    "decode",
    "encode",
]

MAGIC: Final = b"chakram plan 2\n"
"""First line of a file; its number grows with incompatible changes."""

MAX_FILE_BYTES: Final = 2**30
MAX_ALL_OPERATIONS: Final = 2**26
"""Of all ranks of a job: what checks take time and memory for."""
_MAX_JOBS = 256
_MAX_INPUTS = 2**17
_MAX_WARNINGS = 2**12
_MAX_WARNING = 2**14
_MAX_ALL_DEPENDENCIES = 2**28
_T = TypeVar("_T")

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
    groups: dict[ProcessGroup, int] = {}
    listed: dict[ListedAlgorithm, int] = {}
    places = Places(each for program in job.programs for each in program.operations)
    programs = [
        plan_pb.SavedProgram(
            rank=program.rank,
            groups=_places(program.groups, groups),
            operations=encode_places(map(places.place, program.operations)),
            algorithms=_places(program.algorithms, listed),
        )
        for program in job.programs
    ]
    return plan_pb.SavedJob(
        name=job.name,
        settings=job.settings,
        trace=job.trace,
        producer=job.producer,
        digest=job.digest,
        nodes=job.nodes,
        warnings=job.warnings,
        groups=[
            pb.ProcessGroup(name=group.name, ranks=group.ranks) for group in groups
        ],
        listed_algorithms=[encode_listed(how) for how in listed],
        operations=places.encode(tuple(groups)),
        programs=programs,
    )


def _places(items: Iterable[_T], known: dict[_T, int]) -> list[int]:
    return [known.setdefault(item, len(known)) for item in items]


def _decode_job(message: plan_pb.SavedJob) -> SavedJob:
    name = name_text("name", message.name)
    groups = rows("groups", message.groups, decode_group, most=MAX_GROUPS)
    if len({group.name for group in groups}) != len(groups):
        raise Fault("groups", "two process groups have one name")
    listed = rows(
        "listed_algorithms", message.listed_algorithms, decode_listed, most=MAX_LISTED
    )
    ranks = _decode_ranks(message.programs, groups)
    columns = inside(
        "operations", message.operations, lambda each: decode_columns(each, groups)
    )
    table = OperationTable(columns)
    places: list[Column] = []

    def decode_program(each: plan_pb.SavedProgram) -> RankProgram:
        places.append(read_places(each.operations, len(columns)))
        check_count("operations", places[-1], MAX_OPERATIONS)
        return RankProgram(
            job=name,
            rank=each.rank,
            groups=tuple(_chosen("groups", each.groups, groups)),
            operations=TableOperations(table, places[-1]),
            algorithms=tuple(_chosen("algorithms", each.algorithms, listed)),
        )

    programs = rows("programs", message.programs, decode_program, most=MAX_RANKS)
    check = TableCheck(
        columns,
        ranks=ranks,
        places=places,
        named=[each.groups for each in message.programs],
    )
    between("programs", sum(map(len, places)), 0, MAX_ALL_OPERATIONS)
    between("programs", check.edges(), 0, _MAX_ALL_DEPENDENCIES)
    # What is wrong, if anything, says whoever looks at single operations.
    if not check.is_sound():
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


def _decode_ranks(
    programs: Sequence[plan_pb.SavedProgram], groups: Sequence[ProcessGroup]
) -> list[int]:
    """Return the ranks of programs; Fault if one that a group names has none."""
    check_count("programs", programs, MAX_RANKS)
    ranks = [between("programs.rank", each.rank, 0, MAX_NAMES) for each in programs]
    if not ranks or ranks != sorted(set(ranks)):
        raise Fault("programs", "their ranks do not ascend")
    for group in groups:
        missing = set(group.ranks).difference(ranks)
        if missing:
            raise Fault(
                "groups",
                f"process group {group.name!r} has rank {min(missing)}, which has no "
                "program",
            )
    return ranks


def _chosen(name: str, places: Sequence[int], items: Sequence[_T]) -> list[_T]:
    """Return the items at *places*; Fault if there is none at one of them."""
    for place in places:
        if place >= len(items):
            raise Fault(name, f"{place} of {len(items)}")
    return [items[place] for place in places]
