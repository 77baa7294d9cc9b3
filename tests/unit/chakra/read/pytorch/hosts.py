"""Builders of small PyTorch host traces, in both node formats."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from chakram.chakra.read.pytorch.kineto import Profile, read_profile
from chakram.chakra.read.rank_decoder import RankTrace
from chakram.chakra.read.reader import ReadProfile
from chakram.chakra.read.reader_options import ReadOptions
from chakram.trace.node import TraceNode
from tests.trace_bytes import read_stream

ROOT = 2
WORLD = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 4}
PAIR = {"pg_name": "7", "pg_desc": "pp", "ranks": [1, 3], "group_size": 2}
ALL_TO_ALL = (
    "c10d::alltoall_base_(Tensor output, Tensor input, __torch__.PG process_group, "
    "int[] output_split_sizes, int[] input_split_sizes, bool async_op=True, "
    "int timeout=-1) -> __torch__.Work"
)
ALL_REDUCE = (
    "c10d::allreduce_(Tensor[] tensors, __torch__.PG process_group, __torch__.Op op, "
    "Tensor? sparse_indices, bool async_op=True, int timeout=-1) -> (Tensor[], Work)"
)


def tensor(elements: int, size: int = 4) -> list[Any]:
    return [5, 6, 0, elements, size, "cpu"]


def node(
    node_id: int,
    name: str,
    inputs: Sequence[Any] = (),
    types: Sequence[str] = (),
    *,
    parent: int = ROOT,
    outputs: Sequence[Any] = (),
    output_types: Sequence[str] = (),
    schema: str = "",
    old: bool = False,
    **attributes: Any,
) -> dict[str, Any]:
    """A node; its record function has ten times its id."""
    if old:
        return {
            "name": name, "id": node_id, "rf_id": 10 * node_id, "parent": parent,
            "op_schema": schema, "inputs": list(inputs), "input_types": list(types),
            "outputs": list(outputs), "output_types": list(output_types), **attributes,
        }  # fmt: skip
    values = {"rf_id": 10 * node_id, "op_schema": schema, **attributes}
    return {
        "id": node_id, "name": name, "ctrl_deps": parent,
        "inputs": {"values": list(inputs), "types": list(types)},
        "outputs": {"values": list(outputs), "types": list(output_types)},
        "attrs": [
            {"name": key, "type": "?", "value": each} for key, each in values.items()
        ],
    }  # fmt: skip


def groups(*entries: dict[str, Any], node_id: int = 3) -> dict[str, Any]:
    """The node that defines the groups."""
    name = "## process_group:init ##"
    return node(node_id, name, [json.dumps(entries)], ["String"])


def record(
    node_id: int,
    op: str,
    sent: Any,
    *,
    received: Any = None,
    sequence: Any = 1,
    group: Any = ("0", "default_pg"),
    rank: int = 0,
    in_splits: Sequence[int] = (),
    out_splits: Sequence[int] = (),
    behind: Sequence[Any] = (),
    **more: Any,
) -> dict[str, Any]:
    """A ``record_param_comms`` node; no tensors where *sent* is None."""
    head = [] if sent is None else [sent]
    listed = isinstance(sent, list) and sent != [] and isinstance(sent[0], list)
    kind = "GenericList[Tensor(float)]" if listed else "Tensor(float)"
    values = [
        *head, sequence, list(group) if isinstance(group, tuple) else group, rank, op,
        list(in_splits), list(out_splits), *behind,
    ]  # fmt: skip
    types = [*([kind] if head else []), *(["Int"] * 3), "String"]
    outputs = sent if received is None else received
    return node(
        node_id,
        "record_param_comms",
        values,
        types + ["GenericList[]"] * (len(values) - len(types)),
        outputs=[] if outputs is None else [outputs],
        output_types=[] if outputs is None else [kind],
        **more,
    )


def wait(node_id: int, sequence: Any, **more: Any) -> dict[str, Any]:
    return record(node_id, "wait", None, sequence=sequence, **more)


def all_to_all(
    node_id: int,
    sent: int,
    received: int,
    in_splits: Sequence[int] = (),
    out_splits: Sequence[int] = (),
    *,
    is_async: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """A ``c10d::alltoall_base_`` node: buffers in elements of four bytes."""
    return node(
        node_id,
        "c10d::alltoall_base_",
        [
            tensor(received), tensor(sent), "<Object>", list(out_splits),
            list(in_splits), is_async, -1,
        ],
        ["Tensor(float)", "Tensor(float)", "Object", "GenericList[]", "GenericList[]",
         "Bool", "Int"],
        schema=ALL_TO_ALL,
        **more,
    )  # fmt: skip


def all_reduce(
    node_id: int, elements: int, *, is_async: bool = False, **more: Any
) -> dict[str, Any]:
    """A ``c10d::allreduce_`` node."""
    return node(
        node_id,
        "c10d::allreduce_",
        [[tensor(elements)], "<Object>", "<Object>", "<None>", is_async, -1],
        ["GenericList[Tensor(float)]", "Object", "Object", "None", "Bool", "Int"],
        schema=ALL_REDUCE,
        **more,
    )


def text(*nodes: Any, schema: str = "1.1.1-chakra.0.0.4") -> bytes:
    root = node(1, "[pytorch|profiler|execution_trace|process]", parent=1)
    thread = node(ROOT, "[pytorch|profiler|execution_trace|thread]", parent=1)
    return json.dumps(
        {"schema": schema, "pid": 1, "nodes": [root, thread, *nodes]}
    ).encode()


def profile(*events: dict[str, Any]) -> Profile:
    content = json.dumps({"schemaVersion": 1, "traceEvents": list(events)}).encode()
    return read_profile([content], "device.0.json")


def event(
    rf_id: int,
    start_us: float,
    duration_us: float,
    *,
    thread: int = 1,
    category: str = "cpu_op",
    name: str = "aten::mm",
    process: int = 1,
) -> dict[str, Any]:
    """An event of the CPU; its external id is its record function's and a million."""
    return {
        "ph": "X", "cat": category, "name": name, "pid": process, "tid": thread,
        "ts": start_us, "dur": duration_us,
        "args": {"External id": rf_id + 1_000_000, "Record function id": rf_id},
    }  # fmt: skip


def kernel(
    rf_id: int, start_us: float, duration_us: float, *, stream: int
) -> dict[str, Any]:
    return {
        "ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": stream,
        "ts": start_us, "dur": duration_us,
        "args": {"External id": rf_id + 1_000_000, "stream": stream},
    }  # fmt: skip


def read(
    *nodes: Any,
    rank: int = 0,
    schema: str = "1.1.1-chakra.0.0.4",
    profiled: Profile | None = None,
    unnamed_groups: Mapping[str, str] | None = None,
) -> RankTrace:
    """Read a trace of these nodes behind the root and its thread."""
    given = None if profiled is None else ReadProfile(profile=profiled, sha256="x")
    return read_stream(
        io.BytesIO(text(*nodes, schema=schema)),
        rank=rank,
        source="host.0.json",
        options=ReadOptions(unnamed_groups=unnamed_groups or {}),
        profile_of=None if given is None else lambda _: given,
    ).trace


def nodes_of(*rows: object, **how: Any) -> list[TraceNode]:
    return list(read(*rows, **how).graph.nodes())


def after(nodes: list[TraceNode], node_id: int) -> set[int]:
    """Return the ids of the dependencies of a node."""
    (found,) = (each for each in nodes if each.node_id == node_id)
    return {nodes[position].node_id for position in found.dependencies}
