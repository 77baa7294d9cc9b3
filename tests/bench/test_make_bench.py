"""``make bench`` runs from a clean clone, and compares with an earlier commit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.bench.extent import BRIEF
from tests.bench.trees import Figure, build_tree, compare_trees
from tests.support import REPO_ROOT, missing_program, require, why_no_lab

MAKEFILE = """\
.venv/.chakram-tools:
\tmkdir -p $(VENV)/bin
\ttouch $@
build: .venv/.chakram-tools
\tln -sf $(PYTHON) $(VENV)/bin/python
"""
PROGRAM = """\
import json, tests.speed
print(json.dumps(tests.speed.FIGURE))
"""


CLEAN = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MAKEFLAGS")}


def commands_of_bench(*variables: str) -> list[str]:
    """Return the commands that ``make bench`` would run."""
    return subprocess.run(
        ["make", "-n", "bench", *variables],
        cwd=REPO_ROOT,
        env=CLEAN,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()


def test_clean_clone_installs_the_requirements_of_benchmarks(tmp_path: Path) -> None:
    require("make", missing_program("make"))
    commands = commands_of_bench(f"VENV={tmp_path}/venv")
    assert any("install" in each and ".[dev]" in each for each in commands)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("words", "figures"),
    [
        (
            "",
            [
                "both ends on one core",
                "half a round trip",
                "pacing error",
                "all_to_all of",
                "switches",
                "--help",
            ],
        ),
        ("--simulations", ["M hops/s", "events alone", "quickstart with samples"]),
    ],
)
def test_every_measurement_of_make_bench_runs(words: str, figures: list[str]) -> None:
    if not words:
        require("netns", why_no_lab())
    require("make", missing_program("make"))
    # As `make bench` starts it; the virtual environment is this one.
    recipe = commands_of_bench(f"BENCH_ARGS=--rounds 1 {words}")
    (command,) = (line for line in recipe if "--rounds" in line)
    done = subprocess.run(
        command,
        shell=True,
        cwd=REPO_ROOT,
        env=CLEAN | BRIEF,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for figure in figures:
        assert figure in done.stdout


def git(repository: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e", *words],
        cwd=repository,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def commit(repository: Path, figure: int) -> str:
    """Commit a tree that measures *figure*; return its name."""
    (repository / "tests/bench").mkdir(parents=True, exist_ok=True)
    (repository / "tests/__init__.py").touch()
    (repository / "Makefile").write_text(MAKEFILE)
    (repository / "tests/bench/speed.py").write_text(PROGRAM)
    (repository / "tests/speed.py").write_text(f"FIGURE = {figure}\n")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", str(figure))
    return git(repository, "rev-parse", "HEAD")


def test_an_earlier_commit_is_built_and_measured_apart(tmp_path: Path) -> None:
    require("git", missing_program("git"))
    require("make", missing_program("make"))
    git(tmp_path, "init", "-q")
    first, _ = commit(tmp_path, 10), commit(tmp_path, 20)
    earlier = build_tree(first, tmp_path)
    assert earlier.name == f"commit {first[:12]}"
    assert earlier.root != tmp_path
    assert earlier.python.parent.parent.parent == earlier.root
    assert earlier.measure("speed.py") == 10
    # A worktree that was removed by hand is made again.
    subprocess.run(["rm", "-r", earlier.root], check=True)
    assert build_tree("HEAD~", tmp_path).measure("speed.py") == 10


@pytest.mark.parametrize(("can", "ratio"), [(True, 2.0), (False, None)])
def test_two_trees_are_measured_alternately(
    can: bool, ratio: float | None, tmp_path: Path
) -> None:
    require("git", missing_program("git"))
    require("make", missing_program("make"))
    git(tmp_path, "init", "-q")
    earlier = build_tree(commit(tmp_path, 10), tmp_path)
    program = "speed.py" if can else "lacking.py"
    order = []

    def measure(tree: object) -> list[float]:
        order.append(tree is earlier)
        return [earlier.measure(program) if tree is earlier else 20.0]

    (result,) = compare_trees([Figure("speed", "1/s")], measure, earlier, 2)
    assert (result.value, result.ratio) == (20.0, ratio)
    assert result.compared_to == earlier.name
    assert ("No such file" in result.note) is not can
    if can:
        assert order == [False, True, True, False]
