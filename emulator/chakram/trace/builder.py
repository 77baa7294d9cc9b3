"""Builder for the graph of one rank's trace."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping

from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.foundation.errors import TraceError
from chakram.trace.columns import ABSENT, OP_NUMBERS, TraceColumns
from chakram.trace.graph import TraceGraph
from chakram.trace.graph_index import NodeIndex, merged_lists
from chakram.trace.node import NodeKind
from chakram.trace.nullable_columns import fill, put

_MOST_OP_TYPES = 255
_COMMUNICATION = (NodeKind.COLLECTIVE, NodeKind.SEND, NodeKind.RECEIVE)


class TraceGraphBuilder:
    """Builder of one rank's trace graph, which resolves node IDs to positions.

    Attributes:
        names: The names of the nodes, by number.
        index: The positions of the nodes, by ID.
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
        """Number of nodes that have a row in the communication columns."""
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
        """Add a node.

        *dependencies* and *control* are node IDs in any order. You can add those nodes
        later. The *control* dependencies order nodes only if ``build`` gets
        ``use_control``.

        Raises:
            TraceError: If the ID is already in use, or if the two rows of *splits*
                differ in length.
        """
        columns = self._columns
        if splits is not None and len(splits.sent_bytes) != len(splits.received_bytes):
            raise TraceError(
                f"{self._source}: offset {file_offset}: rank {self._rank} node "
                f"{node_id} {name!r}",
                f"sends to {len(splits.sent_bytes)} members, but receives from "
                f"{len(splits.received_bytes)}",
                "give an all_to_all one part per member of its group in each direction",
            )
        if not self.index.put(node_id):
            raise TraceError(
                f"{self._source}: offset {file_offset}: rank {self._rank} "
                f"node {node_id}",
                f"node id {node_id} occurs twice in the file",
                "use unique ids within each rank",
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
            self.set_op_type(
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
        """Add many nodes at once, as columns in the layout of ``TraceColumns``.

        The IDs must already be in ``index`` and the names in ``names``.

        Args:
            columns: The node columns by name, with one row per new node. The values of
                ``comm_rows`` are row numbers in the whole graph.
            communication: The communication columns by name, with one row per new
                communication node.
            optional: The optional columns in which at least one new node has a value,
                with one row per new node.
            edges: The columns ``data`` and ``control`` contain the IDs of dependencies.
                The values of ``data_ends`` and ``control_ends`` are offsets in the
                whole graph's lists of IDs.
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

    def set_op_type(self, name: int, op_type: bytes) -> None:
        """Record the operator of all nodes with a given name.

        Args:
            name: The number of the name.
            op_type: The operator, in UTF-8. Only the first 255 different operators are
                kept.
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
        """Return the number of a process group. An unknown group gets a new number."""
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
        """Return the graph. Do not use the builder afterward.

        Args:
            on_missing: Called with the position of a node and the ID of a data
                dependency that does not exist. The dependency is then dropped. If None,
                such a dependency is an error.
            on_missing_control: Like *on_missing*, for control dependencies. If None,
                missing control dependencies are dropped silently.
            use_data: Whether data dependencies order nodes.
            use_control: Whether control dependencies order nodes. A control dependency
                of a node on itself is always dropped.

        Raises:
            TraceError: If a data dependency names a missing node and *on_missing* is
                None.
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
        self.names.release()
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
            "check that the trace is complete: its producer may have dropped nodes",
        )

    def locate(self, position: int) -> str:
        """Return the location of an added node, for errors and warnings."""
        return self._columns.locate(position, source=self._source, rank=self._rank)


def _pass_over(_position: int, _node_id: int) -> None:
    """Ignore a missing dependency."""
