# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Fast path for plain nodes: from the bytes of a file to the columns of a graph.

Nearly all nodes of a trace are plain: names are ASCII, relevant attributes are integers
in their usual encoding, and nothing is missing. This module reads them without message
objects. It *declines* all other nodes, which take the slow path: ``decode_node``,
``NodeReader``, ``TraceGraphBuilder.add``. It raises no errors and reports no warnings,
except for control dependencies of a node on itself. For a node that the module takes,
the result is the same as on the slow path. The module must also collect the state that
``NodeReader`` collects, or decline the node.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from chakram.chakra.et_codec import PREFIXES, NodeType
from chakram.chakra.read.attribute_bits import (
    DESTINATION,
    GROUP,
    GROUP_NUMBER,
    OF_COMMUNICATION,
    OF_COMPUTE,
    ON_CPU,
    OP_TYPE,
    OPS,
    SIZE,
    SOURCE,
    STREAM,
    TAG,
    TENSOR,
    TYPE,
)
from chakram.chakra.read.groups import RECORD
from chakram.chakra.read.node_parser import EDGES, NodeBytes
from chakram.trace.columns import OP_NUMBERS
from chakram.trace.node import CPU_STREAM, NodeKind
from chakram.trace.nullable_columns import NO_VALUE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from chakram.collectives.ops import CollectiveOp
    from chakram.trace.builder import TraceGraphBuilder

    Bytes = bytes | bytearray

__all__ = ["PlainNodes"]

_ROWS = 256
"""Number of nodes that are passed to the builder at once."""
_EDGES = EDGES
_WORDS, _HALF_WORDS = bytes(8 * _ROWS), bytes(4 * _ROWS)

_NO_VALUE = NO_VALUE
_CPU_STREAM = CPU_STREAM
_NOWHERE = -1
_INT64_MAX = 2**63 - 1

_COMP = int(NodeType.COMP)
_LOAD, _STORE = int(NodeType.MEM_LOAD), int(NodeType.MEM_STORE)
_COLL = int(NodeType.COMM_COLL)
_SEND_NODE, _RECV_NODE = int(NodeType.COMM_SEND), int(NodeType.COMM_RECV)
# Metadata nodes may contain process groups, so they are not plain.
_INVALID = int(NodeType.INVALID)
_TYPES = len(NodeType)
_RECORD = RECORD.encode()
_RECORD_BYTES = len(_RECORD)
_STORAGE, _DATA_OP = int(NodeType.STORAGE), int(NodeType.DATA_OP)

_COMPUTE, _MEMORY = int(NodeKind.COMPUTE), int(NodeKind.MEMORY)
_COLLECTIVE, _PASS = int(NodeKind.COLLECTIVE), int(NodeKind.PASS)
_SEND, _RECEIVE = int(NodeKind.SEND), int(NodeKind.RECEIVE)


