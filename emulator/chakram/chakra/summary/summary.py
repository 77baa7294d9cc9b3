"""Statistics of a trace set: nodes, groups, traffic, times and dependencies."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from chakram.chakra.summary.distribution import Distribution, distribution
from chakram.chakra.summary.kernel_classes import KernelClass, kernel_class
from chakram.chakra.summary.sizes import SizeBin, size_bins
from chakram.chakra.summary.traffic import (
    LargestPairs,
    Traffic,
    Work,
    WorkTraffic,
    largest_pairs,
    measure_traffic,
)
from chakram.collectives.groups import WORLD, ProcessGroup
from chakram.trace.node import CPU_STREAM, NodeKind

if TYPE_CHECKING:
    from chakram.trace.graph import TraceGraph


POINT_TO_POINT = "p2p"
"""Key of sends and receives in the communication counts of a rank."""


LARGEST_PAIRS = 20
"""Number of rank pairs that are listed individually."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationRow:
    """All communication nodes of one kind and group size, over all ranks.

    Sizes are the contribution of one rank to one collective.

    Attributes:
        what: Name of a collective, or ``send`` or ``receive``.
        group_ranks: Number of ranks in a group. None for messages and undefined groups.
        groups: Number of different groups.
        nodes: Number of nodes of all ranks.
        min_bytes: The smallest size.
        max_bytes: The largest size.
        total_bytes: The sum of all sizes.
        sent_bytes: Payload that ranks send to each other.
        wire_bytes: ``sent_bytes`` plus the headers of all packets.
        algorithms: Names of the collective algorithms.
        sizes: Number of nodes by size.
    """

    what: str
    group_ranks: int | None
    groups: int
    nodes: int
    min_bytes: int
    max_bytes: int
    total_bytes: int
    sent_bytes: int
    wire_bytes: int
    algorithms: tuple[str, ...]
    sizes: tuple[SizeBin, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """One process group that communication uses.

    ``ranks`` is None for an undefined group. ``nodes`` counts the nodes of all ranks by
    collective, and ``sizes`` counts them by collective and size.
    """

    name: str
    ranks: tuple[int, ...] | None
    nodes: Mapping[str, int]
    sizes: Mapping[str, tuple[SizeBin, ...]]
    total_bytes: int
    sent_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSummary:
    """One rank, counted as in Table 5 of the Chakra paper.

    Attributes:
        rank: Number of the rank.
        nodes: Number of nodes of the rank.
        computation: Number of compute nodes by ``KernelClass``.
        communication: Number of collectives by name. Sends and receives count as
            ``p2p``.
        memory: Number of nodes that load or store data in memory.
        passed: Number of nodes that do not affect the network.
        duration_ns: Sum of all durations that the trace states. Labels, such as a
            step that contains other nodes, do not count.
        slots_ns: Sum of compute and memory durations by slot: ``CPU``, ``GPU``,
            ``GPU stream 7``. A slot runs one node at a time.
        num_ops: Number of floating-point operations that the nodes state.
        sent_bytes: Payload that the rank sends.
        received_bytes: Payload that the rank receives.
    """

    rank: int
    nodes: int
    computation: Mapping[str, int]
    communication: Mapping[str, int]
    memory: int
    passed: int
    duration_ns: int
    slots_ns: Mapping[str, int]
    num_ops: int
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Statistics of the dependencies between nodes.

    A parent is a node that must end first, and a child is a node that waits.
    ``parents`` and ``children`` are the distributions of the number of parents and
    children per node. ``roots`` counts nodes without parents, and ``leaves`` counts
    nodes without children.
    """

    edges: int
    parents: Distribution | None
    children: Distribution | None
    roots: int
    leaves: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """The statistics of a trace set.

    Attributes:
        nodes: Number of nodes of all ranks.
        nodes_by_kind: Number of nodes of all ranks, by kind.
        per_rank: Summary of each rank, in ascending order.
        communication: One row per kind and group size, largest traffic first.
        groups: The groups that communication uses, by name.
        unused_groups: The names of defined groups that no communication uses.
        durations: Distributions of the stated durations in ns, without zeros, by kind
            of node.
        without_duration: Number of nodes without a stated duration, by kind of node.
        dependencies: Statistics of the edges between nodes.
        messages: Size distribution of the messages that ranks send to each other.
        traffic: The traffic between all ranks.
        largest_pairs: The rank pairs with the most traffic. None if there is no matrix.
    """

    nodes: int
    nodes_by_kind: Mapping[str, int]
    per_rank: tuple[RankSummary, ...]
    communication: tuple[CommunicationRow, ...]
    groups: tuple[GroupSummary, ...]
    unused_groups: tuple[str, ...]
    durations: Mapping[str, Distribution]
    without_duration: Mapping[str, int]
    dependencies: Dependencies
    messages: Distribution | None
    traffic: Traffic
    largest_pairs: LargestPairs | None


def summarize(
    graphs: Mapping[int, TraceGraph],
    groups: Mapping[str, ProcessGroup],
    *,
    on_rank: Callable[[int, int], None] | None = None,
) -> TraceSummary:
    """Return the statistics of all ranks' graphs.

    Args:
        graphs: The trace of every rank, from 0.
        groups: The process groups by name.
        on_rank: Called with (ranks done, total ranks) after every rank.
    """
    traffic = measure_traffic(graphs, groups, on_rank=on_rank)
    durations: dict[NodeKind, Counter[int]] = {kind: Counter() for kind in NodeKind}
    parents: Counter[int] = Counter()
    children: Counter[int] = Counter()
    ranks = []
    for rank in sorted(graphs):
        ranks.append(_rank(graphs[rank], traffic, durations))
        _count_edges(graphs[rank], parents, children)
    by_kind = {kind: sum(counts.values()) for kind, counts in durations.items()}
    return TraceSummary(
        nodes=sum(by_kind.values()),
        nodes_by_kind=_named(by_kind),
        per_rank=tuple(ranks),
        communication=_rows(traffic, groups),
        groups=_groups(traffic, groups),
        unused_groups=_unused(graphs, groups),
        durations={
            kind.name.lower(): spread
            for kind, counts in durations.items()
            if (spread := distribution({**counts, 0: 0})) is not None
        },
        without_duration=_named({kind: durations[kind][0] for kind in NodeKind}),
        dependencies=Dependencies(
            edges=sum(degree * count for degree, count in parents.items()),
            parents=distribution(parents),
            children=distribution(children),
            roots=parents[0],
            leaves=children[0],
        ),
        messages=distribution(traffic.messages),
        traffic=traffic,
        largest_pairs=largest_pairs(traffic, LARGEST_PAIRS),
    )


def _rank(
    graph: TraceGraph,
    traffic: Traffic,
    durations: dict[NodeKind, Counter[int]],
) -> RankSummary:
    """Return the summary of one rank, and add its durations to *durations* by kind."""
    computation = dict.fromkeys(KernelClass, 0)
    communication: Counter[str] = Counter()
    duration_ns = num_ops = 0
    kinds = dict.fromkeys(NodeKind, 0)
    slots_ns: Counter[str] = Counter()
    for node in graph.nodes():
        kinds[node.kind] += 1
        durations[node.kind][node.duration_ns] += 1
        if node.kind is not NodeKind.PASS:
            duration_ns += node.duration_ns
        num_ops += node.num_ops
        if node.kind in (NodeKind.COMPUTE, NodeKind.MEMORY):
            slots_ns[slot_name(node.stream)] += node.duration_ns
        if node.kind is NodeKind.COMPUTE:
            computation[kernel_class(node.name, node.op_type)] += 1
        elif node.kind is NodeKind.COLLECTIVE:
            communication[str(node.collective)] += 1
    messages = kinds[NodeKind.SEND] + kinds[NodeKind.RECEIVE]
    return RankSummary(
        rank=graph.rank,
        nodes=len(graph),
        computation={str(kernel): count for kernel, count in computation.items()},
        communication={POINT_TO_POINT: messages, **communication},
        memory=kinds[NodeKind.MEMORY],
        passed=kinds[NodeKind.PASS],
        duration_ns=duration_ns,
        slots_ns=dict(sorted(slots_ns.items())),
        num_ops=num_ops,
        sent_bytes=traffic.sent_bytes[graph.rank],
        received_bytes=traffic.received_bytes[graph.rank],
    )


def slot_name(stream: int | None) -> str:
    """Return the display name of the slot of a computation."""
    if stream is None:
        return "GPU"
    return "CPU" if stream == CPU_STREAM else f"GPU stream {stream}"


def _count_edges(
    graph: TraceGraph, parents: Counter[int], children: Counter[int]
) -> None:
    of = array("q", bytes(8 * len(graph)))
    for position in range(len(graph)):
        dependencies = graph.dependencies(position)
        parents[len(dependencies)] += 1
        for dependency in dependencies:
            of[dependency] += 1
    children.update(of)


def _rows(
    traffic: Traffic, groups: Mapping[str, ProcessGroup]
) -> tuple[CommunicationRow, ...]:
    """Return one row per kind and group size, most traffic first."""
    alike: dict[tuple[str, int | None], list[tuple[Work, WorkTraffic]]] = {}
    for work, of in traffic.work.items():
        group = None if work.group is None else groups.get(work.group)
        size = None if group is None else len(group.ranks)
        alike.setdefault((work.what, size), []).append((work, of))
    rows = [
        CommunicationRow(
            what=what,
            group_ranks=group_ranks,
            groups=sum(work.group is not None for work, _ in members),
            nodes=sum(of.sizes.total() for _, of in members),
            min_bytes=min(min(of.sizes) for _, of in members),
            max_bytes=max(max(of.sizes) for _, of in members),
            total_bytes=sum(_total(of.sizes) for _, of in members),
            sent_bytes=sum(of.sent_bytes for _, of in members),
            wire_bytes=sum(of.wire_bytes for _, of in members),
            algorithms=tuple(
                sorted({name for _, of in members for name in of.algorithms})
            ),
            sizes=size_bins(sum((of.sizes for _, of in members), Counter())),
        )
        for (what, group_ranks), members in alike.items()
    ]
    rows.sort(
        key=lambda row: (
            -row.sent_bytes,
            -row.total_bytes,
            row.what,
            row.group_ranks or 0,
        )
    )
    return tuple(rows)


def _groups(
    traffic: Traffic, groups: Mapping[str, ProcessGroup]
) -> tuple[GroupSummary, ...]:
    used: dict[str, list[tuple[str, WorkTraffic]]] = {}
    for work, of in traffic.work.items():
        if work.group is not None:
            used.setdefault(work.group, []).append((work.what, of))
    return tuple(
        GroupSummary(
            name=name,
            ranks=groups[name].ranks if name in groups else None,
            nodes={what: of.sizes.total() for what, of in own},
            sizes={what: size_bins(of.sizes) for what, of in own},
            total_bytes=sum(_total(of.sizes) for _, of in own),
            sent_bytes=sum(of.sent_bytes for _, of in own),
        )
        for name in sorted(used, key=_numbers_first)
        for own in [sorted(used[name], key=itemgetter(0))]
    )


def _unused(
    graphs: Mapping[int, TraceGraph], groups: Mapping[str, ProcessGroup]
) -> tuple[str, ...]:
    used = {name for graph in graphs.values() for name in graph.columns.group_names}
    # The group of all ranks always exists, defined or not.
    return tuple(sorted(groups.keys() - used - {WORLD}, key=_numbers_first))


def _numbers_first(name: str) -> tuple[int, int, str]:
    """Return a sort key: numeric names by value, then other names, then ``world``."""
    if name == WORLD:
        return 2, 0, name
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)


def _total(sizes: Mapping[int, int]) -> int:
    return sum(size * count for size, count in sizes.items())


def _named(counts: Mapping[NodeKind, int]) -> dict[str, int]:
    return {kind.name.lower(): count for kind, count in counts.items() if count}
