"""Operations of a job as columns: what a saved plan holds, made into objects on demand.

Ranks do much the same, so a job has few operations that differ, and a program is a list
of places in a table of those.  A table with a hundred thousand rows is a few pieces of
memory; an ``Operation`` is made when somebody looks at it, and once for all ranks.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, TypeAlias, TypeVar, overload

from chakram.program.operations import (
    CollectiveOperation,
    ComputeOperation,
    Operation,
    ReceiveOperation,
    SendOperation,
)
from chakram.trace.short_columns import NO_VALUE

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterator, Mapping

    from chakram.collectives.groups import ProcessGroup
    from chakram.collectives.ops import CollectiveOp
    from chakram.collectives.splits import Splits

    Column: TypeAlias = array[int]

__all__ = [
    "NO_SPLITS",
    "CollectiveColumns",
    "ComputeColumns",
    "MessageColumns",
    "OperationTable",
    "TableColumns",
    "TableOperations",
]

_T = TypeVar("_T")

NO_SPLITS = 2**32 - 1
"""Place of the splits of a collective that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeColumns:
    """What computations have beside what all operations have.

    ``streams`` holds ``NO_VALUE`` for the rank's own; None: none has another.
    """

    durations_ns: Column
    streams: Column | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveColumns:
    """What collectives have beside what all operations have.

    ``groups``, ``kinds`` and ``splits`` are places: in ``all_groups``, in ``all_kinds``
    (operation and algorithm), in ``all_splits``; a place in the last may be
    ``NO_SPLITS``, and ``splits`` is None if every one is.  ``all_passed_bytes`` go with
    ``all_splits``.
    """

    groups: Column
    numbers: Column
    kinds: Column
    input_bytes: Column
    trace_bytes: Column
    roots: Column
    splits: Column | None
    all_groups: tuple[ProcessGroup, ...]
    all_kinds: tuple[tuple[CollectiveOp, str], ...]
    all_splits: tuple[Splits, ...]
    all_passed_bytes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageColumns:
    """What messages have beside what all operations have: the *sends* are first."""

    sends: int
    peers: Column
    numbers: Column
    tags: Column
    size_bytes: Column
    trace_bytes: Column


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumns:
    """Different operations: first computations, then collectives, then messages.

    Attributes:
        names: All names, one after the other.
        name_ends: By operation, where in ``names`` its name ends.
        node_ids: Unsigned 64-bit numbers; of no meaning at ``without_node``.
        without_node: Places of operations without a node.
        dependencies: Those of all, one after the other: positions in a program.
        dependency_ends: By operation, where its dependencies end.
        starts_ns: ``NO_VALUE`` where there is none; None: nowhere is one.
        computes: Columns of the computations alone, and so on.
    """

    names: str
    name_ends: Column
    node_ids: Column
    without_node: frozenset[int]
    dependencies: Column
    dependency_ends: Column
    starts_ns: Column | None
    computes: ComputeColumns
    collectives: CollectiveColumns
    messages: MessageColumns

    def __len__(self) -> int:
        return len(self.name_ends)


class OperationTable:
    """Makes the operations of columns: all of them, when the first is looked at."""

    def __init__(self, columns: TableColumns) -> None:
        self._columns = columns
        self._made: list[Operation] | None = None

    def operations(self, places: Column) -> tuple[Operation, ...]:
        """Return the operations at *places*."""
        if self._made is None:
            self._made = _operations(self._columns)
        return tuple(map(self._made.__getitem__, places))


class TableOperations(Sequence[Operation]):
    """The operations of one program, by their places in a table.

    Equal to a tuple of the same operations, and pickled as one.
    """

    __slots__ = ("_made", "_places", "_table")

    def __init__(self, table: OperationTable, places: Column) -> None:
        self._table = table
        self._places = places
        self._made: tuple[Operation, ...] | None = None

    def _all(self) -> tuple[Operation, ...]:
        if self._made is None:
            self._made = self._table.operations(self._places)
        return self._made

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Operation: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Operation, ...]: ...
    def __getitem__(self, index: int | slice) -> Operation | tuple[Operation, ...]:
        return self._all()[index]

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TableOperations):
            return self._all() == other._all()
        return self._all() == other

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return repr(self._all())

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return tuple, (self._all(),)


