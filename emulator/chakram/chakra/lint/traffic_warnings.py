"""Warnings about communication: sizes, participants, and the order of messages.

``chakram trace lint`` prints every warning. ``summarize_warnings`` condenses them into
a few sentences for the top of a table of times.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from chakram.chakra.lint.computation_warnings import LintWarningKind, check_computation
from chakram.chakra.lint.rule_table import RULES
from chakram.chakra.read.producers import ONE_RANK_PER_FILE
from chakram.chakra.read.reader_options import counted_name
from chakram.chakra.trace_warning import TraceWarning, WarningKind, warning_at
from chakram.collectives.groups import WORLD, ProcessGroup, ranks_text
from chakram.collectives.ops import ROOTED, CollectiveOp, nccl_size_bytes
from chakram.foundation.units import about_size
from chakram.trace.node import NodeKind

if TYPE_CHECKING:
    from chakram.chakra.sets.trace_set import TraceSet
    from chakram.trace.graph import TraceGraph

LARGE_BYTES: Final = 64 * 2**30
"""Smallest implausible buffer size. A GPU's 80 to 288 GB also hold the model."""

DAY_BYTES: Final = 400 * 10**9 // 8 * 86_400
"""Bytes that a 400 Gbit/s port sends in a day. Real iterations take seconds."""

_STEPS: Final = 1_000_000
"""Maximum number of edges followed per rank to determine the order of messages."""

_SHOWN = 5

_Alike: TypeAlias = tuple[NodeKind, int | None, int, str | None]
"""Key of messages that match in order: direction, other rank, tag and group."""

_TEXT_NAME: Final = re.compile(
    r"COMM_COLL_NODE_(?P<layer>.+?)(?P<input>_IG_COMM_)?_[A-Z]+"
)
"""Pattern of the collective names that ASTRA-sim's text converter writes.

The part ``input`` matches only in names for the gradient of a layer's input. Other
collectives are for the forward pass or for the gradient of the weights.
"""


def check_traffic(
    graphs: Mapping[int, TraceGraph],
    groups: Mapping[str, ProcessGroup],
    *,
    recorded: bool,
) -> list[TraceWarning]:
    """Return the warnings about communication.

    Args:
        graphs: The trace of every rank. The set must be replayable.
        groups: The process groups by name.
        recorded: Whether the producer writes one file per rank of a job.
    """
    found = _Traffic(graphs, groups)
    warnings: list[TraceWarning] = []
    for graph in graphs.values():
        warnings += found.rank(graph)
    return [*warnings, *found.groups(), *found.whole(recorded=recorded)]


class _OwnTraffic(NamedTuple):
    """Communication of one rank.

    Attributes:
        nodes: Number of communication nodes.
        firsts: Position of the first collective of every group.
        rootless: For every group, the position of the first rooted collective that
            states no root, and the number of such collectives.
        messages: Positions of all messages.
        large: Positions and bytes of implausible buffers.
        empty: Positions of collectives that transfer no data.
        total_bytes: Sum of the sizes of all collectives and messages.
    """

    nodes: int
    firsts: tuple[int, ...]
    rootless: tuple[tuple[int, int], ...]
    messages: list[int]
    large: list[tuple[int, int]]
    empty: list[int]
    total_bytes: int


