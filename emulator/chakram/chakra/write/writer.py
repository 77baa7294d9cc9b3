"""Writer for Chakra execution traces (schema 1.0.0) and their group file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from chakram.chakra import et_codec
from chakram.chakra.read.framing import frame
from chakram.chakra.read.groups import GROUPS_ATTRIBUTE, encode_group_file, groups_text
from chakram.chakra.read.node_meaning import LABEL_TIME, RECEIVED_SPLITS, SENT_SPLITS
from chakram.chakra.write.compatibility import GraphCompatibility
from chakram.chakra.write.new_set import GROUP_FILE, new_trace_set
from chakram.collectives.groups import WORLD, GroupDescription, ProcessGroup
from chakram.trace.graph import TraceGraph
from chakram.trace.node import CPU_STREAM, NodeKind, TraceNode

_NODE_TYPES: Final[Mapping[NodeKind, et_codec.NodeType]] = {
    NodeKind.COMPUTE: et_codec.NodeType.COMP,
    NodeKind.MEMORY: et_codec.NodeType.MEM_LOAD,
    NodeKind.COLLECTIVE: et_codec.NodeType.COMM_COLL,
    NodeKind.SEND: et_codec.NodeType.COMM_SEND,
    NodeKind.RECEIVE: et_codec.NodeType.COMM_RECV,
    # ASTRA-sim aborts at a metadata node. An empty computation also ends immediately.
    NodeKind.PASS: et_codec.NodeType.COMP,
}


def encode_trace(
    graph: TraceGraph, *, producer: str, groups: Sequence[GroupDescription] = ()
) -> Iterator[bytes]:
    """Yield the records of one rank's file.

    All dependencies become data dependencies. Times are rounded to microseconds, and
    sizes are in bytes. If the first start would be 0, 1 us is added to all starts.
    Nodes that do not affect the network become computations that take no time.

    Args:
        graph: The graph of the rank.
        producer: The producer to state in the metadata.
        groups: The rank's groups and their purposes, for the metadata. PyTorch stores
            them in a node, but ASTRA-sim aborts at such a node.

    Raises:
        ValueError: If the schema has no number for a collective.
    """
    attributes: dict[str, et_codec.AttributeValue] = {"producer": producer}
    if groups:
        attributes[GROUPS_ATTRIBUTE] = groups_text(
            (each.group.name, each.purpose, each.group.ranks) for each in groups
        )
    metadata = et_codec.Metadata(version=et_codec.SCHEMA_VERSION, attributes=attributes)
    yield frame(et_codec.encode_metadata(metadata))
    shift_ns = _start_shift_ns(graph)
    for node in graph.nodes():
        yield frame(
            et_codec.encode_node(
                node_id=node.node_id,
                name=et_codec.add_type_prefix(node.name, _NODE_TYPES[node.kind]),
                node_type=_NODE_TYPES[node.kind],
                data_deps=[graph.node_id(i) for i in node.dependencies],
                start_time_micros=0
                if node.start_ns is None
                else round((node.start_ns + shift_ns) / 1_000),
                duration_micros=0
                if node.kind is NodeKind.PASS
                else round(node.duration_ns / 1_000),
                attributes=_attributes(node),
            )
        )


def _start_shift_ns(graph: TraceGraph) -> int:
    """Return the time to add to all starts, so that no start is written as 0.

    In a file, 0 means that the start is unknown. Profiles measure time from their first
    event, so a known start can be 0.
    """
    starts_ns = (graph.start_ns(position) for position in range(len(graph)))
    first_ns = min((each for each in starts_ns if each is not None), default=1_000)
    return 0 if round(first_ns / 1_000) else 1_000


def _attributes(node: TraceNode) -> dict[str, et_codec.AttributeValue]:
    values: dict[str, et_codec.AttributeValue | None] = {}
    if node.kind is NodeKind.PASS:
        values[LABEL_TIME] = round(node.duration_ns / 1_000)
    if node.kind in (NodeKind.COMPUTE, NodeKind.MEMORY, NodeKind.PASS):
        # Write zeros too: ASTRA-sim's roofline model hangs at a node without these
        # values.
        values["num_ops"] = node.num_ops
        values["tensor_size"] = node.tensor_bytes
        values["op_type"] = node.op_type or None
    else:
        if node.comm_bytes >= 0:
            values["comm_size"] = node.comm_bytes
        values["pg_name"] = None if node.group == WORLD else node.group
        values["comm_tag"] = node.tag
        values["root"] = node.root
    if node.kind is NodeKind.SEND:
        values["comm_dst"] = node.peer
    elif node.kind is NodeKind.RECEIVE:
        values["comm_src"] = node.peer
    elif node.kind is NodeKind.COLLECTIVE:
        name = "" if node.op is None else node.op.name.removesuffix("_V")
        if name not in et_codec.CollectiveType.__members__:
            raise ValueError(f"node {node.node_id}: the schema has no {node.op}")
        values["comm_type"] = int(et_codec.CollectiveType[name])
        if node.splits is not None:
            values[SENT_SPLITS], values[RECEIVED_SPLITS] = node.splits
    on_cpu = node.stream == CPU_STREAM
    values["is_cpu_op"] = on_cpu
    values["stream"] = None if on_cpu else node.stream
    return {name: value for name, value in values.items() if value is not None}


def write_trace_set(
    folder: Path,
    *,
    prefix: str,
    graphs: Iterable[TraceGraph],
    groups: Iterable[ProcessGroup],
    producer: str,
    descriptions_of: Callable[[int], Sequence[GroupDescription]] | None = None,
    replace: bool = False,
    on_rank: Callable[[int], None] | None = None,
    elsewhere: GraphCompatibility | None = None,
) -> list[Path]:
    """Write ``<prefix>.<rank>.et`` for every rank, and a group file if needed.

    Args:
        folder: The target. It is created if it does not exist.
        prefix: Start of the file names.
        graphs: The graphs, by rank from 0. Each is written before the next one is
            requested.
        groups: The groups that the nodes name. ``world`` needs no definition.
        producer: The producer to state in the metadata.
        descriptions_of: Function that returns the groups to describe in a rank's file.
        replace: Replace an existing group file and an existing set with that prefix.
        on_rank: Called with the number of ranks written, after each rank.
        elsewhere: Collector of incompatibilities with other readers.

    Returns:
        The written files.

    Raises:
        RunDirectoryError: If the folder cannot be written or already has such files.
        ValueError: If the schema cannot represent a group name or a collective.
    """
    defined = {group.name: group.ranks for group in groups if group.name != WORLD}
    with new_trace_set(folder, prefix=prefix, force=replace) as new:
        for rank, graph in enumerate(graphs):
            described = descriptions_of(rank) if descriptions_of else ()
            with new.open(f"{prefix}.{rank}.et") as file:
                file.writelines(
                    encode_trace(graph, producer=producer, groups=described)
                )
            if elsewhere is not None:
                elsewhere.add(graph)
            if on_rank is not None:
                on_rank(rank + 1)
        if defined:
            with new.open(GROUP_FILE) as file:
                file.write(encode_group_file(defined))
        return new.written()
