"""One rank's trace as a graph, in columns.

A ``TraceGraph`` holds what scheduling needs and nothing of the decoded messages: one
row per node in file order, columns as machine arrays, dependencies as positions (not
node ids) in one flat array.  118,560 nodes of a 32-rank trace take a few megabytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING

from chakram.core.collectives import CollectiveOp
from chakram.core.columns import (
    NameTable,
    NodeIndex,
    merged_lists,
    topological_order,
)
from chakram.core.short_columns import NO_VALUE, fill, filled, optional, put
from chakram.core.splits import Splits
from chakram.core.trace_node import NO_SIZE, NodeKind, TraceNode
from chakram.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "NO_SIZE",
    "NO_VALUE",
    "OP_NUMBERS",
    "NodeKind",
    "TraceGraph",
    "TraceGraphBuilder",
    "TraceNode",
]

_OPS = tuple(CollectiveOp)
OP_NUMBERS = {op: number for number, op in enumerate(_OPS)}
"""The number that a column holds for a collective."""
_ABSENT = -1

_KINDS = tuple(NodeKind)
_COMMUNICATION = (NodeKind.COLLECTIVE, NodeKind.SEND, NodeKind.RECEIVE)
_COMMUNICATION_NUMBERS = frozenset(map(int, _COMMUNICATION))


class TraceGraph:
    """The nodes of one rank and their dependencies; read only once built.

    A column that is shorter than the graph has no value behind its end.  What only
    communication has stands in columns of its own, one row per such node.
    """

    __slots__ = (
        "_comm_bytes",
        "_comm_rows",
        "_dependencies",
        "_dependency_ends",
        "_durations_ns",
        "_file_offsets",
        "_group_names",
        "_groups",
        "_kinds",
        "_name_numbers",
        "_names",
        "_node_ids",
        "_num_ops",
        "_ops",
        "_order",
        "_peers",
        "_roots",
        "_split_bytes",
        "_split_offsets",
        "_split_positions",
        "_starts_ns",
        "_streams",
        "_tags",
        "_tensor_bytes",
        "rank",
        "source",
    )

    def __init__(self, *, rank: int, source: str) -> None:
        self.rank = rank
        self.source = source
        self._node_ids = array("Q")
        self._kinds = bytearray()
        self._name_numbers = array("i")
        self._names = NameTable()
        self._file_offsets = array("q")
        self._durations_ns = array("q")
        self._num_ops = array("q")
        self._tensor_bytes = array("q")
        # These two may be short.
        self._starts_ns = array("q")
        self._streams = array("q")
        # By node: its row in the columns of communication, or _ABSENT.
        self._comm_rows = array("i")
        self._ops = array("b")
        self._comm_bytes = array("q")
        self._groups = array("i")
        self._group_names: list[str] = []
        self._peers = array("q")
        self._tags = array("q")
        self._roots = array("q")
        self._dependencies = array("i")
        self._dependency_ends = array("q", [0])
        # Few nodes have splits: by ascending position, both rows one after the other.
        self._split_positions = array("q")
        self._split_offsets = array("q", [0])
        self._split_bytes = array("q")
        self._order: array[int] | None = None

    def __len__(self) -> int:
        return len(self._node_ids)

    def node(self, position: int) -> TraceNode:
        """Return the node at *position* as a view."""
        row = self._comm_rows[position]
        communicates = row != _ABSENT
        op = self._ops[row] if communicates else _ABSENT
        return TraceNode(
            position=position,
            node_id=self._node_ids[position],
            kind=_KINDS[self._kinds[position]],
            name=self.name(position),
            file_offset=self._file_offsets[position],
            duration_ns=self._durations_ns[position],
            start_ns=optional(self._starts_ns, position),
            num_ops=self._num_ops[position],
            tensor_bytes=self._tensor_bytes[position],
            stream=optional(self._streams, position),
            op=None if op == _ABSENT else _OPS[op],
            comm_bytes=self._comm_bytes[row] if communicates else 0,
            group=self.group(position),
            peer=optional(self._peers, row) if communicates else None,
            tag=optional(self._tags, row) if communicates else None,
            root=optional(self._roots, row) if communicates else None,
            dependencies=tuple(self.dependencies(position)),
            splits=self.splits(position),
        )

    def nodes(self) -> Iterable[TraceNode]:
        """Yield every node in file order."""
        return (self.node(position) for position in range(len(self)))

    def kind(self, position: int) -> NodeKind:
        """Return the kind of one node, without building its view."""
        return _KINDS[self._kinds[position]]

    def kinds(self) -> bytes:
        """Return the kinds of all nodes, one byte each."""
        return bytes(self._kinds)

    def node_id(self, position: int) -> int:
        """Return the id that the file gives the node."""
        return self._node_ids[position]

    def name(self, position: int) -> str:
        """Return the name of the node."""
        return self._names[self._name_numbers[position]]

    def duration_ns(self, position: int) -> int:
        """Return how long the node takes, as far as its file says."""
        return self._durations_ns[position]

    def num_ops(self, position: int) -> int:
        """Return the operations of a computation."""
        return self._num_ops[position]

    def tensor_bytes(self, position: int) -> int:
        """Return the bytes that a computation touches."""
        return self._tensor_bytes[position]

    def communication(self) -> list[int]:
        """Return the positions of all collectives, sends and receives, ascending."""
        return [
            position
            for position, kind in enumerate(self._kinds)
            if kind in _COMMUNICATION_NUMBERS
        ]

    def op(self, position: int) -> CollectiveOp | None:
        """Return which collective the node is, None if it is none."""
        row = self._comm_rows[position]
        number = _ABSENT if row == _ABSENT else self._ops[row]
        return None if number == _ABSENT else _OPS[number]

    def comm_bytes(self, position: int) -> int:
        """Return the size of a collective or message."""
        row = self._comm_rows[position]
        return 0 if row == _ABSENT else self._comm_bytes[row]

    def root(self, position: int) -> int | None:
        """Return the root of a collective, None where the file has none."""
        row = self._comm_rows[position]
        return None if row == _ABSENT else optional(self._roots, row)

    def group(self, position: int) -> str | None:
        """Return the name of the node's process group, None where it has none."""
        row = self._comm_rows[position]
        number = _ABSENT if row == _ABSENT else self._groups[row]
        return None if number == _ABSENT else self._group_names[number]

    def dependencies(self, position: int) -> Sequence[int]:
        """Return the positions of the nodes that must end before this one starts."""
        return self._dependencies[
            self._dependency_ends[position] : self._dependency_ends[position + 1]
        ]

    def edges(self) -> tuple[Sequence[int], Sequence[int]]:
        """Return the dependencies of all nodes, and where each node's begin and end."""
        return self._dependencies, self._dependency_ends

    @property
    def has_splits(self) -> bool:
        """Whether any node has splits."""
        return bool(self._split_positions)

    def splits(self, position: int) -> Splits | None:
        """Return how an uneven all_to_all divides its buffers; None for all else."""
        index = bisect_left(self._split_positions, position)
        if index == len(self._split_positions):
            return None
        if self._split_positions[index] != position:
            return None
        start, end = self._split_offsets[index : index + 2]
        middle = (start + end) // 2
        return Splits(
            tuple(self._split_bytes[start:middle]), tuple(self._split_bytes[middle:end])
        )

    def with_dependencies(self, further: Mapping[int, int]) -> TraceGraph:
        """Return a graph with the same nodes and further dependencies.

        Args:
            further: By position of a node, that of one that must end before it.
        """
        graph = self._sharing_columns(self.rank)
        graph._order = None
        dependencies, ends = array("i"), array("q", [0])
        copied = added = 0
        # Few nodes get one: what lies between them is copied in one piece.
        for position, first in sorted(further.items()):
            if first in self.dependencies(position):
                continue
            ends.extend(
                end + added for end in self._dependency_ends[len(ends) : position + 1]
            )
            end = self._dependency_ends[position + 1]
            dependencies += self._dependencies[copied:end]
            dependencies.append(first)
            copied, added = end, added + 1
        dependencies += self._dependencies[copied:]
        ends.extend(end + added for end in self._dependency_ends[len(ends) :])
        graph._dependencies, graph._dependency_ends = dependencies, ends
        return graph

    def start_ns(self, position: int) -> int | None:
        """Return when a node started when it was recorded, None where nobody said."""
        return optional(self._starts_ns, position)

    def in_order_of_start_times(self) -> TraceGraph:
        """Return the same nodes without dependencies, ordered by recorded starts.

        A node without one comes first; ties go by node id.
        """
        graph = self._sharing_columns(self.rank)
        graph._dependencies = array("i")
        graph._dependency_ends = array("q", bytes(8 * (len(self) + 1)))
        starts_ns = [self.start_ns(position) or 0 for position in range(len(self))]
        graph._order = array(
            "i",
            sorted(
                range(len(self)), key=lambda at: (starts_ns[at], self._node_ids[at])
            ),
        )
        return graph

    def is_replica_of(self, other: TraceGraph) -> bool:
        """Say whether the nodes, and what orders them, are the very same objects."""
        return (
            self._node_ids is other._node_ids
            and self._dependencies is other._dependencies
        )

    def replica(
        self,
        rank: int,
        *,
        group_names: Mapping[str, str],
        messages: Mapping[int, tuple[int, int]],
        splits: Mapping[int, Splits],
    ) -> TraceGraph:
        """Return the same nodes as those of another rank.

        Args:
            rank: The other one.
            group_names: By name of a group here, its name there.
            messages: By position of a send or receive, its peer and tag there.
            splits: By position of an uneven all_to_all, its splits there.
        """
        graph = self._sharing_columns(rank)
        graph._group_names = [group_names.get(name, name) for name in self._group_names]
        if messages:
            rows = len(self._comm_bytes)
            graph._peers = filled(self._peers, rows)
            graph._tags = filled(self._tags, rows)
            for position, (peer, tag) in messages.items():
                graph._peers[self._comm_rows[position]] = peer
                graph._tags[self._comm_rows[position]] = tag
        if splits:
            graph._split_positions = array("q", sorted(splits))
            graph._split_offsets = array("q", [0])
            graph._split_bytes = array("q")
            for position in graph._split_positions:
                for row in splits[position]:
                    graph._split_bytes.extend(row)
                graph._split_offsets.append(len(graph._split_bytes))
        return graph

    def _sharing_columns(self, rank: int) -> TraceGraph:
        """Return a graph of *rank* with the very columns of this one."""
        graph = TraceGraph(rank=rank, source=self.source)
        for name in self.__slots__:
            if name.startswith("_"):
                setattr(graph, name, getattr(self, name))
        return graph

    def locate(self, position: int) -> str:
        """Return where a node stands, for messages: file, offset, rank, id."""
        return (
            f"{self.source}: offset {self._file_offsets[position]}: "
            f"rank {self.rank} node {self._node_ids[position]} "
            f"{self.name(position)!r}"
        )

    def topological_order(self) -> Sequence[int]:
        """Return all positions, dependencies first, ties by smallest node id.

        Raises:
            TraceError: If the dependencies form a cycle; it names one node of it.
        """
        if self._order is None:
            order, missing = topological_order(
                self._node_ids, self._dependencies, self._dependency_ends
            )
            if len(order) < len(self):
                raise TraceError(
                    self.locate(self._node_on_a_cycle(missing)),
                    "depends on itself through a cycle of dependencies",
                    "a replay would wait for ever; break the cycle in the producer",
                )
            self._order = order
        return self._order

    def _node_on_a_cycle(self, missing: Sequence[int]) -> int:
        """Walk back over unmet dependencies until a node comes again."""
        position = next(i for i, count in enumerate(missing) if count)
        seen: set[int] = set()
        while position not in seen:
            seen.add(position)
            position = next(d for d in self.dependencies(position) if missing[d])
        return position


