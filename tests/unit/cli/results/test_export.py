"""``chakram export``: files of a run for other tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chakram.cli import main

TEXT = """\
version: 1
name: two
jobs:
  - name: j
    trace:
      synth: collectives
      ranks: 2
      streams: [{op: all_reduce, size: 4KiB}, {op: all_to_all, size: 4KiB}]
    compute: {from: none}
iterations: {warmup: 0, measured: 1}
fabric:
  kind: namespaces
  topology: {single_switch: {hosts: 2}}
  links: {host: {rate: 1Gbit}}
simulation: {level: message}
"""
NAMES = [
    "all_reduce_perf-j-recursive_doubling-2.json",
    "alltoall_perf-j-direct-2.json",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run; tests leave it as it is."""
    folder = tmp_path_factory.mktemp("export")
    experiment = folder / "two.yaml"
    experiment.write_text(TEXT)
    assert main(["simulate", str(experiment), "--runs", str(folder / "runs")]) == 0
    (found,) = (folder / "runs").iterdir()
    return found


def test_files_are_written_and_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "nccl-tests", str(run), "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert sorted(each.name for each in tmp_path.iterdir()) == NAMES
    written = ", ".join(str(tmp_path / name) for name in NAMES)
    assert told.splitlines()[-1] == f"wrote {written}"

    again = ["export", "nccl-tests", str(run), "--out", str(tmp_path), "--force"]
    assert main([*again, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "chakram.exported/1"
    assert document["written"] == [str(tmp_path / name) for name in NAMES]


@pytest.mark.parametrize("there", NAMES)
def test_where_one_file_is_there_already_none_is_written(
    there: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / there).write_text("mine")

    assert main(["export", "nccl-tests", str(run), "--out", str(tmp_path)]) != 0

    assert str(tmp_path / there) in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


@pytest.mark.parametrize(
    ("step", "is_possible"),
    [("1ms", True), ("20ms", True), ("999us", False), ("1500us", False)],
)
def test_metrics_have_whole_milliseconds(
    step: str, is_possible: bool, run: Path, tmp_path: Path
) -> None:
    command = ["export", "openmetrics", str(run), "--out", str(tmp_path)]

    status = main([*command, "--step", step])

    assert (status == 0) is is_possible
    assert (tmp_path / "run.om").exists() is is_possible


@pytest.mark.parametrize(("verb", "name"), [("links", "links.csv"), ("fct", "fct.txt")])
def test_nothing_is_simulated_for_a_file_that_is_there(
    verb: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("mine")
    experiment = tmp_path / "two.yaml"
    experiment.write_text(TEXT)
    runs = tmp_path / "runs"
    options = ["--out", str(tmp_path), "--runs", str(runs)]
    assert main(["export", verb, str(experiment), *options]) != 0
    assert str(tmp_path / name) in capsys.readouterr().err
    assert not runs.exists()
