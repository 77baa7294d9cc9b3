"""Export of a job as a list of messages: sender, receiver, size and dependencies.

The algorithms of the experiment lower each collective to messages. Computation takes no
time. ``docs/reference/trace-convert.md`` describes the columns.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Final

from chakram.collectives.algorithms import Choice, algorithm
from chakram.collectives.groups import ProcessGroup
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import rank_schedule, transfer_bytes
from chakram.collectives.uneven_messages import uneven_schedule
from chakram.program.lowering import LoweringOptions, lower_job
from chakram.program.operations import (
    CollectiveOperation,
    ComputeOperation,
    RankProgram,
    SendOperation,
)
from chakram.trace.graph import TraceGraph

P2P_COLUMNS: Final = (
    "iteration",
    "rank",
    "peer",
    "bytes",
    "collective",
    "group",
    "k",
    "algorithm",
    "step",
    "channel",
    "message",
    "chunks",
    "needs",
    "operation",
    "after",
    "node",
    "name",
)

_Row = tuple[object, ...]


def p2p_csv(
    graphs: Mapping[int, TraceGraph],
    groups: Mapping[str, ProcessGroup],
    *,
    algorithms: Mapping[CollectiveOp, Choice] | None = None,
    iterations: int = 1,
) -> Iterator[bytes]:
    """Yield the lines of the list, beginning with the column names.

    Args:
        graphs: The trace of every rank.
        groups: The process groups by name.
        algorithms: The algorithm of each collective. The default is ``auto``.
        iterations: Number of repetitions of the whole job.

    Raises:
        MatchingError: If the traces of the ranks do not match.
        ScheduleError: If an algorithm does not exist or does not fit its group.
    """
    options = LoweringOptions(
        compute_from="none", algorithms=algorithms or {}, sync_barrier=False
    )
    programs = lower_job("job", graphs, groups, options).programs
    yield _line(P2P_COLUMNS)
    for iteration in range(iterations):
        for program in programs:
            for row in _rows(program):
                yield _line((iteration, *row))


def _rows(program: RankProgram) -> Iterator[_Row]:
    """Yield the messages of a rank in one iteration, without the iteration column."""
    groups = {group.name: group.ranks for group in program.groups}
    after = _after(program)
    for number, operation in enumerate(program.operations):
        last = (
            number,
            " ".join(map(str, after[number])),
            "" if operation.node_id is None else operation.node_id,
            operation.name,
        )
        if isinstance(operation, SendOperation):
            yield (
                *(program.rank, operation.peer, operation.size_bytes),
                *(CollectiveOp.SEND_RECV, "", operation.number, "send"),
                *(0, 0, 0, "", "", *last),
            )
        elif isinstance(operation, CollectiveOperation):
            yield from _collective_rows(
                program.rank, operation, groups[operation.group], last
            )


def _collective_rows(
    rank: int, operation: CollectiveOperation, ranks: tuple[int, ...], last: _Row
) -> Iterator[_Row]:
    nranks = len(ranks)
    how = algorithm(operation.op, operation.algorithm)
    position, splits = ranks.index(rank), operation.splits
    share = (
        rank_schedule(how, position=position, nranks=nranks, root=operation.root)
        if splits is None
        else uneven_schedule(how, splits, position=position)
    )
    for each in share.sends:
        size = (
            transfer_bytes(how, each, nranks=nranks, input_bytes=operation.input_bytes)
            if splits is None
            else splits.sent_bytes[each.peer]
        )
        needed = (share.receives[index] for index in each.needs)
        yield (
            *(rank, ranks[each.peer], size, operation.op, operation.group),
            *(operation.number, operation.algorithm, each.step, each.channel),
            each.message,
            " ".join(map(str, each.chunks)),
            " ".join(f"{ranks[n.peer]}:{n.channel}:{n.message}" for n in needed),
            *last,
        )


def _after(program: RankProgram) -> list[tuple[int, ...]]:
    """Return the communication that each operation waits for.

    A dependency on a computation is replaced by the dependencies of the computation.
    """
    operations = program.operations
    found: list[tuple[int, ...] | None] = [None] * len(operations)
    # Dependencies may point forward. Chains may be long, so the stack is explicit.
    stack = list(range(len(operations) - 1, -1, -1))
    while stack:
        number = stack[-1]
        delays = [
            each
            for each in operations[number].dependencies
            if isinstance(operations[each], ComputeOperation) and found[each] is None
        ]
        if delays:
            stack.extend(delays)
            continue
        stack.pop()
        if found[number] is None:
            direct: set[int] = set()
            for each in operations[number].dependencies:
                passed_on = found[each]
                if isinstance(operations[each], ComputeOperation) and passed_on:
                    direct.update(passed_on)
                elif not isinstance(operations[each], ComputeOperation):
                    direct.add(each)
            found[number] = tuple(sorted(direct))
    return [each or () for each in found]


def _line(cells: _Row) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue().encode()