class PlainNodes(NodeBytes):
    """Fast-path reader that passes runs of plain nodes to a builder.

    Args:
        builder: The builder that receives the nodes.
        rank: The rank of the file.
        bytes_per_unit: Bytes per unit of a stored size.
        duration_unit_ns: Nanoseconds per unit of a stored time.
        record_limit_bytes: Maximum length of a record. Longer ones are declined.
        node_limit: Maximum number of nodes. Further nodes are declined.
        ops: The collectives by their number in a file.
        group_of: Maps the stored name of a process group to its name in the graph.
        on_self_control: Called with offset and id of a node that lists itself as a
            control dependency.
        on_kernel: Called with position and stream of a node that states that it did not
            run on a CPU. May be None.
    """

    def __init__(
        self,
        builder: TraceGraphBuilder,
        *,
        rank: int,
        bytes_per_unit: int,
        duration_unit_ns: int,
        record_limit_bytes: int,
        node_limit: int,
        ops: Mapping[int, CollectiveOp],
        group_of: Callable[[str], str | None],
        on_self_control: Callable[[int, int], None],
        on_kernel: Callable[[int, int | None], None] | None = None,
    ) -> None:
        super().__init__()
        self._builder = builder
        self._index = builder.index
        self._names = builder.names
        self._rank = rank
        self._bytes_per_unit = min(bytes_per_unit, _INT64_MAX)
        self._largest_size = _INT64_MAX // bytes_per_unit
        self._duration_unit_ns = min(duration_unit_ns, _INT64_MAX)
        self._largest_time = _INT64_MAX // duration_unit_ns
        self._record_limit_bytes = min(record_limit_bytes, _INT64_MAX)
        self._node_limit = min(node_limit, _INT64_MAX)
        self._op_of = array(
            "b", [OP_NUMBERS[ops[number]] for number in range(len(ops))]
        )
        self._group_of = group_of
        self._group_numbers: dict[bytes, int] = {}
        self._on_self_control = on_self_control
        self._on_kernel = on_kernel
        self._notes_kernels = on_kernel is not None
        self._prefixes = [PREFIXES.get(each, "").encode() for each in range(_TYPES)]
        self._make_columns()
        self._rows = 0
        self._comm = 0
        self._has_start = False
        self._has_stream = False

    def _make_columns(self) -> None:
        words, half_words = _WORDS, _HALF_WORDS
        self._node_ids = array("Q", words)
        self._kinds = bytearray(_ROWS)
        self._name_numbers = array("i", half_words)
        self._file_offsets = array("q", words)
        self._durations_ns = array("q", words)
        self._starts_ns = array("q", words)
        self._num_ops = array("q", words)
        self._tensor_bytes = array("q", words)
        self._streams = array("q", words)
        self._comm_rows = array("i", half_words)
        self._ops = array("b", bytes(_ROWS))
        self._comm_bytes = array("q", words)
        self._groups = array("i", half_words)
        self._peers = array("q", words)
        self._tags = array("q", words)
        self._data_ends = array("q", words)
        self._control_ends = array("q", words)

    def take(self, data: Bytes, start: int, end: int, offset: int) -> int:
        """Take whole records from *start* on, up to the first that is not plain.

        Args:
            data: Bytes of a file.
            start: Index of the first record.
            end: Index after the last byte to read.
            offset: File offset of the first byte of *data*.

        Returns:
            The index of the first record that was not taken.
        """
        self._comm_base = self._builder.communications
        self._data_base = self._builder.data_dependencies
        self._control_base = self._builder.control_dependencies
        left = self._node_limit - len(self._builder)
        while left > 0:
            self._at = start
            length = self._varint(data, min(end, start + 5))
            left_bytes = end - self._at
            if self._at < 0 or length > self._record_limit_bytes or length > left_bytes:
                break
            stop = self._at + length
            if not self._take_node(data, self._at, stop, offset + start):
                break
            start = stop
            left -= 1
            if (
                self._rows == _ROWS
                or self._edges > _EDGES // 2
                or self._control_edges > _EDGES // 2
            ):
                self._flush()
        self._flush()
        return start

    def _take_node(self, data: Bytes, start: int, end: int, offset: int) -> bool:
        """Take one node. If it is not plain, return False and change nothing."""
        edges, control_edges = self._edges, self._control_edges
        if not (self._read(data, start, end) and self._mean(data)):
            self._edges, self._control_edges = edges, control_edges
            return False
        is_kernel = self._notes_kernels and self._has(ON_CPU)
        if is_kernel and self._odd & (1 << ON_CPU | 1 << STREAM):
            self._edges, self._control_edges = edges, control_edges
            return False
        # This check must be the last one: every id in the index must have a row.
        if not self._index.put(self._node_id):
            self._edges, self._control_edges = edges, control_edges
            return False
        row = self._rows
        self._node_ids[row] = self._node_id
        self._kinds[row] = self._kind
        if self._name_at < self._name_end and data[self._name_at] < 91:
            # Every prefix begins with a capital letter. Most names do not.
            self._name_at = self._own_name_at(data)
        self._name_numbers[row] = self._names.put(data, self._name_at, self._name_end)
        self._file_offsets[row] = offset
        if self._has(OP_TYPE) and _COMPUTE <= self._kind <= _MEMORY:
            self._note_op_type(data, self._name_numbers[row])
        self._durations_ns[row] = self._duration * self._duration_unit_ns
        self._starts_ns[row] = _NO_VALUE
        if self._start:
            self._starts_ns[row] = self._start * self._duration_unit_ns
            self._has_start = True
        self._num_ops[row] = self._ops_count
        self._tensor_bytes[row] = self._tensor_size * self._bytes_per_unit
        self._streams[row] = self._stream
        if self._stream != _NO_VALUE:
            self._has_stream = True
        self._comm_rows[row] = _NOWHERE
        if _COLLECTIVE <= self._kind <= _RECEIVE:
            self._comm_rows[row] = self._comm_base + self._comm
            self._ops[self._comm] = self._op
            self._comm_bytes[self._comm] = self._comm_size * self._bytes_per_unit
            self._groups[self._comm] = self._group
            self._peers[self._comm] = self._peer
            self._tags[self._comm] = self._tag
            self._comm += 1
        self._data_ends[row] = self._data_base + self._edges
        self._control_ends[row] = self._control_base + self._control_edges
        self._rows = row + 1
        if is_kernel and not self._numbers[ON_CPU]:
            self._note_kernel()
        for edge in range(control_edges, self._control_edges):
            if self._control[edge] == self._node_id:
                self._on_self_control(offset, self._node_id)
                break
        return True

    def _own_name_at(self, data: Bytes) -> int:
        """Return the index at which the name begins after its type prefix."""
        prefix = self._prefixes[self._node_type]
        skip, at = len(prefix), self._name_at
        if self._name_end - at < skip:
            return at
        for place in range(skip):
            if data[at + place] != prefix[place]:
                return at
        return at + skip

    def _note_op_type(self, data: Bytes, name: int) -> None:
        if not self._odd >> OP_TYPE & 1:
            key = bytes(data[self._op_type_at : self._op_type_end])
            self._builder.set_op_type(name, key)

    def _note_kernel(self) -> None:
        # A node of kind PASS has no stream in the graph, but may state one.
        stream = self._numbers[STREAM] if self._has(STREAM) else None
        # This runs only if the callback is set. A check for every node would be slow.
        self._on_kernel(len(self._index) - 1, stream)  # type: ignore[misc]

    def _flush(self) -> None:
        """Pass the collected nodes to the builder."""
        rows, comm = self._rows, self._comm
        if not rows:
            return
        optional = {}
        if self._has_start:
            optional["starts_ns"] = _first(self._starts_ns, rows)
        if self._has_stream:
            optional["streams"] = _first(self._streams, rows)
        self._builder.extend(
            {
                "node_ids": _first(self._node_ids, rows),
                "kinds": _first(self._kinds, rows),
                "name_numbers": _first(self._name_numbers, rows),
                "file_offsets": _first(self._file_offsets, rows),
                "durations_ns": _first(self._durations_ns, rows),
                "num_ops": _first(self._num_ops, rows),
                "tensor_bytes": _first(self._tensor_bytes, rows),
                "comm_rows": _first(self._comm_rows, rows),
            },
            communication={
                "ops": _first(self._ops, comm),
                "comm_bytes": _first(self._comm_bytes, comm),
                "groups": _first(self._groups, comm),
                "peers": _first(self._peers, comm),
                "tags": _first(self._tags, comm),
            },
            optional=optional,
            edges={
                "data": _first(self._data, self._edges),
                "data_ends": _first(self._data_ends, rows),
                "control": _first(self._control, self._control_edges),
                "control_ends": _first(self._control_ends, rows),
            },
        )
        self._comm_base += comm
        self._data_base += self._edges
        self._control_base += self._control_edges
        self._rows = self._comm = self._edges = self._control_edges = 0
        self._has_start = self._has_stream = False

    # Interpretation, as in NodeReader -------------------------------------------------

    def _mean(self, data: Bytes) -> bool:
        """Derive the columns from the fields. Return False if the node is not plain."""
        if self._duration > self._largest_time or self._start > self._largest_time:
            return False
        node_type = self._node_type
        self._stream = self._number(STREAM, _NO_VALUE)
        tensor_size = self._number(TENSOR, 0)
        if node_type in (_COMP, _LOAD, _STORE):
            self._kind = _COMPUTE if node_type == _COMP else _MEMORY
            if self._odd & OF_COMPUTE:
                return False
            if self._name_end - self._name_at == _RECORD_BYTES and self._is_record(
                data
            ):
                return False
            if self._number(ON_CPU, 0):
                self._stream = _CPU_STREAM
            elif self._stream < 0:
                self._stream = _NO_VALUE
            self._ops_count = self._number(OPS, 0)
            self._tensor_size = tensor_size
            return self._ops_count >= 0 and 0 <= tensor_size <= self._largest_size
        self._ops_count = self._tensor_size = 0
        if node_type in (_INVALID, _STORAGE, _DATA_OP):
            self._kind = _PASS
            self._stream = _NO_VALUE
            return True
        if (
            node_type not in (_COLL, _SEND_NODE, _RECV_NODE)
            or self._odd & OF_COMMUNICATION
        ):
            return False
        self._peer = _NO_VALUE
        known = self._mean_collective() if node_type == _COLL else self._mean_message()
        if not known or not 0 <= self._comm_size <= self._largest_size:
            return False
        self._group = self._group_number(data)
        return True

    def _has(self, which: int) -> bool:
        """Return whether the node has an attribute."""
        return self._seen >> which & 1 > 0

    def _number(self, which: int, otherwise: int) -> int:
        """Return a numeric attribute, or *otherwise* if it is absent."""
        return self._numbers[which] if self._seen >> which & 1 else otherwise

    def _is_record(self, data: Bytes) -> bool:
        """Return whether this is a ``record_param_comms`` node.

        Such a node may state a group.
        """
        return bytes(data[self._name_at : self._name_end]) == _RECORD

    def _mean_collective(self) -> bool:
        kind = self._number(TYPE, _NOWHERE)
        if not (self._has(SIZE) and 0 <= kind < len(self._op_of)):
            return False
        self._kind = _COLLECTIVE
        self._op = self._op_of[kind]
        self._comm_size = self._numbers[SIZE]
        self._tag = _NO_VALUE
        return True

    def _mean_message(self) -> bool:
        own, other = SOURCE, DESTINATION
        self._kind = _SEND
        if self._node_type == _RECV_NODE:
            own, other = DESTINATION, SOURCE
            self._kind = _RECEIVE
        if self._number(own, self._rank) != self._rank:
            return False
        self._op = _NOWHERE
        self._peer = self._number(other, _NOWHERE)
        self._comm_size = self._number(SIZE, self._number(TENSOR, _NOWHERE))
        self._tag = self._number(TAG, _NO_VALUE)
        return self._peer >= 0

    def _group_number(self, data: Bytes) -> int:
        """Return the builder's number for the node's process group."""
        if self._has(GROUP):
            key = bytes(data[self._group_at : self._group_end])
        elif self._has(GROUP_NUMBER):
            key = str(self._numbers[GROUP_NUMBER]).encode()
        else:
            key = b""
        number = self._group_numbers.get(key)
        if number is None:
            number = self._builder.group_number(self._group_of(key.decode()))
            self._group_numbers[key] = number
        return number


def _first(column: object, count: int) -> memoryview:
    """Return the bytes of the first *count* numbers of a column."""
    # Both column types support the buffer protocol; no static type expresses that.
    view = memoryview(column)  # type: ignore[arg-type]
    return view.cast("B")[: count * view.itemsize]
