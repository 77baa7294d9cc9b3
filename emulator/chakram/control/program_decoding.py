"""Programs that came as messages, checked: they are whole, and so are their groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.collectives.algorithms.listed import MAX_PARTS
from chakram.collectives.groups import ProcessGroup
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.splits import Splits
from chakram.control.field_checks import (
    MAX_NAMES,
    Fault,
    between,
    check_count,
    collective_op,
    name_text,
    rows,
    size,
    text,
)
from chakram.program.operations import (
    CollectiveOperation,
    ComputeOperation,
    Operation,
    RankProgram,
    ReceiveOperation,
    SendOperation,
    check_program,
)
from chakram.units import LONGEST_TIME_NS

if TYPE_CHECKING:
    from chakram.collectives.algorithms.listed import ListedAlgorithm
    from chakram.control.protocol_messages import pb

__all__ = [
    "MAX_GROUPS",
    "MAX_LISTED",
    "MAX_OPERATIONS",
    "decode_group",
    "decode_operation",
    "decode_program",
]

MAX_OPERATIONS = 2**20
MAX_GROUPS = 2**14
MAX_LISTED = 2**10
"""Users' algorithms, one for every size of group and root."""


def decode_program(
    message: pb.RankProgram, listed: tuple[ListedAlgorithm, ...]
) -> RankProgram:
    """Return the program of a message; Fault if it is wrong.

    Args:
        message: What came.
        listed: The algorithms that the plan brings along, which it names by number.
    """
    check_count("algorithms", message.algorithms, MAX_LISTED)
    for place in message.algorithms:
        if place >= len(listed):
            raise Fault("algorithms", f"{place} of {len(listed)} algorithms")
    program = RankProgram(
        job=name_text("job", message.job),
        rank=between("rank", message.rank, 0, MAX_NAMES),
        groups=rows("groups", message.groups, decode_group, most=MAX_GROUPS),
        operations=rows(
            "operations", message.operations, decode_operation, most=MAX_OPERATIONS
        ),
        algorithms=tuple(listed[place] for place in message.algorithms),
    )
    names = [group.name for group in program.groups]
    if len(set(names)) != len(names):
        raise Fault("groups", "two process groups have one name")
    problems = check_program(program)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise Fault("operations", problems[0] + more)
    return program


def decode_group(message: pb.ProcessGroup) -> ProcessGroup:
    """Return the process group of a message; Fault if it is wrong."""
    check_count("ranks", message.ranks, MAX_NAMES)
    try:
        return ProcessGroup(
            name=name_text("name", message.name), ranks=tuple(message.ranks)
        )
    except ValueError as error:
        raise Fault("ranks", str(error)) from None


def decode_operation(message: pb.Operation) -> Operation:
    """Return the operation of a message; Fault if it is wrong."""
    node_id = message.node_id if message.HasField("node_id") else None
    name = text("name", message.name)
    dependencies = tuple(message.dependencies)
    start_ns = (
        between("start_ns", message.start_ns, 0, LONGEST_TIME_NS)
        if message.HasField("start_ns")
        else None
    )
    kind = message.WhichOneof("kind")
    if kind == "collective":
        part = message.collective
        op = collective_op("collective.op", part.op)
        return CollectiveOperation(
            node_id=node_id,
            name=name,
            dependencies=dependencies,
            group=name_text("collective.group", part.group),
            number=part.number,
            op=op,
            algorithm=text("collective.algorithm", part.algorithm),
            input_bytes=size("collective.input_bytes", part.input_bytes),
            trace_bytes=size("collective.trace_bytes", part.trace_bytes),
            root=part.root,
            splits=(
                _splits(part)
                if op == CollectiveOp.ALL_TO_ALL_V or part.sent_bytes
                else None
            ),
            passed_bytes=_passed_bytes(part),
            start_ns=start_ns,
        )
    if kind == "compute":
        compute = message.compute
        return ComputeOperation(
            node_id=node_id,
            name=name,
            dependencies=dependencies,
            duration_ns=between(
                "compute.duration_ns", compute.duration_ns, 0, LONGEST_TIME_NS
            ),
            stream=compute.stream if compute.HasField("stream") else None,
            start_ns=start_ns,
        )
    if kind is None:
        raise Fault("kind", "an operation of no kind that this version knows")
    message_part = message.send if kind == "send" else message.receive
    make = SendOperation if kind == "send" else ReceiveOperation
    return make(
        node_id=node_id,
        name=name,
        dependencies=dependencies,
        peer=between(f"{kind}.peer", message_part.peer, 0, MAX_NAMES),
        number=message_part.number,
        tag=message_part.tag,
        size_bytes=size(f"{kind}.size_bytes", message_part.size_bytes),
        trace_bytes=size(f"{kind}.trace_bytes", message_part.trace_bytes),
        start_ns=start_ns,
    )


def _splits(message: pb.Collective) -> Splits:
    check_count("collective.sent_bytes", message.sent_bytes, MAX_NAMES)
    check_count("collective.received_bytes", message.received_bytes, MAX_NAMES)
    return Splits(
        tuple(size("collective.sent_bytes", part) for part in message.sent_bytes),
        tuple(
            size("collective.received_bytes", part) for part in message.received_bytes
        ),
    )


def _passed_bytes(message: pb.Collective) -> tuple[int, ...]:
    check_count("collective.passed_bytes", message.passed_bytes, MAX_PARTS)
    return tuple(size("collective.passed_bytes", part) for part in message.passed_bytes)
