"""View of one trace node, for display, tests and error messages."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits

NO_SIZE = -1
"""Marker for a size that the file does not state. Such a node cannot be replayed."""

CPU_STREAM = -1
"""Stream number of CPU computation. GPU streams are numbered from 0."""


class NodeKind(IntEnum):
    """What a node does during a replay."""

    COMPUTE = 0
    MEMORY = 1
    COLLECTIVE = 2
    SEND = 3
    RECEIVE = 4
    PASS = 5
    """Metadata or a label, which has no effect on the network and ends immediately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceNode:
    """One node of a trace, as a view for display, tests and error messages.

    Attributes without a value in the file are None: ``peer``, ``tag``, ``root``,
    ``stream`` and ``start_ns``. ``comm_bytes`` is always in bytes, whatever unit the
    file uses (see ``bytes_per_element`` of the reader), or ``NO_SIZE``.
    ``dependencies`` are positions in the graph. ``splits`` are the bytes to and from
    each group member of an uneven all_to_all. ``op_type`` is the operator of a
    computation as its producer names it, or empty.
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

    @property
    def collective(self) -> CollectiveOp | None:
        """The collective, as replayed: an all_to_all with splits is an all_to_all_v.

        Chakra's format has no separate type for uneven all-to-alls.
        """
        return self.op if self.splits is None else CollectiveOp.ALL_TO_ALL_V
