"""Linked host traces equal the output of the converter."""

from __future__ import annotations

import io
import json
from collections import Counter
from typing import Any

import pytest

from chakram.chakra.et_codec import decode_node
from chakram.chakra.read.linked_traces import linked_records
from chakram.chakra.read.rank_decoder import RankTrace
from chakram.chakra.trace_warning import WarningKind
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.foundation.errors import GarbageTrace, TraceError
from chakram.trace.node import NodeKind
from tests.trace_bytes import read_stream

TENSOR = [7, 8, 0, 1000, 4, "cuda:0"]
NCCL = "ncclDevKernel_AllGather_RING_LL(x)"
ROOT = {"id": 0, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 0}
CPU = {"inputs": {"values": []}, "exclusive_dur": 10.9, "ts": 1e6}


def cpu(
    node_id: int, parent: int, name: str = "aten::op", **more: Any
) -> dict[str, Any]:
    return {"id": node_id, "name": name, "ctrl_deps": parent, **CPU, **more}


def gpu(node_id: int, parent: int, name: str = "kernel", **more: Any) -> dict[str, Any]:
    return cpu(node_id, parent, name, **{"cat": "kernel", "stream": 7, **more})


def record(node_id: int, values: list[Any]) -> dict[str, Any]:
    return cpu(
        node_id,
        0,
        "record_param_comms",
        inputs={"values": values, "types": ["Tensor(float)"]},
        outputs={"values": [TENSOR], "types": ["Tensor(float)"]},
        attrs=[],
    )


def read(*nodes: Any) -> RankTrace:
    text = json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": [ROOT, *nodes], "x": 5})
    return read_stream(io.BytesIO(text.encode()), rank=0, source="w.0.json").trace


def dependencies(trace: RankTrace) -> dict[int, list[int]]:
    graph = trace.graph
    return {
        each.node_id: [graph.node_id(position) for position in each.dependencies]
        for each in graph.nodes()
    }


def test_operations_follow_each_other_in_the_order_of_callers() -> None:
    # 3 is called by 1, but 2 ends before it: the tree is walked in depth.
    trace = read(cpu(1, 0), cpu(4, 1), cpu(2, 1), cpu(3, 2), cpu(5, 0))
    assert dependencies(trace) == {1: [], 2: [1], 3: [2], 4: [3], 5: [4]}
    first = trace.graph.node(0)
    assert (first.kind, first.duration_ns, first.start_ns) == (
        NodeKind.COMPUTE,
        10_900,
        1_000_000_000,
    )


def test_kernel_depends_on_its_launch_and_its_stream() -> None:
    for start in ({}, {"ts": None}):
        kernels = (gpu(2, 1), gpu(4, 3, **start))
        trace = read(cpu(1, 0), kernels[0], cpu(3, 0), kernels[1], cpu(5, 0))
        assert dependencies(trace) == {1: [], 2: [1], 3: [1], 4: [3, 2], 5: [3]}
        kinds = {each.kind for each in trace.warnings}
        assert (WarningKind.UNORDERED_KERNELS in kinds) == bool(start)


def test_kernels_wait_for_those_that_had_ended() -> None:
    trace = read(
        cpu(1, 0),
        gpu(2, 1, ts=10, exclusive_dur=50),
        gpu(3, 1, NCCL, ts=20, exclusive_dur=90, stream=13, pg_name="1"),
        gpu(4, 1, ts=60.5, exclusive_dur=10),
        gpu(5, 1, NCCL, ts=71, exclusive_dur=10, stream=14, pg_name="2"),
        gpu(6, 1, ts=110, exclusive_dur=10),
    )
    found = dependencies(trace)
    assert {each: set(found[each]) - {1} for each in range(2, 7)} == {
        2: set(),
        3: set(),
        4: {2},
        5: {4},
        6: {3, 4, 5},
    }


def test_wait_for_another_thread_is_a_dependency() -> None:
    trace = read(cpu(1, 0), cpu(2, 0), cpu(3, 0, inter_thread_dep=1))
    assert dependencies(trace)[3] == [2, 1]


def test_waits_for_kernels_are_dependencies() -> None:
    nodes = [cpu(node_id, 0, inter_thread_dep=None) for node_id in (1, 2, 3)]
    nodes.append(cpu(4, 0, inter_thread_dep=2, sync_dep=[1, 3]))
    assert dependencies(read(*nodes))[4] == [3, 2, 1]


def test_nccl_kernels_communicate_their_inputs() -> None:
    inputs = {"values": [TENSOR, [TENSOR, TENSOR], "x", 5, [1, 2, 3]]}
    trace = read(
        cpu(1, 0, "record_param_comms"),
        gpu(2, 1, "ncclDevKernel_AllGather_RING_LL(x)", inputs=inputs, pg_name="3"),
    )
    kernel = trace.graph.node(1)
    assert kernel.op is CollectiveOp.ALL_GATHER
    assert (kernel.comm_bytes, kernel.group, kernel.stream) == (12_000, "3", 7)


def test_kernels_of_symmetric_memory_and_of_rccl_communicate() -> None:
    inputs = {"values": [TENSOR]}
    trace = read(
        gpu(1, 0, "ncclSymDevKernel_AllGather_LL(x)", inputs=inputs),
        cpu(2, 0, "record_param_comms"),
        cpu(3, 2, "nccl:all_reduce"),
        gpu(4, 3, "ncclDevKernel_Generic_4(x)", inputs=inputs),
        cpu(5, 0, "c10d::reduce_scatter_tensor_coalesced_"),
        cpu(6, 5, "record_param_comms"),
        gpu(7, 6, "ncclDevKernel_Generic(x)", inputs=inputs),
    )
    graph = trace.graph
    assert [(graph.op(at), graph.comm_bytes(at)) for at in graph.communication()] == [
        (CollectiveOp.ALL_GATHER, 4000),
        (CollectiveOp.ALL_REDUCE, 4000),
        (CollectiveOp.REDUCE_SCATTER, 4000),
    ]