def _operations(columns: TableColumns) -> list[Operation]:
    """Return all operations of a table, in the order of their places."""
    names, dependencies = columns.names, tuple(columns.dependencies)
    name_ends, ends = columns.name_ends, columns.dependency_ends
    node_ids: list[int | None] = list(columns.node_ids)
    for place in columns.without_node:
        node_ids[place] = None
    common: dict[str, Sequence[object]] = {
        "name": [names[a:b] for a, b in pairwise(chain((0,), name_ends))],
        "dependencies": [dependencies[a:b] for a, b in pairwise(chain((0,), ends))],
        "node_id": node_ids,
        "start_ns": _optional(columns.starts_ns, len(columns)),
    }
    computes, collectives = columns.computes, columns.collectives
    messages = columns.messages
    kinds = [collectives.all_kinds[kind] for kind in collectives.kinds]
    of_messages = {
        "peer": messages.peers,
        "number": messages.numbers,
        "tag": messages.tags,
        "size_bytes": messages.size_bytes,
        "trace_bytes": messages.trace_bytes,
    }
    parts: tuple[tuple[type[Operation], int, dict[str, Sequence[object]]], ...] = (
        (
            ComputeOperation,
            len(computes.durations_ns),
            {
                "duration_ns": computes.durations_ns,
                "stream": _optional(computes.streams, len(computes.durations_ns)),
            },
        ),
        (
            CollectiveOperation,
            len(collectives.groups),
            {
                "group": [collectives.all_groups[at].name for at in collectives.groups],
                "number": collectives.numbers,
                "op": [op for op, _ in kinds],
                "algorithm": [algorithm for _, algorithm in kinds],
                "input_bytes": collectives.input_bytes,
                "trace_bytes": collectives.trace_bytes,
                "root": collectives.roots,
                "splits": _splits(collectives),
                "passed_bytes": _passed_bytes(collectives),
            },
        ),
        (
            SendOperation,
            messages.sends,
            {name: column[: messages.sends] for name, column in of_messages.items()},
        ),
        (
            ReceiveOperation,
            len(messages.peers) - messages.sends,
            {name: column[messages.sends :] for name, column in of_messages.items()},
        ),
    )
    made: list[Operation] = []
    for kind, count, own in parts:
        first = len(made)
        shared = {
            name: column[first : first + count] for name, column in common.items()
        }
        made += _from_columns(kind, count, {**shared, **own})
    return made


def _splits(collectives: CollectiveColumns) -> list[Splits | None]:
    if collectives.splits is None:
        return [None] * len(collectives.groups)
    return [
        None if at == NO_SPLITS else collectives.all_splits[at]
        for at in collectives.splits
    ]


def _passed_bytes(collectives: CollectiveColumns) -> list[tuple[int, ...]]:
    if collectives.splits is None:
        return [()] * len(collectives.groups)
    return [
        () if at == NO_SPLITS else collectives.all_passed_bytes[at]
        for at in collectives.splits
    ]


def _optional(column: Column | None, count: int) -> list[int | None]:
    """Return the values of a column with ``NO_VALUE``; None: nothing else is in it."""
    if column is None:
        return [None] * count
    return [None if value == NO_VALUE else value for value in column]


def _from_columns(
    kind: type[_T], count: int, columns: Mapping[str, Sequence[object]]
) -> list[_T]:
    """Return objects of a frozen dataclass, from one column of values for each field.

    Fields are set column by column: by a third of the time that ``__init__`` takes.
    """
    # Nothing in the type of *kind* says that it is a dataclass.
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    if {field.name for field in fields} != columns.keys() or hasattr(
        kind, "__post_init__"
    ):
        raise TypeError(f"{kind.__name__} has other fields, or checks itself")
    made = [kind.__new__(kind) for _ in range(count)]
    for name, column in columns.items():
        # A slot's own setter does not ask whether the class is frozen.
        deque(
            map(
                getattr(kind, name).__set__,
                made,
                column,
            ),
            maxlen=0,
        )
    return made
