"""``chakram compare`` and ``chakram diff``, as they are called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from chakram import simulate
from chakram.cli import main
from chakram.run_directory.reader import RunResults
from tests.run_directories import STARTED
from tests.support import REPO_ROOT
from tests.unit.cli.results.test_runs import make_run

EXPERIMENT = {
    "version": 1,
    "name": "two-kinds",
    "jobs": [
        {
            "name": "j",
            "trace": {
                "synth": "collectives",
                "ranks": 4,
                "streams": [
                    {"op": "all_reduce", "size": "1MiB", "count": 2},
                    {"op": "all_to_all", "size": "64KiB", "count": 1},
                ],
            },
            "compute": {"from": "none"},
        }
    ],
    "collectives": {"all_reduce": "ring", "all_to_all": "direct"},
    "iterations": {"warmup": 0, "measured": 2},
    "fabric": {
        "kind": "namespaces",
        "topology": {"single_switch": {"hosts": 4}},
        "links": {"host": {"rate": "100Gbit", "delay": "500ns"}},
    },
    "simulation": {"level": "message"},
}


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT))
    return path


def simulated(experiment: Path, **overrides: str) -> RunResults:
    changes = {key.replace("__", "."): value for key, value in overrides.items()}
    return simulate(experiment, set=changes, runs=experiment.parent / "runs")


def compared(capsys: pytest.CaptureFixture[str], *paths: Path | str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["compare", *map(str, paths), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "chakram.comparison/1"
    (found,) = document["comparisons"]
    assert isinstance(found, dict)
    return found


def test_a_slower_link_is_seen_in_all_that_crosses_it(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = simulated(experiment)
    b = simulated(experiment, fabric__links__host__rate="80Gbit")
    found = compared(capsys, a.path, b.path)
    assert found["differs"] is True
    assert found["first"]["key"] == ["iteration", "j"]
    assert found["first"]["change"] == pytest.approx(0.25, abs=0.02)
    assert found["sentences"][0].startswith("Iteration of j takes 2")
    assert "all_reduce of 1MiB, 4 ranks" in found["sentences"][0]
    assert "fabric.links.host.rate" in found["settings"]
    instances = found["levels"]["instance"]
    assert [each["key"][:2] for each in instances] == [["instance", "j"]] * 3
    pairs = found["levels"]["pair"]
    assert all(each["significant"] for each in pairs)
    assert not any(
        found["only"][level][side] for level in found["only"] for side in "ab"
    )

    capsys.readouterr()
    assert main(["compare", str(a.path), str(b.path)]) == 0
    told = capsys.readouterr().out
    assert "A  " in told
    assert "(simulation)" in told
    assert "# collectives by size: 2 of 2 differ" in told
    assert " exact" in told
    # Where there is room, everything has its whole name.
    assert main(["compare", str(a.path), str(b.path), "--all", "--wide"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    labels = [each["label"] for level in found["levels"].values() for each in level]
    assert len(labels) > 10
    assert [
        label
        for label in labels
        if not any(line.startswith(f"{label} ") for line in lines)
    ] == []


def test_the_same_run_has_no_difference(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = simulated(experiment)
    b = simulated(experiment)
    found = compared(capsys, a.path, b.path)
    assert found["differs"] is False
    (sentence, *_) = found["sentences"]
    assert sentence.startswith("No significant difference: ")
    assert main(["compare", str(a.path), str(b.path)]) == 0
    assert "\n# collectives" not in capsys.readouterr().out
    assert main(["compare", str(a.path), str(b.path), "--all"]) == 0
    assert "# collectives by size: 0 of 2 differ" in capsys.readouterr().out


def test_diff_abridges_only_what_does_not_fit(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    text = (REPO_ROOT / "configs" / "quickstart-small.yaml").read_text()
    fault = "kind: degrade, link: h3-leaf0, rate: 10Mbit"
    files[0].write_text(text)
    files[1].write_text(f"{text}\nfaults: {{links: [{{{fault}}}]}}\n")
    assert main(["diff", *map(str, files)]) == 0
    assert "kind degrade, link h3-leaf0, direction both" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["diff", *map(str, files)]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "faults" in line)
    assert ".." in row
    assert len(row) <= 60


@pytest.mark.parametrize("columns", ["80", "120"])
def test_lines_fit_the_terminal(
    experiment: Path,
    columns: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    a = simulated(experiment)
    b = simulated(experiment, fabric__links__host__rate="80Gbit")
    capsys.readouterr()
    monkeypatch.chdir(experiment.parent)
    paths = [str(each.path.relative_to(experiment.parent)) for each in (a, b)]
    assert main(["compare", *paths, "--all"]) == 0
    assert main(["diff", *paths]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= int(columns)


def test_a_folder_of_runs_is_one_side_with_repetitions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("before", "after"):
        for number in range(3):
            make_run(
                tmp_path / name,
                run_id=f"{name}{number}",
                started_at="2026-01-31T12:00:00+00:00",
                world="loopback",
            ).finish(ended=STARTED)
    found = compared(capsys, tmp_path / "before", tmp_path / "after")
    assert found["a"]["kind"] == "3 runs"
    assert found["differs"] is False
    (iteration,) = found["levels"]["iteration"]
    assert iteration["a"]["samples"] == 6


def test_other_programs_are_compared_by_size(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = simulated(experiment)
    rows = {row["size"]: row for row in _document(a, capsys)["results"]}
    time_us = rows[1 << 20]["out_of_place"]["time"]
    ranks = "".join(
        f"#  Rank  {rank} Group  0 Pid  1 on  h device  0 [00] X\n" for rank in range(4)
    )
    text = tmp_path / "all_reduce_perf.txt"
    text.write_text(
        f"# Collective test starting: all_reduce_perf\n{ranks}"
        "# size count type redop root time algbw busbw #wrong\n"
        f" 1048576 262144 float sum -1 {1.5 * time_us:.2f} 1 1 0 1 1 1 0\n"
    )
    found = compared(capsys, a.path, text)
    (size,) = found["levels"]["size"]
    assert size["change"] == pytest.approx(0.5, abs=0.001)
    # It is one mean without a spread.
    assert size["significant"] is None
    assert "can be shown" in found["sentences"][0]
    assert found["only"]["size"] == {"a": 1, "b": 0}

    printed = tmp_path / "run.json"
    printed.write_text(json.dumps(_document(a, capsys)))
    found = compared(capsys, a.path, printed)
    assert {"iteration", "size"} == set(found["levels"])
    assert found["differs"] is False

    replay = tmp_path / "replay"
    replay.mkdir()
    for rank in range(4):
        records = [
            {
                "comms": "all_to_all",
                "id": k,
                "in_msg_size": 65536,
                "dtype": "uint8",
                "pg_id": 0,
                "world_size": 4,
                "latency_us": 100.0 + rank,
            }
            for k in range(2)
        ]
        (replay / f"replayedCommsPerf.rank-{rank}.json").write_text(json.dumps(records))
    found = compared(capsys, a.path, replay)
    (size,) = found["levels"]["size"]
    assert size["key"] == ["size", "all_to_all", 4, 65536]
    assert size["b"]["mean_ns"] == 103_000  # the last rank's


def _document(
    results: RunResults, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["show", str(results.path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def test_other_simulators_are_compared_by_rank_collective_and_port(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = simulated(experiment)
    names = [record.identity.name for record in a.collectives()[:1]]
    log = tmp_path / "log.log"
    log.write_text(
        "".join(
            f"[x] sys[{rank}] finished, 5000000 cycles, exposed communication 0 "
            "cycles.\n"
            f"[x] issue,sys->id={rank}, tick=10, node->id=3, node->name={names[0]}, "
            "node->type=7\n"
            f"[x] callback,sys->id={rank}, tick=1010, node->id=3, "
            f"node->name={names[0]}, node->type=7\n"
            for rank in range(4)
        )
    )
    found = compared(capsys, a.path, log)
    assert set(found["levels"]) == {"iteration", "rank", "named"}
    assert found["levels"]["named"][0]["b"]["mean_ns"] == 1000
    assert len(found["levels"]["rank"]) == 4

    fct = tmp_path / "fct.txt"
    fct.write_text("0b000001 0b000101 10000 100 262144 10 99999 2727\n")
    found = compared(capsys, a.path, fct)
    assert set(found["levels"]) == {"ports", "fct"}
    (pair,) = found["levels"]["ports"]
    assert pair["key"] == ["ports", 0, 1, 262144]
    assert pair["b"]["mean_ns"] == 99999


def test_what_cannot_be_compared_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    text = tmp_path / "x.txt"
    text.write_text("nothing of use\n")
    broken = tmp_path / "x.json"
    broken.write_text("{")
    for path, message in (
        (empty, "contains no run (name a run directory"),
        (tmp_path / "gone", "cannot be read: No such file"),
        (text, "is no result that can be compared"),
        (broken, "is not valid JSON"),
    ):
        assert main(["compare", str(path), str(path)]) == 2
        assert message in capsys.readouterr().err


def test_settings_of_runs_and_files_are_compared(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = simulated(experiment)
    b = simulated(experiment, seed="7", fabric__links__host__rate="80Gbit")
    capsys.readouterr()
    assert main(["diff", str(a.path), str(b.path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "chakram.diff/1"
    assert document["differing"]["seed"] == {"a": 1, "b": 7}
    assert "fabric.links.host.rate" in document["differing"]
    assert len(document["differing"]) == 2

    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump({**EXPERIMENT, "seed": 9}))
    assert main(["diff", str(a.path), str(other)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if line.startswith(" seed")] == [
        ["seed", "1", "9"]
    ]
    assert not any("versions" in line for line in lines)
    assert main(["diff", str(a.path), str(experiment)]) == 0
    assert "have the same settings" in capsys.readouterr().out
    assert main(["diff", str(a.path), str(tmp_path / "gone.yaml")]) == 2
