"""Laws of reading and writing traces."""

from __future__ import annotations

import contextlib
import gzip
import io
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from chakram.chakra.et_pb2 import AttributeProto, GlobalMetadata, IOInfo, Node
from chakram.chakra.read.framing import frame
from chakram.chakra.read.groups import encode_group_file, parse_group_file
from chakram.chakra.read.reader_options import DependencyPolicy, ReadOptions
from chakram.chakra.write.writer import encode_trace
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import TraceError
from chakram.trace.builder import TraceGraphBuilder
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind
from tests.trace_bytes import read_stream

INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
UINT64 = st.integers(min_value=0, max_value=2**64 - 1)
OPTIONS = st.builds(
    ReadOptions,
    bytes_per_element=st.sampled_from([None, 1, 2, 2**40]),
    dependencies=st.sampled_from(DependencyPolicy),
    drop_missing_dependencies=st.booleans(),
    record_limit_bytes=st.just(10_000),
)


def read_or_refuse(data: bytes, options: ReadOptions) -> None:
    """Read *data*; any error but ours fails the test."""
    try:
        got = read_stream(io.BytesIO(data), rank=1, source="s", options=options)
    except TraceError:
        return
    list(got.trace.graph.nodes())


@given(data=st.binary(max_size=400), options=OPTIONS)
@example(data=b"\x1f\x8b", options=ReadOptions())
def test_any_bytes_are_read_or_refused(data: bytes, options: ReadOptions) -> None:
    read_or_refuse(data, options)


@given(data=st.binary(max_size=200))
def test_any_gzipped_bytes_are_read_or_refused(data: bytes) -> None:
    read_or_refuse(gzip.compress(data), ReadOptions())


NAMES = st.sampled_from(
    [
        "comm_type",
        "comm_size",
        "comm_src",
        "comm_dst",
        "comm_tag",
        "comm_group",
        "pg_name",
        "ranks",
        "root",
        "is_cpu_op",
        "num_ops",
        "tensor_size",
        "stream",
        "schema",
    ]
)
ATTRIBUTES = st.lists(
    st.one_of(
        st.builds(AttributeProto, name=NAMES, int64_val=INT64),
        st.builds(AttributeProto, name=NAMES, uint64_val=UINT64),
        st.builds(AttributeProto, name=NAMES, int32_val=st.integers(0, 9)),
        st.builds(AttributeProto, name=NAMES, double_val=st.floats()),
        st.builds(AttributeProto, name=NAMES, string_val=st.text(max_size=8)),
        st.builds(AttributeProto, name=NAMES, bytes_val=st.binary(max_size=8)),
        st.builds(AttributeProto, name=NAMES, bool_val=st.booleans()),
        st.builds(AttributeProto, name=NAMES),
    ),
    max_size=5,
)
IDS = st.lists(st.integers(0, 5), max_size=4)
NODES = st.builds(
    Node,
    id=st.one_of(st.integers(0, 5), UINT64),
    name=st.sampled_from(["", "n", "process_group:init"]),
    type=st.integers(0, 11),
    ctrl_deps=IDS,
    data_deps=IDS,
    start_time_micros=UINT64,
    duration_micros=UINT64,
    inputs=st.builds(IOInfo, values=st.text(max_size=20)),
    attr=ATTRIBUTES,
)
METADATA = st.builds(GlobalMetadata, version=st.text(max_size=5), attr=ATTRIBUTES)


@given(metadata=METADATA, nodes=st.lists(NODES, max_size=6), options=OPTIONS)
def test_any_messages_are_read_or_refused(
    metadata: GlobalMetadata, nodes: list[Node], options: ReadOptions
) -> None:
    messages = [metadata, *nodes]
    data = b"".join(frame(message.SerializeToString()) for message in messages)
    read_or_refuse(data, options)


@given(data=st.one_of(st.binary(max_size=100), st.text(max_size=100).map(str.encode)))
def test_any_group_file_is_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(TraceError):
        parse_group_file(data, "g")


@given(
    groups=st.dictionaries(
        st.integers(1, 10**6).map(str),
        st.lists(st.integers(0, 1000), min_size=1, unique=True).map(tuple),
    )
)
def test_reading_a_group_file_undoes_writing_it(
    groups: dict[str, tuple[int, ...]],
) -> None:
    assert parse_group_file(encode_group_file(groups), "g") == groups


COUNTS = st.integers(0, 2**53)
MICROSECONDS = st.integers(0, 2**40).map(lambda us: us * 1_000)
# The schema has no number for the one, and the number of all_to_all for the other.
OPS = st.sampled_from(
    sorted(set(CollectiveOp) - {CollectiveOp.SEND_RECV, CollectiveOp.ALL_TO_ALL_V})
)


@st.composite
def graphs(draw: st.DrawFn) -> TraceGraph:
    """Draw a graph of all that a trace file can say."""
    builder = TraceGraphBuilder(rank=1, source="made")
    ids = draw(st.lists(UINT64, unique=True, max_size=8))
    for node_id in ids:
        # What means nothing for a network is written as a computation of no time.
        kind = draw(st.sampled_from(sorted(set(NodeKind) - {NodeKind.PASS})))
        columns: dict[str, Any] = {
            "duration_ns": draw(MICROSECONDS),
            "start_ns": draw(MICROSECONDS) or None,
        }
        if kind in (NodeKind.COMPUTE, NodeKind.MEMORY):
            columns["num_ops"] = draw(COUNTS)
            columns["tensor_bytes"] = draw(COUNTS)
        else:
            columns["comm_bytes"] = draw(COUNTS)
            columns["group"] = draw(st.sampled_from([None, "1", "27", "a3f"]))
        columns["stream"] = draw(st.one_of(st.none(), st.integers(0, 100)))
        if kind is NodeKind.COLLECTIVE:
            columns["op"] = op = draw(OPS)
            if op is CollectiveOp.BROADCAST:
                columns["root"] = draw(st.one_of(st.none(), st.integers(0, 7)))
        if kind in (NodeKind.SEND, NodeKind.RECEIVE):
            columns["peer"] = draw(st.one_of(st.none(), st.integers(0, 7)))
            columns["tag"] = draw(st.one_of(st.none(), st.integers(-9, 2**31)))
        builder.add(
            node_id=node_id,
            kind=kind,
            name=draw(st.text(max_size=5)),
            dependencies=draw(st.lists(st.sampled_from(ids), unique=True)),
            **columns,
        )
    return builder.build()


@given(graph=graphs())
def test_reading_a_trace_undoes_writing_it(graph: TraceGraph) -> None:
    data = b"".join(encode_trace(graph, producer="a test"))
    got = read_stream(io.BytesIO(data), rank=1, source="made").trace.graph

    def said(graph: TraceGraph) -> list[list[object]]:
        names = [n for n in graph.node(0).__slots__ if n != "file_offset"]
        return [[getattr(node, name) for name in names] for node in graph.nodes()]

    assert len(got) == len(graph)
    assert not len(graph) or said(got) == said(graph)
