"""Meaning of the records of one file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chakram.chakra.et_codec import NodeType
from chakram.chakra.et_pb2 import GlobalMetadata, IOInfo, Node
from chakram.chakra.read.framing import frame
from chakram.chakra.read.reader_options import ReadOptions
from chakram.chakra.trace_warning import WarningKind
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import TraceError
from chakram.trace.node import NO_SIZE, NodeKind
from tests.full_decoder import read_fast, read_fully
from tests.trace_bytes import collective, first, kinds, metadata, node, read

SEND, RECV = NodeType.COMM_SEND, NodeType.COMM_RECV


# Kinds of nodes


def test_a_compute_node_has_operations_bytes_and_time() -> None:
    got = first(
        node(
            7,
            name="mul",
            duration_micros=3,
            start_time_micros=5,
            num_ops=99,
            tensor_size=10,
            stream=2,
        ),
        bytes_per_element=2,
    )
    assert (got.node_id, got.kind, got.name) == (7, NodeKind.COMPUTE, "mul")
    assert (got.duration_ns, got.start_ns) == (3_000, 5_000)
    assert (got.num_ops, got.tensor_bytes, got.stream) == (99, 20, 2)
    assert got.file_offset == len(metadata())


def test_absent_values_are_none_or_0() -> None:
    got = first(node(7))
    assert (got.start_ns, got.stream, got.tensor_bytes, got.num_ops) == (
        None,
        None,
        0,
        0,
    )


def test_a_unit_of_time_may_be_anything() -> None:
    assert first(node(1, duration_micros=3), duration_unit_ns=1).duration_ns == 3


@pytest.mark.parametrize("node_type", [NodeType.MEM_LOAD, NodeType.MEM_STORE])
def test_memory_nodes_are_memory(node_type: NodeType) -> None:
    got = first(node(1, node_type, tensor_size=8))
    assert (got.kind, got.tensor_bytes) == (NodeKind.MEMORY, 8)


@pytest.mark.parametrize(
    "node_type",
    [NodeType.INVALID, NodeType.METADATA, NodeType.STORAGE, NodeType.DATA_OP],
)
def test_nodes_without_network_effect_are_accepted(node_type: NodeType) -> None:
    assert first(node(1, node_type)).kind is NodeKind.PASS
    assert kinds(metadata(), node(1, node_type)) == []


def test_unknown_nodes_are_accepted_and_counted() -> None:
    trace = read(metadata(), node(1, 77), node(2, 78))
    assert [n.kind for n in trace.graph.nodes()] == [NodeKind.PASS] * 2
    (warning,) = trace.warnings
    assert (warning.kind, warning.count) == (WarningKind.UNKNOWN_NODE_TYPE, 2)
    assert warning.found == "node type 77 is unknown; the node takes no time"


def test_a_node_of_length_zero_is_a_node() -> None:
    got = first(b"\0")
    assert (got.node_id, got.name, got.kind) == (0, "", NodeKind.PASS)


# Collectives


@pytest.mark.parametrize(
    ("number", "op"),
    [
        (0, CollectiveOp.ALL_REDUCE),
        (1, CollectiveOp.REDUCE),
        (2, CollectiveOp.ALL_GATHER),
        (3, CollectiveOp.GATHER),
        (4, CollectiveOp.SCATTER),
        (5, CollectiveOp.BROADCAST),
        (6, CollectiveOp.ALL_TO_ALL),
        (7, CollectiveOp.REDUCE_SCATTER),
        (8, CollectiveOp.REDUCE_SCATTER),
        (9, CollectiveOp.BARRIER),
    ],
)
def test_comm_type_is_the_collective(number: int, op: CollectiveOp) -> None:
    got = first(collective(1, comm_type=number))
    assert (got.kind, got.op, got.comm_bytes) == (NodeKind.COLLECTIVE, op, 1024)


def test_set_field_of_a_oneof_is_used() -> None:
    arms: list[tuple[str, Any]] = [
        ("double_val", 64.0),
        ("float_val", 64.0),
        ("int32_val", 64),
        ("int64_val", 64),
        ("uint32_val", 64),
        ("uint64_val", 64),
        ("sint32_val", 64),
        ("sint64_val", 64),
        ("fixed32_val", 64),
        ("fixed64_val", 64),
        ("sfixed32_val", 64),
        ("sfixed64_val", 64),
        ("string_val", "64"),
    ]
    for arm, value in arms:
        message = Node(id=1, type=7)  # type: ignore[arg-type] # a number of the enum
        message.attr.add(name="comm_type", bool_val=False)
        setattr(message.attr.add(name="comm_size"), arm, value)
        got = first(frame(message.SerializeToString()))
        assert (got.op, got.comm_bytes) == (CollectiveOp.ALL_REDUCE, 64), arm


def _twice(name: str, first: int, second: int) -> bytes:
    """Return the bytes of an all-reduce with an attribute that occurs twice."""
    message = Node(id=1, type=NodeType.COMM_COLL)  # type: ignore[arg-type] # open enum
    values = {"comm_type": 0, "comm_size": 4, "group_size": 2, "group_count": 1}
    for each, value in values.items():
        if each != name:
            message.attr.add(name=each, int64_val=value)
    message.attr.add(name=name, int64_val=first)
    # Another arm: what it holds counts, not how.
    message.attr.add(name=name, uint64_val=second)
    return frame(message.SerializeToString())


@pytest.mark.parametrize(
    "name", ["comm_size", "comm_type", "stream", "group_size", "group_count"]
)
@pytest.mark.parametrize("reads", [read_fast, read_fully])
def test_an_attribute_that_occurs_twice_must_have_one_value(
    name: str, reads: Callable[..., object]
) -> None:
    def of(second: int) -> object:
        data = metadata() + node(9) + _twice(name, 3, second)
        return reads(data, rank=0, options=ReadOptions())

    of(3)
    with pytest.raises(TraceError, match=f"rank 0 node 1: .*'{name}' twice: 3 and 7"):
        of(7)


READERS = pytest.mark.parametrize(
    "reads",
    [
        lambda *each, **options: read_fast(*each, **options)[0],
        read_fully,
    ],
    ids=["fast decoder", "full decoder"],
)


@READERS
@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (b"\x08\x05", b"\x08\x07", "the field 'id' twice: 5 and 7"),
        (b"\x12\x01a", b"\x12\x01b", "the field 'name' twice: 'a' and 'b'"),
        (b"\x18\x07", b"\x18\x04", "the field 'type' twice: 7 and 4"),
        (b"\x18\x00", b"\x18\x07", "the field 'type' twice: 0 and 7"),
        (b"\x30\x05", b"\x30\x07", "'start_time_micros' twice: 5 and 7"),
        (b"\x38\x05", b"\x38\x00", "'duration_micros' twice: 5 and 0"),
    ],
)
def test_repeated_field_must_have_one_value(
    reads: Callable[..., Any], first: bytes, second: bytes, found: str
) -> None:
    rest = Node(type=7)  # type: ignore[arg-type] # a number of the enum
    for name in ("comm_type", "comm_size"):
        rest.attr.add(name=name, int64_val=2)
    if first.startswith(b"\x18"):
        rest.ClearField("type")

    def of(*fields: bytes) -> Any:
        body = b"".join(fields) + rest.SerializeToString()
        data = metadata() + node(9) + frame(body)
        return reads(data, rank=0, options=ReadOptions()).graph

    assert len(of(first, first)) == 2
    with pytest.raises(TraceError, match=found):
        of(first, second)


@READERS
@pytest.mark.parametrize(
    ("value", "found"),
    [
        # name, int64 4, and then int64 7.
        (b"\x48\x04\x48\x07", "a value of the attribute 'comm_size' twice: 4 and 7"),
        # In another arm: an int32.
        (b"\x48\x04\x38\x04", "a value of the attribute 'comm_size' twice: 4 and 4"),
        (b"\xea\x01\x014\xea\x01\x015", "'comm_size' twice: '4' and '5'"),
        # Two lists, which protobuf puts together.
        (b"\x52\x03\x0a\x01\x04\x52\x03\x0a\x01\x04", "'comm_size' twice"),
        (b"\x48\x04\x0a\x09comm_sizf", "'name' twice: 'comm_size' and 'comm_sizf'"),
    ],
)
def test_an_attribute_has_one_name_and_one_value(
    reads: Callable[..., Any], value: bytes, found: str
) -> None:
    def of(value: bytes) -> Any:
        attribute = b"\x0a\x09comm_size" + value
        kind = Node(id=1, type=7)  # type: ignore[arg-type] # a number of the enum
        kind.attr.add(name="comm_type", int64_val=0)
        body = kind.SerializeToString() + b"\x52" + frame(attribute)
        data = metadata() + node(9) + frame(body)
        return reads(data, rank=0, options=ReadOptions()).graph.node(1)

    assert of(b"\x48\x04\x48\x04").comm_bytes == 4
    # Field 100 is none that a value may be in.
    assert of(b"\xa0\x06\x01\x48\x04\xa0\x06\x02\x48\x04").comm_bytes == 4
    with pytest.raises(TraceError, match=found):
        of(value)


def test_metadata_and_groups_occur_once() -> None:
    with pytest.raises(TraceError, match=r"'version' twice: '0.0.4' and '1.0.0'"):
        read(frame(b"\x0a\x050.0.4\x0a\x051.0.0"))
    text = b"\x0a\x02[]"
    init = b"\x08\x01\x18\x01\x42" + frame(text + b"\x0a\x02{}")
    with pytest.raises(TraceError, match=r"'inputs.values' twice: '\[\]' and '\{\}'"):
        read(metadata(), node(9), frame(init))
    # What a computation had as inputs means nothing.
    assert len(read(metadata(), frame(init.replace(b"\x18\x01", b"\x18\x04"))).graph)


def test_an_attribute_of_the_metadata_that_occurs_twice_must_have_one_value() -> None:
    message = GlobalMetadata()
    for schema in ("symbolic_tensor_network", "1.1.1-chakra.0.0.4"):
        message.attr.add(name="schema", string_val=schema)
    with pytest.raises(TraceError, match="offset 0: has the attribute 'schema' twice"):
        read_fast(frame(message.SerializeToString()), rank=0, options=ReadOptions())


def test_attribute_without_value_is_ignored() -> None:
    message = Node(id=1, type=7)  # type: ignore[arg-type] # a number of the enum
    message.attr.add(name="comm_type")
    with pytest.raises(TraceError, match="a collective has no comm_type"):
        first(frame(message.SerializeToString()))


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"comm_size": 1}, "a collective has no comm_type"),
        ({"comm_type": 10, "comm_size": 1}, "comm_type 10 is not a collective"),
        ({"comm_type": -1, "comm_size": 1}, "comm_type is -1"),
        ({"comm_type": 0, "comm_size": -4}, "comm_size is -4"),
        ({"comm_type": 0, "comm_size": 1.5}, "comm_size is 1.5"),
        ({"comm_type": 0, "comm_size": float("nan")}, "comm_size is nan"),
        ({"comm_type": 0, "comm_size": float("inf")}, "comm_size is inf"),
        ({"comm_type": 0, "comm_size": "big"}, "comm_size is 'big'"),
        ({"comm_type": 0, "comm_size": "9" * 19}, "use a number that fits 64 bits"),
        ({"comm_type": 0, "comm_size": b"1"}, "comm_size is b'1'"),
        ({"comm_type": 0, "comm_size": (1, 2)}, "comm_size is"),
        ({"comm_type": 0, "comm_size": 1, "pg_name": ("a",)}, "is a list or bytes"),
        ({"comm_type": 0, "comm_size": 1, "is_cpu_op": "no"}, "is_cpu_op is 'no'"),
    ],
)
def test_invalid_collective_is_refused(fields: dict[str, Any], found: str) -> None:
    with pytest.raises(TraceError, match=found) as caught:
        first(node(3, NodeType.COMM_COLL, **fields))
    assert caught.value.where == f"w.et: offset {len(metadata())}: rank 0 node 3"


def test_sizes_and_times_must_fit_64_bits() -> None:
    with pytest.raises(TraceError, match="exceeds any real buffer"):
        first(collective(1, comm_size=2**62), bytes_per_element=4)
    with pytest.raises(TraceError, match="exceeds 292 years"):
        first(node(1, duration_micros=2**60))


def test_a_barrier_needs_no_size() -> None:
    got = first(node(1, NodeType.COMM_COLL, comm_type=9))
    assert (got.op, got.comm_bytes) == (CollectiveOp.BARRIER, 0)


def test_a_rooted_collective_may_name_its_root() -> None:
    assert first(collective(1, comm_type=5, root=3)).root == 3
    assert first(collective(1, comm_type=5)).root is None
    assert first(collective(1, comm_type=0, root=3)).root is None


def test_a_collective_of_the_cpu_without_type_or_size_is_a_label() -> None:
    trace = read(metadata(), node(1, NodeType.COMM_COLL, is_cpu_op=True))
    assert trace.graph.node(0).kind is NodeKind.PASS
    assert [w.kind for w in trace.warnings] == [WarningKind.COLLECTIVE_LABEL]
    assert first(collective(1, is_cpu_op=True)).kind is NodeKind.COLLECTIVE


# Process groups of nodes


@pytest.mark.parametrize(
    ("fields", "group"),
    [
        ({}, None),
        ({"pg_name": ""}, None),
        ({"pg_name": "0"}, None),
        ({"pg_name": "0.0"}, None),
        ({"pg_name": "4"}, "4"),
        ({"pg_name": "4.0"}, "4"),
        ({"pg_name": "ab12"}, "ab12"),
        ({"comm_group": 3}, "3"),
        ({"comm_group": 0}, None),
        ({"pg_name": "tp", "ranks": (0, 1)}, "tp[0,1]"),
        ({"pg_name": "tp", "ranks": ()}, "tp"),
    ],
)
def test_a_collective_names_its_group(
    fields: dict[str, Any], group: str | None
) -> None:
    assert first(collective(1, stream=7, **fields)).group == group


def test_group_0_is_used_if_a_file_defines_it() -> None:
    assert first(collective(1, pg_name="0.0"), zero_is_a_group=True).group == "0"
    assert first(collective(1, pg_name=""), zero_is_a_group=True).group is None


def test_inline_ranks_define_a_group() -> None:
    trace = read(metadata(), collective(1, pg_name="tp", ranks=(0, 1)))
    assert trace.groups == {"tp[0,1]": (0, 1)}


def test_the_groups_of_pytorch_are_read() -> None:
    values = '[\'[{"pg_name": "1", "ranks": [0, 1]}]\']'
    message = Node(
        id=1,
        name="## process_group:init ##",
        type=1,  # type: ignore[arg-type] # a number of the enum
        inputs=IOInfo(values=values),
    )
    assert read(metadata(), frame(message.SerializeToString())).groups == {"1": (0, 1)}


# Messages


def test_the_side_that_a_message_leaves_out_is_the_rank_itself() -> None:
    send = first(node(1, SEND, comm_dst=3, comm_tag=9, comm_size=5), rank=2)
    assert (send.kind, send.peer, send.tag) == (NodeKind.SEND, 3, 9)
    assert send.comm_bytes == 5
    receive = first(
        node(1, RECV, comm_src=0, comm_dst=2, comm_size=5, stream=1), rank=2
    )
    assert (receive.kind, receive.peer, receive.tag) == (NodeKind.RECEIVE, 0, None)
    assert receive.stream == 1


def test_a_message_of_another_rank_is_refused() -> None:
    with pytest.raises(TraceError, match="comm_src is 1, but this is the file of rank"):
        first(node(1, SEND, comm_src=1, comm_dst=3, comm_size=5), rank=2)


def test_message_size_may_be_in_tensor_size() -> None:
    got = first(node(1, SEND, comm_dst=1, tensor_size=7), bytes_per_element=2)
    assert got.comm_bytes == 14


def test_messages_without_peer_or_size_are_reported() -> None:
    assert kinds(metadata(), node(1, SEND, comm_size=1)) == [WarningKind.NO_PEER]
    assert kinds(metadata(), node(1, RECV, comm_src=-1)) == [WarningKind.NO_PEER]
    assert kinds(metadata(), node(1, SEND, comm_dst=1)) == [WarningKind.NO_SIZE]
    assert first(node(1, SEND, comm_dst=1)).comm_bytes == NO_SIZE


def test_messages_may_be_empty() -> None:
    empty = node(1, SEND, comm_dst=1, comm_size=0)
    assert kinds(metadata(), empty) == []
    assert first(empty).comm_bytes == 0
