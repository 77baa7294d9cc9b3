"""Steps of PyTorch's profiler in host traces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from chakram.chakra.cut.cut import CutOptions
from chakram.chakra.cut.cut_writer import write_cut
from chakram.chakra.sets.trace_set import load_trace_set
from chakram.chakra.trace_warning import WarningKind
from chakram.foundation.errors import ForeignProfile, TraceError
from chakram.trace.node import NodeKind
from tests.unit.chakra.read.pytorch.hosts import (
    after,
    all_reduce,
    event,
    groups,
    kernel,
    node,
    nodes_of,
    profile,
    read,
    text,
)

if TYPE_CHECKING:
    from pathlib import Path

WORLD = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 2}


def step(node_id: int, number: int, **more: Any) -> dict[str, Any]:
    return node(node_id, f"ProfilerStep#{number}", **more)


ROWS = [
    groups(WORLD),
    all_reduce(4, 1),
    step(10, 7, rf_id=100),
    node(11, "aten::mm", rf_id=110),
    all_reduce(12, 2),
    step(20, 8, rf_id=200),
    node(21, "aten::mm", rf_id=210),
    all_reduce(22, 3),
]


def test_markers_of_steps_are_labels() -> None:
    times = profile(
        event(100, 5, 20, category="user_annotation", name="ProfilerStep#7")
    )
    (label,) = nodes_of(groups(WORLD), step(10, 7, rf_id=100), profiled=times)
    assert (label.kind, label.name) == (NodeKind.PASS, "ProfilerStep#7")
    assert (label.start_ns, label.duration_ns) == (0, 20_000)
    (label,) = nodes_of(groups(WORLD), step(10, 7))
    assert label.start_ns is None
    found = nodes_of(*ROWS)
    assert [after(found, each) for each in (10, 12, 20, 22)] == [
        set(),
        {4},
        set(),
        {12},
    ]


def test_a_trace_with_only_markers_has_no_operations() -> None:
    kinds = {each.kind for each in read(groups(WORLD), step(10, 7)).warnings}
    assert WarningKind.NO_NODES in kinds


def test_a_profile_of_other_steps_is_refused() -> None:
    other = profile(
        event(100, 5, 20, category="user_annotation", name="ProfilerStep#9")
    )
    with pytest.raises(ForeignProfile, match="'ProfilerStep#7' in the trace, but"):
        read(groups(WORLD), step(10, 7, rf_id=100), profiled=other)


def names_and_sizes(folder: Path, prefix: str) -> list[tuple[str, int]]:
    graph = load_trace_set(folder / prefix).graphs[1]
    return [(each.name, each.comm_bytes) for each in graph.nodes()]


@pytest.mark.parametrize("profiled", [False, True])
def test_host_traces_are_cut_by_steps(tmp_path: Path, profiled: bool) -> None:
    # The kernel of the first step runs after the host has begun the second step.
    events = [
        event(100, 0, 10, category="user_annotation", name="ProfilerStep#7"),
        event(110, 1, 2),
        event(200, 10, 10, category="user_annotation", name="ProfilerStep#8"),
        event(210, 11, 2),
        kernel(110, 15, 30, stream=7),
        kernel(110, 45, 10, stream=8),
        kernel(210, 60, 30, stream=7),
    ]
    for rank in range(2):
        (tmp_path / f"host_{rank}.json").write_bytes(text(*ROWS))
        if profiled:
            document = {"schemaVersion": 1, "traceEvents": events}
            (tmp_path / f"kineto_{rank}.json").write_text(json.dumps(document))
    traces = load_trace_set(tmp_path / "host")
    work = ("aten::mm", 0)
    for number, elements in ((7, 2), (8, 3)):
        out = tmp_path / f"step{number}"
        options = CutOptions(iteration=number)
        write_cut(tmp_path / "host", out, traces, options)
        expected = [(f"ProfilerStep#{number}", 0)]
        expected += [work] * profiled * (2 if number == 7 else 1)
        expected += [("all_reduce", 4 * elements)]
        assert names_and_sizes(out, "host") == expected
    with pytest.raises(TraceError, match="steps in this trace: 7, 8"):
        write_cut(tmp_path / "host", tmp_path / "x", traces, CutOptions(iteration=9))
