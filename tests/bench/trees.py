"""Source trees whose speed is measured: this one, and that of an earlier commit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.results import Result, compare, turns
from tests.support import REPO_ROOT

__all__ = ["OURS", "Figure", "Tree", "build_tree", "compare_trees"]


class Figure(NamedTuple):
    """What is measured: its name, its unit, and whether less is better."""

    name: str
    unit: str
    is_time: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A built source tree.

    Attributes:
        name: As tables print it.
        root: Its folder.
        python: The interpreter of its virtual environment.
    """

    name: str
    root: Path
    python: Path

    def measure(
        self,
        program: str,
        *words: object,
        form: str | None = None,
        timeout_s: float = 120,
    ) -> Any:
        """Run a program of the ``tests/bench`` of this tree; return what it prints.

        Raises:
            subprocess.CalledProcessError: If it fails.
        """
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        if form is not None:
            environment["CHAKRAM_COMPILED"] = form
        done = subprocess.run(
            [self.python, self.root / "tests/bench" / program, *map(str, words)],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        return json.loads(done.stdout)


OURS = Tree(name="this tree", root=REPO_ROOT, python=Path(sys.executable))


def build_tree(commit: str, repository: Path = REPO_ROOT) -> Tree:
    """Build *commit* in a worktree below ``build``; one that exists is used again.

    Raises:
        subprocess.CalledProcessError: If there is no such commit, or it does not build.
    """

    def git(*words: str) -> str:
        return _output(["git", "-C", str(repository), *words])

    found = git("rev-parse", "--verify", "--short=12", f"{commit}^{{commit}}").strip()
    root = repository / "build/bench" / found
    if not root.exists():
        # A worktree whose folder `make clean` removed is still registered.
        git("worktree", "add", "--force", "--detach", str(root), found)
    sys.stderr.write(f"building commit {found} in {root}\n")
    # Its environment is separate: variables of this make must not reach its own.
    without = ("MAKEFLAGS", "MAKEOVERRIDES", "PYTHONPATH")
    environment = {k: v for k, v in os.environ.items() if k not in without}
    # Measuring programs import what tests share, which needs the tools of development.
    targets = [".venv/.chakram-tools", "build"]
    variables = ["VENV=.venv", f"PYTHON={sys.executable}"]
    _output(["make", "-C", str(root), *targets, *variables], environment)
    return Tree(name=f"commit {found}", root=root, python=root / ".venv/bin/python")


def _output(command: list[str], environment: dict[str, str] | None = None) -> str:
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout


def compare_trees(
    figures: Sequence[Figure],
    measure: Callable[[Tree], Sequence[float]],
    earlier: Tree,
    rounds: int,
) -> list[Result]:
    """Measure figures of this tree and of an earlier one, alternating.

    An earlier tree that cannot measure them is not compared.
    """
    others: list[Sequence[float]] = []
    why = ""
    try:
        ours, others = turns(lambda: measure(OURS), lambda: measure(earlier), rounds)
    except subprocess.CalledProcessError as error:
        if error.cmd[0] != earlier.python:
            raise
        why = (error.stderr or str(error)).strip().splitlines()[-1]
        ours = [measure(OURS) for _ in range(rounds)]
    return [
        compare(
            figure.name,
            [each[at] for each in ours],
            figure.unit,
            earlier.name,
            [each[at] for each in others],
            is_time=figure.is_time,
            without=f"not compared: {earlier.name} cannot measure this: {why}",
        )
        for at, figure in enumerate(figures)
    ]
