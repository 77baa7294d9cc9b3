"""The program of a rank: its ordered work with dependencies, a few numbers a row.

Lowering makes it from a trace; the planner places it; replay walks it.  A collective
stays one row, whatever the number of its ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.collectives.ops import CollectiveOp
from chakram.collectives.uneven import passed_pairs
from chakram.units import LARGEST_SIZE_BYTES, LONGEST_TIME_NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from chakram.collectives.algorithms.listed import ListedAlgorithm
    from chakram.collectives.groups import ProcessGroup
    from chakram.collectives.splits import Matrix, Splits

POINT_TO_POINT = "p2p"
"""Group name of the queue pairs that carry point-to-point messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveOperation:
    """One collective of a process group.

    ``number`` is k: with job, iteration and group it is the identity of the
    collective on every member.  ``input_bytes`` is what this run moves (see
    ``chakram.collectives.ops``), ``trace_bytes`` the same before ``size_scale``.
    ``root`` is a position in the group.  ``dependencies`` are indices of operations.
    ``splits`` are this rank's bytes of an all_to_all_v, as this run moves them, and
    ``passed_bytes`` what it passes on for others (``chakram.collectives.uneven``);
    nothing else has any. ``start_ns`` is when it started when the trace was recorded,
    from the first start of its rank; None where nobody asked for it.
    """

    node_id: int | None
    name: str
    dependencies: tuple[int, ...]
    group: str
    number: int
    op: CollectiveOp
    algorithm: str
    input_bytes: int
    trace_bytes: int
    root: int = 0
    splits: Splits | None = None
    passed_bytes: tuple[int, ...] = ()
    start_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOperation:
    """One point-to-point message to rank ``peer``.

    ``number`` counts the messages from this rank to that peer in one iteration; it
    tells them apart at the receiver in whatever order they become ready.
    """

    node_id: int | None
    name: str
    dependencies: tuple[int, ...]
    peer: int
    number: int
    tag: int
    size_bytes: int
    trace_bytes: int
    start_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveOperation:
    """The other side of a ``SendOperation`` of rank ``peer``, with its number."""

    node_id: int | None
    name: str
    dependencies: tuple[int, ...]
    peer: int
    number: int
    tag: int
    size_bytes: int
    trace_bytes: int
    start_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeOperation:
    """A delay.  Those of one ``stream`` (None: the rank's own) do not overlap.

    A duration of 0 ends at once and takes no slot.
    """

    node_id: int | None
    name: str
    dependencies: tuple[int, ...]
    duration_ns: int
    stream: int | None = None
    start_ns: int | None = None


Operation = CollectiveOperation | SendOperation | ReceiveOperation | ComputeOperation


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProgram:
    """One iteration of one rank.

    ``groups`` are the process groups that its collectives name, ``algorithms`` those
    algorithms that users brought along.  Dependencies point
    anywhere in ``operations`` but form no cycle; the order of the rows is the order
    of preference among operations that are ready together.  They are a tuple, or
    operations of a saved plan that are made when somebody looks at them.
    """

    job: str
    rank: int
    groups: tuple[ProcessGroup, ...]
    operations: Sequence[Operation]
    algorithms: tuple[ListedAlgorithm, ...] = ()


