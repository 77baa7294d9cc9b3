"""One rank's trace as a graph, in columns.

A ``TraceGraph`` holds what scheduling needs and nothing of the decoded messages: one
row per node in file order, columns as machine arrays, dependencies as positions (not
node ids) in one flat array.  118,560 nodes of a 32-rank trace take a few megabytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from chakram.core.collectives import CollectiveOp
from chakram.core.splits import Splits
from chakram.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_OPS = tuple(CollectiveOp)
_OP_NUMBER = {op: number for number, op in enumerate(_OPS)}
_ABSENT = -1
_NO_VALUE = -(2**63)
"""What a 64-bit column holds where the file has no value; no tag or time is that."""


class NodeKind(IntEnum):
    """What a node does when it is replayed."""

    COMPUTE = 0
    MEMORY = 1
    COLLECTIVE = 2
    SEND = 3
    RECEIVE = 4
    PASS = 5
    """Metadata, labels and types without meaning for a network: ends at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceNode:
    """One node of a trace, as a view for people, tests and errors.

    ``comm_bytes`` is in bytes whatever the file stores (see ``bytes_per_element`` of
    the reader); ``peer``, ``tag``, ``root``, ``stream`` and ``start_ns`` are None where
    the file has none.  ``dependencies`` are positions in the graph.  ``splits`` are the
    bytes to and from each member of the group, where an all_to_all is uneven.
    """

    position: int
    node_id: int
    kind: NodeKind
    name: str
    file_offset: int
    duration_ns: int
    start_ns: int | None
    num_ops: int
    tensor_bytes: int
    stream: int | None
    op: CollectiveOp | None
    comm_bytes: int
    group: str | None
    peer: int | None
    tag: int | None
    root: int | None
    dependencies: tuple[int, ...]
    splits: Splits | None = None


