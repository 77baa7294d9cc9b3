"""Column storage for the nodes of one rank.

The columns are machine arrays with one row per node, in file order. Communication
attributes have separate columns with one row per communication node. The 118,560 nodes
of a 32-rank trace take a few megabytes.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from chakram.collectives.ops import CollectiveOp
from chakram.trace.graph_index import NameTable

OPS = tuple(CollectiveOp)
OP_NUMBERS = {op: number for number, op in enumerate(OPS)}
"""The number that represents each collective in a column."""

ABSENT = -1
"""Marker for no row, no collective or no group."""


def _integers() -> array[int]:
    return array("q")


def _small_integers() -> array[int]:
    return array("i")


@dataclass(slots=True)
class TraceColumns:
    """The columns of one rank's nodes.

    A graph builder fills the columns. After that, they are read-only and may be shared.

    Attributes:
        starts_ns: Recorded start times. The column may be short: nodes past its end
            have no value.
        streams: Streams of the nodes. The column may be short, like *starts_ns*.
        op_types: Operators of nodes by name number, as indices into *op_type_names*. 0,
            or a name number past the end, means no operator.
        comm_rows: Row of each node in the communication columns, or ``ABSENT``.
        ops: Number that represents the collective, or ``ABSENT``. All columns from
            *ops* to *roots* have one row per communication node.
        groups: Index into *group_names*, or ``ABSENT``.
        peers: Peers of messages. *peers*, *tags* and *roots* may be short.
        split_positions: Positions of the few nodes that have splits, ascending.
        split_offsets: Offsets at which each node's splits begin and end in
            *split_bytes*.
        split_bytes: For each node with splits: the bytes sent, then the bytes received.
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
    split_offsets: array[int] = field(default_factory=lambda: array("q", [0]))
    split_bytes: array[int] = field(default_factory=_integers)

    def __len__(self) -> int:
        return len(self.node_ids)

    def name(self, position: int) -> str:
        """Return the name of a node."""
        return self.names[self.name_numbers[position]]

    def op_type(self, position: int) -> str:
        """Return the operator of a node, or an empty string if the node states none."""
        number = self.name_numbers[position]
        known = number < len(self.op_types)
        return self.op_type_names[self.op_types[number] if known else 0]

    def locate(self, position: int, *, source: str, rank: int) -> str:
        """Return a node's location for errors: file, offset, rank, ID and name."""
        return (
            f"{source}: offset {self.file_offsets[position]}: "
            f"rank {rank} node {self.node_ids[position]} {self.name(position)!r}"
        )
