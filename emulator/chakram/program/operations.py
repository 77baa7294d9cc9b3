"""The program of a rank: its operations with dependencies, one row each.

Lowering creates a program from a trace, the planner places it, and replay executes it.
A collective is one row, regardless of its number of ranks. A program is stored in
columns (``chakram.program.columns``). An ``Operation`` represents a row as an object,
for display and for programs written by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm
from chakram.collectives.groups import ProcessGroup
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Matrix, Splits
from chakram.program.columns import (
    COLLECTIVE,
    COMPUTE,
    NO_SPLITS,
    RECEIVE,
    SEND,
    ColumnWriter,
    OperationColumns,
)
from chakram.trace.nullable_columns import NO_VALUE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    """Properties of all operations.

    ``dependencies`` are indices of operations. ``start_ns`` is the recorded start time,
    relative to the first start of the rank, or None if start times are not kept.
    """

    node_id: int | None
    name: str
    dependencies: tuple[int, ...]
    start_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveOperation(_Operation):
    """One collective of a process group.

    Together with job, iteration and group, ``number`` identifies the collective on
    every member. ``input_bytes`` is the size in this run (see
    ``chakram.collectives.ops``), and ``trace_bytes`` is the size before ``size_scale``.
    ``root`` is a position in the group. Only an all_to_all_v has ``splits`` and
    ``passed_bytes``: the bytes that this rank exchanges in this run, and the bytes that
    it forwards for others (``chakram.collectives.uneven_messages``).
    """

    group: str
    number: int
    op: CollectiveOp
    algorithm: str
    input_bytes: int
    trace_bytes: int
    root: int = 0
    splits: Splits | None = None
    passed_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message(_Operation):
    """Properties of both ends of a point-to-point message."""

    peer: int
    number: int
    tag: int
    size_bytes: int
    trace_bytes: int


class SendOperation(_Message):
    """One point-to-point message to rank ``peer``.

    ``number`` counts the messages from this rank to that peer in one iteration. It
    identifies the message at the receiver, whatever the order in which messages become
    ready.
    """

    __slots__ = ()


class ReceiveOperation(_Message):
    """The receiving end of the ``SendOperation`` of ``peer`` with the same number."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeOperation(_Operation):
    """A delay. Delays of one ``stream`` (None is the default stream) do not overlap.

    A delay of 0 ends at once and occupies no slot.
    """

    duration_ns: int
    stream: int | None = None


Operation = CollectiveOperation | SendOperation | ReceiveOperation | ComputeOperation


class RankSplits(NamedTuple):
    """A rank's splits in an all_to_all_v, and the bytes that it forwards."""

    splits: Splits
    passed_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProgram:
    """The program of one rank for one iteration.

    Dependencies may refer to any row in ``columns`` but must not form a cycle. Among
    ready operations, earlier rows take precedence.

    Attributes:
        job: The name of the job.
        rank: The rank in the job.
        groups: The process groups, to which collectives refer by place.
        columns: The operations. Ranks with the same work share them.
        peers: The peers, to which messages refer by place.
        splits: The splits, to which collectives refer by place.
        algorithms: The user-defined algorithms that the operations use.
    """

    job: str
    rank: int
    groups: tuple[ProcessGroup, ...]
    columns: OperationColumns
    peers: tuple[int, ...] = ()
    splits: tuple[RankSplits, ...] = ()
    algorithms: tuple[ListedAlgorithm, ...] = ()

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations as objects, created on each access."""
        return tuple(map(self.operation, range(len(self.columns))))

    def operation(self, row: int) -> Operation:
        """Return one operation as an object."""
        columns = self.columns
        amount, detail = columns.amounts[row], columns.details[row]
        kind, target = columns.kinds[row], columns.targets[row]
        common: dict[str, Any] = {
            "node_id": columns.node_id(row),
            "name": columns.name(row),
            "dependencies": tuple(columns.dependencies_of(row)),
            "start_ns": columns.start_ns(row),
        }
        if kind == COMPUTE:
            stream = None if detail == NO_VALUE else detail
            return ComputeOperation(duration_ns=amount, stream=stream, **common)
        common["number"] = columns.numbers[row]
        common["trace_bytes"] = columns.trace_bytes[row]
        if kind == COLLECTIVE:
            op, algorithm = columns.all_algorithms[columns.algorithms[row]]
            place = columns.split(row)
            splits, passed = (None, ()) if place is None else self.splits[place]
            return CollectiveOperation(
                group=self.groups[target].name,
                op=op,
                algorithm=algorithm,
                input_bytes=amount,
                root=detail,
                splits=splits,
                passed_bytes=passed,
                **common,
            )
        return (SendOperation if kind == SEND else ReceiveOperation)(
            peer=self.peers[target], tag=detail, size_bytes=amount, **common
        )


def program_of(
    operations: Sequence[Operation],
    *,
    job: str,
    rank: int,
    groups: tuple[ProcessGroup, ...],
    algorithms: tuple[ListedAlgorithm, ...] = (),
) -> RankProgram:
    """Return a program with the given operations.

    Raises:
        ValueError: If an operation names a group that is not in *groups*.
    """
    place_of = {group.name: place for place, group in enumerate(groups)}
    peers: dict[int, int] = {}
    own_splits: list[RankSplits] = []
    writer = ColumnWriter()
    for each in operations:
        name = each.name.encode("utf-8", "surrogatepass")
        writer.begin(each.node_id, name, each.dependencies, each.start_ns)
        match each:
            case ComputeOperation():
                stream = NO_VALUE if each.stream is None else each.stream
                writer.row(COMPUTE, each.duration_ns, 0, 0, 0, stream)
            case CollectiveOperation():
                if each.group not in place_of:
                    raise ValueError(f"unknown process group {each.group!r}")
                splits = NO_SPLITS
                if each.splits is not None or each.passed_bytes:
                    splits = len(own_splits)
                    own_splits.append(
                        RankSplits(each.splits or Splits((), ()), each.passed_bytes)
                    )
                writer.collective(
                    place_of[each.group],
                    each.number,
                    (each.op, each.algorithm),
                    each.input_bytes,
                    each.trace_bytes,
                    each.root,
                    splits,
                )
            case _:
                writer.row(
                    SEND if isinstance(each, SendOperation) else RECEIVE,
                    each.size_bytes,
                    each.trace_bytes,
                    peers.setdefault(each.peer, len(peers)),
                    each.number,
                    each.tag,
                )
    return RankProgram(
        job=job,
        rank=rank,
        groups=groups,
        columns=writer.columns(),
        peers=tuple(peers),
        splits=tuple(own_splits),
        algorithms=algorithms,
    )


def split_matrices(
    programs: Iterable[RankProgram],
) -> Mapping[tuple[str, str, int], Matrix]:
    """Return the matrix of every collective with splits, by job, group and number.

    The programs must be those of all ranks of their jobs.
    """
    rows: dict[tuple[str, str, int], dict[int, tuple[int, ...]]] = {}
    for program in programs:
        for use in program.columns.collective_uses if program.splits else ():
            if use.splits is None or use.number is None:
                continue
            group = program.groups[use.group]
            rows.setdefault((program.job, group.name, use.number), {})[
                group.position(program.rank)
            ] = program.splits[use.splits].splits.sent_bytes
    return {
        key: tuple(of_key[position] for position in sorted(of_key))
        for key, of_key in rows.items()
    }
