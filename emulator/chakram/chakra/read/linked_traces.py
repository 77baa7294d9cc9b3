"""Reader for PyTorch host traces that are linked with a profile.

``chakra_trace_link`` adds GPU kernels and all durations to a host trace.
``chakra_converter`` converts the result to Chakra nodes. This module reads linked
traces directly and creates the same records as the converter:

* CPU operations are computation. Each one waits for the previous one in a traversal of
  the caller tree, and for dependencies in other threads and on other streams that the
  linker found.
* GPU operations (nodes with a ``cat``) wait for the operation that launched them. NCCL
  kernels are collectives or messages. Their size is the size of the input tensors,
  which the linker copied from the calling operation.
* The root of the tree is left out, as in the converter.

Unlike the converter, this module keeps the start times, fractions of microseconds, and
the splits of uneven all-to-alls. A GPU operation also waits for GPU operations that
ended before it started, as in host traces (see ``chakram.chakra.read.pytorch.graph``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from chakram.chakra.et_codec import (
    AttributeValue,
    CollectiveType,
    Metadata,
    NodeType,
    encode_metadata,
)
from chakram.chakra.read.groups import (
    RECORD,
    group_of_record,
    is_process_group_init,
)
from chakram.chakra.read.json_records import encode, members_of
from chakram.chakra.read.json_scan import JsonScanner
from chakram.chakra.read.kernel_order import NCCL_KERNEL
from chakram.chakra.read.node_meaning import RECEIVED_SPLITS, SENT_SPLITS
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import GarbageTrace

if TYPE_CHECKING:
    from collections import Counter

    from chakram.collectives.split_sizes import Splits

_SEND_RECEIVE: Final = "SendRecv"
_GENERIC: Final = "Generic"
"""Part of the name of RCCL's kernel, which performs all collectives."""
_MEANINGS: Final = (
    ("alltoall", (NodeType.COMM_COLL, CollectiveType.ALL_TO_ALL)),
    ("scatter", (NodeType.COMM_COLL, CollectiveType.SCATTER)),
    ("gather", (NodeType.COMM_COLL, CollectiveType.GATHER)),
    ("send", (NodeType.COMM_SEND, None)),
    ("recv", (NodeType.COMM_RECV, None)),
)
"""Words in a caller's name, ignoring case and underscores, and their meanings."""
_CALLERS_LOOK: Final = 3
_TENSOR_FIELDS: Final = 6
"""A tensor is [id, storage, offset, elements, bytes per element, device]."""
_MOST: Final = 2**62
_MICROSECOND_NS: Final = 1_000
_DEEPEST: Final = 8
"""Maximum nesting depth of tensor lists. Real traces have one or two levels."""


@dataclass(slots=True)
class _Node:
    """One node: the content of its record, and its place in the caller tree."""

    offset: int
    node_id: int
    parent: int
    name: str
    on_gpu: bool
    duration_ns: int
    start_ns: int
    attributes: dict[str, AttributeValue]
    input_values: str
    group: str
    splits: Splits | None
    size_bytes: int
    after: list[int]
    children: list[_Node] = field(default_factory=list)
    data: list[int] = field(default_factory=list)


def linked_records(
    chunks: Iterable[bytes],
    source: str,
    lost: Counter[str] | None = None,
    *,
    unit_ns: int = _MICROSECOND_NS,
) -> Iterator[tuple[int, bytes]]:
    """Yield ``(offset, record)`` of a linked trace.

    The order of nodes is known only at the end, so all nodes stay in memory, without
    their tensors.

    Args:
        chunks: The bytes of the file.
        source: Name of the file, for error messages.
        lost: Counter of the data that the records lack, by description.
        unit_ns: Nanoseconds per unit of the times in the records.

    Raises:
        TraceError: At the first invalid node.
    """
    scanner = JsonScanner(chunks, source=source)
    nodes: dict[int, _Node] = {}
    for offset, raw in scanner.elements("nodes"):
        node = _node(raw, offset, source)
        if nodes.setdefault(node.node_id, node) is not node:
            raise GarbageTrace(
                f"{source}: offset {offset}",
                f"node id {node.node_id} occurs twice in the file",
                "use unique ids within each rank",
            )
    if lost is not None:
        lost["tensors and attributes of a node, which are not converted"] += len(nodes)
        lost.update(
            "fractions of microseconds of a node, which are rounded"
            for each in nodes.values()
            if each.duration_ns % unit_ns or each.start_ns % unit_ns
        )
    schema = scanner.members.get("schema", "")
    yield 0, encode_metadata(Metadata(attributes={"schema": str(schema)}))
    roots = [node for node in nodes.values() if node.parent not in nodes]
    roots += [node for node in nodes.values() if node.parent == node.node_id]
    for node in nodes.values():
        if node.parent in nodes and node.parent != node.node_id:
            nodes[node.parent].children.append(node)
    for root in roots:
        _order(root)
    _order_kernels([node for node in nodes.values() if node.on_gpu])
    dropped = {root.node_id for root in roots if root.parent == root.node_id}
    for node in nodes.values():
        if node.node_id not in dropped:
            yield node.offset, _record(node, nodes, dropped, source, unit_ns)


