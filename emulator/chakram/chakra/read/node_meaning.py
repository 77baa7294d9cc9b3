"""Interpretation of a node message: its kind and the numbers needed for a replay.

Producers agree on the names of attributes, but not on their types or presence.
``docs/reference/traces.md`` has a table of the attributes that each producer writes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from chakram.chakra.et_codec import (
    AttributeValue,
    CollectiveType,
    Node,
    NodeType,
    attribute_values,
)
from chakram.chakra.read.groups import ALL_RANKS_NAMES, inline_group, normal_name
from chakram.chakra.read.involved_dims import GroupPart, all_involved, part_of_group
from chakram.chakra.trace_warning import WarningKind
from chakram.collectives.ops import ROOTED, CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.foundation.errors import TraceError
from chakram.trace.node import CPU_STREAM, NO_SIZE, NodeKind

# REDUCE_SCATTER_BLOCK has equal parts, like every reduce-scatter in Chakram.
COLLECTIVE_OPS: Final[Mapping[int, CollectiveOp]] = {
    each: CollectiveOp[each.name.removesuffix("_BLOCK")] for each in CollectiveType
}

Oddity: TypeAlias = tuple[WarningKind, str]
"""Kind and text of a warning about a node."""

_OPS_BY_WORD: Final = (
    ("allreduce", CollectiveOp.ALL_REDUCE),
    ("allgather", CollectiveOp.ALL_GATHER),
    ("reducescatter", CollectiveOp.REDUCE_SCATTER),
    ("alltoall", CollectiveOp.ALL_TO_ALL),
    ("broadcast", CollectiveOp.BROADCAST),
)
"""Words in kernel and operator names, ignoring case and underscores."""

_FLINT_MARKS = frozenset({"group_size", "group_count"})

SENT_SPLITS, RECEIVED_SPLITS = "in_split_sizes", "out_split_sizes"
"""Attributes with the split sizes of an uneven all-to-all.

They state how a rank's input and output are divided, by position in the group, in the
unit of ``comm_size``. The names are PyTorch's. No other producer is known to write them
into communication nodes.
"""

LABEL_TIME = "label_duration_micros"
"""Attribute that marks an empty computation as a label and states its duration.

