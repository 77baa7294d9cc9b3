"""One node of a trace, as people, tests and errors look at it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram.collectives.ops import CollectiveOp
    from chakram.collectives.split_sizes import Splits

NO_SIZE = -1
"""The size of a collective whose file states none: it cannot be replayed."""

CPU_STREAM = -1
"""The stream of what a CPU computes; those of a GPU have numbers from 0."""


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
    the reader), or ``NO_SIZE``; ``peer``, ``tag``, ``root``, ``stream`` and
    ``start_ns`` are None where the file has none.  ``dependencies`` are positions in
    the graph.  ``splits`` are the bytes to and from each member of the group, where an
    all_to_all is uneven.  ``op_type`` is the operator of a computation, in the words of
    its producer, or empty.
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
    op_type: str = ""
