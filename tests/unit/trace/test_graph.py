"""Traces as graphs in columns."""

from __future__ import annotations

import pytest

from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import TraceError
from chakram.trace.builder import TraceGraphBuilder
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind, TraceNode
from tests.made_graphs import collective, compute, label, trace


def test_node_is_returned_as_added() -> None:
    builder = TraceGraphBuilder(rank=3, source="t.3.et")
    builder.add(node_id=2**64 - 1, kind=NodeKind.PASS, name="first")
    builder.add(
        node_id=7,
        kind=NodeKind.COLLECTIVE,
        name="second",
        dependencies=[2**64 - 1],
        file_offset=99,
        duration_ns=1,
        start_ns=0,
        num_ops=2,
        tensor_bytes=3,
        stream=0,
        op=CollectiveOp.REDUCE,
        comm_bytes=4,
        group="g",
        peer=5,
        tag=-1,
        root=0,
    )
    graph = builder.build()
    assert graph.node(1) == TraceNode(
        position=1,
        node_id=7,
        kind=NodeKind.COLLECTIVE,
        name="second",
        file_offset=99,
        duration_ns=1,
        start_ns=0,
        num_ops=2,
        tensor_bytes=3,
        stream=0,
        op=CollectiveOp.REDUCE,
        comm_bytes=4,
        group="g",
        peer=5,
        tag=-1,
        root=0,
        dependencies=(0,),
    )
    first = graph.node(0)
    assert (first.node_id, first.group, first.op) == (2**64 - 1, None, None)
    assert (first.peer, first.tag, first.root, first.stream) == (None,) * 4
    assert (graph.node_id(0), graph.kind(1), graph.group(1)) == (
        2**64 - 1,
        NodeKind.COLLECTIVE,
        "g",
    )
    assert [node.name for node in graph.nodes()] == ["first", "second"]
    assert graph.locate(1) == "t.3.et: offset 99: rank 3 node 7 'second'"
    assert builder.locate(1) == graph.locate(1)


def test_builder_reports_its_nodes() -> None:
    builder = TraceGraphBuilder(rank=0, source="t")
    builder.add(**label(4))
    assert len(builder) == 1
    assert 4 in builder
    assert 5 not in builder


def test_nodes_of_a_group_share_one_name_object() -> None:
    rows = [collective(i, group=name) for i, name in enumerate(["a", "b", "a"])]
    assert [node.group for node in trace(0, rows).nodes()] == ["a", "b", "a"]


def test_duplicate_id_is_refused() -> None:
    with pytest.raises(TraceError, match="node id 1 occurs twice in the file"):
        trace(0, [label(1), label(1)])


def test_dependencies_may_be_added_later_and_count_once() -> None:
    graph = trace(0, [label(1, after=[2, 3, 2]), label(2), label(3)])
    assert list(graph.dependencies(0)) == [1, 2]


def test_missing_dependency_is_refused_or_reported() -> None:
    rows = [label(1), label(2, after=[1, 9])]
    with pytest.raises(TraceError, match="depends on node 9, which is not in the file"):
        trace(0, rows)
    builder = TraceGraphBuilder(rank=0, source="t")
    for row in rows:
        builder.add(**row)
    told: list[tuple[int, int]] = []
    graph = builder.build(on_missing=lambda *found: told.append(found))
    assert told == [(1, 9)]
    assert list(graph.dependencies(1)) == [0]


def test_order_is_topological_then_by_id() -> None:
    graph = trace(
        0, [compute(5), compute(1, after=[9]), compute(9), compute(2, after=[5])]
    )
    assert [graph.node_id(position) for position in graph.topological_order()] == [
        5,
        2,
        9,
        1,
    ]


def test_the_order_does_not_depend_on_the_file() -> None:
    rows = [compute(i, after=[i - 2] if i > 2 else []) for i in range(1, 9)]

    def ids(graph: TraceGraph) -> list[int]:
        return [graph.node_id(position) for position in graph.topological_order()]

    assert ids(trace(0, rows)) == ids(trace(0, rows[::-1]))


def test_cycle_is_refused_with_the_name_of_a_node() -> None:
    with pytest.raises(TraceError) as caught:
        trace(
            0,
            [
                label(1),
                label(2, after=[1, 4]),
                label(3, after=[2]),
                label(4, after=[2]),
            ],
        ).topological_order()
    assert "depends on itself through a cycle" in str(caught.value)
    assert "node 2 'label-2'" in str(caught.value) or "node 4" in str(caught.value)


def test_deep_chain_does_not_overflow_the_stack() -> None:
    count = 20_000
    graph = trace(0, [label(i, after=[i + 1] * (i < count)) for i in range(count + 1)])
    assert graph.topological_order()[0] == count
