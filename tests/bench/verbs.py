"""Measures what a person waits for: verbs, as multiples of an empty Python program."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.extent import sized
from tests.bench.results import Result, compare
from tests.bench.trees import OURS, Figure, Tree, compare_trees

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["compare_verbs", "measure_verbs"]

_EXPERIMENT = sized("quickstart", "quickstart-small")
_SIMULATE = f"simulate configs/{_EXPERIMENT}.yaml --runs FOLDER"
_LIMITS = {
    _SIMULATE: 45,
    "--help": 8,
    "show RUN": 15,
    "why RUN --no-verify": 15,
    "compare RUN RUN": 15,
    "validate RUN": 15,
    "runs FOLDER": 15,
    "report RUN --no-verify --force --out FOLDER/page.html": 70,
}
"""Highest multiple of the processor time of ``python -c pass``, by verb."""

_UNIT = "x python -c pass"


def _figures() -> list[Figure]:
    return [Figure(f"chakram {verb}", _UNIT, is_time=True) for verb in _LIMITS]


def measure_verbs(rounds: int) -> Iterator[Result]:
    """Yield the multiple of each verb, with its limit."""
    found = [_multiples(OURS) for _ in range(rounds)]
    for at, (figure, limit) in enumerate(
        zip(_figures(), _LIMITS.values(), strict=True)
    ):
        yield compare(
            figure.name,
            [each[at] for each in found],
            figure.unit,
            "demanded",
            [limit] * rounds,
            is_time=True,
            floor=1.0,
        )


def compare_verbs(earlier: Tree, rounds: int) -> list[Result]:
    """Return the multiples of this tree and of an earlier one."""
    return compare_trees(_figures(), _multiples, earlier, rounds)


def _multiples(tree: Tree) -> list[float]:
    """Return the multiple of each verb, which runs beside an empty program."""
    found = []
    with tempfile.TemporaryDirectory(prefix="chakram-bench-") as folder:
        runs = Path(folder, "runs")
        for verb in _LIMITS:
            places = {"FOLDER": str(runs), "RUN": str(next(runs.glob("*"), runs))}
            words = [
                place if word in places else word.replace("FOLDER/", f"{folder}/")
                for word in verb.split()
                for place in (places.get(word, ""),)
            ]
            empty_s = _cpu_s(tree, ["-c", "pass"])
            found.append(_cpu_s(tree, ["-m", "chakram", *words]) / empty_s)
    return found


def _cpu_s(tree: Tree, words: list[str]) -> float:
    """Return the processor time of a Python program: the least of three."""
    times = []
    for _ in range(sized(3, 1)):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [tree.python, *words],
            cwd=tree.root,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
            check=True,
            capture_output=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        )
    return min(times)