Dedicated node types for labels would make files unreadable for other tools.
"""

_COMPUTE_ATTRIBUTES = frozenset(
    {"num_ops", "tensor_size", "stream", "is_cpu_op", "op_type", LABEL_TIME}
)
_COMM_ATTRIBUTES = frozenset(
    {
        "comm_type",
        "comm_size",
        "comm_src",
        "comm_dst",
        "comm_tag",
        "comm_group",
        "pg_name",
        "ranks",
        "root",
        SENT_SPLITS,
        RECEIVED_SPLITS,
        "is_cpu_op",
        "tensor_size",
        "stream",
        "group_size",
        "group_count",
        "involved_dim",
    }
)
_INT64_MAX = 2**63 - 1
_MICROSECOND_NS = 1_000
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_PASSED = frozenset(
    {NodeType.INVALID, NodeType.METADATA, NodeType.STORAGE, NodeType.DATA_OP}
)


@dataclass(slots=True, eq=False, kw_only=True)
class NodeReader:
    """Interpreter of node messages. It also collects the groups that nodes define.

    ``PlainNodes`` reads plain nodes faster, with the same result.

    Attributes:
        rank: The rank of the file. Sends need not state this rank as their source, nor
            receives as their destination.
        bytes_per_unit: Bytes per unit of a stored size.
        zero_is_a_group: Whether group ``0`` is a separate group instead of all ranks.
        uncorrected: Kinds of known producer deviations that are not corrected.
        dimensions: Number of ranks along each dimension. Empty if unknown.
        nranks: Number of ranks in the set, or 0 if unknown.
        duration_unit_ns: Nanoseconds per unit of a stored time.
        groups: The groups that nodes define, by name.
        parts: The parts of groups for collectives over some dimensions, by name.
        counts_groups: Whether a collective stated the size and number of groups.
    """

    rank: int
    bytes_per_unit: int
    zero_is_a_group: bool
    uncorrected: frozenset[WarningKind] = frozenset()
    dimensions: tuple[int, ...] = ()
    nranks: int = 0
    duration_unit_ns: int = _MICROSECOND_NS
    counts_groups: bool = False
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    parts: dict[str, GroupPart] = field(default_factory=dict)

    def columns(
        self, node: Node, where: str
    ) -> tuple[dict[str, Any], Sequence[Oddity]]:
        """Return the arguments of ``TraceGraphBuilder.add``, and the warnings.

        The result does not include dependencies, offset, id or name.

        Raises:
            TraceError: If the node has no valid meaning. *where* is the error's
                location.
        """
        node_type = int(node.type)
        columns: dict[str, Any] = {"kind": NodeKind.PASS}
        if node.duration_micros:
            columns["duration_ns"] = self._time(node.duration_micros, where)
        if node.start_time_micros:
            columns["start_ns"] = self._time(node.start_time_micros, where)
        if node_type == NodeType.COMP:
            self._add_compute(columns, node, where, NodeKind.COMPUTE)
            return columns, ()
        if node_type == NodeType.COMM_COLL:
            return columns, self._add_collective(columns, node, where)
        if node_type in (NodeType.COMM_SEND, NodeType.COMM_RECV):
            return columns, self._add_message(columns, node, where)
        if node_type in (NodeType.MEM_LOAD, NodeType.MEM_STORE):
            self._add_compute(columns, node, where, NodeKind.MEMORY)
            return columns, ()
        if node_type in _PASSED:
            return columns, ()
        unknown = f"node type {node_type} is unknown; the node takes no time"
        return columns, [(WarningKind.UNKNOWN_NODE_TYPE, unknown)]

    def _add_compute(
        self, columns: dict[str, Any], node: Node, where: str, kind: NodeKind
    ) -> None:
        values = attribute_values(node.attr, where, _COMPUTE_ATTRIBUTES)
        if LABEL_TIME in values:
            lasted = _count(values, LABEL_TIME, where)
            columns["duration_ns"] = self._time(lasted, where)
            return
        columns["kind"] = kind
        if "num_ops" in values:
            columns["num_ops"] = _count(values, "num_ops", where)
        if "tensor_size" in values:
            columns["tensor_bytes"] = self._size(values, "tensor_size", where)
        op_type = values.get("op_type")
        if isinstance(op_type, str):
            columns["op_type"] = op_type
        stream = _integer(values, "stream", where) if "stream" in values else -1
        # A node without is_cpu_op ran on a GPU, as in Chakra's feeder. CPU nodes can
        # state a stream too, but it has no meaning.
        if "is_cpu_op" in values and _integer(values, "is_cpu_op", where) != 0:
            columns["stream"] = CPU_STREAM
        elif stream >= 0:
            columns["stream"] = stream

    def _add_collective(
        self, columns: dict[str, Any], node: Node, where: str
    ) -> Sequence[Oddity]:
        values = attribute_values(node.attr, where, _COMM_ATTRIBUTES)
        on_cpu = "is_cpu_op" in values and _integer(values, "is_cpu_op", where) != 0
        if (
            on_cpu
            and not ("comm_type" in values and "comm_size" in values)
            and WarningKind.COLLECTIVE_LABEL not in self.uncorrected
        ):
            label = (
                "a collective on the CPU without type or size is read as a label of "
                "the collective on the GPU; it takes no time"
            )
            return [(WarningKind.COLLECTIVE_LABEL, label)]
        oddities: list[Oddity] = []
        # ALL_REDUCE is 0. An attribute that is present counts, even with the value 0.
        if "comm_type" in values:
            number = _count(values, "comm_type", where)
            op = COLLECTIVE_OPS.get(number)
            if op is None:
                raise TraceError(
                    where,
                    f"comm_type {number} is not a collective",
                    "use a number from 0 to 9",
                )
        else:
            op = self._op_of_name(node.name, where)
            untyped = f"a collective has no comm_type; its name implies {op}"
            oddities.append((WarningKind.UNTYPED_COLLECTIVE, untyped))
        columns["kind"] = NodeKind.COLLECTIVE
        columns["op"] = op
        columns["group"] = self._involved(values, self._group(values, where), where)
        if "comm_size" in values:
            size_bytes = self._size(values, "comm_size", where)
            factor = self._divided(op, values)
            if factor != 1:
                divided = (
                    "Flint divides the size of every collective by the number of ranks "
                    f"in its group; the size of this {op} is multiplied by {factor}"
                )
                oddities.append((WarningKind.DIVIDED_SIZES, divided))
            columns["comm_bytes"] = min(size_bytes * factor, _INT64_MAX)
        elif op is not CollectiveOp.BARRIER:
            columns["comm_bytes"] = NO_SIZE
            unsized = f"{op} has no comm_size and cannot be replayed"
            oddities.append((WarningKind.NO_SIZE, unsized))
        if op is CollectiveOp.ALL_TO_ALL:
            splits = self._splits(values, where)
            if splits is not None:
                columns["splits"] = splits
        if op in ROOTED and "root" in values:
            columns["root"] = _count(values, "root", where)
        if "stream" in values:
            columns["stream"] = _integer(values, "stream", where)
        return oddities

    def _op_of_name(self, name: str, where: str) -> CollectiveOp:
        """Return the collective that the name of a kernel implies.

        Raises:
            TraceError: If the name implies no collective, or if names must not be used.
        """
        if WarningKind.UNTYPED_COLLECTIVE not in self.uncorrected:
            plain = name.lower().replace("_", "")
            for word, op in _OPS_BY_WORD:
                if word in plain:
                    return op
        raise TraceError(
            where,
            "a collective has no comm_type",
            "fix the producer: it must write this attribute",
        )

    def _divided(self, op: CollectiveOp, values: Mapping[str, AttributeValue]) -> int:
        """Return the factor that converts a stored size to the size of the input.

        Flint divides the size of the output by the number of ranks in the group. The
        result is correct only for an all-gather.
        """
        ranks = values.get("ranks")
        if not isinstance(ranks, tuple) or not values.keys() >= _FLINT_MARKS:
            return 1
        self.counts_groups = True
        if WarningKind.DIVIDED_SIZES in self.uncorrected or not ranks:
            return 1
        if op is CollectiveOp.REDUCE_SCATTER:
            return len(ranks) ** 2
        return 1 if op is CollectiveOp.ALL_GATHER else len(ranks)

    def _splits(
        self, values: Mapping[str, AttributeValue], where: str
    ) -> Splits | None:
        """Return how an all-to-all divides its buffers, or None for even parts."""
        rows: list[tuple[int, ...]] = []
        for name in (SENT_SPLITS, RECEIVED_SPLITS):
            stored = values.get(name, ())
            if not isinstance(stored, tuple):
                raise TraceError(
                    where,
                    f"{name} is {str(stored)[:40]!r}",
                    "use a list of sizes",
                )
            sizes = ({name: size} for size in stored)
            rows.append(tuple(self._size(size, name, where) for size in sizes))
        sent, received = rows
        if not sent and not received:
            return None
        if len(sent) != len(received):
            raise TraceError(
                where,
                f"{SENT_SPLITS} has {len(sent)} parts, but {RECEIVED_SPLITS} has "
                f"{len(received)}",
                "use one part per member of the group in each list",
            )
        if "comm_size" in values and self._size(values, "comm_size", where) != sum(
            sent
        ):
            raise TraceError(
                where,
                f"{SENT_SPLITS} adds up to {sum(sent)} bytes, but comm_size is "
                f"{self._size(values, 'comm_size', where)}",
                "set comm_size to the size of the whole send buffer",
            )
        return Splits(sent, received)

    def _add_message(
        self, columns: dict[str, Any], node: Node, where: str
    ) -> Sequence[Oddity]:
        values = attribute_values(node.attr, where, _COMM_ATTRIBUTES)
        sends = int(node.type) == NodeType.COMM_SEND
        own, other = ("comm_src", "comm_dst") if sends else ("comm_dst", "comm_src")
        columns["kind"] = NodeKind.SEND if sends else NodeKind.RECEIVE
        if own in values and (stated := _integer(values, own, where)) != self.rank:
            raise TraceError(
                where,
                f"{own} is {stated}, but this is the file of rank {self.rank}",
                "check that the files are numbered by rank, from 0",
            )
        columns["group"] = self._group(values, where)
        if "comm_tag" in values:
            columns["tag"] = _integer(values, "comm_tag", where)
        if "stream" in values:
            columns["stream"] = _integer(values, "stream", where)
        # The generator of the reference tools stores the message size in tensor_size.
        size = next(
            (name for name in ("comm_size", "tensor_size") if name in values), None
        )
        columns["comm_bytes"] = (
            NO_SIZE if size is None else self._size(values, size, where)
        )
        peer = _integer(values, other, where) if other in values else -1
        # Some tools write "none" as a negative rank.
        if peer >= 0:
            columns["peer"] = peer
        else:
            alone = f"a message has no {other} and cannot be replayed"
            return [(WarningKind.NO_PEER, alone)]
        if size is None:
            unsized = (
                "a message has no size; it may be in the body of a custom collective"
            )
            return [(WarningKind.NO_SIZE, unsized)]
        return ()

    def _group(self, values: Mapping[str, AttributeValue], where: str) -> str | None:
        raw = values.get("pg_name", values.get("comm_group", ""))
        if isinstance(raw, tuple | bytes):
            raise TraceError(
                where,
                "the name of its process group is a list or bytes",
                "use a text or a number (pg_name, comm_group)",
            )
        if values.get("ranks"):
            name, members = inline_group(normal_name(str(raw)), values["ranks"], where)
            self.groups[name] = members
            return name
        return self.group_of(str(raw))

    def _involved(
        self, values: Mapping[str, AttributeValue], group: str | None, where: str
    ) -> str | None:
        """Return the group of a collective: *group*, or the involved part of it."""
        flags = values.get("involved_dim", ())
        if all_involved(flags, where) or not isinstance(flags, tuple):
            return group
        part = part_of_group(
            flags,
            group=group,
            rank=self.rank,
            dimensions=self.dimensions,
            nranks=self.nranks,
            where=where,
        )
        if part is None:
            return group
        self.parts[part.name] = part
        return part.name

    def group_of(self, stored: str) -> str | None:
        """Return the graph's name for a stored group name, or None for all ranks."""
        name = normal_name(stored)
        if name in ALL_RANKS_NAMES and not (name and self.zero_is_a_group):
            return None
        return name

    def _time(self, stored: int, where: str) -> int:
        time_ns = stored * self.duration_unit_ns
        if time_ns > _INT64_MAX:
            raise TraceError(
                where, f"a time is {stored} us", "check the time: it exceeds 292 years"
            )
        return time_ns

    def _size(self, values: Mapping[str, AttributeValue], name: str, where: str) -> int:
        size_bytes = _count(values, name, where) * self.bytes_per_unit
        if size_bytes > _INT64_MAX:
            raise TraceError(
                where,
                f"{name} is {values[name]!r}",
                "check the size: it exceeds any real buffer",
            )
        return size_bytes


def _count(values: Mapping[str, AttributeValue], name: str, where: str) -> int:
    value = _integer(values, name, where)
    if value < 0:
        raise TraceError(
            where, f"{name} is {value}", "use a number that is not negative"
        )
    return value


def _integer(values: Mapping[str, AttributeValue], name: str, where: str) -> int:
    """Return an attribute as an integer, from any oneof field."""
    value = values[name]
    number: int | None = None
    if isinstance(value, int):
        number = int(value)
    elif isinstance(value, float):
        number = int(value) if value.is_integer() else None
    elif isinstance(value, str) and _INTEGER.fullmatch(value):
        number = int(value)
    if number is None:
        shown = repr(value)[:40]
        raise TraceError(where, f"{name} is {shown}", "use an integer")
    if not -_INT64_MAX <= number <= _INT64_MAX:
        raise TraceError(where, f"{name} is {number}", "use a number that fits 64 bits")
    return number
