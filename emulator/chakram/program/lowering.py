"""From traces to programs: what every rank of a job does, with dependencies kept.

Communication becomes one row each.  Computation becomes a delay; delays of nothing are
left out where that needs no more dependencies than it saves, and whatever waited for
them waits for what they waited for.  Collectives of one rank alone, and those that are
not selected, are such delays too.  A dependency on what another one of the same row
waits for says nothing, and is left out.  Collectives of one group wait for one another
in their order (``chakram.program.ordering``).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chakram.collectives.algorithms import (
    AUTO,
    algorithm,
    algorithm_fitting,
    chosen,
)
from chakram.collectives.groups import WORLD, ProcessGroup
from chakram.collectives.ops import CollectiveOp, nccl_size_bytes
from chakram.collectives.splits import Splits, mean_bytes, scaled_bytes
from chakram.collectives.uneven import passed_bytes
from chakram.errors import MatchingError
from chakram.program.lowering_options import LoweringOptions
from chakram.program.lowering_rows import Row, RowMaker, check_starts, first_start_ns
from chakram.program.matching import (
    CollectiveId,
    MessageId,
    match_ranks,
    without_zero_time,
)
from chakram.program.operations import (
    POINT_TO_POINT,
    CollectiveOperation,
    ComputeOperation,
    Operation,
    RankProgram,
    ReceiveOperation,
    SendOperation,
)
from chakram.program.ordering import Ordering, communication_order, order_collectives
from chakram.trace.node import CPU_STREAM, NodeKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chakram.collectives.algorithms.listed import ListedAlgorithm
    from chakram.trace.graph import TraceGraph
    from chakram.trace.node import TraceNode

__all__ = ["BARRIER_NAME", "LoweredJob", "LoweringOptions", "lower_job"]

_MEMORY_STREAM = CPU_STREAM - 1
"""The slot of memory nodes where they have the one of communication."""

BARRIER_NAME = "barrier between iterations"
"""Name of the operation that ``sync: barrier`` adds to every rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredJob:
    """The programs of all ranks of a job, ascending, and what was odd."""

    programs: tuple[RankProgram, ...]
    warnings: tuple[str, ...]


