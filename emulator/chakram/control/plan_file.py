"""The bytes of a saved plan: what all ranks of an experiment do, each thing once.

Ranks do much the same, so every different operation stands in a file once, and those
that come again and again, delays, stand in columns.  Reading one costs a fraction of
reading the trace.  A file is untrusted: whatever it holds, only ``PlanError`` comes
out.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from google.protobuf.message import DecodeError

from chakram.control.codec import encode_operation
from chakram.control.decoding import (
    MAX_GROUPS,
    MAX_LISTED,
    MAX_NAMES,
    MAX_OPERATIONS,
    MAX_RANKS,
    decode_group,
    decode_operation,
)
from chakram.control.fields import (
    MAX_TEXT,
    MAX_TIME_NS,
    Fault,
    between,
    check_count,
    inside,
    name_text,
    rows,
    text,
)
from chakram.control.listed_codec import decode_listed, encode_listed
from chakram.control.messages import pb, plan_pb
from chakram.core.program import (
    CollectiveOperation,
    ComputeOperation,
    Operation,
    RankProgram,
    ReceiveOperation,
    SendOperation,
    check_program,
)
from chakram.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chakram.core.algorithms.listed import ListedAlgorithm
    from chakram.core.groups import ProcessGroup

__all__ = ["MAX_FILE_BYTES", "SavedInput", "SavedJob", "SavedPlan", "decode", "encode"]

MAGIC: Final = b"chakram plan 1\n"
"""First line of a file; its number grows with incompatible changes."""

MAX_FILE_BYTES: Final = 2**30
_MAX_JOBS = 256
_MAX_INPUTS = 2**17
_MAX_WARNINGS = 2**12
_MAX_WARNING = 2**14
_MAX_DIFFERENT = 2**24
"""Different operations of a job."""
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


# Writing -------------------------------------------------------------------------


def _encode_job(job: SavedJob) -> plan_pb.SavedJob:
    groups: dict[ProcessGroup, int] = {}
    listed: dict[ListedAlgorithm, int] = {}
    computes: dict[Operation, int] = {}
    others: dict[Operation, int] = {}
    for program in job.programs:
        for operation in program.operations:
            known = computes if _is_plain(operation) else others
            known.setdefault(operation, len(known))
    programs = [
        plan_pb.SavedProgram(
            rank=program.rank,
            groups=_places(program.groups, groups),
            operations=[
                computes[each] if _is_plain(each) else len(computes) + others[each]
                for each in program.operations
            ],
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
        computes=_encode_computes(computes),
        operations=[encode_operation(each) for each in others],
        programs=programs,
    )


def _places(items: Iterable[_T], known: dict[_T, int]) -> list[int]:
    return [known.setdefault(item, len(known)) for item in items]


def _is_plain(operation: Operation) -> bool:
    """Say whether an operation fits the columns."""
    return (
        isinstance(operation, ComputeOperation)
        and operation.node_id is not None
        and operation.stream is None
        and operation.start_ns is None
    )


def _encode_computes(computes: Iterable[Operation]) -> plan_pb.SavedComputes:
    message = plan_pb.SavedComputes()
    for each in computes:
        if isinstance(each, ComputeOperation) and each.node_id is not None:
            message.names.append(each.name)
            message.node_ids.append(each.node_id)
            message.durations_ns.append(each.duration_ns)
            message.dependency_counts.append(len(each.dependencies))
            message.dependencies.extend(each.dependencies)
    return message


# Reading -------------------------------------------------------------------------


class _Table:
    """The different operations of a job, and what checks of programs need of them."""

    def __init__(self, message: plan_pb.SavedJob) -> None:
        check_count("operations", message.operations, _MAX_DIFFERENT)
        computes = inside("computes", message.computes, _decode_computes)
        others = rows(
            "operations", message.operations, decode_operation, most=_MAX_DIFFERENT
        )
        self.operations: list[Operation] = [*computes, *others]
        self.first_other = len(computes)
        # By place: how far a program must be for all dependencies to lie behind it.
        self.reach = [max(each.dependencies, default=-1) for each in self.operations]

    def program(
        self,
        message: plan_pb.SavedProgram,
        job: str,
        groups: Sequence[ProcessGroup],
        listed: Sequence[ListedAlgorithm],
    ) -> RankProgram:
        """Return a program; Fault if it is wrong."""
        places = list(message.operations)
        check_count("operations", places, MAX_OPERATIONS)
        if places and max(places) >= len(self.operations):
            raise Fault(
                "operations", f"{max(places)} of {len(self.operations)} operations"
            )
        program = RankProgram(
            job=job,
            rank=between("rank", message.rank, 0, MAX_NAMES),
            groups=tuple(_chosen("groups", message.groups, groups)),
            operations=tuple(map(self.operations.__getitem__, places)),
            algorithms=tuple(_chosen("algorithms", message.algorithms, listed)),
        )
        behind = map(
            operator.lt, map(self.reach.__getitem__, places), itertools.count()
        )
        problems = self._problems(program, places) if all(behind) else None
        # Dependencies that point ahead are rare, and may be sound.
        if problems is None:
            problems = check_program(program)
        if problems:
            raise Fault("operations", problems[0])
        return program

    def _problems(self, program: RankProgram, places: Sequence[int]) -> list[str]:
        """Return what is wrong with operations that depend on earlier ones only.

        The same as ``check_program`` finds, in a fraction of its time: delays, most of
        a program, have nothing more to be wrong.
        """
        group_of = {group.name: group for group in program.groups}
        numbers: dict[str, list[int]] = {name: [] for name in group_of}
        for place in places:
            if place < self.first_other:
                continue
            each = self.operations[place]
            if isinstance(each, CollectiveOperation):
                group = group_of.get(each.group)
                if group is None or each.root >= len(group.ranks):
                    return check_program(program)
                numbers[each.group].append(each.number)
            elif (
                isinstance(each, SendOperation | ReceiveOperation)
                and each.peer == program.rank
            ):
                return check_program(program)
        sound = all(
            program.rank in group.ranks and sorted(of) == list(range(len(of)))
            for group, of in zip(program.groups, numbers.values(), strict=True)
        )
        return [] if sound else check_program(program)


def _decode_computes(message: plan_pb.SavedComputes) -> list[ComputeOperation]:
    names = list(message.names)
    check_count("names", names, _MAX_DIFFERENT)
    node_ids = list(message.node_ids)
    durations_ns = list(message.durations_ns)
    counts = list(message.dependency_counts)
    dependencies = list(message.dependencies)
    if {len(node_ids), len(durations_ns), len(counts)} != {len(names)}:
        raise Fault("", "its columns have different lengths")
    if sum(counts) != len(dependencies):
        raise Fault("dependencies", f"{len(dependencies)} of them, not {sum(counts)}")
    if names and max(map(len, names)) > MAX_TEXT:
        raise Fault("names", f"one has more than {MAX_TEXT} characters")
    for duration_ns in (min(durations_ns, default=0), max(durations_ns, default=0)):
        between("durations_ns", duration_ns, 0, MAX_TIME_NS)
    ends = list(itertools.accumulate(counts, initial=0))
    return [
        ComputeOperation(
            node_id=node_id,
            name=name,
            dependencies=tuple(dependencies[start:end]),
            duration_ns=duration_ns,
        )
        for node_id, name, start, end, duration_ns in zip(
            node_ids, names, ends, ends[1:], durations_ns, strict=False
        )
    ]


def _decode_job(message: plan_pb.SavedJob) -> SavedJob:
    name = name_text("name", message.name)
    groups = rows("groups", message.groups, decode_group, most=MAX_GROUPS)
    if len({group.name for group in groups}) != len(groups):
        raise Fault("groups", "two process groups have one name")
    listed = rows(
        "listed_algorithms", message.listed_algorithms, decode_listed, most=MAX_LISTED
    )
    table = _Table(message)
    programs = rows(
        "programs",
        message.programs,
        lambda each: table.program(each, name, groups, listed),
        most=MAX_RANKS,
    )
    _check_ranks(programs, groups, table)
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


def _check_ranks(
    programs: Sequence[RankProgram], groups: Sequence[ProcessGroup], table: _Table
) -> None:
    """Refuse programs that name ranks without one."""
    ranks = [program.rank for program in programs]
    if not ranks or ranks != sorted(set(ranks)):
        raise Fault("programs", "their ranks do not ascend")
    present = set(ranks)
    for group in groups:
        missing = set(group.ranks) - present
        if missing:
            raise Fault(
                "groups",
                f"process group {group.name!r} has rank {min(missing)}, which has no "
                "program",
            )
    peers = {
        each.peer
        for each in table.operations[table.first_other :]
        if isinstance(each, SendOperation | ReceiveOperation)
    }
    if peers - present:
        raise Fault("operations", f"a message with rank {min(peers - present)}")


def _chosen(name: str, places: Sequence[int], items: Sequence[_T]) -> list[_T]:
    """Return the items at *places*; Fault if there is none at one of them."""
    for place in places:
        if place >= len(items):
            raise Fault(name, f"{place} of {len(items)}")
    return [items[place] for place in places]
