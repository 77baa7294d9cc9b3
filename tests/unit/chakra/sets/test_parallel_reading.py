"""Sets whose files other processes read are equal to those read in this process."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from chakram.chakra.lint.lint_trace_set import lint_trace_set
from chakram.chakra.sets.trace_set import TraceSet, load_trace_set
from chakram.foundation.errors import TraceError
from chakram.synth.settings.training import DenseTrace
from chakram.synth.synthesize import synthesize, write_synthesis
from chakram.trace.graph import TraceGraph
from tests.trace_bytes import collective, metadata, node
from tests.unit.chakra.read.pytorch.test_pytorch_sets import (
    write_hosts,
    write_profiles,
)
from tests.unit.chakra.sets.test_trace_set import write_archive

GROUP_FILE = '{"0": [0, 1, 2, 3], "1": [0, 2], "2": [1, 3]}'


class OtherProcesses(Executor):
    """Executor whose work has only copies of the objects, and another folder.

    Attributes:
        parts: Number of ranks in each part that was read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.parts: list[int] = []

    def submit(
        self, function: Callable[..., Any], /, *args: Any, **_: Any
    ) -> Future[Any]:
        done: Future[Any] = Future()
        here = Path.cwd()
        os.chdir(self._folder)
        try:
            found = function(*pickle.loads(pickle.dumps(args)))
        finally:
            os.chdir(here)
        self.parts.append(len(found))
        done.set_result(pickle.loads(pickle.dumps(found)))
        return done


@pytest.fixture
def others(tmp_path_factory: pytest.TempPathFactory) -> OtherProcesses:
    return OtherProcesses(tmp_path_factory.mktemp("elsewhere"))


def content(graph: TraceGraph) -> tuple[object, ...]:
    columns = graph.columns
    values = (getattr(columns, each.name) for each in fields(columns))
    return (
        graph.rank,
        graph.source,
        list(graph.nodes()),
        [each if isinstance(each, list) else bytes(each) for each in values
         if each is not columns.names],
        columns.names.columns(),
        list(graph.targets),
        graph.digest(),
    )  # fmt: skip


def same(first: TraceSet, second: TraceSet) -> None:
    for each in fields(TraceSet):
        if each.name != "graphs":
            assert getattr(first, each.name) == getattr(second, each.name), each.name
    assert list(first.graphs) == list(second.graphs)
    for one, two in zip(first.graphs.values(), second.graphs.values(), strict=True):
        assert content(one) == content(two)


@pytest.mark.parametrize("ranks", [1, 2, 3, 64, 65, 130])
def test_sets_of_any_size_are_equal(
    ranks: int, tmp_path: Path, others: OtherProcesses
) -> None:
    for rank in range(ranks):
        deps = [2] if rank % 3 else []
        (tmp_path / f"w.{rank}.et").write_bytes(
            metadata()
            + node(1, duration_micros=rank % 2)
            + collective(2, data_deps=[1], ctrl_deps=[7])
            + node(3, data_deps=deps)
        )
    done: list[tuple[int, int]] = []
    got = load_trace_set(
        tmp_path, workers=others, on_rank=lambda *each: done.append(each)
    )
    same(got, load_trace_set(tmp_path))
    assert done == [(rank + 1, ranks) for rank in range(ranks)]
    assert sum(others.parts) == ranks
    assert len(others.parts) <= 64


@pytest.mark.parametrize("has_group_file", [False, True])
def test_training_of_relative_paths_is_equal(
    has_group_file: bool,
    tmp_path: Path,
    others: OtherProcesses,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = DenseTrace(synth="dense", ranks=8, tp=2, pp=2, layers=2)
    write_synthesis(tmp_path / "made", synthesize(trace))
    (tmp_path / "made/comm_group.json").unlink()
    if has_group_file:
        (tmp_path / "made/comm_group.json").write_text(GROUP_FILE)
    monkeypatch.chdir(tmp_path)
    got = load_trace_set("made", workers=others)
    same(got, load_trace_set("made"))
    assert got.graphs[3].source.startswith("made/")
    assert sum(others.parts) == 8


def test_ranks_of_several_parts_share_columns(
    tmp_path: Path, others: OtherProcesses
) -> None:
    for rank in range(70):
        (tmp_path / f"w.{rank}.et").write_bytes(metadata() + node(1, name="a"))
    graphs = load_trace_set(tmp_path, workers=others).graphs
    assert len(others.parts) == 35
    assert len({id(graph.columns.names) for graph in graphs.values()}) == 1
    assert len({id(graph.columns.durations_ns) for graph in graphs.values()}) == 1


@pytest.mark.parametrize("damaged", [(5, 60), (60, 61), (0,), (69,)])
def test_the_first_damaged_file_is_reported(
    damaged: tuple[int, ...], tmp_path: Path, others: OtherProcesses
) -> None:
    for rank in range(70):
        data = metadata() + node(1) + collective(2)
        (tmp_path / f"w.{rank}.et").write_bytes(data[:-3] if rank in damaged else data)
    with pytest.raises(TraceError) as here:
        load_trace_set(tmp_path)
    with pytest.raises(TraceError) as elsewhere:
        load_trace_set(tmp_path, workers=others)
    assert type(elsewhere.value) is type(here.value)
    assert str(elsewhere.value) == str(here.value)
    assert f"w.{damaged[0]}.et" in str(here.value)
    assert lint_trace_set(tmp_path, workers=others) == lint_trace_set(tmp_path)


@pytest.mark.parametrize("has_profiles", [False, True])
def test_host_traces_are_read_here(
    has_profiles: bool, tmp_path: Path, others: OtherProcesses
) -> None:
    folder = write_hosts(tmp_path / "hosts")
    if has_profiles:
        write_profiles(folder, "kineto")
    got = load_trace_set(folder / "host", workers=others)
    same(got, load_trace_set(folder / "host"))
    assert others.parts == [0, 0, 0]


def test_archives_are_read_here(tmp_path: Path, others: OtherProcesses) -> None:
    data = metadata() + node(1)
    path = write_archive(tmp_path / "a.tar.gz", {"w.0.et": data, "w.1.et": data})
    same(load_trace_set(path, workers=others), load_trace_set(path))
    assert others.parts == []
