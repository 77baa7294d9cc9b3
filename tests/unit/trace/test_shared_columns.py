"""Columns and results that ranks share, and what makes ranks alike."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.trace.graph import TraceGraph
from chakram.trace.shared_columns import SharedColumns, once_per_shape, once_per_work
from tests.made_graphs import collective, compute, receive, send, trace

ROWS = (compute(1, duration_ns=5), collective(2, after=[1]), send(3, 1, after=[2]))


def with_row(index: int, **changes: Any) -> TraceGraph:
    rows = [*ROWS]
    rows[index] = {**rows[index], **changes}
    return trace(7, rows)


@pytest.mark.parametrize(
    ("index", "changes"),
    [
        (0, {"duration_ns": 6}),
        (0, {"start_ns": 1}),
        (0, {"file_offset": 9}),
        (0, {"op_type": "Add"}),
        (2, {"peer": 3}),
    ],
)
def test_values_of_a_rank_leave_its_shape(index: int, changes: dict[str, Any]) -> None:
    other = with_row(index, **changes)
    assert other.shape() == trace(0, ROWS).shape()
    assert (other.digest() != trace(0, ROWS).digest()) == any(
        "_ns" in k for k in changes
    )


@pytest.mark.parametrize(
    ("index", "changes"),
    [
        (0, {"num_ops": 1}),
        (0, {"name": "b"}),
        (0, {"stream": 1}),
        (1, {"comm_bytes": 1}),
        (1, {"root": 0}),
        (1, {"dependencies": ()}),
        (1, {"group": "g"}),
        (2, {"tag": 1}),
        (2, {"node_id": 4}),
    ],
)
def test_other_work_has_another_shape(index: int, changes: dict[str, Any]) -> None:
    assert with_row(index, **changes).shape() != trace(0, ROWS).shape()


def test_starts_that_determine_the_order_are_part_of_the_shape() -> None:
    rows = [compute(1, start_ns=5), compute(2, start_ns=7)]
    early = trace(0, rows)
    late = trace(0, [compute(1, start_ns=9), rows[1]])
    assert early.shape() == late.shape()
    early, same = early.in_order_of_start_times(), early.in_order_of_start_times()
    assert early.shape() == same.shape()
    assert early.shape() != late.in_order_of_start_times().shape()


def test_equal_columns_become_one() -> None:
    first, other = trace(0, ROWS), with_row(0, duration_ns=6)
    shared = SharedColumns()
    for graph in (first, other):
        nodes = list(graph.nodes())
        shared.share(graph)
        assert list(graph.nodes()) == nodes
    assert other.columns.names is first.columns.names
    assert other.columns.kinds is first.columns.kinds
    assert other.targets is first.targets
    assert other.columns.file_offsets is first.columns.file_offsets
    assert other.columns.durations_ns is not first.columns.durations_ns
    assert other.source != first.source


def test_a_function_runs_once_for_ranks_that_are_alike() -> None:
    ranks = [trace(0, ROWS), with_row(0, duration_ns=6), trace(1, [receive(1, 0)])]
    calls: list[int] = []

    def noted(graph: TraceGraph) -> int:
        calls.append(graph.rank)
        return len(graph)

    assert list(map(once_per_shape(noted), ranks)) == [3, 3, 1]
    assert calls == [0, 1]
    calls.clear()
    assert list(map(once_per_work(noted), [*ranks, ranks[0]])) == [3, 3, 1, 3]
    assert calls == [0, 7, 1]
