"""Which nodes become operations, what they wait for, and how long they compute."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING

from chakram.errors import TraceError
from chakram.trace.node import NodeKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chakram.program.lowering_options import LoweringOptions
    from chakram.program.operations import ComputeOperation
    from chakram.trace.graph import TraceGraph


__all__ = [
    "Row",
    "RowMaker",
    "check_starts",
    "first_start_ns",
]

_COMPUTE = (NodeKind.COMPUTE, NodeKind.MEMORY)

_KNOWN_DURATIONS = 100_000
"""How many different durations of computations are kept."""


@dataclass(slots=True)
class Row:
    """A node that becomes an operation.

    Attributes:
        position: Of the node in its graph.
        dependencies: Rows.
        duration_ns: What it takes if it computes.
        operation: What it has become, if that is the same for all ranks whose graphs
            have the very same nodes.
    """

    position: int
    dependencies: tuple[int, ...]
    duration_ns: int
    operation: ComputeOperation | None = None


class ComputeTimes:
    """How long computations take; the same for all ranks of a job."""

    def __init__(self, options: LoweringOptions) -> None:
        self._options = options
        self._computes = 0
        self._computes_with_time = 0
        self._known_ns: dict[tuple[int, int], tuple[bool, int]] = {}

    def warnings(self) -> list[str]:
        """Return what was odd in all that was asked for."""
        source = self._options.compute_from
        if source == "none" or self._computes_with_time or not self._computes:
            return []
        if source == "trace":
            return [
                "the trace has no durations, so computation takes no time; "
                "compute.from: roofline estimates it"
            ]
        return [
            "the trace has neither operations nor tensor sizes, so computation takes "
            "no time; compute.from: trace takes its durations"
        ]

    def duration_ns(self, graph: TraceGraph, position: int) -> int:
        """Return how long a computation takes."""
        options = self._options
        if options.compute_from == "none":
            return 0
        self._computes += 1
        # Ranks compute alike, and fractions are slow.
        work = (
            (graph.duration_ns(position), 0)
            if options.compute_from == "trace"
            else (graph.num_ops(position), graph.tensor_bytes(position))
        )
        known = self._known_ns.get(work)
        if known is None:
            exact = self._exact_ns(*work)
            known = bool(exact), round(exact * options.scale)
            if len(self._known_ns) < _KNOWN_DURATIONS:
                self._known_ns[work] = known
        has_time, duration_ns = known
        self._computes_with_time += has_time
        return duration_ns

    def _exact_ns(self, work: int, tensor_bytes: int) -> Fraction:
        """Return the time of a computation before it is scaled.

        *work* is that time already, or the number of operations for a roofline.
        """
        options = self._options
        if options.compute_from == "trace":
            return Fraction(work)
        assert options.peak_flops is not None  # LoweringOptions sees to it
        exact = Fraction(work * 10**9, options.peak_flops)
        if options.memory_bytes_per_s is None:
            return exact
        return max(exact, Fraction(tensor_bytes * 10**9, options.memory_bytes_per_s))


class RowMaker:
    """Finds the rows of ranks; those of replicas, which have the same nodes, once."""

    def __init__(self, options: LoweringOptions) -> None:
        self.times = ComputeTimes(options)
        self._latest: tuple[TraceGraph, Sequence[int], set[int]] | None = None
        self._latest_rows: list[Row] = []

    def rows(
        self, graph: TraceGraph, order: Sequence[int], communication: set[int]
    ) -> list[Row]:
        """Return the nodes that become operations; see ``_rows_of``."""
        if self._latest is not None:
            other, *known = self._latest
            if graph.is_replica_of(other) and known == [order, communication]:
                return self._latest_rows
        self._latest = graph, order, communication
        self._latest_rows = _rows_of(graph, order, communication, self.times)
        return self._latest_rows


def _rows_of(
    graph: TraceGraph,
    order: Sequence[int],
    communication: set[int],
    times: ComputeTimes,
) -> list[Row]:
    """Return the nodes that become operations, dependencies first.

    A node without duration is left out if its predecessors and successors can be
    joined by no more edges than it has itself; so is a dependency on what another one
    waits for.

    Args:
        graph: The nodes.
        order: Their positions, dependencies first.
        communication: The positions of those that stay whatever they take.
        times: How long computations take.
    """
    successors = Counter(graph.edges()[0])
    rows: list[Row] = []
    # By position: the row of the node, or those that stand for it.
    stands_for: list[tuple[int, ...]] = [()] * len(graph)
    for position in order:
        dependencies = dict.fromkeys(
            chain.from_iterable(
                map(stands_for.__getitem__, graph.dependencies(position))
            )
        )
        _drop_implied(dependencies, rows)
        kind = graph.kind(position)
        duration_ns = 0
        if kind in _COMPUTE:
            duration_ns = times.duration_ns(graph, position)
        before, after = len(dependencies), successors[position]
        if (
            not duration_ns
            and position not in communication
            and before * after <= before + after
        ):
            stands_for[position] = tuple(dependencies)
            continue
        stands_for[position] = (len(rows),)
        rows.append(Row(position, tuple(dependencies), duration_ns))
    return rows


def _drop_implied(dependencies: dict[int, None], rows: Sequence[Row]) -> None:
    """Take out what others of the dependencies wait for.

    Recorded traces may list all that came before: 180,000 dependencies of 3,600 nodes
    say no more than 4,000 do.
    """
    if len(dependencies) < 2:
        return
    implied: set[int] = set()
    # Rows depend on earlier ones only.
    for row in sorted(dependencies, reverse=True):
        if row in implied:
            del dependencies[row]
        implied.update(rows[row].dependencies)


def check_starts(graphs: Mapping[int, TraceGraph]) -> list[str]:
    """Return what is odd in the recorded starts.

    Raises:
        TraceError: If a rank that does something has none.
    """
    without = 0
    for rank in sorted(graphs):
        graph = graphs[rank]
        busy = [
            position
            for position in range(len(graph))
            if graph.kind(position) != NodeKind.PASS
        ]
        unknown = [each for each in busy if graph.start_ns(each) is None]
        if unknown and len(unknown) == len(busy):
            raise TraceError(
                graph.source,
                f"rank {rank} has no recorded start times",
                "order: dependencies needs none",
            )
        without += len(unknown)
    if not without:
        return []
    return [
        f"{without} nodes have no recorded start time: they start at the beginning of "
        "each iteration"
    ]


def first_start_ns(graph: TraceGraph) -> int:
    """Return the earliest recorded start of a rank, 0 if it has none."""
    return min(
        (
            start_ns
            for position in range(len(graph))
            if (start_ns := graph.start_ns(position)) is not None
        ),
        default=0,
    )
