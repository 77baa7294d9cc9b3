"""Trace files from bytes: metadata, invalid data, units, dependencies."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.chakra.et_pb2 import GlobalMetadata
from chakram.chakra.read.framing import frame
from chakram.chakra.read.reader_options import DependencyPolicy, ReadOptions
from chakram.chakra.trace_warning import WarningKind
from chakram.foundation.errors import GarbageTrace, TraceError, UnsupportedTrace
from tests.trace_bytes import collective, kinds, metadata, node, read


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


def test_rank_without_nodes_is_accepted() -> None:
    assert kinds(metadata()) == [WarningKind.NO_NODES]


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(TraceError, match="the file is empty"):
        read()


def test_stage_traces_need_an_element_size() -> None:
    stage = metadata(schema="symbolic_tensor_network")
    with pytest.raises(TraceError, match="--bytes-per-element 2"):
        read(stage, collective(1))
    trace = read(stage, collective(1), bytes_per_element=2)
    assert trace.graph.node(0).comm_bytes == 2048
    assert [warning.kind for warning in trace.warnings] == [WarningKind.ELEMENT_SIZES]


def test_scaling_sizes_of_other_producers_is_reported() -> None:
    assert kinds(metadata(), node(1), bytes_per_element=2) == [WarningKind.SCALED_BYTES]
    assert kinds(metadata(), node(1), bytes_per_element=1) == []


@pytest.mark.parametrize(
    "body",
    [b"\x0f", b"\x22\x01a"],
    ids=["no message", "neither metadata nor node"],
)
def test_file_with_an_unknown_start_is_refused(body: bytes) -> None:
    with pytest.raises(GarbageTrace, match="neither metadata nor a node"):
        read(frame(body))


def test_metadata_whose_text_is_broken_is_garbage() -> None:
    with pytest.raises(GarbageTrace, match="the first record is not metadata"):
        read(frame(b"\x0a\x01\xff"))


def test_a_record_that_is_no_node_is_garbage() -> None:
    with pytest.raises(GarbageTrace, match="a record of 2 bytes is not a Chakra node"):
        read(metadata(), frame(b"\x12\x05"))


def test_old_schemas_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedTrace, match=r"has Chakra schema 0\.0\.3"):
        read(frame(GlobalMetadata(version="\n\x01a").SerializeToString()))
    with pytest.raises(UnsupportedTrace, match=r"schema 0\.0\.3 or earlier"):
        read(frame(b"\x08\x00\x12\x01a\x18\x03"))


def test_number_of_nodes_in_a_file_is_limited() -> None:
    assert len(read(metadata(), node(1), node(2), node_limit=2).graph) == 2
    with pytest.raises(TraceError, match="more than 2 nodes"):
        read(metadata(), node(1), node(2), node(3), node_limit=2)


def test_duplicate_id_in_a_file_is_refused() -> None:
    with pytest.raises(TraceError, match="node id 1 occurs twice"):
        read(metadata(), node(1), node(1))


@pytest.mark.parametrize("options", [{"bytes_per_element": 0}, {"duration_unit_ns": 0}])
def test_units_are_positive(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
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
def test_data_dependencies_override_control_dependencies_by_default(
    policy: str, expected: dict[int, list[int]]
) -> None:
    assert edges(*BOTH_KINDS, dependencies=DependencyPolicy(policy)) == expected


def test_control_dependencies_order_a_file_that_has_no_others() -> None:
    assert edges(*CONTROL_ONLY) == {2: [1], 3: [2]}
    assert kinds(*CONTROL_ONLY) == [WarningKind.CONTROL_ONLY]
    assert edges(*CONTROL_ONLY, dependencies=DependencyPolicy.DATA) == {}


def test_nodes_of_a_file_may_be_in_any_order() -> None:
    assert edges(metadata(), node(3, data_deps=[1]), node(1)) == {3: [1]}
    assert edges(metadata(), node(3, ctrl_deps=[1]), node(1)) == {3: [1]}


@pytest.mark.parametrize("policy", list(DependencyPolicy))
def test_dangling_control_dependencies_are_dropped_and_reported(
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


def test_file_without_metadata_needs_a_node_of_the_current_schema() -> None:
    bare = [node(number) for number in range(1, 80)]
    with pytest.raises(UnsupportedTrace, match="no node shows"):
        read(*bare)
    with pytest.raises(UnsupportedTrace, match="no node shows"):
        read(bare[0])
    shown = node(90, data_deps=[1])
    assert len(read(*bare[:60], shown, *bare[60:]).graph) == 80
    # Metadata that states nothing is newer than the change of the types' numbers.
    assert len(read(b"\0", *bare).graph) == 79
