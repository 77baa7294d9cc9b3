"""Verbs that need no network of Linux run where only portable Python is available."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import REPO_ROOT

SCRIPT = Path(__file__).with_name("foreign_platform.py")
PLATFORMS = (pytest.param("darwin", marks=pytest.mark.soak), "win32")
EXPERIMENT = """\
version: 1
name: small
jobs:
  - name: moe
    trace: {synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}
iterations: {warmup: 0, measured: 1}
fabric:
  kind: namespaces
  topology: {single_switch: {hosts: 4}}
  links: {host: {rate: 10Gbit}}
"""
SUITE = """\
version: 1
name: windows
base: small.yaml
world: simulate
matrix: {transport.window: [64KiB, 128KiB]}
"""
RULES = """\
version: 1
rules:
  - name: nothing was lost
    check: retransmitted_packets == 0
"""
WORKS = (
    ("init", "quickstart"),
    ("plan", "small.yaml"),
    ("simulate", "small.yaml", "--runs", "a"),
    ("simulate", "small.yaml", "--runs", "b", "--set", "transport.window=64KiB"),
    ("simulate", "small.yaml", "--runs", "c", "--level", "flow"),
    ("sweep", "suite.yaml", "--out", "swept"),
    ("trace", "synth", "moe", "--ranks", "4", "--ep", "2", "--out", "moe"),
    ("trace", "show", "moe"),
    ("trace", "lint", "moe"),
    ("trace", "convert", "json", "moe", "readable"),
    ("report", "a", "--out", "a.html"),
    ("report", "swept", "--out", "swept.html"),
    ("timeline", "a"),
    ("why", "a"),
    ("compare", "a", "b"),
    ("diff", "a", "b"),
    ("gate", "a", "rules.yaml"),
    ("show", "a"),
    ("runs", "a"),
    ("validate", "a"),
    ("export", "fct", "a", "--out", "exported"),
    ("bench", "all_reduce_perf", "-b", "1M", "-e", "1M", "--world", "simulate"),
    ("algorithms", "list"),
)
NEEDS_LINUX = (
    ("run", "small.yaml"),
    ("preflight", "small.yaml"),
    ("fabric", "up", "small.yaml", "--lab", "lab1"),
    ("fabric", "status"),
    ("fabric", "down", "--all"),
    ("bench", "all_reduce_perf", "-b", "1M", "-e", "1M"),
    ("sweep", "runs.yaml", "--out", "never"),
    ("doctor",),
)


@pytest.fixture(scope="module", params=PLATFORMS)
def done(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """Return exit code and output of every command on one platform, by command."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "small.yaml").write_text(EXPERIMENT)
    (folder / "suite.yaml").write_text(SUITE)
    (folder / "runs.yaml").write_text(SUITE.replace("world: simulate", "world: run"))
    (folder / "rules.yaml").write_text(RULES)
    process = subprocess.run(
        [sys.executable, str(SCRIPT), request.param],
        input=json.dumps([*WORKS, *NEEDS_LINUX]),
        cwd=folder,
        env={"PYTHONPATH": f"{REPO_ROOT}/emulator:{REPO_ROOT}/agents", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    results: dict[str, dict[str, Any]] = json.loads(process.stdout)
    return results


@pytest.mark.slow
def test_portable_verbs_work(done: dict[str, dict[str, Any]]) -> None:
    failed = {
        command: result
        for command in map(" ".join, WORKS)
        if (result := done[command])["code"] != 0 or "Traceback" in result["err"]
    }
    assert failed == {}


@pytest.mark.slow
def test_verbs_that_need_linux_say_so_in_one_line(
    done: dict[str, dict[str, Any]],
) -> None:
    for command in map(" ".join, NEEDS_LINUX):
        result = done[command]
        assert result["code"] == 3, (command, result)
        assert result["out"] == ""
        assert result["err"].startswith("chakram: error: ")
        assert "needs Linux" in result["err"]
        assert result["err"].count("\n") == 1
