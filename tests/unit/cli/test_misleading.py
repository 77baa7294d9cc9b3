"""What lint says of a trace that misleads stands on top of every result of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chakram.chakra.lint.computation_warnings import LintWarningKind
from chakram.cli import main
from tests.trace_bytes import collective, metadata, node

ALL_GATHER = 2

TEXT = """\
version: 1
name: doubtful
jobs:
  - {name: a, trace: {path: traces}, placement: {ports: [0, 1]}}
  - {name: b, trace: {path: traces}, placement: {ports: [2, 3]}}
iterations: {warmup: 0, measured: 1}
fabric:
  kind: namespaces
  topology: {single_switch: {hosts: 4}}
  links: {host: {rate: 1Gbit}}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """Return an experiment whose trace lacks costs, edges and a size."""
    (tmp_path / "traces").mkdir()
    for rank in range(2):
        (tmp_path / f"traces/w.{rank}.et").write_bytes(
            metadata()
            + node(1)
            + collective(2, comm_type=ALL_GATHER)
            + collective(3, comm_size=0)
        )
    path = tmp_path / "e.yaml"
    path.write_text(TEXT)
    return path


def test_every_result_says_what_lint_says(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = experiment.parent

    def said(*arguments: str) -> str:
        assert main([str(each) for each in arguments]) == 0
        # Rich breaks lines where a terminal would.
        return " ".join(capsys.readouterr().out.split())

    linted = json.loads(said("trace", "lint", str(folder / "traces"), "--json"))
    rules = {each["rule"] for each in linted["findings"]} & set(LintWarningKind)
    assert rules >= {"nothing-waits", "no-costs", "empty-collective"}

    plan = folder / "saved.plan"
    results = {
        "plan": said("plan", str(experiment), "--save", str(plan)),
        "simulate": said(
            "simulate", str(experiment), "--runs", str(folder / "of-traces")
        ),
        "simulate of a saved plan": said(
            "simulate",
            str(experiment),
            "--plan",
            str(plan),
            "--runs",
            str(folder / "of-plan"),
        ),
    }
    for runs in ("of-traces", "of-plan"):
        (directory,) = (folder / runs).iterdir()
        results[f"show of {runs}"] = said("show", str(directory))
        results[f"run.json of {runs}"] = (directory / "run.json").read_text()
    for name, text in results.items():
        # Two jobs of one trace are told of once.
        assert text.count("MISLEADING: ") == len(rules), name
        assert text.count("jobs a, b: MISLEADING: ") == len(rules), name
        for rule in rules:
            assert f"[{rule}" in text, (name, rule)
        assert "do not rely on iteration times or exposed times" in text, name
    assert results["show of of-traces"] == results["simulate"]


def test_starts_mislead_only_if_the_replay_uses_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "traces").mkdir()
    for rank in range(2):
        (tmp_path / f"traces/w.{rank}.et").write_bytes(
            metadata()
            + node(1, start_time_micros=9, duration_micros=5)
            + collective(2, data_deps=[1], start_time_micros=8, duration_micros=1)
        )
    path = tmp_path / "e.yaml"
    for order in ("dependencies", "start_times"):
        path.write_text(
            TEXT.replace("path: traces}", f"path: traces}}, order: {order}")
        )
        assert main(["plan", str(path)]) == 0
        is_told = "[time-backwards" in "".join(capsys.readouterr().out.split())
        assert is_told == (order == "start_times")
