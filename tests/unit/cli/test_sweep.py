"""``chakram sweep``: cells, repetitions, resumption, shards; one result however run."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from chakram.cli import main
from chakram.sweep import runner as sweep_cells
from chakram.sweep.folder import CellRun, Outcome, read_sweep

EXPERIMENT = """\
version: 1
name: base
jobs:
  - name: j
    trace:
      synth: collectives
      ranks: 4
      streams: {op: all_reduce, size: 64KiB, count: 2}
    compute: {from: none}
collectives: {all_reduce: ring}
iterations: {warmup: 0, measured: 2}
fabric:
  kind: namespaces
  topology: {single_switch: {hosts: 4}}
  links: {host: {rate: 100Gbit, delay: 500ns}}
simulation: {level: message}
"""
SUITE = """\
version: 1
name: sizes
base: base.yaml
cases:
  - {name: fast}
  - {name: slow, set: {fabric.links.host.rate: 50Gbit}}
matrix:
  size: [64KiB, 256KiB]
  algorithm: [ring, tree]
baseline: {case: fast, algorithm: ring}
repetitions: 2
"""


def written(folder: Path) -> Path:
    (folder / "base.yaml").write_text(EXPERIMENT)
    (folder / "suite.yaml").write_text(SUITE)
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return written(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process makes of the suite, all of it at once; not to be changed."""
    with contextlib.chdir(written(tmp_path_factory.mktemp("whole"))):
        assert main(["sweep", "suite.yaml"]) == 0
        return Path("sweeps/sizes").absolute()