def check_program(program: RankProgram) -> list[str]:
    """Return what is wrong with a program; an empty list if nothing is."""
    problems: list[str] = []
    groups = {group.name: group for group in program.groups}
    count = len(program.operations)
    remaining = [0] * count
    successors: list[list[int]] = [[] for _ in range(count)]
    numbers: dict[str, list[int]] = {}
    for index, operation in enumerate(program.operations):
        where = f"job {program.job} rank {program.rank} operation {index}"
        for dependency in operation.dependencies:
            if not 0 <= dependency < count:
                problems.append(f"{where}: depends on {dependency}, which is not there")
            else:
                successors[dependency].append(index)
                remaining[index] += 1
        if isinstance(operation, CollectiveOperation):
            group = groups.get(operation.group)
            numbers.setdefault(operation.group, []).append(operation.number)
            if group is None:
                problems.append(f"{where}: unknown process group {operation.group!r}")
            elif program.rank not in group.ranks:
                problems.append(f"{where}: not a member of {operation.group!r}")
            elif not 0 <= operation.root < len(group.ranks):
                problems.append(f"{where}: root {operation.root} is not in the group")
            problems += _check_size(operation.input_bytes, where)
            if group is not None:
                problems += _check_splits(operation, group, program, where)
        elif isinstance(operation, SendOperation | ReceiveOperation):
            if operation.peer == program.rank:
                problems.append(f"{where}: sends to itself")
            problems += _check_size(operation.size_bytes, where)
        if operation.start_ns is not None:
            problems += _check_time("start", operation.start_ns, where)
        if isinstance(operation, ComputeOperation):
            problems += _check_time("duration", operation.duration_ns, where)
    for name, group_numbers in numbers.items():
        if sorted(group_numbers) != list(range(len(group_numbers))):
            problems.append(
                f"job {program.job} rank {program.rank}: the collectives of "
                f"{name!r} are not numbered 0..{len(group_numbers) - 1}"
            )
    ready = [index for index in range(count) if not remaining[index]]
    done = 0
    while ready:
        done += 1
        for successor in successors[ready.pop()]:
            remaining[successor] -= 1
            if not remaining[successor]:
                ready.append(successor)
    if done < count and not any("which is not there" in text for text in problems):
        problems.append(
            f"job {program.job} rank {program.rank}: dependencies form a cycle"
        )
    return problems


def _check_size(size_bytes: int, where: str) -> list[str]:
    if size_bytes < 0:
        return [f"{where}: negative size {size_bytes}"]
    if size_bytes <= LARGEST_SIZE_BYTES:
        return []
    return [
        f"{where}: a size of {size_bytes} bytes is more than {LARGEST_SIZE_BYTES}: "
        "lower size_scale, or the sizes of the trace"
    ]


def _check_time(what: str, time_ns: int, where: str) -> list[str]:
    if time_ns < 0:
        return [f"{where}: negative {what} {time_ns}"]
    if time_ns <= LONGEST_TIME_NS:
        return []
    return [
        f"{where}: a {what} of {time_ns} ns is more than {LONGEST_TIME_NS}: lower "
        "compute.scale, or the times of the trace"
    ]


def _check_splits(
    operation: CollectiveOperation,
    group: ProcessGroup,
    program: RankProgram,
    where: str,
) -> list[str]:
    splits, rank = operation.splits, program.rank
    if splits is None and operation.passed_bytes:
        return [f"{where}: {operation.op} passes on parts of splits"]
    if (operation.op == CollectiveOp.ALL_TO_ALL_V) != (splits is not None):
        return [f"{where}: {operation.op} {'with' if splits else 'without'} splits"]
    if splits is None or rank not in group.ranks:
        return []
    nranks = len(group.ranks)
    if {len(splits.sent_bytes), len(splits.received_bytes)} != {nranks}:
        return [f"{where}: splits for other than {nranks} ranks"]
    if min(*splits.sent_bytes, *splits.received_bytes, *operation.passed_bytes) < 0:
        return [f"{where}: a negative split"]
    own = group.position(rank)
    if splits.sent_bytes[own] != splits.received_bytes[own]:
        return [f"{where}: keeps another part than it gets from itself"]
    passed = sum(
        len(passed_pairs(how, own))
        for how in program.algorithms
        if (how.op, how.name, how.nranks) == (operation.op, operation.algorithm, nranks)
    )
    if len(operation.passed_bytes) != passed:
        return [
            f"{where}: has sizes of {len(operation.passed_bytes)} parts to pass on, "
            f"its algorithm passes on {passed}"
        ]
    return []


def split_matrices(
    programs: Iterable[RankProgram],
) -> Mapping[tuple[str, str, int], Matrix]:
    """Return the matrix of every collective with splits: by job, group and number.

    The programs are those of all ranks of their jobs.
    """
    rows: dict[tuple[str, str, int], dict[int, tuple[int, ...]]] = {}
    for program in programs:
        positions: dict[str, int] = {}
        for operation in program.operations:
            if not isinstance(operation, CollectiveOperation):
                continue
            if operation.splits is None:
                continue
            if not positions:
                positions = {
                    group.name: group.position(program.rank) for group in program.groups
                }
            key = (program.job, operation.group, operation.number)
            rows.setdefault(key, {})[positions[operation.group]] = (
                operation.splits.sent_bytes
            )
    return {
        key: tuple(of_key[position] for position in sorted(of_key))
        for key, of_key in rows.items()
    }