def _order(root: _Node) -> None:
    """Make each operation below *root* wait for the previous one.

    The order is a depth-first traversal of the caller tree, with siblings by id.
    """
    stack = [root]
    last: _Node | None = None
    last_on_cpu: _Node | None = None
    while stack:
        node = stack.pop()
        before = last if node.on_gpu else last_on_cpu
        if before is not None:
            node.data.append(before.node_id)
        node.data += node.after
        if node.on_gpu:
            last = last_on_cpu
        else:
            last = last_on_cpu = node
        stack.extend(sorted(node.children, key=lambda each: -each.node_id))


def _order_kernels(kernels: list[_Node]) -> None:
    """Make each kernel wait for the kernels that ended before it started.

    Do nothing if the stream or start of any kernel is unknown.
    """
    from chakram.chakra.read.pytorch.graph import HostOrder
    from chakram.chakra.read.pytorch.kineto import Span

    if not all(each.start_ns and "stream" in each.attributes for each in kernels):
        return
    order = HostOrder()
    for each in sorted(kernels, key=lambda each: each.node_id):
        stream = each.attributes["stream"]
        assert isinstance(stream, int)  # checked when the node was read
        span = Span(each.start_ns, each.duration_ns)
        if NCCL_KERNEL.search(each.name):
            # No trace links waits to kernels, so assume a wait after each transfer.
            each.data += order.transfer(
                each.node_id,
                group=None,
                sequence=None,
                is_async=False,
                queue=None,
                stream=stream,
                span=span,
            )
        else:
            each.data += order.compute(each.node_id, stream, span)


def _record(
    node: _Node,
    nodes: Mapping[int, _Node],
    dropped: set[int],
    source: str,
    unit_ns: int,
) -> bytes:
    node_type = NodeType.COMP
    attributes = {"is_cpu_op": not node.on_gpu, **node.attributes}
    if not node.on_gpu and is_process_group_init(node.name):
        node_type = NodeType.METADATA
    elif node.on_gpu and NCCL_KERNEL.search(node.name):
        node_type = NodeType.COMM_COLL
        if _SEND_RECEIVE in node.name:
            node_type, comm_type = _send_receive(node, nodes)
            if comm_type is not None:
                attributes["comm_type"] = int(comm_type)
        elif _GENERIC in node.name and (op := _called_collective(node, nodes)):
            attributes["comm_type"] = int(CollectiveType[op.name])
        attributes["comm_size"] = node.size_bytes
        for caller in _callers(node, nodes):
            # Profiles state no groups for send-receive kernels.
            if caller.group:
                attributes.setdefault("pg_name", caller.group)
            if caller.splits is not None and node_type == NodeType.COMM_COLL:
                attributes["comm_type"] = int(CollectiveType.ALL_TO_ALL)
                attributes["comm_size"] = sum(caller.splits.sent_bytes)
                attributes[SENT_SPLITS], attributes[RECEIVED_SPLITS] = caller.splits
    return encode(
        f"{source}: offset {node.offset}",
        node_id=node.node_id,
        name=node.name,
        node_type=node_type,
        data_deps=[each for each in dict.fromkeys(node.data) if each not in dropped],
        ctrl_deps=[node.parent],
        start_time_micros=_rounded(node.start_ns, unit_ns),
        duration_micros=_rounded(node.duration_ns, unit_ns),
        attributes=attributes,
        input_values=node.input_values,
    )