def sweep(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["sweep", "suite.yaml", *options, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def files(folder: Path) -> list[bytes]:
    return [
        (folder / f"results.{kind}").read_bytes() for kind in ("csv", "json", "parquet")
    ]


def test_every_cell_is_compared_with_its_baseline(
    folder: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(whole, folder / "sweeps/sizes")
    document = sweep(capsys)
    assert document["schema"] == "chakram.sweep/1"
    assert (document["missing"], document["failed"]) == (0, [])
    cells = document["cells"]
    assert [(cell["case"], *cell["values"].values()) for cell in cells] == [
        (case, size, algorithm)
        for case in ("fast", "slow")
        for size in ("64KiB", "256KiB")
        for algorithm in ("ring", "tree")
    ]
    # The same size with ring in the fast case.
    assert [cell["baseline"] for cell in cells] == [None, 0, None, 2, 0, 0, 2, 2]
    slow = cells[6]
    assert slow["change"] == pytest.approx(
        slow["iteration_ns"] / cells[2]["iteration_ns"] - 1
    )
    assert slow["change"] > 0.8
    assert slow["significant"] is True
    assert {cell["repetitions"] for cell in cells} == {2}

    made = Path("sweeps/sizes")
    rows = json.loads((made / "results.json").read_text())
    assert len(rows) == 8 * 2
    assert rows[0].keys() >= {"cell", "repetition", "case", "size", "algorithm"}
    assert pq.read_table(made / "results.parquet").to_pylist() == rows
    assert pyarrow.csv.read_csv(made / "results.csv").num_rows == len(rows)

    # A second time there is nothing to do, and the table is the same.
    before = files(made)
    runs = sorted(made.glob("runs/*/*"))
    capsys.readouterr()
    assert main(["sweep", "suite.yaml"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    lines = [line.split() for line in told.out.splitlines()]
    assert lines[2][:4] == ["fast", "64KiB", "ring", "2"]
    assert "base" in lines[2]
    assert "# change: of the iteration time from its baseline" in told.out
    assert files(made) == before
    assert sorted(made.glob("runs/*/*")) == runs


def test_of_a_cell_alone_nothing_is_said_of_changes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "suite.yaml").write_text(
        "version: 1\nname: one\nbase: base.yaml\nmatrix: {size: [64KiB]}\n"
        "repetitions: 1\n"
    )
    capsys.readouterr()
    assert main(["sweep", "suite.yaml"]) == 0
    told = capsys.readouterr().out
    assert "64KiB" in told
    assert "# change" not in told


def test_it_goes_on_where_it_was_cut(
    folder: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = folder / "sweeps/sizes"
    shutil.copytree(whole, made)
    before = files(made)
    (made / "cells/0003-1.json").unlink()
    (made / "cells/0005-0.json").write_text("{")  # cut while it was written
    capsys.readouterr()
    assert main(["sweep", "suite.yaml"]) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "14 of 16 cells already have results"
    assert len(told) == 3
    assert files(made) == before
    # What a changed experiment gives is another result; an eighth of it shows that.
    (folder / "base.yaml").write_text(EXPERIMENT.replace("500ns", "600ns"))
    kept = {path: path.read_bytes() for path in made.glob("cells/*.json")}
    assert main(["sweep", "suite.yaml", "--shard", "1/8"]) == 0
    assert len(capsys.readouterr().err.splitlines()) == 2
    changed = [path for path, before in kept.items() if path.read_bytes() != before]
    assert len(changed) == 2


def test_results_of_another_version_are_not_reused(
    folder: Path,
    whole: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(whole, folder / "sweeps/sizes")
    monkeypatch.setattr("chakram.config.suite.__version__", "0.0.1")
    capsys.readouterr()
    assert main(["sweep", "suite.yaml", "--merge", "sweeps/sizes", "--out", "all"]) == 2
    assert "16 of 16 results are missing" in capsys.readouterr().err
    assert main(["sweep", "suite.yaml", "--shard", "1/16"]) == 0
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_time_of_a_cell_is_not_that_of_a_background_job(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = """\
  - name: load
    repeat: until_others_end
    trace:
      synth: collectives
      ranks: 4
      streams: {op: all_reduce, size: 1MiB}
    compute: {from: none}
collectives:"""
    text = EXPERIMENT.replace("collectives: {", f"{load} {{").replace(
        "hosts: 4", "hosts: 8"
    )
    (folder / "base.yaml").write_text(text.replace("measured: 2", "measured: 90"))
    (folder / "suite.yaml").write_text("version: 1\nname: one\nbase: base.yaml\n")
    (cell,) = sweep(capsys)["cells"]
    outcome = json.loads(Path("sweeps/one/cells/0000-0.json").read_text())
    means = {each["job"]: each["mean_ns"] for each in outcome["document"]["iterations"]}
    assert means["load"] > means["j"]
    assert cell["iteration_ns"] == means["j"]
    assert main(["runs", "sweeps/one/runs", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["runs"]
    assert listed["iteration_ns"] == pytest.approx(means["j"], rel=0.2)


def test_files_of_a_sweep_do_not_keep_outdated_rows(folder: Path, whole: Path) -> None:
    shutil.copytree(whole, folder / "sweeps/sizes")
    (folder / "suite.yaml").write_text(
        "version: 1\nname: sizes\nbase: base.yaml\n"
        "cases: [{name: gone, set: {jobs.0.trace: {path: gone}}}]\n"
    )
    assert main(["sweep", "suite.yaml"]) == 4
    assert json.loads(Path("sweeps/sizes/results.json").read_text()) == []


@pytest.mark.slow
def test_shards_and_processes_come_to_what_one_process_comes_to(
    folder: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for index, jobs in ((1, 2), (2, 1), (3, 1)):
        options = ("--jobs", str(jobs), "--out", f"part{index}")
        document = sweep(capsys, "--shard", f"{index}/3", *options)
        assert document["cells"] == []
    assert not Path("part1/results.csv").exists()
    capsys.readouterr()
    parts = ["--merge", "part1", "--merge", "part3", "--out", "all"]
    assert main(["sweep", "suite.yaml", *parts]) == 2
    assert "5 of 16 results are missing" in capsys.readouterr().err
    merged = sweep(capsys, *parts, "--merge", "part2")
    assert merged["missing"] == 0
    assert files(Path("all")) == files(whole)
    # What was merged is a sweep of its own, of which nothing is left to do.
    assert len(list(Path("all/cells").glob("*.json"))) == 16
    capsys.readouterr()
    assert main(["sweep", "suite.yaml", "--out", "all"]) == 0
    assert "complete" not in capsys.readouterr().err
    assert len(read_sweep(Path("all")).cells) == 8


def test_repetitions_are_interleaved_and_differ(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["sweep", "suite.yaml", "--list", "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    order = [(cell["repetition"], cell["cell"]) for cell in cells]
    assert order == [
        *((0, cell) for cell in range(8)),
        *((1, cell) for cell in reversed(range(8))),
    ]
    assert {(cell["repetition"], cell["set"]["seed"]) for cell in cells} == {
        (0, "1"),
        (1, "2"),
    }
    assert not Path("sweeps").exists()


def test_a_repetition_is_one_world_simulated_or_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "suite.yaml").write_text(
        "version: 1\nname: both\nbase: base.yaml\nrepetitions: 3\n"
        "matrix: {world: [simulate, run], seed: [5, 7]}\n"
    )
    capsys.readouterr()
    assert main(["sweep", "suite.yaml", "--list", "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    seeds = [(5, 7, 5, 7)[cell["cell"]] + cell["repetition"] for cell in cells]
    assert [cell["set"]["seed"] for cell in cells] == list(map(str, seeds))


def test_runs_that_follow_one_another_share_a_lab_of_their_seed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells 0 and 1 have one fabric, 2 another; every other repetition goes back."""
    (folder / "suite.yaml").write_text(
        "version: 1\nname: run\nbase: base.yaml\nworld: run\nrepetitions: 2\n"
        "cases:\n"
        "  - {name: ring}\n"
        "  - {name: tree, set: {algorithm: tree}}\n"
        "  - {name: slow, set: {fabric.links.host.rate: 50Gbit}}\n"
    )
    told: list[tuple[str, int]] = []

    @contextlib.contextmanager
    def standing(lab: str | None, runs: Sequence[CellRun]) -> Iterator[None]:
        seeds = {dict(run.overrides)["seed"] for run in runs}
        told.append((f"lab {lab} of seed {seeds.pop()}", len(runs)))
        assert not seeds
        yield

    def ran(run: CellRun, _: object) -> Outcome:
        told.append((f"cell {run.number} in {run.lab}", run.repetition))
        return {"status": "failed", "reason": "not here", "digest": run.digest}

    monkeypatch.setattr(sweep_cells, "_standing", standing)
    monkeypatch.setattr(sweep_cells, "run_cell", ran)
    assert main(["sweep", "suite.yaml"]) == 4
    assert told == [
        ("lab base of seed 1", 2),
        ("cell 0 in base", 0),
        ("cell 1 in base", 0),
        ("lab None of seed 1", 1),
        ("cell 2 in None", 0),
        ("lab None of seed 2", 1),
        ("cell 2 in None", 1),
        ("lab base of seed 2", 2),
        ("cell 1 in base", 1),
        ("cell 0 in base", 1),
    ]


def test_cells_without_cases_are_compared_with_the_first(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "suite.yaml").write_text(
        "version: 1\nname: plain\nbase: base.yaml\nmatrix: {ranks: [2, 4]}\n"
    )
    cells = sweep(capsys)["cells"]
    assert [cell["baseline"] for cell in cells] == [None, 0]
    assert [cell["case"] for cell in cells] == [None, None]
    assert cells[1]["change"] > 0
    # One experiment by itself is a suite, too.
    (folder / "suite.yaml").write_text("version: 1\nname: one\nbase: base.yaml\n")
    (cell,) = sweep(capsys)["cells"]
    assert cell["values"] == {}


def test_a_cell_that_fails_is_told_and_tried_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "suite.yaml").write_text(
        "version: 1\nname: half\nbase: base.yaml\nmatrix: {seed: [1, 2]}\n"
        "cases: [{name: there}, {name: gone, set: {jobs.0.trace: {path: gone}}}]\n"
    )
    for _ in range(2):
        assert main(["sweep", "suite.yaml"]) == 4
        told = capsys.readouterr()
        assert "2 cells failed, the first: gone seed=1: " in told.err
        assert "# 2 of 4 cells have no result" in told.out
    assert "2 of 4 cells already have results" in told.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("base: base.yaml", "base: gone.yaml"), "gone.yaml: cannot be read"),
        (("repetitions: 2", "repetition: 2"), "unknown key"),
        (("size: [64KiB, 256KiB]", "size: []"), "matrix.size: has no values"),
        (("[ring, tree]", "[ring, ring]"), "matrix.algorithm: lists a value twice"),
        (("[ring, tree]", "[ring, rong]"), "cell fast size=64KiB algorithm=rong"),
        (
            ("name: slow", "name: fast"),
            "cases[1].name: is already the name of another case",
        ),
        (
            ("case: fast", "case: best"),
            "'best' is not a value of the suite (use one of fast",
        ),
        (("algorithm: ring}", "color: 1}"), "known keys: case, size, algorithm"),
        (
            ("baseline: {", "  seed: [1, 2]\nbaseline: {seed: 1.0, "),
            "baseline.seed: '1.0' is not a value of the suite (use one of 1, 2)",
        ),
        (
            ("algorithm: [", "world: [mars, "),
            "'mars' is not known (known: simulate, run)",
        ),
        (("[64KiB, 256KiB]", f"{list(range(1, 3000))}"), "use at most 10000"),
        (
            ("algorithm: [", "collectives.all_reduce: [tree]\n  algorithm: ["),
            "algorithm: sets the same as collectives.all_reduce",
        ),
        (
            ("- {name: fast}", "- {name: fast, set: {algorithm: tree}}"),
            "algorithm: sets the same as algorithm (remove one of them from matrix or",
        ),
    ],
)
def test_what_is_no_suite_is_told(
    folder: Path,
    change: tuple[str, str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "suite.yaml").write_text(SUITE.replace(*change))
    capsys.readouterr()
    assert main(["sweep", "suite.yaml", "--list"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("many", ["[{}]", "{}"])
def test_size_without_effect_is_refused(
    folder: Path, many: str, capsys: pytest.CaptureFixture[str]
) -> None:
    streams = many.format("{op: all_reduce, sizes: [64KiB, 1MiB]}")
    experiment = EXPERIMENT.replace("{op: all_reduce, size: 64KiB, count: 2}", streams)
    (folder / "base.yaml").write_text(experiment)
    assert main(["sweep", "suite.yaml", "--list"]) == 2
    place = "jobs[0].trace.streams" + "[0]" * (many == "[{}]")
    assert (
        f"size: has no effect, because the first job has {place}.sizes"
        in capsys.readouterr().err
    )


def test_agents_are_not_launched_for_simulations(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "suite.yaml", "--launch", "ssh"]) == 2
    sentence = "--launch ssh: has no effect, because this command runs no cell on a fab"
    assert sentence in capsys.readouterr().err
    assert not (folder / "sweeps").exists()


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "a/b", "1/"])
def test_what_is_no_shard_is_told(
    folder: Path, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "suite.yaml", "--shard", part]) == 2
    assert "is not I/N with I from 1 to N" in capsys.readouterr().err