def lower_job(
    job_name: str,
    graphs: Mapping[int, TraceGraph],
    groups: Mapping[str, ProcessGroup],
    options: LoweringOptions,
) -> LoweredJob:
    """Return the programs of all ranks of one job.

    Args:
        job_name: Its name in the plan.
        graphs: The trace of every rank.
        groups: The process groups by name; ``world``, all ranks, needs no entry.
        options: How.

    Raises:
        MatchingError: If the ranks' traces do not fit together.
        TraceError: If dependencies of a rank form a cycle.
        ScheduleError: If there is no algorithm of a name that the options give, or it
            does not fit a group.
    """
    warnings = []
    if options.order == "start_times":
        warnings += check_starts(graphs)
        graphs = {
            rank: graph.in_order_of_start_times() for rank, graph in graphs.items()
        }
    matching = match_ranks(graphs, groups)
    if POINT_TO_POINT in matching.groups:
        raise MatchingError(
            f"process group {POINT_TO_POINT!r}",
            "has the name that queue pairs of messages between two ranks have",
            "rename the group in the trace",
        )
    matching = without_zero_time(graphs, matching, options.select)
    ordering = order_collectives(
        graphs, matching, overlap=options.ordering == "overlap"
    )
    for op, choice in options.algorithms.items():
        for rule in choice if isinstance(choice, tuple) else ():
            if isinstance(rule.algorithm, str):
                algorithm(op, rule.algorithm)
        if isinstance(choice, str):
            algorithm(op, choice)
    world = matching.groups.get(WORLD) or ProcessGroup(
        name=WORLD, ranks=tuple(sorted(graphs))
    )
    lowering = _Lowering(
        job_name=job_name,
        options=options,
        groups={**matching.groups, WORLD: world},
        ordering=ordering,
        splits=matching.splits,
        slot_orders=communication_order(graphs, matching, ordering)
        if options.resources == "astra-sim"
        else {},
    )
    return LoweredJob(
        programs=tuple(
            lowering.rank(graphs[rank], matching.orders[rank], matching.messages[rank])
            for rank in sorted(graphs)
        ),
        warnings=(
            *warnings,
            *matching.warnings,
            *ordering.warnings,
            *lowering.warnings(),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Uneven:
    """An all_to_all_v as this run moves it: its size, that of the trace, its splits."""

    input_bytes: int
    trace_bytes: int
    rows: tuple[Splits, ...]


class _Lowering:
    """What is the same for all ranks of a job, and what was found on the way."""

    def __init__(
        self,
        *,
        job_name: str,
        options: LoweringOptions,
        groups: Mapping[str, ProcessGroup],
        ordering: Ordering,
        splits: Mapping[CollectiveId, tuple[Splits, ...]],
        slot_orders: Mapping[int, Sequence[int]],
    ) -> None:
        self._job_name = job_name
        self._options = options
        self._groups = groups
        self._ordering = ordering
        self._slot_orders = slot_orders
        self._uneven = {
            identity: self._scaled_splits(rows) for identity, rows in splits.items()
        }
        self._keeps_starts = options.with_starts or options.order == "start_times"
        self._first_start_ns = 0
        self._rows = RowMaker(options)
        self._listed: dict[tuple[object, ...], ListedAlgorithm] = {}

    def warnings(self) -> list[str]:
        """Return what was odd in the programs of all ranks."""
        names = {how.name for how in self._listed.values()}
        return self._rows.times.warnings() + [
            warning
            for user, source in self._options.sources.items()
            if user.name in names
            for warning in source.warnings()
        ]

    def rank(
        self,
        graph: TraceGraph,
        order: Sequence[int],
        messages: Mapping[int, MessageId],
    ) -> RankProgram:
        """Return the program of one rank."""
        collectives = self._ordering.collectives[graph.rank]
        self._first_start_ns = first_start_ns(graph) if self._keeps_starts else 0
        rows = self._rows.rows(graph, order, {*collectives, *messages})
        row_of = {row.position: index for index, row in enumerate(rows)}
        follows: dict[int, int] = {}
        if self._slot_orders:
            follows = self._one_slot(graph, rows, row_of, {*collectives, *messages})
        elif self._ordering.chained:
            in_order = sorted(
                (identity, row_of[position])
                for position, identity in collectives.items()
            )
            for (before, first), (after, following) in itertools.pairwise(in_order):
                if before.group == after.group:
                    follows[following] = first
        operations: list[Operation] = []
        for index, row in enumerate(rows):
            operation: Operation | None = row.operation
            if operation is None:
                dependencies = row.dependencies
                if index in follows and follows[index] not in dependencies:
                    dependencies = (*dependencies, follows[index])
                operation = self._operation(
                    graph, row, dependencies, collectives, messages
                )
                if isinstance(operation, ComputeOperation) and index not in follows:
                    row.operation = operation
            operations.append(operation)
        used = {identity.group for identity in collectives.values()}
        if self._options.sync_barrier and len(self._groups[WORLD].ranks) > 1:
            operations.append(self._barrier(operations))
            used.add(WORLD)
        return RankProgram(
            job=self._job_name,
            rank=graph.rank,
            groups=tuple(self._groups[name] for name in sorted(used)),
            operations=tuple(operations),
            algorithms=self._listed_of(operations),
        )

    def _listed_of(
        self, operations: Sequence[Operation]
    ) -> tuple[ListedAlgorithm, ...]:
        """Return the users' algorithms that operations name, in their order."""
        if not self._listed:
            return ()
        found: dict[tuple[object, ...], ListedAlgorithm] = {}
        for each in operations:
            if isinstance(each, CollectiveOperation):
                nranks = len(self._groups[each.group].ranks)
                key = (each.op, each.algorithm, nranks, each.root)
                if key in self._listed:
                    found[key] = self._listed[key]
        return tuple(found.values())

    def _operation(
        self,
        graph: TraceGraph,
        row: Row,
        dependencies: tuple[int, ...],
        collectives: Mapping[int, CollectiveId],
        messages: Mapping[int, MessageId],
    ) -> Operation:
        node = graph.node(row.position)
        identity = collectives.get(node.position)
        if identity is not None:
            return self._collective(graph.rank, node, identity, dependencies)
        message = messages.get(node.position)
        if message is not None:
            kind = SendOperation if node.kind == NodeKind.SEND else ReceiveOperation
            return kind(
                node_id=node.node_id,
                name=node.name,
                dependencies=dependencies,
                peer=message.peer,
                number=message.number,
                tag=node.tag or 0,
                size_bytes=self._scaled(node.comm_bytes),
                trace_bytes=node.comm_bytes,
                start_ns=self._start_ns(node),
            )
        return ComputeOperation(
            node_id=node.node_id,
            name=node.name,
            dependencies=dependencies,
            duration_ns=row.duration_ns,
            stream=self._stream(node),
            start_ns=self._start_ns(node),
        )

    def _stream(self, node: TraceNode) -> int | None:
        """Return the slot of a computation; None: that of the GPU without a stream."""
        if not self._slot_orders:
            return node.stream
        if node.kind is NodeKind.MEMORY:
            return _MEMORY_STREAM
        return CPU_STREAM if node.stream == CPU_STREAM else None

    def _one_slot(
        self,
        graph: TraceGraph,
        rows: Sequence[Row],
        row_of: Mapping[int, int],
        communication: set[int],
    ) -> dict[int, int]:
        """Return by row which one it follows in the communication slot.

        Receives take none: they start no later than what they wait for allows.
        """
        taking = [
            row_of[position]
            for position in self._slot_orders[graph.rank]
            if position in row_of
            and (
                (
                    graph.kind(position) is NodeKind.MEMORY
                    and rows[row_of[position]].duration_ns > 0
                )
                or (
                    position in communication
                    and graph.kind(position) is not NodeKind.RECEIVE
                )
            )
        ]
        return {after: before for before, after in itertools.pairwise(taking)}

    def _start_ns(self, node: TraceNode) -> int | None:
        """Return when a node is to start, from the first one of its rank."""
        if node.start_ns is None or not self._keeps_starts:
            return None
        return round((node.start_ns - self._first_start_ns) * self._options.scale)

    def _algorithm(
        self, op: CollectiveOp, group: str, trace_bytes: int, root: int
    ) -> str:
        """Return the name of the algorithm for a collective of this size."""
        nranks = len(self._groups[group].ranks)
        size_bytes = nccl_size_bytes(op, input_bytes=trace_bytes, nranks=nranks)
        choice = self._options.algorithms.get(op, AUTO)
        which = chosen(op, choice, size_bytes=size_bytes, nranks=nranks)
        if isinstance(which, str):
            return algorithm_fitting(op, which, nranks=nranks).name
        key = (op, which.name, nranks, root)
        if key not in self._listed:
            self._listed[key] = self._options.sources[which].listed(
                op, nranks=nranks, root=root, size_scale=self._options.size_scale
            )
        return which.name

    def _collective(
        self,
        rank: int,
        node: TraceNode,
        identity: CollectiveId,
        dependencies: tuple[int, ...],
    ) -> CollectiveOperation:
        assert node.op is not None  # it is a collective
        op, root = node.op, node.root or 0
        trace_bytes = 0 if op == CollectiveOp.BARRIER else node.comm_bytes
        input_bytes = self._scaled(trace_bytes)
        uneven = self._uneven.get(identity)
        if uneven is not None:
            op, root = CollectiveOp.ALL_TO_ALL_V, 0
            trace_bytes, input_bytes = uneven.trace_bytes, uneven.input_bytes
        operation = CollectiveOperation(
            node_id=node.node_id,
            name=node.name,
            dependencies=dependencies,
            group=identity.group,
            number=identity.number,
            op=op,
            algorithm=self._algorithm(op, identity.group, trace_bytes, root),
            input_bytes=input_bytes,
            trace_bytes=trace_bytes,
            root=root,
            start_ns=self._start_ns(node),
        )
        if uneven is None:
            return operation
        position = self._groups[identity.group].position(rank)
        return replace(
            operation,
            splits=uneven.rows[position],
            passed_bytes=self._passed_bytes(operation.algorithm, uneven.rows, position),
        )

    def _passed_bytes(
        self, name: str, rows: tuple[Splits, ...], position: int
    ) -> tuple[int, ...]:
        """Return the sizes of what a member of an all_to_all_v passes on for others."""
        how = self._listed.get((CollectiveOp.ALL_TO_ALL_V, name, len(rows), 0))
        if how is None:
            return ()  # ours pass on nothing

        def pair_bytes(src: int, dst: int) -> int:
            return rows[src].sent_bytes[dst]

        return passed_bytes(how, pair_bytes, position=position)

    def _scaled(self, size_bytes: int) -> int:
        return scaled_bytes(size_bytes, self._options.size_scale)

    def _scaled_splits(self, rows: tuple[Splits, ...]) -> _Uneven:
        scale = self._options.size_scale
        scaled = rows if scale == 1 else tuple(row.scaled(scale) for row in rows)
        return _Uneven(mean_bytes(scaled), mean_bytes(rows), scaled)

    def _barrier(self, operations: Sequence[Operation]) -> CollectiveOperation:
        """Return a barrier of all ranks after everything else."""
        awaited = {index for each in operations for index in each.dependencies}
        number = sum(
            isinstance(each, CollectiveOperation) and each.group == WORLD
            for each in operations
        )
        return CollectiveOperation(
            node_id=None,
            name=BARRIER_NAME,
            dependencies=tuple(
                index for index in range(len(operations)) if index not in awaited
            ),
            group=WORLD,
            number=number,
            op=CollectiveOp.BARRIER,
            algorithm=self._algorithm(CollectiveOp.BARRIER, WORLD, 0, 0),
            input_bytes=0,
            trace_bytes=0,
        )