class _Traffic:
    """Communication of all ranks, collected for the warnings."""

    def __init__(
        self, graphs: Mapping[int, TraceGraph], groups: Mapping[str, ProcessGroup]
    ) -> None:
        self._graphs = graphs
        self._groups = groups
        self._uneven = any(graph.has_splits for graph in graphs.values())
        # The first collective of each group in use.
        self._used: dict[str, tuple[TraceGraph, int]] = {}
        # For each group: the first rooted collective that states no root, and the
        # maximum number of such collectives in one rank.
        self._rootless: dict[str, tuple[TraceGraph, int]] = {}
        self._most_rootless: dict[str, int] = {}
        self._nodes = 0
        self._known: dict[object, _OwnTraffic] = {}

    def rank(self, graph: TraceGraph) -> Iterator[TraceWarning]:
        """Yield the warnings about one rank."""
        names = graph.columns.group_names
        key = graph.shape(), tuple(map(self._size, names))
        if key not in self._known:
            self._known[key] = self._own(graph)
        own = self._known[key]
        self._nodes += own.nodes
        for position in own.firsts:
            self._used.setdefault(graph.group(position) or WORLD, (graph, position))
        rootless: dict[str, int] = {}
        for position, count in own.rootless:
            name = graph.group(position) or WORLD
            self._rootless.setdefault(name, (graph, position))
            rootless[name] = rootless.get(name, 0) + count
        for name, count in rootless.items():
            self._most_rootless[name] = max(count, self._most_rootless.get(name, 0))
        messages: dict[_Alike, list[int]] = {}
        for position in own.messages:
            node = graph.node(position)
            key_of_node = (node.kind, node.peer, node.tag or 0, node.group)
            messages.setdefault(key_of_node, []).append(position)
        large, empty, total_bytes = own.large, own.empty, own.total_bytes
        if large:
            yield self._large(graph, large)
        elif total_bytes >= DAY_BYTES:
            yield TraceWarning(
                LintWarningKind.IMPLAUSIBLE_SIZE,
                graph.rank,
                f"rank {graph.rank}",
                f"its communication adds up to {about_size(total_bytes)} in one "
                "iteration, which takes a 400 Gbit/s port more than a day",
            )
        if empty:
            yield warning_at(
                LintWarningKind.EMPTY_COLLECTIVE,
                graph,
                empty[0],
                f"is {graph.op(empty[0])} of 0 bytes, so it moves nothing",
                len(empty),
            )
        sent = [position for positions in messages.values() for position in positions]
        if sent and not any(map(graph.comm_bytes, sent)):
            yield warning_at(
                LintWarningKind.EMPTY_COLLECTIVE,
                graph,
                min(sent),
                "is a message of 0 bytes, as are all messages of this rank",
                len(sent),
                hint="check whether the producer lost comm_size",
            )
        yield from _ambiguous(graph, messages)

    def _own(self, graph: TraceGraph) -> _OwnTraffic:
        """Return the communication of one rank.

        Ranks with equal graph shapes and equal group sizes share the result.
        """
        positions = graph.communication()
        large: list[tuple[int, int]] = []
        empty: list[int] = []
        messages: list[int] = []
        firsts: dict[int, int] = {}
        rootless: dict[int, list[int]] = {}
        total_bytes = 0
        for position in positions:
            size_bytes = graph.comm_bytes(position)
            op = graph.op(position)
            if op is None:
                messages.append(position)
            else:
                number = graph.group_number(position)
                firsts.setdefault(number, position)
                nranks = self._size(graph.group(position) or WORLD)
                if op in ROOTED and nranks > 1 and graph.root(position) is None:
                    rootless.setdefault(number, []).append(position)
                if not size_bytes and self._should_move(op):
                    empty.append(position)
                size_bytes = nccl_size_bytes(op, input_bytes=size_bytes, nranks=nranks)
            total_bytes += size_bytes
            if size_bytes >= LARGE_BYTES:
                large.append((position, size_bytes))
        return _OwnTraffic(
            nodes=len(positions),
            firsts=tuple(firsts.values()),
            rootless=tuple((each[0], len(each)) for each in rootless.values()),
            messages=messages,
            large=large,
            empty=empty,
            total_bytes=total_bytes,
        )

    def groups(self) -> Iterator[TraceWarning]:
        """Yield the warnings about the process groups in use."""
        for name in sorted(self._used):
            group = self._groups.get(name)
            if group is None:
                continue
            graph, position = self._used[name]
            if group.ranks != tuple(sorted(group.ranks)):
                yield TraceWarning(
                    LintWarningKind.UNSORTED_GROUP,
                    None,
                    f"process group {name!r}",
                    f"has its ranks in the order {', '.join(map(str, group.ranks[:8]))}"
                    f"{', ...' if len(group.ranks) > 8 else ''}, which is the order of "
                    "its rings and roots",
                )
            if len(group.ranks) == 1 and len(self._graphs) > 1:
                yield TraceWarning(
                    LintWarningKind.LONE_RANK,
                    None,
                    f"process group {name!r}",
                    "has only one rank, so its collectives send nothing; the first is "
                    f"{graph.locate(position)}",
                    hint="correct the group, unless it had one rank in the job, too",
                )
            if self._most_rootless.get(name, 0) > 1:
                graph, position = self._rootless[name]
                yield TraceWarning(
                    LintWarningKind.ROOTLESS,
                    None,
                    f"process group {name!r}",
                    f"{self._most_rootless[name]} of its collectives have no root, so "
                    f"rank {group.ranks[0]} is the root of all; the first is "
                    f"{graph.locate(position)}",
                    self._most_rootless[name],
                )

    def whole(self, *, recorded: bool) -> Iterator[TraceWarning]:
        """Yield the warnings about the set."""
        if not self._used:
            return
        graph, position = next(iter(self._used.values()))
        if len(self._graphs) == 1 and recorded:
            yield warning_at(
                LintWarningKind.LONE_RANK,
                graph,
                position,
                f"communicates in a set of one rank, as do {self._nodes} nodes in "
                "total, so nothing is sent",
                self._nodes,
            )
        if self._used.keys() == {WORLD} and len(self._graphs) > 1:
            yield from _lost_groups(next(iter(self._graphs.values())))
        everybody = len(self._graphs)
        parts = [
            name
            for name, group in self._groups.items()
            if 1 < len(group.ranks) < everybody
        ]
        if parts and all(self._size(name) == everybody for name in self._used):
            shown = ", ".join(
                f"{name!r} ({ranks_text(self._groups[name].ranks)})"
                for name in sorted(parts)[:_SHOWN]
            )
            more = len(parts) - _SHOWN
            yield TraceWarning(
                LintWarningKind.UNUSED_GROUPS,
                None,
                "process groups",
                f"{shown}{f' and {more} more' if more > 0 else ''} are defined, but "
                "every collective uses all ranks; the first is "
                f"{graph.locate(position)}",
            )

    def _size(self, name: str) -> int:
        group = self._groups.get(name)
        return len(self._graphs) if group is None else len(group.ranks)

    def _should_move(self, op: CollectiveOp) -> bool:
        if op is CollectiveOp.BARRIER:
            return False
        # With uneven all-to-alls, a rank may have nothing to send.
        return not (self._uneven and op.startswith(CollectiveOp.ALL_TO_ALL))

    def _large(
        self, graph: TraceGraph, large: Sequence[tuple[int, int]]
    ) -> TraceWarning:
        """Return the warning about implausible buffers, given positions and sizes."""
        position, size_bytes = large[0]
        what = graph.op(position) or "a message"
        size = about_size(size_bytes)
        if size_bytes > graph.comm_bytes(position):
            size += f" ({about_size(graph.comm_bytes(position))} of each rank)"
        return warning_at(
            LintWarningKind.IMPLAUSIBLE_SIZE,
            graph,
            position,
            f"is {what} of {size}: no GPU has memory for a model and such a buffer",
            len(large),
        )


