"""Lowering of traces to programs: the operations of every rank, with dependencies.

Each communication node becomes one row, and computation becomes a delay. Collectives of
a single rank, and collectives that are not selected, become delays of zero. Lowering
leaves out a delay of zero unless its removal adds more dependencies than it saves. Its
successors then wait for its predecessors. A dependency is left out if another
dependency of the same row implies it. Collectives of one group wait for each other in
their order (``chakram.program.collective_order``).

Ranks with the same work share columns, even if their groups and peers differ. Such
ranks are lowered once.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple

from chakram.collectives.algorithms import (
    AUTO,
    algorithm,
    algorithm_fitting,
    chosen,
)
from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm
from chakram.collectives.groups import POINT_TO_POINT, WORLD, ProcessGroup
from chakram.collectives.ops import CollectiveOp, nccl_size_bytes
from chakram.collectives.split_sizes import Splits, mean_bytes, scaled_bytes
from chakram.collectives.uneven_messages import passed_bytes
from chakram.foundation.errors import MatchingError
from chakram.program.collective_order import (
    Ordering,
    communication_order,
    order_collectives,
)
from chakram.program.columns import (
    COLLECTIVE,
    COMPUTE,
    NO_SPLITS,
    RECEIVE,
    SEND,
    ColumnWriter,
    OperationColumns,
)
from chakram.program.matching import (
    CollectiveId,
    Collectives,
    Matching,
    MessageId,
    match_ranks,
    without_zero_time,
)
from chakram.program.node_selection import (
    ComputeTimes,
    LoweringOptions,
    Rows,
    check_starts,
    first_start_ns,
    rows_of,
)
from chakram.program.operations import RankProgram, RankSplits
from chakram.trace.alike_ranks import AlikeRanks
from chakram.trace.graph import TraceGraph
from chakram.trace.node import CPU_STREAM, NodeKind
from chakram.trace.nullable_columns import NO_VALUE

__all__ = [
    "BARRIER_NAME",
    "LoweredJob",
    "LoweringOptions",
    "lower_alike",
    "lower_job",
]

_MEMORY_STREAM = CPU_STREAM - 1
"""Stream of memory nodes when they use the communication slot."""

BARRIER_NAME = "barrier between iterations"
"""Name of the operation that ``sync: barrier`` adds to every rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredJob:
    """Programs of all ranks of a job in ascending order, and warnings."""

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
        job_name: The name of the job in the plan.
        graphs: The trace of every rank.
        groups: The process groups by name. ``world`` (all ranks) needs no entry.
        options: Options of the lowering.

    Raises:
        MatchingError: If the traces of the ranks do not match.
        TraceError: If dependencies of a rank form a cycle.
        ScheduleError: If the options name an algorithm that does not exist, or that
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
            "has a name that is reserved for queue pairs of point-to-point messages",
            "rename the group in the trace",
        )
    world = matching.groups.get(WORLD)
    if options.sync_barrier and world and len(world.ranks) < len(graphs):
        raise MatchingError(
            f"process group {WORLD!r}",
            f"has {len(world.ranks)} of {len(graphs)} ranks, but its name is that of "
            "all ranks, which meet after every iteration",
            "rename the group in the trace, or use iterations.sync: free",
        )
    return _lowered(job_name, graphs, matching, options, warnings)


def lower_alike(
    job_name: str,
    graphs: Mapping[int, TraceGraph],
    groups: Mapping[str, ProcessGroup],
    options: LoweringOptions,
    alike: AlikeRanks,
) -> LoweredJob:
    """Return the programs of all ranks, given the traces of the first of each class.

    Operations of all ranks match and never deadlock if this holds for the first ranks,
    because all other ranks are copies of them.

    Args:
        job_name: As for ``lower_job``.
        graphs: The trace of the first rank of each class.
        groups: The process groups by name.
        options: As for ``lower_job``.
        alike: The classes.

    Raises:
        MatchingError: As for ``lower_job``.
        ScheduleError: As for ``lower_job``.
    """
    used = {name for graph in graphs.values() for name in graph.columns.group_names}
    matching = match_ranks(
        graphs,
        {
            name: ProcessGroup(
                name=name,
                ranks=tuple(each for each in groups[name].ranks if each in graphs),
            )
            for name in used & groups.keys()
        },
    )
    world = ProcessGroup(name=WORLD, ranks=tuple(range(alike.nranks)))
    whole = {**groups, WORLD: world}
    matching = replace(
        matching, groups={name: whole[name] for name in (*matching.groups, WORLD)}
    )
    lowered = _lowered(job_name, graphs, matching, options, [])
    first = {program.rank: program for program in lowered.programs}
    columns: dict[tuple[int, tuple[int, ...]], OperationColumns] = {}
    programs = []
    for rank in range(alike.nranks):
        program = first[alike.first_of(rank)]
        if rank != program.rank:
            own = [
                whole[WORLD if each is world else alike.group_of(each.name, rank)]
                for each in program.groups
            ]
            # Places of groups follow the alphabetical order of group names.
            order = tuple(sorted(range(len(own)), key=lambda place: own[place].name))
            key = program.rank, order
            if key not in columns:
                columns[key] = _with_groups_moved(program.columns, order)
            program = replace(
                program,
                rank=rank,
                groups=tuple(own[place] for place in order),
                peers=tuple(peer + rank - program.rank for peer in program.peers),
                columns=columns[key],
            )
        programs.append(program)
    return replace(lowered, programs=tuple(programs))


