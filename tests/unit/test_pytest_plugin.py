"""Fixtures that Chakram provides to other test suites."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from chakram import pytest_plugin
from tests.support import REPO_ROOT

TESTS = """
import os
import sys


def test_plug_in_loads_nothing_before_use():
    loaded = {each for each in sys.modules if each.startswith("chakram.")}
    assert loaded <= {"chakram._compiled", "chakram.pytest_plugin"}
    assert not {"numpy", "pyarrow", "pydantic", "grpc"} & {*sys.modules}


def test_fixture_runs_a_simulation(chakram_simulate, chakram_runs, tmp_path):
    results = chakram_simulate(
        "configs/incast.yaml",
        set={"iterations.measured": 1, "jobs[0].trace.repeats": 1},
    )
    assert results.path.parent == chakram_runs
    assert tmp_path in results.path.parents
    assert results.flows.num_rows > 0


def test_fixture_runs_an_experiment(chakram_run, chakram_runs, monkeypatch):
    from chakram import api

    requests = []

    async def end(request):
        requests.append(request)
        raise api.RunInterrupted("run", "not now")

    monkeypatch.setattr(api.run_experiment, "run_experiment", end)
    for changes in (None, {"lab": "mine"}):
        try:
            chakram_run("configs/incast.yaml", set=changes)
        except api.RunInterrupted:
            pass
    first, second = requests
    assert first.runs_directory == chakram_runs
    assert first.experiment.lab == f"pytest-{os.getpid()}"
    assert second.experiment.lab == "mine"
"""


@pytest.mark.slow
def test_other_test_suites_can_use_the_fixtures(tmp_path: Path) -> None:
    path = tmp_path / "test_others.py"
    path.write_text(TESTS)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", pytest_plugin.__name__),
            *("-c", os.devnull, "--rootdir", str(tmp_path), str(path)),
        ],
        cwd=REPO_ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_pytest_registers_the_plug_in() -> None:
    project = tomllib.loads((REPO_ROOT / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["pytest11"]
    assert points == {"chakram": pytest_plugin.__name__}


def test_its_fixtures_are_documented() -> None:
    page = (REPO_ROOT / "docs/reference/python.md").read_text()
    assert [name for name in pytest_plugin.__all__ if f"`{name}`" not in page] == []