def _lost_groups(graph: TraceGraph) -> Iterator[TraceWarning]:
    """Yield a warning for hybrid-parallel layers whose collectives all use one group.

    A layer with both model and data parallelism has three collectives: for the forward
    pass, the input gradient and the weight gradient. A model-parallel layer has at most
    the first two. A data-parallel layer has only the last one.
    """
    of_input: Counter[str] = Counter()
    others: Counter[str] = Counter()
    first: dict[str, int] = {}
    for position in graph.communication():
        match = _TEXT_NAME.fullmatch(graph.name(position))
        if match is not None:
            (others if match["input"] is None else of_input)[match["layer"]] += 1
            first.setdefault(match["layer"], position)
    layers = [layer for layer, count in of_input.items() if others[layer] >= 2 * count]
    if layers:
        position = min(first[layer] for layer in layers)
        yield TraceWarning(
            LintWarningKind.LOST_GROUPS,
            None,
            graph.locate(position),
            f"belongs to one of {len(layers)} layers that are model and data parallel "
            "at once, but all their collectives use all ranks",
            len(layers),
        )


def _ambiguous(
    graph: TraceGraph,
    messages: Mapping[_Alike, Sequence[int]],
) -> Iterator[TraceWarning]:
    """Yield a warning if messages of different sizes are ordered only by node ids."""
    unequal = {
        key: positions
        for key, positions in messages.items()
        if len(set(map(graph.comm_bytes, positions))) > 1
    }
    if not unequal:
        return
    index_of = array("i", bytes(4 * len(graph)))
    for index, position in enumerate(graph.topological_order()):
        index_of[position] = index
    left = _STEPS
    first: tuple[NodeKind, int | None, int, int, int] | None = None
    count = 0
    for (kind, peer, tag, _), positions in unequal.items():
        ordered = sorted(positions, key=index_of.__getitem__)
        for before, after in pairwise(ordered):
            follows, left = _follows(graph, before, after, index_of, left)
            if not follows:
                count += 1
                first = first or (kind, peer, tag, before, after)
    if first is None:
        return
    kind, peer, tag, before, after = first
    sends = kind is NodeKind.SEND
    yield warning_at(
        LintWarningKind.AMBIGUOUS_MESSAGES,
        graph,
        after,
        f"{'goes to' if sends else 'comes from'} rank {peer} with tag {tag}, as does "
        f"node {graph.node_id(before)}, but neither waits for the other: only ids "
        "order these messages, and their sizes differ",
        count,
    )