def _with_groups_moved(
    columns: OperationColumns, order: Sequence[int]
) -> OperationColumns:
    """Return columns with new places of groups. *order* contains the old places."""
    if list(order) == sorted(order):
        return columns
    place_of = {old: new for new, old in enumerate(order)}
    targets = array(columns.targets.typecode, columns.targets)
    for row in columns.rows_of(COLLECTIVE):
        targets[row] = place_of[targets[row]]
    return replace(columns, targets=targets)


def _lowered(
    job_name: str,
    graphs: Mapping[int, TraceGraph],
    matching: Matching,
    options: LoweringOptions,
    warnings: Sequence[str],
) -> LoweredJob:
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


class _Uneven(NamedTuple):
    """An all_to_all_v: scaled size, size in the trace, and scaled splits by member."""

    input_bytes: int
    trace_bytes: int
    rows: tuple[Splits, ...]


class _Alike(NamedTuple):
    """Lowering results that ranks with the same work share."""

    columns: OperationColumns
    uneven: tuple[tuple[int, str], ...]
    """Position and algorithm of every collective with splits."""
    algorithms: tuple[ListedAlgorithm, ...]


@dataclass(slots=True)
class _Rank:
    """One rank during lowering.

    Attributes:
        graph: The trace of the rank.
        collectives: Group place and number of each collective, by position.
        messages: Peer place and number of each message, by position.
        groups: The groups of the rank.
        slot_order: Positions in the order of the communication slot, if there is one.
    """

    graph: TraceGraph
    collectives: dict[int, tuple[int, int]]
    messages: dict[int, tuple[int, int]]
    groups: tuple[ProcessGroup, ...]
    slot_order: Sequence[int]