@pytest.mark.parametrize(
    ("caller", "kind", "op"),
    [
        ("c10d::send", NodeKind.SEND, None),
        ("c10d::recv_", NodeKind.RECEIVE, None),
        ("c10d::alltoall_base_", NodeKind.COLLECTIVE, CollectiveOp.ALL_TO_ALL),
        ("nccl:all_to_all", NodeKind.COLLECTIVE, CollectiveOp.ALL_TO_ALL),
        ("nccl:gather", NodeKind.COLLECTIVE, CollectiveOp.GATHER),
    ],
)
def test_caller_determines_send_or_receive(
    caller: str, kind: NodeKind, op: CollectiveOp | None
) -> None:
    kernel = gpu(3, 2, "ncclDevKernel_SendRecv(x)", inputs={"values": [TENSOR]})
    trace = read(cpu(1, 0, caller), cpu(2, 1, "record_param_comms"), kernel)
    node = trace.graph.node(2)
    assert (node.kind, node.op, node.comm_bytes) == (kind, op, 4000)


def test_record_states_the_group_of_a_kernel_that_states_none() -> None:
    values = [TENSOR, [5, False], ["3", "experts"], 0, "all_to_allv", [], [], 0, 2, 4]
    attrs = [{"name": "rf_id", "value": 7}, {"name": "pg_name", "value": "4"}]
    trace = read(
        record(1, values),
        cpu(2, 1, "nccl:all_to_all"),
        gpu(3, 2, "ncclDevKernel_SendRecv(x)", inputs={"values": [TENSOR]}),
        cpu(4, 0, "record_param_comms", attrs=attrs),
        gpu(5, 4, "ncclDevKernel_AllGather_RING_LL(x)"),
        gpu(6, 4, "ncclDevKernel_AllGather_RING_LL(x)", pg_name="5"),
    )
    groups = [trace.graph.group(position) for position in trace.graph.communication()]
    assert groups == ["3", "4", "5"]
    assert trace.groups["3"] == (0, 2, 4, 6)


def test_record_states_the_splits_of_an_all_to_all() -> None:
    # Rows of 100 elements of 4 bytes.
    values = [TENSOR, 5, ["3", "experts"], 0, "all_to_allv", [1, 0, 2, 7], [2, 2, 2, 4]]
    trace = read(
        record(1, values),
        cpu(2, 1, "nccl:all_to_all"),
        gpu(3, 2, "ncclDevKernel_SendRecv(x)", inputs={"values": [TENSOR]}),
    )
    kernel = trace.graph.node(2)
    assert (kernel.op, kernel.comm_bytes) == (CollectiveOp.ALL_TO_ALL, 4000)
    assert kernel.splits == Splits((400, 0, 800, 2800), (800, 800, 800, 1600))
    bare = {**record(1, values[1:]), "outputs": {"values": [], "types": []}}
    kernel = gpu(2, 1, "ncclDevKernel_SendRecv(x)", inputs={"values": [TENSOR]})
    without = read(bare, cpu(3, 1, "nccl:all_to_all"), {**kernel, "ctrl_deps": 3})
    assert without.graph.node(2).comm_bytes == 4000
    values[5] = [1, 0, 2, 8]
    with pytest.raises(TraceError, match="11 rows, which do not divide 1000"):
        read(record(1, values))


def test_converted_times_are_rounded_to_microseconds() -> None:
    text = json.dumps({"schema": "1.1.1", "nodes": [ROOT, cpu(1, 0), cpu(2, 0, ts=2)]})
    lost: Counter[str] = Counter()
    records = [body for _, body in linked_records([text.encode()], "w", lost)]
    assert decode_node(records[1], "w").duration_micros == 11
    assert lost["fractions of microseconds of a node, which are rounded"] == 2


def test_the_first_node_defines_process_groups() -> None:
    text = json.dumps([{"pg_name": "2", "ranks": [0, 3]}])
    init = cpu(1, 0, "## process_group:init ##", inputs={"values": [text]})
    assert read(init).groups == {"2": (0, 3)}


@pytest.mark.parametrize(
    ("node", "found"),
    [
        (5, "there is 5 instead of a node"),
        ({"id": 1, "ctrl_deps": 0}, "a node has no name"),
        (cpu(-1, 0), "id of a node is -1"),
        ({"id": 1, "name": "x"}, "parent of a node is None"),
        (cpu(1, 0, exclusive_dur="long"), "a time of a node is 'long'"),
        (cpu(1, 0, exclusive_dur=-5), "a time of a node is -5"),
        (cpu(1, 0, exclusive_dur=float("nan")), "a time of a node is nan"),
        (cpu(1, 0, inter_thread_dep=-3), "a wrong value"),
        (cpu(0, 0), "node id 0 occurs twice"),
        (
            gpu(1, 0, inputs={"values": [1, 2, 3, 2**60, 2**60, "cuda"]}),
            "exceeds any real buffer",
        ),
    ],
)
def test_a_wrong_node_is_refused(node: Any, found: str) -> None:
    with pytest.raises(GarbageTrace, match=found):
        read(node, cpu(9, 0))