def _follows(
    graph: TraceGraph, before: int, after: int, index_of: Sequence[int], left: int
) -> tuple[bool, int]:
    """Return whether *after* depends on *before*, and the remaining edge budget.

    *left* is the budget: the maximum number of edges to follow. If it is used up, the
    nodes count as ordered.
    """
    dependencies, ends = graph.edges()
    earliest = index_of[before]
    seen = {after}
    pending = [after]
    while pending:
        position = pending.pop()
        for edge in range(ends[position], ends[position + 1]):
            target = dependencies[edge]
            left -= 1
            if target == before or left <= 0:
                return True, max(left, 0)
            if index_of[target] > earliest and target not in seen:
                seen.add(target)
                pending.append(target)
    return False, left


KINDS_LISTED: Final = 3
"""Number of warning kinds with a separate sentence. Further kinds share a sentence."""


def warnings_of(traces: TraceSet) -> list[TraceWarning]:
    """Return all warnings about a replayable set.

    The body of a custom collective is not a workload, so it has no warnings.
    """
    if any(each.kind is WarningKind.COLLECTIVE_BODY for each in traces.warnings):
        return []
    recorded = traces.producer in ONE_RANK_PER_FILE
    return [
        *check_computation(traces.graphs),
        *check_traffic(traces.graphs, traces.groups, recorded=recorded),
    ]


def summarize_warnings(warnings: Sequence[TraceWarning]) -> tuple[str, ...]:
    """Summarize the warnings in at most ``KINDS_LISTED + 1`` sentences.

    Each sentence gives the first warning of a kind, the remedy and the number of
    warnings. Kinds that affect all times come first, in the order of
    ``LintWarningKind``.
    """
    kinds = [
        (kind, [warning for warning in warnings if warning.kind is kind])
        for kind in LintWarningKind
    ]
    told = [(kind, alike) for kind, alike in kinds if alike]
    sentences = [
        f"MISLEADING: {alike[0].where}: {alike[0].found} "
        f"({alike[0].hint or RULES[kind].remedy}) {_counted(kind, alike)}"
        for kind, alike in told[:KINDS_LISTED]
    ]
    if others := told[KINDS_LISTED:]:
        names = ", ".join(_counted(kind, alike) for kind, alike in others)
        sentences.append(f"MISLEADING: also {names}; see chakram trace lint")
    return tuple(sentences)


def _counted(kind: LintWarningKind, alike: Sequence[TraceWarning]) -> str:
    return counted_name(
        kind,
        count=sum(warning.count for warning in alike),
        ranks=len({warning.rank for warning in alike} - {None}),
    )