class TraceGraph:
    """The nodes of one rank and their dependencies; read only once built."""

    __slots__ = (
        "_comm_bytes",
        "_dependencies",
        "_dependency_offsets",
        "_durations_ns",
        "_file_offsets",
        "_group_names",
        "_groups",
        "_kinds",
        "_names",
        "_node_ids",
        "_num_ops",
        "_ops",
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
        self._names: list[str] = []
        self._file_offsets = array("q")
        self._durations_ns = array("q")
        self._starts_ns = array("q")
        self._num_ops = array("q")
        self._tensor_bytes = array("q")
        self._streams = array("q")
        self._ops = array("b")
        self._comm_bytes = array("q")
        self._groups = array("i")
        self._group_names: list[str] = []
        self._peers = array("q")
        self._tags = array("q")
        self._roots = array("q")
        self._dependency_offsets = array("q", [0])
        self._dependencies = array("q")
        # Few nodes have splits: by ascending position, both rows one after the other.
        self._split_positions = array("q")
        self._split_offsets = array("q", [0])
        self._split_bytes = array("q")

    def __len__(self) -> int:
        return len(self._node_ids)

    def node(self, position: int) -> TraceNode:
        """Return the node at *position* as a view."""
        return TraceNode(
            position=position,
            node_id=self._node_ids[position],
            kind=NodeKind(self._kinds[position]),
            name=self._names[position],
            file_offset=self._file_offsets[position],
            duration_ns=self._durations_ns[position],
            start_ns=_optional(self._starts_ns[position]),
            num_ops=self._num_ops[position],
            tensor_bytes=self._tensor_bytes[position],
            stream=_optional(self._streams[position]),
            op=None if self._ops[position] == _ABSENT else _OPS[self._ops[position]],
            comm_bytes=self._comm_bytes[position],
            group=self.group(position),
            peer=_optional(self._peers[position]),
            tag=_optional(self._tags[position]),
            root=_optional(self._roots[position]),
            dependencies=tuple(self.dependencies(position)),
            splits=self.splits(position),
        )

    def nodes(self) -> Iterable[TraceNode]:
        """Yield every node in file order."""
        return (self.node(position) for position in range(len(self)))

    def kind(self, position: int) -> NodeKind:
        """Return the kind of one node, without building its view."""
        return NodeKind(self._kinds[position])

    def node_id(self, position: int) -> int:
        """Return the id that the file gives the node."""
        return self._node_ids[position]

    def group(self, position: int) -> str | None:
        """Return the name of the node's process group, None where it has none."""
        number = self._groups[position]
        return None if number == _ABSENT else self._group_names[number]

    def dependencies(self, position: int) -> Sequence[int]:
        """Return the positions of the nodes that must end before this one starts."""
        return self._dependencies[
            self._dependency_offsets[position] : self._dependency_offsets[position + 1]
        ]

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

    def locate(self, position: int) -> str:
        """Return where a node stands, for messages: file, offset, rank, id."""
        return (
            f"{self.source}: offset {self._file_offsets[position]}: "
            f"rank {self.rank} node {self._node_ids[position]} "
            f"{self._names[position]!r}"
        )

    def topological_order(self) -> list[int]:
        """Return all positions, dependencies first, ties by smallest node id.

        Raises:
            TraceError: If the dependencies form a cycle; it names one node of it.
        """
        # A heap of (node id, position) keeps the order independent of the file's.
        count = len(self)
        missing = [
            self._dependency_offsets[i + 1] - self._dependency_offsets[i]
            for i in range(count)
        ]
        successors: list[list[int]] = [[] for _ in range(count)]
        for position in range(count):
            for dependency in self.dependencies(position):
                successors[dependency].append(position)
        ready = [(self._node_ids[i], i) for i in range(count) if not missing[i]]
        heapify(ready)
        order: list[int] = []
        while ready:
            _, position = heappop(ready)
            order.append(position)
            for successor in successors[position]:
                missing[successor] -= 1
                if not missing[successor]:
                    heappush(ready, (self._node_ids[successor], successor))
        if len(order) < count:
            raise TraceError(
                self.locate(self._node_on_a_cycle(missing)),
                "depends on itself through a cycle of dependencies",
                "a replay would wait for ever; break the cycle in the producer",
            )
        return order

    def _node_on_a_cycle(self, missing: list[int]) -> int:
        """Walk back over unmet dependencies until a node comes again."""
        position = next(i for i, count in enumerate(missing) if count)
        seen: set[int] = set()
        while position not in seen:
            seen.add(position)
            position = next(d for d in self.dependencies(position) if missing[d])
        return position


def _optional(value: int) -> int | None:
    return None if value == _NO_VALUE else value


class TraceGraphBuilder:
    """Collects the nodes of one rank; ``build`` resolves ids to positions."""

    def __init__(self, *, rank: int, source: str) -> None:
        self._graph = TraceGraph(rank=rank, source=source)
        self._position_of: dict[int, int] = {}
        self._group_number: dict[str, int] = {}
        self._waiting = array("Q")
        self._waiting_offsets = array("q", [0])

    def __len__(self) -> int:
        return len(self._graph)

    def __contains__(self, node_id: int) -> bool:
        return node_id in self._position_of

    def add(
        self,
        *,
        node_id: int,
        kind: NodeKind,
        name: str,
        dependencies: Iterable[int] = (),
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

        Raises:
            TraceError: If the id is there already, or its splits send to other members
                than they receive from.
        """
        graph = self._graph
        if node_id in self._position_of:
            raise TraceError(
                f"{graph.source}: offset {file_offset}: rank {graph.rank}",
                f"node id {node_id} stands twice in the file",
                "ids must be unique within one rank",
            )
        if splits is not None:
            if len(splits.sent_bytes) != len(splits.received_bytes):
                raise TraceError(
                    f"{graph.source}: offset {file_offset}: rank {graph.rank} node "
                    f"{node_id} {name!r}",
                    f"sends to {len(splits.sent_bytes)} members and receives from "
                    f"{len(splits.received_bytes)}",
                    "an all_to_all has a part for every member of its group, both ways",
                )
            graph._split_positions.append(len(graph))
            graph._split_bytes.extend(splits.sent_bytes)
            graph._split_bytes.extend(splits.received_bytes)
            graph._split_offsets.append(len(graph._split_bytes))
        self._position_of[node_id] = len(graph)
        graph._node_ids.append(node_id)
        graph._kinds.append(kind)
        graph._names.append(name)
        graph._file_offsets.append(file_offset)
        graph._durations_ns.append(duration_ns)
        graph._starts_ns.append(_stored(start_ns))
        graph._num_ops.append(num_ops)
        graph._tensor_bytes.append(tensor_bytes)
        graph._streams.append(_stored(stream))
        graph._ops.append(_ABSENT if op is None else _OP_NUMBER[op])
        graph._comm_bytes.append(comm_bytes)
        graph._groups.append(_ABSENT if group is None else self._intern(group))
        graph._peers.append(_stored(peer))
        graph._tags.append(_stored(tag))
        graph._roots.append(_stored(root))
        self._waiting.extend(dependencies)
        self._waiting_offsets.append(len(self._waiting))

    def _intern(self, group: str) -> int:
        number = self._group_number.setdefault(group, len(self._group_number))
        if number == len(self._graph._group_names):
            self._graph._group_names.append(group)
        return number

    def build(
        self, *, on_missing: Callable[[int, int], None] | None = None
    ) -> TraceGraph:
        """Return the graph.

        Args:
            on_missing: Called with the position of a node and the id of a dependency
                that is not there; the dependency is then dropped.

        Raises:
            TraceError: If a dependency names a node that is not there and nobody
                asked to be called.
        """
        graph = self._graph
        for position in range(len(graph)):
            start, end = self._waiting_offsets[position : position + 2]
            for node_id in dict.fromkeys(self._waiting[start:end]):
                target = self._position_of.get(node_id)
                if target is not None:
                    graph._dependencies.append(target)
                elif on_missing is not None:
                    on_missing(position, node_id)
                else:
                    raise TraceError(
                        graph.locate(position),
                        f"depends on node {node_id}, which is not in the file",
                        "the trace is incomplete, or its producer dropped nodes",
                    )
            graph._dependency_offsets.append(len(graph._dependencies))
        return graph

    def locate(self, position: int) -> str:
        """Return where a node that was added stands, for messages."""
        return self._graph.locate(position)


def _stored(value: int | None) -> int:
    return _NO_VALUE if value is None else value
