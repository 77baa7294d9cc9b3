"""Experiments as a user writes them, and runs as a user starts them."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chakram.cli import main
from chakram.run_directory.reader import RunResults, open_run
from tests.leaks import own_lab

if TYPE_CHECKING:
    from pathlib import Path

LAB = own_lab("e2e")
"""Prefix of whatever the runs of these tests make."""


def star(hosts: int, **host_link: object) -> dict[str, object]:
    """Return the fabric section of hosts on one virtual switch."""
    return {
        "kind": "namespaces",
        "topology": {"single_switch": {"hosts": hosts}},
        "links": {"host": host_link},
    }


def fabric(kind: str, hosts: int) -> dict[str, object]:
    """Return the fabric section for so many ports: a switch, or none at all."""
    return star(hosts) if kind == "namespaces" else {"kind": "loopback"}


def moe(ranks: int = 4, **parameters: object) -> dict[str, object]:
    """Return a job with a small synthetic trace."""
    trace = {"synth": "moe", "ranks": ranks, "ep": 2, "dp": ranks // 2, "layers": 1}
    return {
        "name": "moe",
        "trace": {**trace, **parameters},
        "compute": {"from": "none"},
    }


def write_experiment(
    folder: Path, jobs: list[dict[str, Any]], fabric: dict[str, Any], **sections: object
) -> Path:
    """Write an experiment file into *folder* and return its path.

    One iteration without any warm-up, unless *sections* say otherwise.
    """
    experiment = {
        "version": 1,
        "name": "e2e",
        "jobs": jobs,
        "iterations": {"warmup": 0, "measured": 1},
        "fabric": fabric,
        "lab": LAB,
        "runs": str(folder / "runs"),
        **sections,
    }
    path = folder / "experiment.yaml"
    path.write_text(json.dumps(experiment), encoding="utf-8")  # JSON is YAML
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Result of a command: its exit code, its output, its run directory."""

    code: int
    output: str
    errors: str
    runs: Path

    @property
    def directory(self) -> Path:
        """The only run directory."""
        (path,) = self.runs.iterdir()
        return path

    @property
    def results(self) -> RunResults:
        """Contents of the run directory."""
        return open_run(self.directory)

    @property
    def sentence(self) -> str:
        """The error that the command ended with."""
        (line,) = (
            line for line in self.errors.splitlines() if "chakram: error: " in line
        )
        return line.partition("chakram: error: ")[2]


def chakram(*arguments: object, runs: Path) -> Ended:
    """Run the command in this process.

    Args:
        arguments: As on a command line.
        runs: Where its run directories are.
    """
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main([str(argument) for argument in arguments])
    assert "Traceback" not in errors.getvalue()
    return Ended(
        code=code, output=output.getvalue(), errors=errors.getvalue(), runs=runs
    )


def run(experiment: Path, *arguments: object, verb: str = "run") -> Ended:
    """Run the experiment that ``write_experiment`` wrote, in this process."""
    return chakram(verb, experiment, *arguments, runs=experiment.parent / "runs")


def completed(experiment: Path, *arguments: object, verb: str = "run") -> Ended:
    """Run an experiment that is expected to complete."""
    ended = run(experiment, *arguments, verb=verb)
    assert ended.code == 0, ended.errors
    return ended
