"""The program of a rank: its ordered work with dependencies, a few numbers a row.

Lowering makes it from a trace; the planner places it; replay walks it.  A collective
stays one row, whatever the number of its ranks.  A program is columns
(``chakram.program.columns``); an ``Operation`` is a row for people, or for whoever
writes programs by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

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
from chakram.trace.open_ended_columns import NO_VALUE

if TYPE_CHECKING:
    from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm
    from chakram.collectives.groups import ProcessGroup
    from chakram.collectives.ops import CollectiveOp

POINT_TO_POINT = "p2p"
"""Group name of the queue pairs that carry point-to-point messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    """What all operations have.

    ``dependencies`` are indices of operations.  ``start_ns`` is when it started when
    the trace was recorded, from the first start of its rank; None where nobody asked.
    """

    node_id: int | None
    name: str
    dependencies: tuple[int, ...]
    start_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveOperation(_Operation):
    """One collective of a process group.

    ``number`` is k: with job, iteration and group it is the identity of the
    collective on every member.  ``input_bytes`` is what this run moves (see
    ``chakram.collectives.ops``), ``trace_bytes`` the same before ``size_scale``.
    ``root`` is a position in the group.  ``splits`` are this rank's bytes of an
    all_to_all_v, as this run moves them, and ``passed_bytes`` what it passes on for
    others (``chakram.collectives.uneven_messages``); nothing else has any.
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
    """What both ends of a point-to-point message have."""

    peer: int
    number: int
    tag: int
    size_bytes: int
    trace_bytes: int


class SendOperation(_Message):
    """One point-to-point message to rank ``peer``.

    ``number`` counts the messages from this rank to that peer in one iteration; it
    tells them apart at the receiver in whatever order they become ready.
    """

    __slots__ = ()


class ReceiveOperation(_Message):
    """The other side of a ``SendOperation`` of rank ``peer``, with its number."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeOperation(_Operation):
    """A delay.  Those of one ``stream`` (None: the rank's own) do not overlap.

    A duration of 0 ends at once and takes no slot.
    """

    duration_ns: int
    stream: int | None = None


Operation = CollectiveOperation | SendOperation | ReceiveOperation | ComputeOperation


class RankSplits(NamedTuple):
    """How a rank divides its buffers in an all_to_all_v, and what it passes on."""

    splits: Splits
    passed_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProgram:
    """One iteration of one rank.

    Dependencies point anywhere in ``columns`` but form no cycle; the order of the rows
    is the order of preference among operations that are ready together.

    Attributes:
        job: Its job.
        rank: Its rank in the job.
        groups: The process groups that its collectives name by their place.
        columns: Its operations; ranks that do the same share them.
        peers: The ranks that its messages name.
        splits: Those that its collectives name.
        algorithms: Of those that it names, the ones that users brought along.
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
        """The operations as objects, made anew."""
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
    """Return the program of some operations.

    Raises:
        ValueError: If one names a group that is not among *groups*.
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
    """Return the matrix of every collective with splits: by job, group and number.

    The programs are those of all ranks of their jobs.
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
