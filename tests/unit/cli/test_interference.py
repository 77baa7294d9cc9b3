"""``--interference``: every job alone, all together, and what that comes to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chakram.cli import main

TEXT = """\
version: 1
name: two
jobs:
  - name: a
    trace: {synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}
    compute: {from: none}
    placement: {ports: [0, 2]}
  - name: b
    trace: {synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}
    compute: {from: none}
    placement: {ports: [1, 3]}
    repeat: until_others_end
iterations: {warmup: 0, measured: 3}
fabric:
  kind: namespaces
  topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}}
  links: {host: {rate: 1Gbit}, uplink: {rate: 1Gbit}}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "two.yaml"
    path.write_text(TEXT)
    return path


def test_jobs_that_share_an_uplink_take_longer(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    command = ["simulate", str(experiment), "--runs", str(runs), "--interference"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # Both send all they have over one link: between a half and all of it is shared.
    assert [job["job"] for job in found["jobs"]] == ["a", "b"]
    for job in found["jobs"]:
        assert 1.3 < job["factor"]["factor"] < 2.1
        assert job["overlap"] > 0.9
        assert job["bound"] == 0
    assert len(list(runs.iterdir())) == 3
    together = Path(found["together"])
    assert json.loads((together / "interference.json").read_text()) == found

    # From their directories they are compared alike, and as a table.
    assert main(["interference", str(together), *found["alone"].values()]) == 0
    table = capsys.readouterr().out
    assert "job a: iteration" in table
    assert "all_to_all direct, 2 ranks" in table
    assert main(["interference", str(together), str(together)]) == 2
    assert "is a run of 2 jobs" in capsys.readouterr().err


def test_one_job_can_be_simulated_alone(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["simulate", str(experiment), "--runs", str(tmp_path / "runs"), "--json"]
    assert main([*command, "--alone", "b"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"]["case"] == "b alone"
    assert {iteration["job"] for iteration in found["iterations"]} == {"b"}
    assert main([*command, "--alone", "c"]) == 2
    assert "job c: is not in the experiment" in capsys.readouterr().err


def test_one_job_interferes_with_nobody(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start, end = TEXT.index("  - name: b"), TEXT.index("iterations:")
    experiment.write_text(TEXT[:start] + TEXT[end:])
    assert main(["simulate", str(experiment), "--interference"]) == 2
    assert "--interference needs at least two" in capsys.readouterr().err
