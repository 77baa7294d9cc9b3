"""The columns in which the nodes of one rank stand.

One row per node in file order, as machine arrays; what only communication has stands in
columns of its own, one row per such node.  118,560 nodes of a 32-rank trace take a few
megabytes.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from chakram.collectives.ops import CollectiveOp
from chakram.trace.graph_index import NameTable

OPS = tuple(CollectiveOp)
OP_NUMBERS = {op: number for number, op in enumerate(OPS)}
"""The number that a column holds for a collective."""

ABSENT = -1
"""No row, collective or group."""


def _integers() -> array[int]:
    return array("q")


def _small_integers() -> array[int]:
    return array("i")


def _from_zero() -> array[int]:
    return array("q", [0])


@dataclass(slots=True)
class TraceColumns:
    """Whoever builds a graph fills them; then they are read only, and shared.

    Attributes:
        starts_ns: May be short: behind its end, no node has a value.
        streams: Likewise.
        op_types: By number of a name, what operator nodes of that name state, by number
            in *op_type_names*; 0, or behind its end: none.
        comm_rows: By node, its row in the columns of communication, or ``ABSENT``.
        ops: Of communication, by number, or ``ABSENT``; as the columns up to *roots*.
        groups: By number in *group_names*, or ``ABSENT``.
        peers: May be short, as *tags* and *roots*.
        split_positions: Of the few nodes that have splits, ascending.
        split_offsets: Where in *split_bytes* those of each begin and end.
        split_bytes: What is sent, then what is received, one node after the other.
    """

    node_ids: array[int] = field(default_factory=lambda: array("Q"))
    kinds: bytearray = field(default_factory=bytearray)
    name_numbers: array[int] = field(default_factory=_small_integers)
    names: NameTable = field(default_factory=NameTable)
    op_types: bytearray = field(default_factory=bytearray)
    op_type_names: list[str] = field(default_factory=lambda: [""])
    file_offsets: array[int] = field(default_factory=_integers)
    durations_ns: array[int] = field(default_factory=_integers)
    num_ops: array[int] = field(default_factory=_integers)
    tensor_bytes: array[int] = field(default_factory=_integers)
    starts_ns: array[int] = field(default_factory=_integers)
    streams: array[int] = field(default_factory=_integers)
    comm_rows: array[int] = field(default_factory=_small_integers)
    ops: array[int] = field(default_factory=lambda: array("b"))
    comm_bytes: array[int] = field(default_factory=_integers)
    groups: array[int] = field(default_factory=_small_integers)
    group_names: list[str] = field(default_factory=list)
    peers: array[int] = field(default_factory=_integers)
    tags: array[int] = field(default_factory=_integers)
    roots: array[int] = field(default_factory=_integers)
    split_positions: array[int] = field(default_factory=_integers)
    split_offsets: array[int] = field(default_factory=_from_zero)
    split_bytes: array[int] = field(default_factory=_integers)

    def __len__(self) -> int:
        return len(self.node_ids)

    def name(self, position: int) -> str:
        """Return the name of a node."""
        return self.names[self.name_numbers[position]]

    def op_type(self, position: int) -> str:
        """Return the operator that a node states; empty: none."""
        number = self.name_numbers[position]
        known = number < len(self.op_types)
        return self.op_type_names[self.op_types[number] if known else 0]

    def locate(self, position: int, *, source: str, rank: int) -> str:
        """Return where a node stands, for messages: file, offset, rank, id."""
        return (
            f"{source}: offset {self.file_offsets[position]}: "
            f"rank {rank} node {self.node_ids[position]} {self.name(position)!r}"
        )
