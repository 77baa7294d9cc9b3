"""Builds the graph of one rank's trace, node by node or many at once."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from chakram.foundation.errors import TraceError
from chakram.trace.columns import ABSENT, OP_NUMBERS, TraceColumns
from chakram.trace.graph import TraceGraph
from chakram.trace.graph_index import NodeIndex, merged_lists
from chakram.trace.node import NodeKind
from chakram.trace.open_ended_columns import fill, put

if TYPE_CHECKING:
    from chakram.collectives.ops import CollectiveOp
    from chakram.collectives.split_sizes import Splits


_MOST_OP_TYPES = 255
_COMMUNICATION = (NodeKind.COLLECTIVE, NodeKind.SEND, NodeKind.RECEIVE)


class TraceGraphBuilder:
    """Collects the nodes of one rank; ``build`` resolves ids to positions.

    Attributes:
        names: The names of the nodes, by number.
        index: The positions of the nodes, by id.
    """

    def __init__(self, *, rank: int, source: str) -> None:
        self._rank = rank
        self._source = source
        self._columns = TraceColumns()
        self._group_number: dict[str, int] = {}
        self._op_type_numbers = {b"": 0}
        self._data = array("Q")
        self._data_ends = array("q", [0])
        self._control = array("Q")
        self._control_ends = array("q", [0])
        self.names = self._columns.names
        self.index = NodeIndex()

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, node_id: int) -> bool:
        return self.index.find(node_id) >= 0

    @property
    def communications(self) -> int:
        """Number of nodes with columns of communication."""
        return len(self._columns.ops)

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
        op_type: str | None = None,
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
        columns = self._columns
        if splits is not None and len(splits.sent_bytes) != len(splits.received_bytes):
            raise TraceError(
                f"{self._source}: offset {file_offset}: rank {self._rank} node "
                f"{node_id} {name!r}",
                f"sends to {len(splits.sent_bytes)} members and receives from "
                f"{len(splits.received_bytes)}",
                "an all_to_all has a part for every member of its group, both ways",
            )
        if not self.index.put(node_id):
            raise TraceError(
                f"{self._source}: offset {file_offset}: rank {self._rank} "
                f"node {node_id}",
                f"node id {node_id} stands twice in the file",
                "ids must be unique within one rank",
            )
        if splits is not None:
            columns.split_positions.append(len(columns))
            columns.split_bytes.extend(splits.sent_bytes)
            columns.split_bytes.extend(splits.received_bytes)
            columns.split_offsets.append(len(columns.split_bytes))
        put(columns.starts_ns, len(columns), start_ns)
        put(columns.streams, len(columns), stream)
        columns.node_ids.append(node_id)
        columns.kinds.append(kind)
        columns.name_numbers.append(self.names.add(name))
        if op_type is not None:
            self.names_op_type(
                columns.name_numbers[-1], op_type.encode("utf-8", "surrogatepass")
            )
        columns.file_offsets.append(file_offset)
        columns.durations_ns.append(duration_ns)
        columns.num_ops.append(num_ops)
        columns.tensor_bytes.append(tensor_bytes)
        if (
            kind in _COMMUNICATION
            or comm_bytes
            or any(value is not None for value in (op, group, peer, tag, root))
        ):
            row = len(columns.ops)
            columns.comm_rows.append(row)
            columns.ops.append(ABSENT if op is None else OP_NUMBERS[op])
            columns.comm_bytes.append(comm_bytes)
            columns.groups.append(self.group_number(group))
            put(columns.peers, row, peer)
            put(columns.tags, row, tag)
            put(columns.roots, row, root)
        else:
            columns.comm_rows.append(ABSENT)
        self._data.extend(dependencies)
        self._data_ends.append(len(self._data))
        self._control.extend(control)
        self._control_ends.append(len(self._control))

    def extend(
        self,
        columns: Mapping[str, memoryview],
        *,
        communication: Mapping[str, memoryview],
        optional: Mapping[str, memoryview],
        edges: Mapping[str, memoryview],
    ) -> None:
        """Add many nodes at once, in columns as ``TraceColumns`` has them.

        Their ids must have been put into ``index``, and their names into ``names``.

        Args:
            columns: By name, one row per node; ``comm_rows`` counts from the first node
                of all.
            communication: By name, one row per node of communication.
            optional: Of the columns that may be short, those in which any of these
                nodes has a value, one row per node.
            edges: ``data`` and ``control``, ids; ``data_ends`` and ``control_ends``,
                which count from the first node of all.
        """
        own = self._columns
        for name, rows in optional.items():
            column = getattr(own, name)
            fill(column, len(own))
            column.frombytes(rows)
        own.kinds += columns["kinds"]
        if len(communication["ops"]):
            fill(own.peers, len(own.ops))
            fill(own.tags, len(own.ops))
        for name, rows in (*columns.items(), *communication.items()):
            if name != "kinds":
                getattr(own, name).frombytes(rows)
        for name, rows in edges.items():
            getattr(self, f"_{name}").frombytes(rows)

    def names_op_type(self, name: int, op_type: bytes) -> None:
        """Take the operator, in UTF-8, that nodes of a name state.

        Args:
            name: The number of the name.
            op_type: What they state.  Of many operators only the first 255 are kept.
        """
        columns = self._columns
        number = self._op_type_numbers.get(op_type)
        if number is None:
            number = len(columns.op_type_names)
            if number > _MOST_OP_TYPES:
                return
            self._op_type_numbers[op_type] = number
            columns.op_type_names.append(op_type.decode("utf-8", "surrogatepass"))
        missing = name + 1 - len(columns.op_types)
        if missing > 0:
            columns.op_types.extend(bytes(missing))
        columns.op_types[name] = number

    def group_number(self, group: str | None) -> int:
        """Return the number of a process group, a new one if it is not known."""
        if group is None:
            return ABSENT
        number = self._group_number.setdefault(group, len(self._group_number))
        if number == len(self._columns.group_names):
            self._columns.group_names.append(group)
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
        targets, target_ends = data if use_data else control
        return TraceGraph(
            rank=self._rank,
            source=self._source,
            columns=self._columns,
            targets=targets,
            target_ends=target_ends,
        )

    def _refuse_missing(self, position: int, node_id: int) -> None:
        raise TraceError(
            self.locate(position),
            f"depends on node {node_id}, which is not in the file",
            "the trace is incomplete, or its producer dropped nodes",
        )

    def locate(self, position: int) -> str:
        """Return where a node that was added stands, for messages."""
        return self._columns.locate(position, source=self._source, rank=self._rank)


def _pass_over(_position: int, _node_id: int) -> None:
    """Take no note of a dependency that is not there."""
