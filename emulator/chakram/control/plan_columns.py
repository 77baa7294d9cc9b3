"""The columns of a saved plan: different operations as bytes, and back.

Numbers have a fixed width, so that reading a column is copying it, and every check of
one runs in compiled code.
"""

from __future__ import annotations

import sys
from array import array
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from chakram.collectives.algorithms.listed import MAX_PARTS
from chakram.collectives.splits import Splits
from chakram.control.field_checks import (
    MAX_NAMES,
    MAX_TEXT,
    Fault,
    check_count,
    collective_op,
    inside,
    rows,
    size,
    text,
)
from chakram.control.protocol_messages import plan_pb
from chakram.program.operation_table import (
    NO_SPLITS,
    CollectiveColumns,
    ComputeColumns,
    MessageColumns,
    TableColumns,
)
from chakram.program.operations import (
    CollectiveOperation,
    ComputeOperation,
    Operation,
    ReceiveOperation,
    SendOperation,
)
from chakram.program.table_check import are_ends, are_within, largest
from chakram.trace.short_columns import NO_VALUE
from chakram.units import LARGEST_SIZE_BYTES, LONGEST_TIME_NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chakram.collectives.groups import ProcessGroup
    from chakram.collectives.ops import CollectiveOp
    from chakram.program.operation_table import Column

__all__ = ["Places", "decode_columns", "encode_places", "read_places"]

_MAX_DIFFERENT: Final = 2**24
"""Different operations of a job."""
_MAX_KINDS: Final = 2**16


