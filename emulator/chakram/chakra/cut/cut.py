"""Cut a part out of a trace set: fewer ranks, fewer nodes, no names.

What is left is a trace set that replays as that part of the whole did: nodes stay in
their order, also those that no dependency orders, so that the same collectives and
messages of the ranks belong together as before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from chakram.chakra.cut.bridge_nodes import Bridged, bridge
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
_ALL_TO_ALLS = (CollectiveOp.ALL_TO_ALL, CollectiveOp.ALL_TO_ALL_V)
_WORDS = {
    NodeKind.COMPUTE: "compute",
    NodeKind.MEMORY: "memory",
    NodeKind.SEND: "send",
    NodeKind.RECEIVE: "receive",
    NodeKind.PASS: "label",
}


class Dropped(StrEnum):
    """Why nodes went, in words that go on from their number."""

    MESSAGES = "sends and receives with ranks left out were dropped"
    ROOTLESS = "nodes of collectives whose root is left out were dropped"
    ALONE = (
        "nodes of collectives were dropped, since no other rank of their group is left"
    )
    HALVES = (
        "nodes of collectives and messages were dropped, since other ranks' nodes of "
        "the same ones are not among those kept"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOptions:
    """What to leave.

    Attributes:
        iteration: Number of the one profiler step to keep; None keeps all.
        ranks: The ranks to keep, ascending; None keeps all.
        keep_numbers: Whether ranks keep their numbers; else they count from 0.
        node_ids: First and last id of the nodes to keep; None keeps all.
        communication_only: Whether to keep collectives, sends and receives only.
        anonymise: Whether names become kinds with numbers.
    """

    iteration: int | None = None
    ranks: tuple[int, ...] | None = None
    keep_numbers: bool = False
    node_ids: tuple[int, int] | None = None
    communication_only: bool = False
    anonymise: bool = False

    def __post_init__(self) -> None:
        if self.ranks is not None and list(self.ranks) != sorted(set(self.ranks)):
            raise ValueError("the ranks do not ascend")
        if self.node_ids is not None and self.node_ids[0] > self.node_ids[1]:
            raise ValueError("the last node id is smaller than the first")


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRank:
    """What is left of one rank.

    Attributes:
        graph: Its nodes; its rank is the new one.
        from_rank: Its rank in the set that was cut.
        nodes_before: How many nodes it had.
        joins: How many nodes were made that only join dependencies.
        dropped: How many nodes went for which reason.
        renumbered: Whether nodes got new ids, without which their order would differ.
    """

    graph: TraceGraph
    from_rank: int
    nodes_before: int
    joins: int
    dropped: Mapping[Dropped, int]
    renumbered: bool


class Cut:
    """A part of a trace set; ranks are cut one by one, as they are asked for.

    Attributes:
        ranks: The ranks that are kept, as they were, ascending.
        numbers: Their new numbers.
        groups: By name as before: the group that is left, with its new name.
        renamed: New names of groups, by the old ones, where they differ.
    """

    def __init__(
        self,
        graphs: Mapping[int, TraceGraph],
        groups: Mapping[str, ProcessGroup],
        options: CutOptions,
    ) -> None:
        """Look at the set.

        Raises:
            ConfigError: If the options name ranks, nodes or an iteration that the set
                has not.
            TraceError: If it cannot be decided what belongs to an iteration.
            MatchingError: If nodes of the ranks do not fit, where that is needed.
        """
        self._graphs = graphs
        self._groups_before = groups
        self._options = options
        self.ranks = _kept_ranks(graphs, options)
        self.numbers = {
            rank: rank if options.keep_numbers else number
            for number, rank in enumerate(self.ranks)
        }
        self.renamed = _new_names(groups)
        self.groups = {
            name: tuple(self.numbers[rank] for rank in members)
            for name, group in groups.items()
            if (members := [rank for rank in group.ranks if rank in self.numbers])
        }
        self._uneven = any(graph.has_splits for graph in graphs.values())
        self._names: dict[tuple[str, str], str] = {}
        self._name_counts: Counter[str] = Counter()
        self._in_range: dict[int, bytearray] = {}
        self._halves: Counter[int] = Counter()
        if options.iteration is not None or options.node_ids is not None:
            self._select()

    def rank(self, rank: int) -> CutRank:
        """Return what is left of a rank, which is one of ``ranks``.

        Raises:
            TraceError: If its dependencies form a cycle.
        """
        graph = self._graphs[rank]
        kept, dropped = self._kept(graph)
        dropped[Dropped.HALVES] = self._halves[rank]
        bridged = bridge(graph, kept)
        left = self._build(graph, bridged, ids=None)
        # Without what is left out, other ties may go to other nodes; only ids that
        # ascend keep the order, and so the k-th collective the k-th.
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

    def _kept(self, graph: TraceGraph) -> tuple[bytearray, Counter[Dropped]]:
        """Return the nodes to keep, and how many communicate and go."""
        kept = bytearray(self._in_range.get(graph.rank, b"\1" * len(graph)))
        dropped: Counter[Dropped] = Counter()
        for position in range(len(graph)):
            # What means nothing for a network has no type that all readers take; but
            # steps are cut by their markers.
            kept[position] &= graph.kind(position) is not NodeKind.PASS or is_step(
                graph.name(position)
            )
        if self._options.communication_only:
            for position in range(len(graph)):
                kept[position] &= _communicates(graph, position)
        if len(self.ranks) == len(self._graphs):
            return kept, dropped
        for position in graph.communication():
            reason = self._dropped(graph, position) if kept[position] else None
            if reason is not None:
                kept[position] = 0
                dropped[reason] += 1
        return kept, dropped

    def _dropped(self, graph: TraceGraph, position: int) -> Dropped | None:
        """Return why a node of communication goes when ranks do; None: it stays."""
        if graph.kind(position) is not NodeKind.COLLECTIVE:
            peer = graph.node(position).peer
            gone = peer is not None and peer not in self.numbers
            return Dropped.MESSAGES if gone else None
        if self._left_of_group(graph, position) < 2:
            # Nothing moves in it, and ASTRA-sim waits for it for ever.
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
        """Find the nodes of a range of ids or an iteration, whole on all ranks.

        A collective of which one member's node is outside would wait for ever.
        """
        options = self._options
        for rank in self.ranks:
            graph = self._graphs[rank]
            inside = bytearray(b"\1" * len(graph))
            if options.iteration is not None:
                inside = nodes_of_step(graph, options.iteration)
            if options.node_ids is not None:
                first, last = options.node_ids
                for position in range(len(graph)):
                    inside[position] &= first <= graph.node_id(position) <= last
            self._in_range[rank] = inside
        if not any(map(any, self._in_range.values())):
            raise ConfigError(
                "--nodes" if options.iteration is None else "--iteration, --nodes",
                "no rank has such a node",
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
                    f"starts outside of step {options.iteration}, on other ranks it "
                    "starts inside",
                    "steps overlap, so no start says which one a node is of; cut by "
                    "--nodes",
                )
            for rank, position in nodes:
                self._halves[rank] += self._in_range[rank][position]
                self._in_range[rank][position] = 0

    def _build(
        self, graph: TraceGraph, bridged: Bridged, *, ids: Mapping[int, int] | None
    ) -> TraceGraph:
        """Return the graph of the nodes that are left, in file order."""
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
        """Return a node's columns in the new set, but for its dependencies."""
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
            and before is not None
            and rank in before.ranks
            and not self.numbers.keys() >= set(before.ranks)
        ):
            columns |= self._restricted(node, before.ranks, before.position(rank))
        return columns

    def _restricted(
        self, node: TraceNode, members: Sequence[int], position: int
    ) -> dict[str, Any]:
        """Return what changes in a collective whose group loses members.

        Its size stays: it is what one rank contributes.  Only where parts have
        recorded sizes each part stays what it was, on members with even parts too.
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
        if not self._options.anonymise or is_step(node.name):
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
            f"there is no rank {missing[0]}" if missing else "names no rank",
            f"the set has the ranks {ranks_text(sorted(graphs))}",
        )
    return options.ranks


def _new_names(groups: Mapping[str, ProcessGroup]) -> dict[str, str]:
    """Return numbers for the names that a group file cannot have."""
    numbers = {int(name) for name in groups if name.isdecimal()}
    unfit = [
        name
        for name in groups
        if name != WORLD and not (name.isdecimal() and int(name))
    ]
    first = max(numbers, default=0) + 1
    return {name: str(number) for number, name in enumerate(unfit, start=first)}


def _only(graph: TraceGraph, positions: Iterable[int]) -> list[int]:
    """Return those of the positions that communicate."""
    return [position for position in positions if _communicates(graph, position)]


def _communicates(graph: TraceGraph, position: int) -> bool:
    return graph.kind(position) in _COMMUNICATION


def _ids_hint(graphs: Sequence[TraceGraph]) -> str:
    ids = [graph.node_id(at) for graph in graphs for at in range(len(graph))]
    return f"ids are {min(ids)} to {max(ids)}" if ids else "the ranks have no nodes"
