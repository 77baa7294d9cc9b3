"""Extraction of a part of a trace set: fewer ranks, fewer nodes, anonymous names.

The result is a trace set that replays like that part of the original set. Nodes keep
their order, even where no dependency enforces it. Therefore, collectives and messages
match across ranks as before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from chakram.chakra.cut.node_removal import Bridged, bridge
from chakram.chakra.cut.profiler_steps import is_step, nodes_of_step
from chakram.collectives.groups import WORLD, ProcessGroup, ranks_text
from chakram.collectives.ops import ROOTED, CollectiveOp
from chakram.collectives.split_sizes import Splits, even_splits
from chakram.foundation.errors import ConfigError, TraceError
from chakram.program.matching import match_ranks
from chakram.trace.builder import TraceGraphBuilder
from chakram.trace.node import NodeKind, TraceNode

if TYPE_CHECKING:
    from chakram.trace.graph import TraceGraph


_COMMUNICATION = (NodeKind.COLLECTIVE, NodeKind.SEND, NodeKind.RECEIVE)
_COMPUTATION = (NodeKind.COMPUTE, NodeKind.MEMORY)
_ALL_TO_ALLS = (CollectiveOp.ALL_TO_ALL, CollectiveOp.ALL_TO_ALL_V)
_WORDS = {
    NodeKind.COMPUTE: "compute",
    NodeKind.MEMORY: "memory",
    NodeKind.SEND: "send",
    NodeKind.RECEIVE: "receive",
    NodeKind.PASS: "label",
}


class Dropped(StrEnum):
    """Reasons for dropping nodes, as text that follows a count."""

    MESSAGES = "sends and receives with removed ranks were dropped"
    ROOTLESS = "nodes of collectives with a removed root were dropped"
    ALONE = (
        "nodes of collectives were dropped because no other rank of their group is left"
    )
    STARTLESS = (
        "computations with a duration were dropped because they have no recorded "
        "start, so their step is unknown"
    )
    HALVES = (
        "nodes of collectives and messages were dropped because the matching nodes of "
        "other ranks are not kept"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOptions:
    """The part of a trace set to keep.

    Attributes:
        iteration: Number of the profiler step to keep. None keeps all.
        ranks: The ranks to keep, ascending. None keeps all.
        keep_numbers: Whether ranks keep their numbers. Otherwise they are numbered from
            0.
        node_ids: First and last id of the nodes to keep. None keeps all.
        communication_only: Whether to keep only collectives, sends and receives.
        anonymize: Whether to replace each node name with a kind and a number, such as
            ``all_reduce_1``.
    """

    iteration: int | None = None
    ranks: tuple[int, ...] | None = None
    keep_numbers: bool = False
    node_ids: tuple[int, int] | None = None
    communication_only: bool = False
    anonymize: bool = False

    def __post_init__(self) -> None:
        if self.ranks is not None and list(self.ranks) != sorted(set(self.ranks)):
            raise ValueError("the ranks are not in ascending order")
        if self.node_ids is not None and self.node_ids[0] > self.node_ids[1]:
            raise ValueError("the last node id is smaller than the first")


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRank:
    """The remaining part of one rank.

    Attributes:
        graph: The remaining nodes, with the new rank number.
        from_rank: The rank in the original set.
        nodes_before: Number of nodes before the cut.
        joins: Number of nodes that remain only to join dependencies.
        dropped: Number of dropped nodes by reason.
        renumbered: Whether nodes got new ids. New ids preserve the order of the nodes.
    """

    graph: TraceGraph
    from_rank: int
    nodes_before: int
    joins: int
    dropped: Mapping[Dropped, int]
    renumbered: bool


class Cut:
    """A part of a trace set. Each rank is cut when it is requested.

    Attributes:
        ranks: The original numbers of the kept ranks, ascending.
        numbers: The new numbers of the kept ranks, by their original numbers.
        groups: New numbers of each group's remaining ranks, by original group name.
        renamed: The new names of renamed groups, by their original names.
    """

    def __init__(
        self,
        graphs: Mapping[int, TraceGraph],
        groups: Mapping[str, ProcessGroup],
        options: CutOptions,
        *,
        in_host_order: bool = False,
    ) -> None:
        """Select the ranks and nodes to keep.

        *in_host_order* is true if the set was read from host traces, in which ids
        determine steps.

        Raises:
            ConfigError: If the options name ranks, nodes or an iteration that do not
                exist.
            TraceError: If the nodes of an iteration cannot be determined.
            MatchingError: If the cut needs matching nodes across ranks, and nodes do
                not match.
        """
        self._graphs = graphs
        self._groups_before = groups
        self._options = options
        self._in_host_order = in_host_order
        self.ranks = _kept_ranks(graphs, options)
        self.numbers = {
            rank: rank if options.keep_numbers else number
            for number, rank in enumerate(self.ranks)
        }
        self.renamed = _new_names(groups)
        # A set of one recorded rank may have groups with ranks that have no files.
        self._removes_ranks = len(self.ranks) < len(graphs)
        self.groups = {
            name: tuple(self.numbers.get(rank, rank) for rank in members)
            for name, group in groups.items()
            if (members := self._remaining(group))
        }
        self._uneven = any(graph.has_splits for graph in graphs.values())
        self._names: dict[tuple[str, str], str] = {}
        self._name_counts: Counter[str] = Counter()
        self._in_range: dict[int, bytearray] = {}
        self._halves: Counter[int] = Counter()
        self._startless: Counter[int] = Counter()
        if options.iteration is not None or options.node_ids is not None:
            self._select()

    def rank(self, rank: int) -> CutRank:
        """Return the remaining part of a rank in ``ranks``.

        Raises:
            TraceError: If the dependencies of the rank form a cycle.
        """
        graph = self._graphs[rank]
        kept, dropped = self._kept(graph)
        dropped[Dropped.HALVES] = self._halves[rank]
        dropped[Dropped.STARTLESS] = self._startless[rank]
        bridged = bridge(graph, kept)
        left = self._build(graph, bridged, ids=None)
        # Removing nodes can change how ties are broken. Ascending ids keep the order,
        # so that the k-th collective stays the k-th.
        positions = sorted(bridged.dependencies)
        order = [positions[each] for each in left.topological_order()]
        renumbered = _only(graph, order) != _only(graph, bridged.dependencies)
        if renumbered:
            ids = {each: number for number, each in enumerate(bridged.dependencies)}
            left = self._build(graph, bridged, ids=ids)
        return CutRank(
            graph=left,
            from_rank=rank,
            nodes_before=len(graph),
            joins=len(bridged.joins),
            dropped=dropped,
            renumbered=renumbered,
        )

    def _remaining(self, group: ProcessGroup) -> Sequence[int]:
        """Return the members of a group that remain after the cut."""
        if not self._removes_ranks:
            return group.ranks
        return [rank for rank in group.ranks if rank in self.numbers]

    def _kept(self, graph: TraceGraph) -> tuple[bytearray, Counter[Dropped]]:
        """Return the nodes to keep, and the number of dropped nodes by reason."""
        kept = bytearray(self._in_range.get(graph.rank, b"\1" * len(graph)))
        dropped: Counter[Dropped] = Counter()
        for position in range(len(graph)):
            # Nodes that do not affect the network have no type that all readers accept.
            # Step markers stay, because cutting by iteration needs them.
            kept[position] &= graph.kind(position) is not NodeKind.PASS or is_step(
                graph.name(position)
            )
        if self._options.communication_only:
            for position in range(len(graph)):
                kept[position] &= _communicates(graph, position)
        if not self._removes_ranks:
            return kept, dropped
        for position in graph.communication():
            reason = self._dropped(graph, position) if kept[position] else None
            if reason is not None:
                kept[position] = 0
                dropped[reason] += 1
        return kept, dropped

    def _dropped(self, graph: TraceGraph, position: int) -> Dropped | None:
        """Return the reason to drop a communication node, or None to keep it."""
        if graph.kind(position) is not NodeKind.COLLECTIVE:
            peer = graph.node(position).peer
            gone = peer is not None and peer not in self.numbers
            return Dropped.MESSAGES if gone else None
        if self._left_of_group(graph, position) < 2:
            # The collective moves no data, and ASTRA-sim would hang on it.
            return Dropped.ALONE
        if graph.op(position) in ROOTED:
            group = self._groups_before.get(graph.group(position) or WORLD)
            members = () if group is None else group.ranks
            root = graph.root(position) or 0
            if root < len(members) and members[root] not in self.numbers:
                return Dropped.ROOTLESS
        return None

    def _left_of_group(self, graph: TraceGraph, position: int) -> int:
        """Return how many members of a collective's group are kept."""
        name = graph.group(position) or WORLD
        if name not in self._groups_before:
            return len(self.ranks)
        return len(self.groups.get(name, ()))

    def _select(self) -> None:
        """Select the nodes of an id range or iteration, consistently on all ranks.

        A collective would hang if one member's node were outside of the selection.
        """
        options = self._options
        for rank in self.ranks:
            graph = self._graphs[rank]
            inside = bytearray(b"\1" * len(graph))
            if options.iteration is not None:
                inside = nodes_of_step(
                    graph, options.iteration, in_host_order=self._in_host_order
                )
                if not (self._in_host_order or options.communication_only):
                    self._startless[rank] = _count_startless(graph)
            if options.node_ids is not None:
                first, last = options.node_ids
                for position in range(len(graph)):
                    inside[position] &= first <= graph.node_id(position) <= last
            self._in_range[rank] = inside
        if not any(map(any, self._in_range.values())):
            raise ConfigError(
                "--nodes" if options.iteration is None else "--iteration, --nodes",
                "no rank has a node in this range",
                _ids_hint([self._graphs[rank] for rank in self.ranks]),
            )
        parts: dict[Hashable, list[tuple[int, int]]] = {}
        matching = match_ranks(self._graphs, self._groups_before)
        for rank in self.ranks:
            for position, which in matching.collectives[rank].items():
                parts.setdefault(which, []).append((rank, position))
            for position, message in matching.messages[rank].items():
                sends = self._graphs[rank].kind(position) is NodeKind.SEND
                ends = (rank, message.peer) if sends else (message.peer, rank)
                parts.setdefault((ends, message.number), []).append((rank, position))
        for nodes in parts.values():
            if sum(self._in_range[rank][at] for rank, at in nodes) in (0, len(nodes)):
                continue
            if options.iteration is not None and options.node_ids is None:
                rank, position = next(
                    (rank, at) for rank, at in nodes if not self._in_range[rank][at]
                )
                raise TraceError(
                    self._graphs[rank].locate(position),
                    f"starts outside step {options.iteration}, but inside it on other "
                    "ranks",
                    "cut by --nodes instead: the steps overlap, so start times do not "
                    "determine the step of a node",
                )
            for rank, position in nodes:
                self._halves[rank] += self._in_range[rank][position]
                self._in_range[rank][position] = 0

    def _build(
        self, graph: TraceGraph, bridged: Bridged, *, ids: Mapping[int, int] | None
    ) -> TraceGraph:
        """Return the graph of the remaining nodes, in file order."""
        builder = TraceGraphBuilder(rank=self.numbers[graph.rank], source=graph.source)
        id_of = graph.node_id if ids is None else ids.__getitem__
        for position in sorted(bridged.dependencies):
            node = graph.node(position)
            columns: dict[str, Any] = {"kind": NodeKind.COMPUTE, "name": "join"}
            if position not in bridged.joins:
                columns = self._columns(node, graph.rank)
            builder.add(
                node_id=id_of(position),
                dependencies=[id_of(each) for each in bridged.dependencies[position]],
                file_offset=node.file_offset,
                start_ns=node.start_ns,
                **columns,
            )
        return builder.build()

    def _columns(self, node: TraceNode, rank: int) -> dict[str, Any]:
        """Return a node's columns in the new set, except its dependencies."""
        columns: dict[str, Any] = {
            "kind": node.kind,
            "name": self._name(node),
            "duration_ns": node.duration_ns,
            "num_ops": node.num_ops,
            "tensor_bytes": node.tensor_bytes,
            "op_type": node.op_type or None,
            "stream": node.stream,
        }
        if node.kind not in _COMMUNICATION:
            return columns
        group = node.group
        columns |= {
            "op": node.op,
            "comm_bytes": node.comm_bytes,
            "group": group if group is None else self.renamed.get(group, group),
            "peer": self.numbers.get(node.peer, node.peer)
            if node.peer is not None
            else None,
            "tag": node.tag,
            "root": node.root,
            "splits": node.splits,
        }
        before = self._groups_before.get(group or WORLD)
        if (
            node.kind is NodeKind.COLLECTIVE
            and self._removes_ranks
            and before is not None
            and rank in before.ranks
            and not self.numbers.keys() >= set(before.ranks)
        ):
            columns |= self._restricted(node, before.ranks, before.position(rank))
        return columns

    def _restricted(
        self, node: TraceNode, members: Sequence[int], position: int
    ) -> dict[str, Any]:
        """Return the columns that change for a collective whose group loses members.

        The size stays the same, because it is the contribution of one rank. The
        exception is an all-to-all in a set with recorded split sizes: each remaining
        part keeps its size, and even parts become explicit splits.
        """
        left = [at for at, rank in enumerate(members) if rank in self.numbers]
        if node.root is not None and node.op in ROOTED and node.root in left:
            return {"root": left.index(node.root)}
        splits = node.splits
        if node.op in _ALL_TO_ALLS and splits is None and self._uneven:
            if node.comm_bytes < 0:
                return {}
            splits = even_splits(
                node.comm_bytes, nranks=len(members), position=position
            )
        if splits is None or len(splits.sent_bytes) != len(members):
            return {}
        sent, received = (tuple(row[at] for at in left) for row in splits)
        return {"splits": Splits(sent, received), "comm_bytes": sum(sent)}

    def _name(self, node: TraceNode) -> str:
        if not self._options.anonymize or is_step(node.name):
            return node.name
        word = str(node.op) if node.op is not None else _WORDS[node.kind]
        name = self._names.get((word, node.name))
        if name is None:
            self._name_counts[word] += 1
            name = f"{word}_{self._name_counts[word]}"
            self._names[word, node.name] = name
        return name