class Places:
    """Gives every operation that differs from all others a place, kind by kind."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._kinds: tuple[dict[Operation, int], ...] = ({}, {}, {}, {})
        for operation in operations:
            known = self._kinds[_kind_of(operation)]
            known.setdefault(operation, len(known))
        self._first = list(accumulate(map(len, self._kinds), initial=0))

    def place(self, operation: Operation) -> int:
        """Return the place of one of the operations."""
        kind = _kind_of(operation)
        return self._first[kind] + self._kinds[kind][operation]

    def encode(self, groups: Sequence[ProcessGroup]) -> plan_pb.SavedOperations:
        """Return the message of the columns; *groups* are those that programs name."""
        every = [operation for known in self._kinds for operation in known]
        place_of = {group.name: place for place, group in enumerate(groups)}
        computes, collectives, sends, receives = self._kinds
        return plan_pb.SavedOperations(
            names="".join(each.name for each in every),
            name_ends=_bytes("I", accumulate(len(each.name) for each in every)),
            node_ids=_bytes("Q", (each.node_id or 0 for each in every)),
            without_node=[
                place for place, each in enumerate(every) if each.node_id is None
            ],
            dependencies=_bytes(
                "I", (place for each in every for place in each.dependencies)
            ),
            dependency_ends=_bytes(
                "I", accumulate(len(each.dependencies) for each in every)
            ),
            starts_ns=_optional(each.start_ns for each in every),
            computes=_encode_computes(
                [each for each in computes if isinstance(each, ComputeOperation)]
            ),
            collectives=_encode_collectives(
                [each for each in collectives if isinstance(each, CollectiveOperation)],
                place_of,
            ),
            messages=_encode_messages(
                [
                    each
                    for each in (*sends, *receives)
                    if isinstance(each, SendOperation | ReceiveOperation)
                ],
                len(sends),
            ),
        )


def _kind_of(operation: Operation) -> int:
    """Return which of the kinds an operation is; places go kind by kind."""
    match operation:
        case ComputeOperation():
            return 0
        case CollectiveOperation():
            return 1
        case SendOperation():
            return 2
        case _:
            return 3


def _encode_computes(computes: Sequence[ComputeOperation]) -> plan_pb.SavedComputes:
    return plan_pb.SavedComputes(
        durations_ns=_bytes("q", (each.duration_ns for each in computes)),
        streams=_optional(each.stream for each in computes),
    )


def _encode_collectives(
    collectives: Sequence[CollectiveOperation], place_of: dict[str, int]
) -> plan_pb.SavedCollectives:
    kinds: dict[tuple[CollectiveOp, str], int] = {}
    splits: dict[tuple[Splits, tuple[int, ...]], int] = {}
    kinds_column = [
        kinds.setdefault((each.op, each.algorithm), len(kinds)) for each in collectives
    ]
    splits_column = [
        NO_SPLITS
        if each.splits is None
        else splits.setdefault((each.splits, each.passed_bytes), len(splits))
        for each in collectives
    ]
    return plan_pb.SavedCollectives(
        groups=_bytes("I", (place_of[each.group] for each in collectives)),
        numbers=_bytes("I", (each.number for each in collectives)),
        kinds=_bytes("I", kinds_column),
        input_bytes=_bytes("q", (each.input_bytes for each in collectives)),
        trace_bytes=_bytes("q", (each.trace_bytes for each in collectives)),
        roots=_bytes("I", (each.root for each in collectives)),
        splits=_bytes("I", splits_column) if splits else b"",
        all_kinds=[
            plan_pb.SavedKind(op=op.value, algorithm=algorithm)
            for op, algorithm in kinds
        ],
        all_splits=[
            plan_pb.SavedSplits(
                sent_bytes=each.sent_bytes,
                received_bytes=each.received_bytes,
                passed_bytes=passed,
            )
            for each, passed in splits
        ],
    )


def _encode_messages(
    messages: Sequence[SendOperation | ReceiveOperation], sends: int
) -> plan_pb.SavedMessages:
    return plan_pb.SavedMessages(
        sends=sends,
        peers=_bytes("I", (each.peer for each in messages)),
        numbers=_bytes("I", (each.number for each in messages)),
        tags=_bytes("q", (each.tag for each in messages)),
        size_bytes=_bytes("q", (each.size_bytes for each in messages)),
        trace_bytes=_bytes("q", (each.trace_bytes for each in messages)),
    )


def encode_places(places: Iterable[int]) -> bytes:
    """Return the column of places in a table."""
    return _bytes("I", places)


def _optional(values: Iterable[int | None]) -> bytes:
    column = [NO_VALUE if value is None else value for value in values]
    if all(value == NO_VALUE for value in column):
        return b""
    return _bytes("q", column)


def _bytes(code: str, values: Iterable[int]) -> bytes:
    column = array(code, values)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


# Reading -------------------------------------------------------------------------


def decode_columns(
    message: plan_pb.SavedOperations, groups: tuple[ProcessGroup, ...]
) -> TableColumns:
    """Return the columns of a message; Fault if one is wrong."""
    name_ends = _column("name_ends", "I", message.name_ends)
    count = len(name_ends)
    check_count("name_ends", name_ends, _MAX_DIFFERENT)
    names = message.names
    if not are_ends(name_ends, len(names), MAX_TEXT):
        raise Fault(
            "name_ends", f"do not divide names into parts of {MAX_TEXT} characters"
        )
    dependencies = _column("dependencies", "I", message.dependencies)
    dependency_ends = _column("dependency_ends", "I", message.dependency_ends, count)
    if not are_ends(dependency_ends, len(dependencies), len(dependencies)):
        raise Fault("dependency_ends", "do not divide the dependencies")
    without_node = frozenset(message.without_node)
    if max(without_node, default=-1) >= count:
        raise Fault("without_node", f"{max(without_node)} of {count} operations")
    starts_ns = None
    if message.starts_ns:
        starts_ns = _column("starts_ns", "q", message.starts_ns, count)
        given = array("q", (each for each in starts_ns if each != NO_VALUE))
        _check_within("starts_ns", given, 0, LONGEST_TIME_NS)
    computes = inside("computes", message.computes, _decode_computes)
    collectives = inside(
        "collectives",
        message.collectives,
        lambda part: _decode_collectives(part, groups),
    )
    messages = inside("messages", message.messages, _decode_messages)
    parts = (computes.durations_ns, collectives.groups, messages.peers)
    if sum(map(len, parts)) != count:
        raise Fault("", f"{count} names for {sum(map(len, parts))} operations")
    return TableColumns(
        names=names,
        name_ends=name_ends,
        node_ids=_column("node_ids", "Q", message.node_ids, count),
        without_node=without_node,
        dependencies=dependencies,
        dependency_ends=dependency_ends,
        starts_ns=starts_ns,
        computes=computes,
        collectives=collectives,
        messages=messages,
    )


def read_places(data: bytes, count: int) -> Column:
    """Return the places of a program in a table of *count*; Fault if it has not all."""
    places = _column("operations", "I", data)
    _check_below("operations", places, count, "operations")
    return places


def _decode_computes(message: plan_pb.SavedComputes) -> ComputeColumns:
    durations_ns = _column("durations_ns", "q", message.durations_ns)
    _check_within("durations_ns", durations_ns, 0, LONGEST_TIME_NS)
    return ComputeColumns(
        durations_ns=durations_ns,
        streams=(
            _column("streams", "q", message.streams, len(durations_ns))
            if message.streams
            else None
        ),
    )


def _decode_collectives(
    message: plan_pb.SavedCollectives, all_groups: tuple[ProcessGroup, ...]
) -> CollectiveColumns:
    groups = _column("groups", "I", message.groups)
    count = len(groups)
    all_kinds = rows("all_kinds", message.all_kinds, _decode_kind, most=_MAX_KINDS)
    all_splits = rows(
        "all_splits", message.all_splits, _decode_splits, most=_MAX_DIFFERENT
    )
    kinds = _column("kinds", "I", message.kinds, count)
    _check_below("groups", groups, len(all_groups), "process groups")
    _check_below("kinds", kinds, len(all_kinds), "kinds")
    splits = None
    if message.splits:
        splits = _column("splits", "I", message.splits, count)
        given = array("I", (each for each in splits if each != NO_SPLITS))
        _check_below("splits", given, len(all_splits), "splits")
    return CollectiveColumns(
        groups=groups,
        numbers=_column("numbers", "I", message.numbers, count),
        kinds=kinds,
        input_bytes=_sizes("input_bytes", message.input_bytes, count),
        trace_bytes=_sizes("trace_bytes", message.trace_bytes, count),
        roots=_column("roots", "I", message.roots, count),
        splits=splits,
        all_groups=all_groups,
        all_kinds=all_kinds,
        all_splits=tuple(each for each, _ in all_splits),
        all_passed_bytes=tuple(passed for _, passed in all_splits),
    )


def _decode_kind(message: plan_pb.SavedKind) -> tuple[CollectiveOp, str]:
    return collective_op("op", message.op), text("algorithm", message.algorithm)


def _decode_splits(
    message: plan_pb.SavedSplits,
) -> tuple[Splits, tuple[int, ...]]:
    """Return splits, and what is passed on with them."""
    check_count("sent_bytes", message.sent_bytes, MAX_NAMES)
    check_count("received_bytes", message.received_bytes, MAX_NAMES)
    check_count("passed_bytes", message.passed_bytes, MAX_PARTS)
    return Splits(
        tuple(size("sent_bytes", part) for part in message.sent_bytes),
        tuple(size("received_bytes", part) for part in message.received_bytes),
    ), tuple(size("passed_bytes", part) for part in message.passed_bytes)


def _decode_messages(message: plan_pb.SavedMessages) -> MessageColumns:
    peers = _column("peers", "I", message.peers)
    count = len(peers)
    if message.sends > count:
        raise Fault("sends", f"{message.sends} of {count} messages")
    return MessageColumns(
        sends=message.sends,
        peers=peers,
        numbers=_column("numbers", "I", message.numbers, count),
        tags=_column("tags", "q", message.tags, count),
        size_bytes=_sizes("size_bytes", message.size_bytes, count),
        trace_bytes=_sizes("trace_bytes", message.trace_bytes, count),
    )


def _sizes(name: str, data: bytes, count: int) -> Column:
    column = _column(name, "q", data, count)
    _check_within(name, column, 0, LARGEST_SIZE_BYTES)
    return column


def _column(name: str, code: str, data: bytes, count: int | None = None) -> Column:
    """Return the numbers of a column; Fault if they are not *count*."""
    column = array(code)
    found, rest = divmod(len(data), column.itemsize)
    if rest or found != (found if count is None else count):
        wanted = f"numbers of {column.itemsize} bytes"
        raise Fault(
            name,
            f"{len(data)} bytes for {wanted if count is None else f'{count} {wanted}'}",
        )
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _check_within(name: str, column: Column, least: int, most: int) -> None:
    if not are_within(column, least, most):
        wrong = next(each for each in column if not least <= each <= most)
        raise Fault(name, f"{wrong} is not in {least}..{most}")


def _check_below(name: str, column: Column, count: int, what: str) -> None:
    if largest(column) >= count:
        raise Fault(name, f"{largest(column)} of {count} {what}")
