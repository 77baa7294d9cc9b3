"""JSON traces equal binary ones."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from chakram.chakra.read.rank_decoder import RankTrace
from chakram.chakra.read.reader_options import ReadOptions
from chakram.chakra.trace_warning import WarningKind
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import GarbageTrace, TraceError, UnsupportedTrace
from chakram.trace.node import NodeKind
from tests.trace_bytes import read_stream


def read(*messages: Any, **options: Any) -> RankTrace:
    text = "".join(json.dumps(message, indent=2) for message in messages)
    return read_stream(
        io.BytesIO(text.encode()),
        rank=0,
        source="w.0.json",
        options=ReadOptions(**options),
    ).trace


def jsonized(**members: Any) -> RankTrace:
    return read({"version": "0.0.4"}, {"name": "n", **members})


def feeder(*nodes: Any, **options: Any) -> RankTrace:
    graph = {"workload_name": "w", "workload_graph": nodes, "ngpus": 8}
    return read(graph, **options)


def stage(*nodes: Any) -> RankTrace:
    return read({"nodes": nodes}, bytes_per_element=2)


def test_the_jsonizer_writes_numbers_as_texts_and_leaves_zeros_out() -> None:
    trace = read(
        {"version": "0.0.4", "attr": [{"name": "schema", "stringVal": "1.0.1"}]},
        {"name": "zero", "type": "COMP_NODE", "durationMicros": "7"},
        {
            "id": "18446744073709551615",
            "type": "COMM_COLL_NODE",
            "dataDeps": ["0"],
            "attr": [
                {"name": "comm_type", "int64Val": "0"},
                {"name": "comm_size", "uint64Val": "4096"},
                {"name": "ranks", "int64List": {"values": ["0", "1"]}},
                {"name": "new", "anyVal": {"@type": "x"}},
            ],
        },
        {"id": "3", "type": 8, "storage": {"level": 1}},
    )
    first, second, third = trace.graph.nodes()
    assert (first.node_id, first.kind, first.duration_ns) == (0, NodeKind.COMPUTE, 7000)
    assert second.node_id == 2**64 - 1
    assert (second.op, second.comm_bytes) == (CollectiveOp.ALL_REDUCE, 4096)
    assert second.dependencies == (0,)
    assert third.kind is NodeKind.PASS
    assert trace.groups == {"group[0,1]": (0, 1)}
    assert trace.metadata.attributes["schema"] == "1.0.1"


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ({"type": "FUTURE_NODE"}, "node type 'FUTURE_NODE' is unknown"),
        ({"id": "x"}, "not a Chakra message in JSON"),
        ({"id": "-1"}, "not a Chakra message in JSON"),
        ({"dataDeps": 5}, "not a Chakra message in JSON"),
        ({"id": float("inf")}, "not a Chakra message in JSON"),
        ({"attr": [5]}, "not a Chakra message in JSON"),
        ({"attr": [{"name": "x", "int64List": [5]}]}, "not a Chakra message in JSON"),
        ({"name": ["n"]}, "not a Chakra message in JSON"),
    ],
)
def test_invalid_jsonizer_message_is_refused(
    members: dict[str, Any], found: str
) -> None:
    with pytest.raises(GarbageTrace, match=found):
        jsonized(**members)


def test_an_old_schema_is_refused_in_json_too() -> None:
    with pytest.raises(UnsupportedTrace, match=r"'parent'.* before 0\.0\.4"):
        jsonized(parent=["1"])


@pytest.mark.parametrize("spelling", ["dataDeps", "data_deps"])
def test_first_node_of_json_without_metadata_is_read(spelling: str) -> None:
    trace = read(
        {"id": "1", "name": "first", "type": "COMP_NODE", "durationMicros": "7"},
        {"id": "2", "name": "second", "type": "COMP_NODE", spelling: ["1"]},
    )
    assert [node.name for node in trace.graph.nodes()] == ["first", "second"]
    assert [each.kind for each in trace.warnings] == [WarningKind.NO_METADATA]


def test_feeder_json_is_read_with_fractions_of_microseconds() -> None:
    trace = feeder(
        {"Id": 5, "Name": "mm", "NodeType": 4, "data_deps": [], "runtime": 12.7254},
        {
            "Id": 7,
            "Name": "ncclAllGather",
            "NodeType": 7,
            "ctrlDeps": [99],
            "data_deps": [5],
            "is_cpu_op": False,
            "comm_type": 2,
            "comm_size": 4096,
        },
        {
            "Id": 9,
            "Name": "send",
            "NodeType": 5,
            "comm_size": 1,
            "comm_dst": 3,
            "comm_tag": None,
        },
    )
    compute, gather, send = trace.graph.nodes()
    assert (compute.node_id, compute.name, compute.duration_ns) == (5, "mm", 12_725)
    assert (gather.op, gather.comm_bytes) == (CollectiveOp.ALL_GATHER, 4096)
    assert gather.dependencies == (0,)
    assert (send.kind, send.peer, send.tag) == (NodeKind.SEND, 3, None)
    assert [warning.kind for warning in trace.warnings] == [
        WarningKind.MISSING_CONTROL_DEPENDENCY
    ]


@pytest.mark.parametrize(("unit_ns", "duration_ns"), [(None, 2_500), (1, 2), (4, 10)])
def test_durations_in_json_have_fractions_of_their_unit(
    unit_ns: int | None, duration_ns: int
) -> None:
    nodes = [
        feeder(
            {"Id": 1, "NodeType": 4, "runtime": 2.5}, duration_unit_ns=unit_ns
        ).graph.node(0),
        read(
            {"nodes": [{"id": 1, "node_type": "comp_node", "duration_micros": 2.5}]},
            bytes_per_element=2,
            duration_unit_ns=unit_ns,
        ).graph.node(0),
    ]
    assert [node.duration_ns for node in nodes] == [duration_ns, duration_ns]


def test_feeder_json_may_state_groups_roots_streams_and_operations() -> None:
    gather, compute = feeder(
        {
            **{"Id": 1, "NodeType": 7, "comm_type": 3, "comm_size": 8},
            **{"pg_name": "4", "root": 2},
        },
        {"Id": 2, "NodeType": 4, "num_ops": 99, "is_cpu_op": False, "stream": 7},
    ).graph.nodes()
    assert (gather.op, gather.group, gather.root) == (CollectiveOp.GATHER, "4", 2)
    assert (compute.num_ops, compute.stream) == (99, 7)


def test_nodes_of_json_have_their_offset() -> None:
    text = b'{"workload_graph": [{"Id": 1, "NodeType": 4}, {"Id": 2, "NodeType": 4}]}'
    graph = read_stream(io.BytesIO(text), rank=0, source="w").trace.graph
    assert [node.file_offset for node in graph.nodes()] == [20, 46]


def test_stage_writes_words_and_elements() -> None:
    trace = stage(
        {"id": 1, "node_type": "comp_node", "num_ops": 99, "tensor_size": 10},
        {
            "id": 2,
            "name": "ar",
            "node_type": "coll_comm_node",
            "data_deps": [1],
            "comm_type": "REDUCE_SCATTER",
            "comm_size": 1024,
            "comm_group": 3,
        },
        {"id": 3, "node_type": "comm_recv_node", "comm_size": 8, "comm_src": 1},
        {"id": 4, "node_type": "mem_load_node", "tensor_size": 8},
    )
    compute, collective, receive, load = trace.graph.nodes()
    assert (compute.num_ops, compute.tensor_bytes) == (99, 20)
    assert collective.op is CollectiveOp.REDUCE_SCATTER
    assert (collective.comm_bytes, collective.group) == (2048, "3")
    assert (receive.kind, receive.peer) == (NodeKind.RECEIVE, 1)
    assert (load.kind, load.tensor_bytes) == (NodeKind.MEMORY, 16)
    with pytest.raises(TraceError, match="bytes_per_element: 2"):
        read({"nodes": []})


@pytest.mark.parametrize(
    ("node", "found"),
    [
        (5, "there is 5 instead of a node"),
        ({"node_type": "comp_node"}, "a node has no 'id'"),
        ({"id": 1}, "a node has no 'node_type'"),
        ({"id": 1, "node_type": "COMP"}, "node_type is 'COMP'"),
        ({"id": 1, "node_type": ["comp_node"]}, "node_type is"),
        ({"id": "1", "node_type": "comp_node"}, "a wrong value"),
        ({"id": -1, "node_type": "comp_node"}, "a wrong value"),
        ({"id": 2**64, "node_type": "comp_node"}, "a wrong value"),
        ({"id": 1, "node_type": "comp_node", "name": 5}, "a wrong value"),
        ({"id": 1, "node_type": "comp_node", "data_deps": 5}, "a wrong value"),
        ({"id": 1, "node_type": "comp_node", "num_ops": 2**64}, "a wrong value"),
        ({"id": 1, "node_type": "comp_node", "num_ops": {}}, "a wrong value"),
        ({"id": 1, "node_type": "comp_node", "num_ops": [1]}, "a wrong value"),
        (
            {"id": 1, "node_type": "coll_comm_node", "comm_type": "SUM"},
            "comm_type 'SUM' is not a collective",
        ),
        (
            {"id": 1, "node_type": "coll_comm_node", "comm_type": [1]},
            "is not a collective",
        ),
    ],
)
def test_a_wrong_node_is_refused(node: Any, found: str) -> None:
    with pytest.raises(TraceError, match=f"offset 1[0-9]: .*{found}"):
        stage(node)


@pytest.mark.parametrize(
    "text",
    [
        # What chakra_jsonizer, a feeder and STAGE would write.
        '{"version": "0.0.4"}{"name": "n", "type": "COMM_COLL_NODE", "attr": ['
        '{"name": "comm_type", "int64Val": "0"},'
        '{"name": "comm_size", "int64Val": "1048576"},'
        '{"name": "comm_size", "int64Val": "7"}]}',
        '{"workload_graph": [{"Id": 1, "NodeType": 7, "comm_type": 0, '
        '"comm_size": 1048576, "comm_size": 7}]}',
        '{"nodes": [{"id": 1, "node_type": "coll_comm_node", "comm_type": "ALL_REDUCE",'
        ' "comm_size": 1048576, "comm_size": 7}]}',
    ],
)
def test_duplicate_size_is_refused(text: str) -> None:
    def of(text: str) -> RankTrace:
        options = ReadOptions(bytes_per_element=1)
        file = io.BytesIO(text.encode())
        return read_stream(file, rank=0, source="w.0.json", options=options).trace

    same = of(text.replace("1048576", "7"))
    assert same.graph.node(0).comm_bytes == 7
    with pytest.raises(TraceError, match=r"'comm_size'.* twice.*: 1048576 and 7"):
        of(text)