def _kept_ranks(
    graphs: Mapping[int, TraceGraph], options: CutOptions
) -> tuple[int, ...]:
    if options.ranks is None:
        return tuple(sorted(graphs))
    missing = [rank for rank in options.ranks if rank not in graphs]
    if missing or not options.ranks:
        raise ConfigError(
            "--ranks",
            f"there is no rank {missing[0]}" if missing else "no rank is given",
            f"the set has the ranks {ranks_text(sorted(graphs))}",
        )
    return options.ranks


def _new_names(groups: Mapping[str, ProcessGroup]) -> dict[str, str]:
    """Return numeric names for the groups whose names a group file cannot store."""
    numbers = {int(name) for name in groups if name.isdecimal()}
    unfit = [
        name
        for name in groups
        if name != WORLD and not (name.isdecimal() and int(name))
    ]
    first = max(numbers, default=0) + 1
    return {name: str(number) for number, name in enumerate(unfit, start=first)}


def _only(graph: TraceGraph, positions: Iterable[int]) -> list[int]:
    """Return only the positions of nodes that communicate."""
    return [position for position in positions if _communicates(graph, position)]


def _count_startless(graph: TraceGraph) -> int:
    """Return the number of computations with a duration but no recorded start."""
    kinds = graph.kinds()
    return sum(
        kinds[position] in _COMPUTATION
        and graph.duration_ns(position) > 0
        and graph.start_ns(position) is None
        for position in range(len(graph))
    )


def _communicates(graph: TraceGraph, position: int) -> bool:
    return graph.kind(position) in _COMMUNICATION


def _ids_hint(graphs: Sequence[TraceGraph]) -> str:
    ids = [graph.node_id(at) for graph in graphs for at in range(len(graph))]
    return f"ids are {min(ids)} to {max(ids)}" if ids else "the ranks have no nodes"