@dataclass(kw_only=True)
class _Lowering:
    """State that all ranks of a job share, and the collected warnings."""

    job_name: str
    options: LoweringOptions
    groups: Mapping[str, ProcessGroup]
    ordering: Ordering
    splits: Mapping[CollectiveId, tuple[Splits, ...]]
    slot_orders: Mapping[int, Sequence[int]]

    def __post_init__(self) -> None:
        options = self.options
        self._uneven = {
            identity: self._scaled_splits(rows)
            for identity, rows in self.splits.items()
        }
        self._keeps_starts = options.with_starts or options.order == "start_times"
        self._with_barrier = options.sync_barrier and len(self.groups[WORLD].ranks) > 1
        self._times = ComputeTimes(options)
        self._listed: dict[tuple[object, ...], ListedAlgorithm] = {}
        self._known: dict[bytes, _Alike] = {}
        # The same results by a key without the numbers of collectives. Some ranks have
        # no such key.
        self._alike: dict[object, _Alike] = {}

    def warnings(self) -> list[str]:
        """Return the warnings about the programs of all ranks."""
        names = {how.name for how in self._listed.values()}
        return self._times.warnings() + [
            warning
            for user, source in self.options.sources.items()
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
        collectives = self.ordering.collectives
        if isinstance(collectives, Collectives):
            used = {*collectives.of_rank[graph.rank]}
        else:
            used = {each.group for each in collectives[graph.rank].values()}
        if self._with_barrier:
            used.add(WORLD)
        groups = tuple(self.groups[name] for name in sorted(used))
        peers = {peer: None for peer, _ in messages.values()}
        peer_of = {peer: place for place, peer in enumerate(peers)}
        numbered = {
            position: (peer_of[peer], number)
            for position, (peer, number) in messages.items()
        }
        key: object = None
        if isinstance(collectives, Collectives) and not (
            self._uneven or self.slot_orders
        ):
            lists = collectives.of_rank[graph.rank]
            key = (
                graph.digest(),
                tuple(
                    (len(each.ranks), each.name == WORLD, id(lists.get(each.name)))
                    for each in groups
                ),
                tuple(numbered.items()),
            )
        splits: tuple[RankSplits, ...] = ()
        alike = self._alike.get(key)
        if alike is None:
            alike, splits = self._work(graph, order, groups, numbered)
            if key is not None:
                self._alike[key] = alike
        return RankProgram(
            job=self.job_name,
            rank=graph.rank,
            groups=groups,
            columns=alike.columns,
            peers=tuple(peers),
            splits=splits,
            algorithms=alike.algorithms,
        )

    def _work(
        self,
        graph: TraceGraph,
        order: Sequence[int],
        groups: tuple[ProcessGroup, ...],
        messages: dict[int, tuple[int, int]],
    ) -> tuple[_Alike, tuple[RankSplits, ...]]:
        """Return what a rank shares with others, and its own splits."""
        identities = self.ordering.collectives[graph.rank]
        place_of = {group.name: place for place, group in enumerate(groups)}
        rank = _Rank(
            graph=graph,
            collectives={
                position: (place_of[group], number)
                for position, (group, number) in identities.items()
            },
            messages=messages,
            groups=groups,
            slot_order=self.slot_orders.get(graph.rank, ()),
        )
        uneven = {
            position: self._uneven[identity]
            for position, identity in (identities.items() if self._uneven else ())
            if identity in self._uneven
        }
        key = self._digest(rank, uneven)
        alike = self._known.get(key)
        if alike is None:
            alike = self._known[key] = self._lower(rank, order, uneven)
        splits = (
            self._splits(
                uneven[position].rows,
                algorithm,
                groups[rank.collectives[position][0]].position(graph.rank),
            )
            for position, algorithm in alike.uneven
        )
        return alike, tuple(splits)

    def _digest(self, rank: _Rank, uneven: Mapping[int, _Uneven]) -> bytes:
        """Return a digest that is equal only for ranks with the same columns."""
        found = blake2b(rank.graph.digest(), digest_size=16)
        chain = itertools.chain.from_iterable
        for numbers in (
            [len(group.ranks) for group in rank.groups],
            [place for place, each in enumerate(rank.groups) if each.name == WORLD],
            rank.collectives,
            chain(rank.collectives.values()),
            rank.messages,
            chain(rank.messages.values()),
            rank.slot_order,
            chain((at, *each[:2]) for at, each in uneven.items()),
        ):
            column = array("q", numbers)
            found.update(b"%d " % len(column))
            found.update(column)
        return found.digest()

    def _lower(
        self, rank: _Rank, order: Sequence[int], uneven: Mapping[int, _Uneven]
    ) -> _Alike:
        """Return the columns of a rank with work that no earlier rank has."""
        graph = rank.graph
        rows = rows_of(
            graph, order, rank.collectives.keys() | rank.messages.keys(), self._times
        )
        for after, before in self._follows(rank, rows).items():
            if before not in rows.dependencies[after]:
                rows.dependencies[after] = (*rows.dependencies[after], before)
        first_ns = first_start_ns(graph) if self._keeps_starts else 0
        writer = ColumnWriter()
        listed: dict[tuple[object, ...], ListedAlgorithm] = {}
        splits: list[tuple[int, str]] = []
        for position, dependencies, duration_ns in zip(*rows, strict=True):
            start_ns = graph.start_ns(position) if self._keeps_starts else None
            if start_ns is not None:
                start_ns = round((start_ns - first_ns) * self.options.scale)
            writer.begin(
                graph.node_id(position),
                graph.utf8_name(position),
                dependencies,
                start_ns,
            )
            if position in rank.collectives:
                place, number = rank.collectives[position]
                op, root = graph.op(position), graph.root(position) or 0
                assert op is not None  # it is a collective
                trace_bytes = graph.comm_bytes(position)
                if op == CollectiveOp.BARRIER:
                    trace_bytes = 0
                input_bytes = self._scaled(trace_bytes)
                of_splits = uneven.get(position)
                if of_splits is not None:
                    op, root = CollectiveOp.ALL_TO_ALL_V, 0
                    input_bytes, trace_bytes, _ = of_splits
                algorithm = self._algorithm(
                    op, len(rank.groups[place].ranks), trace_bytes, root, listed
                )
                writer.collective(
                    place,
                    number,
                    (op, algorithm),
                    input_bytes,
                    trace_bytes,
                    root,
                    NO_SPLITS if of_splits is None else len(splits),
                )
                if of_splits is not None:
                    splits.append((position, algorithm))
            elif position in rank.messages:
                node = graph.node(position)
                writer.row(
                    SEND if node.kind == NodeKind.SEND else RECEIVE,
                    self._scaled(node.comm_bytes),
                    node.comm_bytes,
                    *rank.messages[position],
                    node.tag or 0,
                )
            else:
                stream = self._stream(graph, position)
                writer.row(
                    COMPUTE,
                    duration_ns,
                    0,
                    0,
                    0,
                    NO_VALUE if stream is None else stream,
                )
        if self._with_barrier:
            self._write_barrier(writer, rank, listed)
        return _Alike(writer.columns(), tuple(splits), tuple(listed.values()))

    def _follows(self, rank: _Rank, rows: Rows) -> dict[int, int]:
        """Return the previous row in the same group or communication slot, by row."""
        row_of = {position: row for row, position in enumerate(rows.positions)}
        if self.slot_orders:
            return self._one_slot(rank, rows, row_of)
        follows: dict[int, int] = {}
        if self.ordering.chained:
            in_order = sorted(
                (identity, row_of[position])
                for position, identity in rank.collectives.items()
            )
            for (before, first), (after, following) in itertools.pairwise(in_order):
                if before[0] == after[0]:
                    follows[following] = first
        return follows

    def _stream(self, graph: TraceGraph, position: int) -> int | None:
        """Return the stream of a computation, or None for the default GPU stream."""
        stream = graph.stream(position)
        if not self.slot_orders:
            return stream
        if graph.kind(position) is NodeKind.MEMORY:
            return _MEMORY_STREAM
        return CPU_STREAM if stream == CPU_STREAM else None

    def _one_slot(
        self, rank: _Rank, rows: Rows, row_of: Mapping[int, int]
    ) -> dict[int, int]:
        """Return the previous row in the communication slot, by row.

        Receives occupy no slot. They start as soon as their dependencies allow.
        """
        graph = rank.graph
        taking = [
            row_of[position]
            for position in rank.slot_order
            if position in row_of
            and (
                (
                    graph.kind(position) is NodeKind.MEMORY
                    and rows.durations_ns[row_of[position]] > 0
                )
                or (
                    (position in rank.collectives or position in rank.messages)
                    and graph.kind(position) is not NodeKind.RECEIVE
                )
            )
        ]
        return {after: before for before, after in itertools.pairwise(taking)}

    def _algorithm(
        self,
        op: CollectiveOp,
        nranks: int,
        trace_bytes: int,
        root: int,
        listed: dict[tuple[object, ...], ListedAlgorithm],
    ) -> str:
        """Return the name of the algorithm for a collective of this size.

        A user's algorithm is added to *listed*.
        """
        size_bytes = nccl_size_bytes(op, input_bytes=trace_bytes, nranks=nranks)
        choice = self.options.algorithms.get(op, AUTO)
        which = chosen(op, choice, size_bytes=size_bytes, nranks=nranks)
        if isinstance(which, str):
            return algorithm_fitting(op, which, nranks=nranks, root=root).name
        key = (op, which.name, nranks, root)
        if key not in self._listed:
            self._listed[key] = self.options.sources[which].listed(
                op, nranks=nranks, root=root, size_scale=self.options.size_scale
            )
        listed[key] = self._listed[key]
        return which.name

    def _splits(
        self, rows: tuple[Splits, ...], algorithm: str, position: int
    ) -> RankSplits:
        """Return an all_to_all_v member's splits, and the bytes that it forwards."""
        how = self._listed.get((CollectiveOp.ALL_TO_ALL_V, algorithm, len(rows), 0))
        if how is None:
            return RankSplits(rows[position])  # built-in algorithms forward nothing

        def pair_bytes(src: int, dst: int) -> int:
            return rows[src].sent_bytes[dst]

        return RankSplits(
            rows[position], passed_bytes(how, pair_bytes, position=position)
        )

    def _scaled(self, size_bytes: int) -> int:
        return scaled_bytes(size_bytes, self.options.size_scale)

    def _scaled_splits(self, rows: tuple[Splits, ...]) -> _Uneven:
        scale = self.options.size_scale
        scaled = rows if scale == 1 else tuple(row.scaled(scale) for row in rows)
        return _Uneven(mean_bytes(scaled), mean_bytes(rows), scaled)

    def _write_barrier(
        self,
        writer: ColumnWriter,
        rank: _Rank,
        listed: dict[tuple[object, ...], ListedAlgorithm],
    ) -> None:
        """Add a barrier of all ranks after all other operations."""
        world = self.groups[WORLD]
        place = rank.groups.index(world)
        number = sum(group == place for group, _ in rank.collectives.values())
        algorithm = self._algorithm(
            CollectiveOp.BARRIER, len(world.ranks), 0, 0, listed
        )
        awaited = set(writer.dependencies)
        last = [row for row in range(len(writer.kinds)) if row not in awaited]
        writer.begin(None, BARRIER_NAME.encode(), last, None)
        writer.collective(
            place, number, (CollectiveOp.BARRIER, algorithm), 0, 0, 0, NO_SPLITS
        )
