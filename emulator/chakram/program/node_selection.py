"""Selection of the nodes that become operations, and their compute durations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

from chakram.collectives.algorithms import (
    AlgorithmSource,
    Choice,
    UserAlgorithm,
    user_algorithms,
)
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import ConfigError, TraceError
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweringOptions:
    """Options for lowering traces to programs.

    Attributes:
        compute_from: ``none`` (computation takes no time), ``trace`` (the durations in
            the trace) or ``roofline`` (the longer of operations / peak and bytes /
            memory rate).
        scale: Factor for durations of computation.
        peak_flops: Operations per second, for ``roofline``.
        memory_bytes_per_s: Memory rate, for ``roofline``. None means no bound.
        size_scale: Factor for sizes. Results are rounded up, so a message of one byte
            or more keeps at least one byte.
        algorithms: Algorithm of each operation, or rules that select one by size and
            number of ranks (``chakram.collectives.algorithms``). Other operations use
            ``auto``.
        sources: Sources of the transfer lists of users' algorithms.
        sync_barrier: Whether every iteration ends with a barrier of all ranks.
        ordering: ``serial`` (one collective of a group at a time) or ``overlap``.
        order: ``dependencies`` or ``start_times``. With ``start_times``, nodes start at
            their recorded times, multiplied by *scale*, instead of after their
            dependencies. Collectives of one group still follow each other, in the order
            of those times.
        with_starts: Whether to keep recorded start times, for a policy that uses them.
        resources: ``streams``: computation has one slot for the CPU and one for each
            stream of a GPU. ``astra-sim``: one slot for the CPU, one for the GPU, and
            one for communication and memory, as in ASTRA-sim.
        select: Operations to keep (``send_recv`` means point-to-point messages). All
            others take no time and move nothing. None keeps all operations.
    """

    compute_from: str = "trace"
    scale: Fraction = Fraction(1)
    peak_flops: int | None = None
    memory_bytes_per_s: int | None = None
    size_scale: Fraction = Fraction(1)
    algorithms: Mapping[CollectiveOp, Choice] = field(default_factory=dict)
    sources: Mapping[UserAlgorithm, AlgorithmSource] = field(default_factory=dict)
    sync_barrier: bool = True
    ordering: str = "serial"
    order: str = "dependencies"
    with_starts: bool = False
    resources: str = "streams"
    select: frozenset[CollectiveOp] | None = None

    def __post_init__(self) -> None:
        if self.compute_from not in ("none", "trace", "roofline"):
            raise ConfigError(
                "compute.from",
                f"{self.compute_from!r} is not a source of durations",
                "choose from none, trace, roofline",
            )
        if self.compute_from == "roofline" and self.peak_flops is None:
            raise ConfigError(
                "compute.peak", "is missing", "set it for roofline, e.g. 989 TFLOPS"
            )
        if self.ordering not in ("serial", "overlap"):
            raise ConfigError(
                "ordering",
                f"{self.ordering!r} is not an order of collectives",
                "choose from serial, overlap",
            )
        if self.resources not in ("streams", "astra-sim"):
            raise ConfigError(
                "resources",
                f"{self.resources!r} is not a resource model",
                "choose from streams, astra-sim",
            )
        for op, choice in self.algorithms.items():
            for user in user_algorithms(choice):
                if user not in self.sources:
                    raise ConfigError(f"collectives.{op}", f"{user.name} is not loaded")


_COMPUTE = (NodeKind.COMPUTE, NodeKind.MEMORY)

_KNOWN_DURATIONS = 100_000
"""Maximum number of distinct computation durations to cache."""


class ComputeTimes:
    """Durations of computations, shared by all ranks of a job."""

    def __init__(self, options: LoweringOptions) -> None:
        self._options = options
        self._computes = 0
        self._computes_with_time = 0
        self._known_ns: dict[tuple[int, int], tuple[bool, int]] = {}

    def warnings(self) -> list[str]:
        """Return warnings about the durations computed so far."""
        source = self._options.compute_from
        if source == "none" or self._computes_with_time or not self._computes:
            return []
        if source == "trace":
            return [
                "the trace has no durations, so computation takes no time; to estimate "
                "durations, use compute.from: roofline"
            ]
        return [
            "the trace has neither operations nor tensor sizes, so computation takes "
            "no time; to use its durations, set compute.from: trace"
        ]

    def duration_ns(self, graph: TraceGraph, position: int) -> int:
        """Return the duration of a computation."""
        options = self._options
        if options.compute_from == "none":
            return 0
        self._computes += 1
        # Ranks repeat the same computations, and fractions are slow, so cache results.
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
        """Return the duration of a computation before scaling.

        *work* is the duration in the trace or, for a roofline, the number of
        operations.
        """
        options = self._options
        if options.compute_from == "trace":
            return Fraction(work)
        assert options.peak_flops is not None  # LoweringOptions checks this
        exact = Fraction(work * 10**9, options.peak_flops)
        if options.memory_bytes_per_s is None:
            return exact
        return max(exact, Fraction(tensor_bytes * 10**9, options.memory_bytes_per_s))


class Rows(NamedTuple):
    """The nodes of a rank that become operations, as positions in its graph.

    Dependencies are row numbers. Only nodes that compute have a duration.
    """

    positions: list[int]
    dependencies: list[tuple[int, ...]]
    durations_ns: list[int]


def rows_of(
    graph: TraceGraph,
    order: Sequence[int],
    communication: Container[int],
    times: ComputeTimes,
) -> Rows:
    """Return the nodes that become operations, each after its dependencies.

    A node without duration is left out if connecting its predecessors directly to its
    successors needs no more edges than the node has. A dependency is also left out if
    another dependency implies it.

    Args:
        graph: The nodes.
        order: Positions of the nodes, each after its dependencies.
        communication: Positions of nodes to keep regardless of their duration.
        times: Durations of computations.
    """
    kinds = graph.kinds()
    successors = Counter(graph.edges()[0])
    rows = Rows([], [], [])
    # By position: the row of the node, or the rows that represent it.
    stands_for: list[tuple[int, ...]] = [()] * len(graph)
    for position in order:
        waits_for = graph.dependencies(position)
        if len(waits_for) == 1:
            dependencies = stands_for[waits_for[0]]
        else:
            dependencies = tuple(
                dict.fromkeys(
                    chain.from_iterable(map(stands_for.__getitem__, waits_for))
                )
            )
            if len(dependencies) > 1:
                dependencies = _without_implied(dependencies, rows.dependencies)
        duration_ns = 0
        if kinds[position] in _COMPUTE:
            duration_ns = times.duration_ns(graph, position)
        before, after = len(dependencies), successors[position]
        if (
            not duration_ns
            and position not in communication
            and before * after <= before + after
        ):
            stands_for[position] = dependencies
            continue
        stands_for[position] = (len(rows.positions),)
        rows.positions.append(position)
        rows.dependencies.append(dependencies)
        rows.durations_ns.append(duration_ns)
    return rows


def _without_implied(
    dependencies: tuple[int, ...], rows: Sequence[tuple[int, ...]]
) -> tuple[int, ...]:
    """Remove dependencies that other dependencies imply.

    In recorded traces, a node may depend on all earlier nodes. In one trace of 3,600
    nodes, 180,000 dependencies are reduced to 4,000.
    """
    implied: set[int] = set()
    # Rows depend only on earlier rows.
    for row in sorted(dependencies, reverse=True):
        implied.update(rows[row])
    return tuple(row for row in dependencies if row not in implied)


def check_starts(graphs: Mapping[int, TraceGraph]) -> list[str]:
    """Return warnings about the recorded start times.

    Raises:
        TraceError: If a rank with work has no recorded start times.
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
                "use order: dependencies, which needs no start times",
            )
        without += len(unknown)
    if not without:
        return []
    return [
        f"{without} nodes have no recorded start time; they start at the beginning of "
        "each iteration"
    ]


def first_start_ns(graph: TraceGraph) -> int:
    """Return the earliest recorded start time of a rank, or 0 if it has none."""
    return min(
        (
            start_ns
            for position in range(len(graph))
            if (start_ns := graph.start_ns(position)) is not None
        ),
        default=0,
    )
