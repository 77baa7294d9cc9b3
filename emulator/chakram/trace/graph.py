"""One rank's trace as a graph, stored in columns.

A ``TraceGraph`` has only the data needed for scheduling, without the decoded messages.
Nodes are stored in columns. Dependencies are positions (not node IDs) in one flat
array.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.foundation.errors import TraceError
from chakram.trace.columns import ABSENT, OPS, TraceColumns
from chakram.trace.graph_index import topological_order
from chakram.trace.node import NodeKind, TraceNode
from chakram.trace.nullable_columns import filled, optional

_KINDS = tuple(NodeKind)
_COMMUNICATION_NUMBERS = frozenset(
    map(int, (NodeKind.COLLECTIVE, NodeKind.SEND, NodeKind.RECEIVE))
)

SHAPE = (
    "node_ids",
    "kinds",
    "name_numbers",
    "num_ops",
    "tensor_bytes",
    "streams",
    "comm_rows",
    "ops",
    "comm_bytes",
    "groups",
    "tags",
    "roots",
    "split_positions",
)
"""The columns that are equal in graphs of equal shape. Node names are also equal."""


@dataclass(slots=True, kw_only=True, eq=False)
class TraceGraph:
    """The nodes of one rank and their dependencies. Read-only.

    Args:
        rank: The rank.
        source: Name of the rank's file, for error messages and warnings.
        columns: The nodes.
        targets: Positions of the dependencies of all nodes, concatenated.
        target_ends: Offsets at which each node's dependencies begin and end in
            *targets*.
        order: A fixed order of all positions. If None, the dependencies determine the
            order.
    """

    rank: int
    source: str
    columns: TraceColumns
    targets: array[int]
    target_ends: array[int]
    order: array[int] | None = None
    _shape: bytes | None = field(default=None, init=False)
    _digest: bytes | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self.columns)

    def node(self, position: int) -> TraceNode:
        """Return the node at *position* as a view."""
        columns = self.columns
        row = columns.comm_rows[position]
        communicates = row != ABSENT
        op = columns.ops[row] if communicates else ABSENT
        return TraceNode(
            position=position,
            node_id=columns.node_ids[position],
            kind=_KINDS[columns.kinds[position]],
            name=self.name(position),
            file_offset=columns.file_offsets[position],
            duration_ns=columns.durations_ns[position],
            start_ns=optional(columns.starts_ns, position),
            num_ops=columns.num_ops[position],
            tensor_bytes=columns.tensor_bytes[position],
            op_type=columns.op_type(position),
            stream=optional(columns.streams, position),
            op=None if op == ABSENT else OPS[op],
            comm_bytes=columns.comm_bytes[row] if communicates else 0,
            group=self.group(position),
            peer=optional(columns.peers, row) if communicates else None,
            tag=optional(columns.tags, row) if communicates else None,
            root=optional(columns.roots, row) if communicates else None,
            dependencies=tuple(self.dependencies(position)),
            splits=self.splits(position),
        )

    def nodes(self) -> Iterable[TraceNode]:
        """Yield every node in file order."""
        return (self.node(position) for position in range(len(self)))

    def kind(self, position: int) -> NodeKind:
        """Return the kind of one node, without building its view."""
        return _KINDS[self.columns.kinds[position]]

    def kinds(self) -> bytes:
        """Return the kinds of all nodes, one byte each."""
        return bytes(self.columns.kinds)

    def node_id(self, position: int) -> int:
        """Return the ID of the node in its file."""
        return self.columns.node_ids[position]

    def name(self, position: int) -> str:
        """Return the name of the node."""
        return self.columns.name(position)

    def utf8_name(self, position: int) -> bytes:
        """Return the name of the node in UTF-8."""
        return self.columns.names.utf8(self.columns.name_numbers[position])

    def stream(self, position: int) -> int | None:
        """Return the stream of a computation, or None if the file states none."""
        return optional(self.columns.streams, position)

    def duration_ns(self, position: int) -> int:
        """Return the duration that the file states for the node, or 0."""
        return self.columns.durations_ns[position]

    def num_ops(self, position: int) -> int:
        """Return the number of operations of a computation."""
        return self.columns.num_ops[position]

    def tensor_bytes(self, position: int) -> int:
        """Return the number of bytes that a computation accesses."""
        return self.columns.tensor_bytes[position]

    def communication(self) -> list[int]:
        """Return the positions of all collectives, sends and receives, ascending."""
        return [
            position
            for position, kind in enumerate(self.columns.kinds)
            if kind in _COMMUNICATION_NUMBERS
        ]

    def op(self, position: int) -> CollectiveOp | None:
        """Return the collective that the node performs, or None."""
        row = self.columns.comm_rows[position]
        number = ABSENT if row == ABSENT else self.columns.ops[row]
        return None if number == ABSENT else OPS[number]

    def comm_bytes(self, position: int) -> int:
        """Return the size of a collective or message, in bytes."""
        row = self.columns.comm_rows[position]
        return 0 if row == ABSENT else self.columns.comm_bytes[row]

    def root(self, position: int) -> int | None:
        """Return the root of a collective, or None if the file states none."""
        row = self.columns.comm_rows[position]
        return None if row == ABSENT else optional(self.columns.roots, row)

    def group(self, position: int) -> str | None:
        """Return the name of the node's process group, or None if none is stated."""
        number = self.group_number(position)
        return None if number == ABSENT else self.columns.group_names[number]

    def group_number(self, position: int) -> int:
        """Return the index of the node's group in ``group_names``, or ``ABSENT``."""
        row = self.columns.comm_rows[position]
        return ABSENT if row == ABSENT else self.columns.groups[row]

    def dependencies(self, position: int) -> Sequence[int]:
        """Return the positions of the nodes that must end before this one starts."""
        return self.targets[self.target_ends[position] : self.target_ends[position + 1]]

    def edges(self) -> tuple[Sequence[int], Sequence[int]]:
        """Return all dependencies, and where those of each node begin and end."""
        return self.targets, self.target_ends

    @property
    def has_splits(self) -> bool:
        """Whether any node has splits."""
        return bool(self.columns.split_positions)

    def splits(self, position: int) -> Splits | None:
        """Return the splits of an uneven all_to_all, or None for other nodes."""
        columns = self.columns
        index = bisect_left(columns.split_positions, position)
        if index == len(columns.split_positions):
            return None
        if columns.split_positions[index] != position:
            return None
        start, end = columns.split_offsets[index : index + 2]
        middle = (start + end) // 2
        return Splits(
            tuple(columns.split_bytes[start:middle]),
            tuple(columns.split_bytes[middle:end]),
        )

    def with_dependencies(self, further: Mapping[int, int]) -> TraceGraph:
        """Return a graph with the same nodes and additional dependencies.

        Args:
            further: Additional dependencies. A key is the position of a node, and its
                value is the position of a node that must end first.
        """
        dependencies, ends = array("i"), array("q", [0])
        copied = added = 0
        # Few nodes gain a dependency. Copy each section between two such nodes at once.
        for position, first in sorted(further.items()):
            if first in self.dependencies(position):
                continue
            ends.extend(
                end + added for end in self.target_ends[len(ends) : position + 1]
            )
            end = self.target_ends[position + 1]
            dependencies += self.targets[copied:end]
            dependencies.append(first)
            copied, added = end, added + 1
        dependencies += self.targets[copied:]
        ends.extend(end + added for end in self.target_ends[len(ends) :])
        return replace(self, targets=dependencies, target_ends=ends, order=None)

    def start_ns(self, position: int) -> int | None:
        """Return the recorded start of a node, or None if the trace has none."""
        return optional(self.columns.starts_ns, position)

    def in_order_of_start_times(self) -> TraceGraph:
        """Return the same nodes without dependencies, ordered by recorded start times.

        Nodes without a start time come first. Ties are ordered by node ID.
        """
        node_ids = self.columns.node_ids
        starts_ns = [self.start_ns(position) or 0 for position in range(len(self))]
        order = sorted(range(len(self)), key=lambda at: (starts_ns[at], node_ids[at]))
        no_ends = array("q", bytes(8 * (len(self) + 1)))
        ordered = replace(
            self, targets=array("i"), target_ends=no_ends, order=array("i", order)
        )
        ordered._shape = _digest_of(ordered.shape(), array("i", order))
        return ordered

    def shape(self) -> bytes:
        """Return a digest that ignores some values of the graph.

        The ignored values are rank, source, group names, message peers, split bytes,
        operator types and file offsets. Times are also ignored, unless they determine
        the order.
        """
        if self._shape is None:
            columns = self.columns
            self._shape = _digest_of(
                *(getattr(columns, name) for name in SHAPE),
                *columns.names.columns(),
                self.targets,
                self.target_ends,
            )
        return self._shape

    def digest(self) -> bytes:
        """Return a digest that is equal for graphs of equal shape with equal times."""
        if self._digest is None:
            self._digest = _digest_of(
                self.shape(), self.columns.durations_ns, self.columns.starts_ns
            )
        return self._digest

    def replica(
        self,
        rank: int,
        *,
        group_names: Mapping[str, str],
        messages: Mapping[int, tuple[int, int]],
        splits: Mapping[int, Splits],
    ) -> TraceGraph:
        """Return a copy of the nodes as the trace of another rank.

        Args:
            rank: The rank of the copy.
            group_names: Names of groups in the copy, by their names in this graph.
            messages: Peer and tag of each send and receive in the copy, by position.
            splits: Splits of each uneven all_to_all in the copy, by position.
        """
        own = self.columns
        columns = replace(
            own, group_names=[group_names.get(name, name) for name in own.group_names]
        )
        if messages:
            rows = len(own.comm_bytes)
            columns.peers = filled(own.peers, rows)
            columns.tags = filled(own.tags, rows)
            for position, (peer, tag) in messages.items():
                columns.peers[own.comm_rows[position]] = peer
                columns.tags[own.comm_rows[position]] = tag
        if splits:
            columns.split_positions = array("q", sorted(splits))
            columns.split_offsets = array("q", [0])
            columns.split_bytes = array("q")
            for position in columns.split_positions:
                for row in splits[position]:
                    columns.split_bytes.extend(row)
                columns.split_offsets.append(len(columns.split_bytes))
        return replace(self, rank=rank, columns=columns)

    def locate(self, position: int) -> str:
        """Return a node's location for errors: file, offset, rank, ID and name."""
        return self.columns.locate(position, source=self.source, rank=self.rank)

    def topological_order(self) -> Sequence[int]:
        """Return all positions in topological order, with ties by smallest node ID.

        A graph with a fixed order (see ``TraceGraph``) returns that order.

        Raises:
            TraceError: If the dependencies form a cycle. The error names one node on
                the cycle.
        """
        if self.order is None:
            order, missing = topological_order(
                self.columns.node_ids, self.targets, self.target_ends
            )
            if len(order) < len(self):
                raise TraceError(
                    self.locate(self._node_on_a_cycle(missing)),
                    "depends on itself through a cycle of dependencies",
                    "break the cycle in the producer: a replay would never end",
                )
            self.order = order
        return self.order

    def _node_on_a_cycle(self, missing: Sequence[int]) -> int:
        """Return a node on a cycle, found by following unmet dependencies backward."""
        position = next(i for i, count in enumerate(missing) if count)
        seen: set[int] = set()
        while position not in seen:
            seen.add(position)
            position = next(d for d in self.dependencies(position) if missing[d])
        return position


def _digest_of(*columns: bytes | bytearray | array[int]) -> bytes:
    found = blake2b(digest_size=16)
    for column in columns:
        found.update(b"%d " % len(column))
        found.update(column)
    return found.digest()
