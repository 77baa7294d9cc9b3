"""``chakram show``: what a run printed, once more from its directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chakram.cli import main

TEXT = """\
version: 1
name: incast
jobs:
  - {name: a, trace: {synth: incast, ranks: 3, size: 64KiB}}
iterations: {warmup: 0, measured: 2}
fabric:
  kind: namespaces
  topology: {single_switch: {hosts: 3}}
  links: {host: {rate: 1Gbit}}
"""


def test_a_run_is_shown_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = tmp_path / "incast.yaml"
    experiment.write_text(TEXT)
    runs = tmp_path / "runs"
    assert main(["simulate", str(experiment), "--runs", str(runs)]) == 0
    printed = capsys.readouterr().out
    (directory,) = runs.iterdir()
    assert main(["show", str(directory)]) == 0
    assert capsys.readouterr().out == printed
    assert "# Messages by receiver: 4 in 2 busy periods" in printed

    assert main(["show", str(directory), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (row,) = document["messages"]["receivers"]
    assert (row["peers"], row["fan"], row["messages"]) == (2, 2, 4)
    assert row["ideal_share"] > 0.9


def test_no_run_is_an_error_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(tmp_path)]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert "run.json cannot be read" in told.err