class TraceGraphBuilder:
    """Collects the nodes of one rank; ``build`` resolves ids to positions.

    Attributes:
        names: The names of the nodes, by number.
        index: The positions of the nodes, by id.
    """

    def __init__(self, *, rank: int, source: str) -> None:
        self._graph = TraceGraph(rank=rank, source=source)
        self._group_number: dict[str, int] = {}
        self._data = array("Q")
        self._data_ends = array("q", [0])
        self._control = array("Q")
        self._control_ends = array("q", [0])
        self.names = self._graph._names
        self.index = NodeIndex()

    def __len__(self) -> int:
        return len(self._graph)

    def __contains__(self, node_id: int) -> bool:
        return self.index.find(node_id) >= 0

    @property
    def communications(self) -> int:
        """Number of nodes with columns of communication."""
        return len(self._graph._ops)

    @property
    def data_dependencies(self) -> int:
        """Number of data dependencies of all nodes."""
        return len(self._data)

    @property
    def control_dependencies(self) -> int:
        """Number of control dependencies of all nodes."""
        return len(self._control)

    def add(
        self,
        *,
        node_id: int,
        kind: NodeKind,
        name: str,
        dependencies: Iterable[int] = (),
        control: Iterable[int] = (),
        file_offset: int = 0,
        duration_ns: int = 0,
        start_ns: int | None = None,
        num_ops: int = 0,
        tensor_bytes: int = 0,
        stream: int | None = None,
        op: CollectiveOp | None = None,
        comm_bytes: int = 0,
        group: str | None = None,
        peer: int | None = None,
        tag: int | None = None,
        root: int | None = None,
        splits: Splits | None = None,
    ) -> None:
        """Add a node; *dependencies* are node ids, in any order, known yet or not.

        *control* are ids of those that order nodes only if ``build`` is told so.

        Raises:
            TraceError: If the id is there already, or its splits send to other members
                than they receive from.
        """
        graph = self._graph
        if splits is not None and len(splits.sent_bytes) != len(splits.received_bytes):
            raise TraceError(
                f"{graph.source}: offset {file_offset}: rank {graph.rank} node "
                f"{node_id} {name!r}",
                f"sends to {len(splits.sent_bytes)} members and receives from "
                f"{len(splits.received_bytes)}",
                "an all_to_all has a part for every member of its group, both ways",
            )
        if not self.index.put(node_id):
            raise TraceError(
                f"{graph.source}: offset {file_offset}: rank {graph.rank} "
                f"node {node_id}",
                f"node id {node_id} stands twice in the file",
                "ids must be unique within one rank",
            )
        if splits is not None:
            graph._split_positions.append(len(graph))
            graph._split_bytes.extend(splits.sent_bytes)
            graph._split_bytes.extend(splits.received_bytes)
            graph._split_offsets.append(len(graph._split_bytes))
        put(graph._starts_ns, len(graph), start_ns)
        put(graph._streams, len(graph), stream)
        graph._node_ids.append(node_id)
        graph._kinds.append(kind)
        graph._name_numbers.append(self.names.add(name))
        graph._file_offsets.append(file_offset)
        graph._durations_ns.append(duration_ns)
        graph._num_ops.append(num_ops)
        graph._tensor_bytes.append(tensor_bytes)
        if (
            kind in _COMMUNICATION
            or comm_bytes
            or any(value is not None for value in (op, group, peer, tag, root))
        ):
            row = len(graph._ops)
            graph._comm_rows.append(row)
            graph._ops.append(_ABSENT if op is None else OP_NUMBERS[op])
            graph._comm_bytes.append(comm_bytes)
            graph._groups.append(self.group_number(group))
            put(graph._peers, row, peer)
            put(graph._tags, row, tag)
            put(graph._roots, row, root)
        else:
            graph._comm_rows.append(_ABSENT)
        self._data.extend(dependencies)
        self._data_ends.append(len(self._data))
        self._control.extend(control)
        self._control_ends.append(len(self._control))

    def extend(
        self,
        *,
        node_ids: memoryview,
        kinds: memoryview,
        name_numbers: memoryview,
        file_offsets: memoryview,
        durations_ns: memoryview,
        starts_ns: memoryview | None,
        num_ops: memoryview,
        tensor_bytes: memoryview,
        streams: memoryview | None,
        comm_rows: memoryview,
        ops: memoryview,
        comm_bytes: memoryview,
        groups: memoryview,
        peers: memoryview,
        tags: memoryview,
        data: memoryview,
        data_ends: memoryview,
        control: memoryview,
        control_ends: memoryview,
    ) -> None:
        """Add many nodes at once, in columns as a ``TraceGraph`` has them.

        Their ids must have been put into ``index``, and their names into ``names``.
        ``ops`` to ``tags`` have one row per node of communication; the columns
        ``*_ends`` and ``comm_rows`` count from the first node of all.
        """
        graph = self._graph
        before = len(graph)
        for column, rows in ((graph._starts_ns, starts_ns), (graph._streams, streams)):
            if rows is not None:
                fill(column, before)
                column.frombytes(rows)
        graph._node_ids.frombytes(node_ids)
        graph._kinds += kinds
        graph._name_numbers.frombytes(name_numbers)
        graph._file_offsets.frombytes(file_offsets)
        graph._durations_ns.frombytes(durations_ns)
        graph._num_ops.frombytes(num_ops)
        graph._tensor_bytes.frombytes(tensor_bytes)
        graph._comm_rows.frombytes(comm_rows)
        if len(ops):
            for column in (graph._peers, graph._tags):
                fill(column, len(graph._ops))
            graph._ops.frombytes(ops)
            graph._comm_bytes.frombytes(comm_bytes)
            graph._groups.frombytes(groups)
            graph._peers.frombytes(peers)
            graph._tags.frombytes(tags)
        self._data.frombytes(data)
        self._data_ends.frombytes(data_ends)
        self._control.frombytes(control)
        self._control_ends.frombytes(control_ends)

    def group_number(self, group: str | None) -> int:
        """Return the number of a process group, a new one if it is not known."""
        if group is None:
            return _ABSENT
        number = self._group_number.setdefault(group, len(self._group_number))
        if number == len(self._graph._group_names):
            self._graph._group_names.append(group)
        return number

    def build(
        self,
        *,
        on_missing: Callable[[int, int], None] | None = None,
        on_missing_control: Callable[[int, int], None] | None = None,
        use_data: bool = True,
        use_control: bool = False,
    ) -> TraceGraph:
        """Return the graph; the builder is empty then.

        Args:
            on_missing: Called with the position of a node and the id of a dependency
                that is not there; the dependency is then dropped.
            on_missing_control: The same for control dependencies.
            use_data: Whether data dependencies order nodes.
            use_control: Whether control dependencies do.  Those that are not there,
                and those of a node on itself, are dropped.

        Raises:
            TraceError: If a dependency names a node that is not there and nobody
                asked to be called.
        """
        graph = self._graph
        control = self.index.resolve(
            self._control,
            self._control_ends,
            on_missing_control or _pass_over,
            drop_own=True,
        )
        self._control, self._control_ends = array("Q"), array("q", [0])
        if use_data:
            data = self.index.resolve(
                self._data, self._data_ends, on_missing or self._refuse_missing
            )
        self._data, self._data_ends = array("Q"), array("q", [0])
        self.index = NodeIndex()
        if use_data and use_control:
            data = merged_lists(data, control)
        graph._dependencies, graph._dependency_ends = data if use_data else control
        return graph

    def _refuse_missing(self, position: int, node_id: int) -> None:
        raise TraceError(
            self.locate(position),
            f"depends on node {node_id}, which is not in the file",
            "the trace is incomplete, or its producer dropped nodes",
        )

    def locate(self, position: int) -> str:
        """Return where a node that was added stands, for messages."""
        return self._graph.locate(position)


def _pass_over(_position: int, _node_id: int) -> None:
    """Take no note of a dependency that is not there."""