def _rounded(time_ns: int, unit_ns: int) -> int:
    return (time_ns + unit_ns // 2) // unit_ns


def _callers(node: _Node, nodes: Mapping[int, _Node]) -> Iterator[_Node]:
    """Yield the nearest callers of a kernel, starting with the one that launched it."""
    for _ in range(_CALLERS_LOOK):
        caller = nodes.get(node.parent)
        if caller is None:
            return
        yield caller
        node = caller


def _called_collective(node: _Node, nodes: Mapping[int, _Node]) -> CollectiveOp | None:
    """Return the collective that a caller of a kernel names, or None."""
    # Import on demand, because few traces need this module.
    from chakram.chakra.read.pytorch.communication_nodes import kind_of

    for caller in _callers(node, nodes):
        op = kind_of(caller.name)
        if isinstance(op, CollectiveOp):
            return op
    return None


def _send_receive(
    node: _Node, nodes: Mapping[int, _Node]
) -> tuple[NodeType, CollectiveType | None]:
    """Return the meaning of a send-receive kernel, derived from its callers' names."""
    for caller in _callers(node, nodes):
        words = caller.name.lower().replace("_", "")
        for word, meaning in _MEANINGS:
            if word in words:
                return meaning
    return NodeType.COMM_COLL, None


def _node(value: Any, offset: int, source: str) -> _Node:
    where = f"{source}: offset {offset}"
    raw = members_of(value, where)
    inputs = raw.get("inputs")
    values = inputs.get("values") if isinstance(inputs, dict) else inputs
    name = raw.get("name")
    if not isinstance(name, str):
        raise GarbageTrace(
            where, "a node has no name", "fix the producer: it must write this field"
        )
    on_gpu = raw.get("cat") is not None
    input_values = ""
    if is_process_group_init(name) or name == RECORD:
        input_values = repr(values)
    attributes: dict[str, AttributeValue] = {}
    if isinstance(raw.get("pg_name"), str):
        attributes["pg_name"] = raw["pg_name"]
    if isinstance(raw.get("stream"), int):
        attributes["stream"] = raw["stream"]
    return _Node(
        offset=offset,
        node_id=_number(raw, "id", where),
        parent=_number(raw, "ctrl_deps" if "ctrl_deps" in raw else "parent", where),
        name=name,
        on_gpu=on_gpu,
        duration_ns=_time_ns(raw.get("exclusive_dur"), where),
        start_ns=_time_ns(raw.get("ts"), where),
        attributes=attributes,
        input_values=input_values,
        group=_recorded_group(raw, input_values) if name == RECORD else "",
        splits=_recorded_splits(raw, values, offset, source)
        if name == RECORD
        else None,
        size_bytes=_tensor_bytes(values, where) if on_gpu else 0,
        after=[each for each in _linked(raw) if isinstance(each, int)],
    )


def _linked(raw: Mapping[str, Any]) -> list[Any]:
    """Return the dependencies that the linker added to a node."""
    on_streams = raw.get("sync_dep")
    others = on_streams if isinstance(on_streams, list) else []
    return [raw.get("inter_thread_dep"), *others]


def _recorded_group(raw: Mapping[str, Any], input_values: str) -> str:
    """Return the group name that a ``record_param_comms`` node states, or ""."""
    attributes = raw.get("attrs")
    for each in attributes if isinstance(attributes, list) else ():
        if isinstance(each, dict) and each.get("name") == "pg_name":
            value = each.get("value")
            return value if isinstance(value, str) else ""
    group = group_of_record(input_values)
    return "" if group is None else group.name


def _recorded_splits(
    raw: Mapping[str, Any], values: Any, offset: int, source: str
) -> Splits | None:
    """Return the splits in the ``record_param_comms`` node of an all-to-all."""
    from chakram.chakra.read.pytorch.communication_nodes import from_record, kind_of
    from chakram.chakra.read.pytorch.host_trace_nodes import host_node

    names = (each for each in values or () if isinstance(each, str))
    if CollectiveOp.ALL_TO_ALL not in map(kind_of, names):
        return None
    what = from_record(host_node(raw, offset=offset, source=source), None)
    splits = None if what is None else what.splits
    # Records without tensors do not show the size of a row.
    return splits if splits is not None and any(map(any, splits)) else None


def _number(raw: Mapping[str, Any], key: str, where: str) -> int:
    value = raw.get(key)
    if isinstance(value, int) and 0 <= value < 2**64:
        return value
    raise GarbageTrace(
        where, f"{key} of a node is {value!r:.40}", "use the number of a node"
    )


def _time_ns(value: Any, where: str) -> int:
    """Return a time in nanoseconds. The file has microseconds with a fraction."""
    if value is None:
        return 0
    if isinstance(value, int | float) and 0 <= value < _MOST // _MICROSECOND_NS:
        return round(value * _MICROSECOND_NS)
    raise GarbageTrace(where, f"a time of a node is {value!r:.40}", "use microseconds")


def _tensor_bytes(values: Any, where: str, depth: int = 0) -> int:
    """Return the total bytes of all tensors in the inputs, including nested lists."""
    if not isinstance(values, list) or depth == _DEEPEST:
        return 0
    if _is_tensor(values):
        size_bytes: int = values[3] * values[4]
        if not 0 <= size_bytes < _MOST:
            raise GarbageTrace(
                where,
                f"a tensor has {size_bytes} bytes",
                "check the size: it exceeds any real buffer",
            )
        return size_bytes
    return sum(_tensor_bytes(value, where, depth + 1) for value in values)


def _is_tensor(values: Sequence[Any]) -> bool:
    return (
        len(values) == _TENSOR_FIELDS
        and all(isinstance(number, int) for number in values[:5])
        and isinstance(values[5], str)
    )
