"""What the records of one file mean."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.chakra.et_pb2 import GlobalMetadata, IOInfo, Node
from chakram.chakra.framing import frame
from chakram.chakra.messages import NodeType
from chakram.chakra.options import DependencyPolicy, ReadOptions, WarningKind
from chakram.core.collectives import CollectiveOp
from chakram.core.trace_node import NodeKind
from chakram.errors import GarbageTrace, TraceError, UnsupportedTrace
from tests.trace_bytes import collective, metadata, node, read

SEND, RECV = NodeType.COMM_SEND, NodeType.COMM_RECV


def kinds(*records: bytes, **options: Any) -> list[WarningKind]:
    return [w.kind for w in read(*records, **options).warnings]


def first(*records: bytes, **options: Any) -> Any:
    return read(metadata(), *records, **options).graph.node(0)


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


def test_absent_is_none_or_nothing() -> None:
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
def test_nodes_without_meaning_for_a_network_pass(node_type: NodeType) -> None:
    assert first(node(1, node_type)).kind is NodeKind.PASS
    assert kinds(metadata(), node(1, node_type)) == []


def test_unknown_nodes_pass_and_are_counted() -> None:
    trace = read(metadata(), node(1, 77), node(2, 78))
    assert [n.kind for n in trace.graph.nodes()] == [NodeKind.PASS] * 2
    (warning,) = trace.warnings
    assert (warning.kind, warning.count) == (WarningKind.UNKNOWN_NODE_TYPE, 2)
    assert str(warning).endswith(
        "node type 77 is unknown; the node ends at once (and 1 more)"
    )


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


def test_the_arm_that_is_set_counts_whatever_it_is() -> None:
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


def test_an_attribute_without_value_is_not_there() -> None:
    message = Node(id=1, type=7)  # type: ignore[arg-type] # a number of the enum
    message.attr.add(name="comm_type")
    with pytest.raises(TraceError, match="a collective without comm_type"):
        first(frame(message.SerializeToString()))


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"comm_size": 1}, "a collective without comm_type"),
        ({"comm_type": 10, "comm_size": 1}, "comm_type 10 is no collective"),
        ({"comm_type": -1, "comm_size": 1}, "comm_type is -1"),
        ({"comm_type": 0, "comm_size": -4}, "comm_size is -4"),
        ({"comm_type": 0, "comm_size": 1.5}, "comm_size is 1.5"),
        ({"comm_type": 0, "comm_size": float("nan")}, "comm_size is nan"),
        ({"comm_type": 0, "comm_size": float("inf")}, "comm_size is inf"),
        ({"comm_type": 0, "comm_size": "big"}, "comm_size is 'big'"),
        ({"comm_type": 0, "comm_size": "9" * 19}, "it must fit 64 bits"),
        ({"comm_type": 0, "comm_size": b"1"}, "comm_size is b'1'"),
        ({"comm_type": 0, "comm_size": (1, 2)}, "comm_size is"),
        ({"comm_type": 0, "comm_size": 1, "pg_name": ("a",)}, "is a list or bytes"),
        ({"comm_type": 0, "comm_size": 1, "is_cpu_op": "no"}, "is_cpu_op is 'no'"),
    ],
)
def test_a_collective_that_means_nothing_is_refused(
    fields: dict[str, Any], found: str
) -> None:
    with pytest.raises(TraceError, match=found) as caught:
        first(node(3, NodeType.COMM_COLL, **fields))
    assert caught.value.where == f"w.et: offset {len(metadata())}: rank 0 node 3"


def test_sizes_and_times_must_fit_64_bits() -> None:
    with pytest.raises(TraceError, match="no buffer is as large"):
        first(collective(1, comm_size=2**62), bytes_per_element=4)
    with pytest.raises(TraceError, match="over 292 years"):
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


def test_group_0_is_one_of_its_own_where_a_file_defines_it() -> None:
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


def test_the_size_of_a_message_may_stand_in_tensor_size() -> None:
    got = first(node(1, SEND, comm_dst=1, tensor_size=7), bytes_per_element=2)
    assert got.comm_bytes == 14


def test_messages_without_peer_or_size_are_told_of() -> None:
    assert kinds(metadata(), node(1, SEND, comm_size=1)) == [WarningKind.NO_PEER]
    assert kinds(metadata(), node(1, RECV, comm_src=-1)) == [WarningKind.NO_PEER]
    assert kinds(metadata(), node(1, SEND, comm_dst=1)) == [WarningKind.NO_SIZE]


# Files


def test_a_file_may_lack_metadata() -> None:
    trace = read(node(0), node(1, data_deps=[0]))
    assert len(trace.graph) == 2
    assert [w.kind for w in trace.warnings] == [WarningKind.NO_METADATA]
    assert trace.metadata.version == ""


def test_metadata_may_be_of_length_zero() -> None:
    assert len(read(b"\0", node(1)).graph) == 1


def test_metadata_keeps_its_attributes() -> None:
    got = read(metadata("1.0.0", schema="x", sizes=(1, 2)), node(1)).metadata
    assert got.version == "1.0.0"
    assert got.attributes == {"schema": "x", "sizes": (1, 2)}


def test_a_rank_may_have_nothing_to_do() -> None:
    assert kinds(metadata()) == [WarningKind.NO_NODES]


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(TraceError, match="the file is empty"):
        read()


def test_stage_stores_elements_and_somebody_must_say_what_one_is() -> None:
    stage = metadata(schema="symbolic_tensor_network")
    with pytest.raises(TraceError, match="--bytes-per-element 2"):
        read(stage, collective(1))
    trace = read(stage, collective(1), bytes_per_element=2)
    assert trace.graph.node(0).comm_bytes == 2048
    assert [warning.kind for warning in trace.warnings] == [WarningKind.ELEMENT_SIZES]


def test_scaling_the_sizes_of_other_producers_is_told_of() -> None:
    assert kinds(metadata(), node(1), bytes_per_element=2) == [WarningKind.SCALED_BYTES]
    assert kinds(metadata(), node(1), bytes_per_element=1) == []


@pytest.mark.parametrize(
    "body",
    [b"\x0f", b"\x22\x01a"],
    ids=["no message", "neither metadata nor node"],
)
def test_what_starts_with_neither_is_garbage(body: bytes) -> None:
    with pytest.raises(GarbageTrace, match="neither metadata nor a node"):
        read(frame(body))


def test_metadata_whose_text_is_broken_is_garbage() -> None:
    with pytest.raises(GarbageTrace, match="the first record is no metadata"):
        read(frame(b"\x0a\x01\xff"))


def test_a_record_that_is_no_node_is_garbage() -> None:
    with pytest.raises(GarbageTrace, match="a record of 2 bytes is no Chakra node"):
        read(metadata(), frame(b"\x12\x05"))


def test_old_schemas_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedTrace, match=r"has Chakra schema 0\.0\.3"):
        read(frame(GlobalMetadata(version="\n\x01a").SerializeToString()))
    with pytest.raises(UnsupportedTrace, match=r"schema 0\.0\.3 or earlier"):
        read(frame(b"\x08\x00\x12\x01a\x18\x03"))


def test_a_file_has_so_many_nodes_at_most() -> None:
    assert len(read(metadata(), node(1), node(2), node_limit=2).graph) == 2
    with pytest.raises(TraceError, match="more than 2 nodes"):
        read(metadata(), node(1), node(2), node(3), node_limit=2)


def test_an_id_stands_once() -> None:
    with pytest.raises(TraceError, match="node id 1 stands twice"):
        read(metadata(), node(1), node(1))


@pytest.mark.parametrize("options", [{"bytes_per_element": 0}, {"duration_unit_ns": 0}])
def test_units_are_positive(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not > 0"):
        ReadOptions(**options)


# Dependencies


def edges(*records: bytes, **options: Any) -> dict[int, list[int]]:
    """Return node ids by the node id that waits for them."""
    graph = read(*records, **options).graph
    return {
        n.node_id: [graph.node_id(i) for i in n.dependencies]
        for n in graph.nodes()
        if n.dependencies
    }


BOTH_KINDS = (
    metadata(),
    node(1),
    node(2, ctrl_deps=[1]),
    node(3, ctrl_deps=[1], data_deps=[2]),
)
CONTROL_ONLY = (metadata(), node(1), node(2, ctrl_deps=[1]), node(3, ctrl_deps=[2]))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("auto", {3: [2]}),
        ("data", {3: [2]}),
        ("control", {2: [1], 3: [1]}),
        ("both", {2: [1], 3: [2, 1]}),
    ],
)
def test_of_both_kinds_data_dependencies_count_unless_told_otherwise(
    policy: str, expected: dict[int, list[int]]
) -> None:
    assert edges(*BOTH_KINDS, dependencies=DependencyPolicy(policy)) == expected


def test_control_dependencies_order_a_file_that_has_no_others() -> None:
    assert edges(*CONTROL_ONLY) == {2: [1], 3: [2]}
    assert kinds(*CONTROL_ONLY) == [WarningKind.CONTROL_ONLY]
    assert edges(*CONTROL_ONLY, dependencies=DependencyPolicy.DATA) == {}


def test_the_nodes_of_a_file_may_stand_in_any_order() -> None:
    assert edges(metadata(), node(3, data_deps=[1]), node(1)) == {3: [1]}
    assert edges(metadata(), node(3, ctrl_deps=[1]), node(1)) == {3: [1]}


@pytest.mark.parametrize("policy", list(DependencyPolicy))
def test_control_dependencies_without_node_are_dropped_and_told_of(
    policy: DependencyPolicy,
) -> None:
    records = (
        metadata(),
        node(1, ctrl_deps=[0, 1]),
        node(2, ctrl_deps=[0, 2], data_deps=[1]),
    )
    trace = read(*records, dependencies=policy)
    counts = {w.kind: w.count for w in trace.warnings}
    assert counts == {
        WarningKind.MISSING_CONTROL_DEPENDENCY: 2,
        WarningKind.SELF_CONTROL_DEPENDENCY: 2,
    }
    assert 0 not in trace.graph.node(0).dependencies
    trace.graph.topological_order()


def test_a_data_dependency_without_node_is_an_error() -> None:
    with pytest.raises(TraceError, match="depends on node 9, which is not in the file"):
        read(metadata(), node(1, data_deps=[9]))


def test_a_data_dependency_without_node_may_be_dropped() -> None:
    trace = read(
        metadata(),
        node(1),
        node(2, data_deps=[9, 1]),
        drop_missing_dependencies=True,
    )
    assert trace.graph.node(1).dependencies == (0,)
    assert [w.kind for w in trace.warnings] == [WarningKind.MISSING_DATA_DEPENDENCY]


def test_without_metadata_some_node_must_show_that_the_schema_is_todays() -> None:
    bare = [node(number) for number in range(1, 80)]
    with pytest.raises(UnsupportedTrace, match="no node shows"):
        read(*bare)
    with pytest.raises(UnsupportedTrace, match="no node shows"):
        read(bare[0])
    shown = node(90, data_deps=[1])
    assert len(read(*bare[:60], shown, *bare[60:]).graph) == 80
    # Metadata that states nothing is newer than the change of the types' numbers.
    assert len(read(b"\0", *bare).graph) == 79
