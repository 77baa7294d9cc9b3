"""Experiments from Python: what ``import chakram`` offers, see ``chakram.__all__``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.cli.options import read_experiment
from chakram.controller import shell, virtual_time
from chakram.controller.observer import Silent
from chakram.controller.request import RunRequest
from chakram.observe.run_results import open_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chakram.controller.observer import Progress
    from chakram.controller.outcome import RunOutcome
    from chakram.observe.run_results import RunResults

__all__ = ["run_experiment", "simulate_experiment"]


def simulate_experiment(
    experiment: str | Path,
    *,
    overrides: Mapping[str, str] | None = None,
    runs: str | Path | None = None,
    plan: str | Path | None = None,
    alone: str | None = None,
    progress: Progress | None = None,
) -> RunResults:
    """Run an experiment in virtual time, as ``chakram simulate`` does.

    Args:
        experiment: The experiment file.
        overrides: What ``--set`` says: values by key, each as it would stand in the
            file, e.g. ``{"transport.window": "64KiB"}``.
        runs: Folder of run directories, instead of the file's.
        plan: A saved plan to take the programs from, instead of the traces.
        alone: The one job that is run, where it is placed beside the others.
        progress: Told how far it is.

    Returns:
        What its run directory holds.

    Raises:
        ChakramError: If the experiment is wrong, or does not come to its end; the run
            directory is there all the same if it began.
    """
    request = _request(experiment, overrides, runs, plan, alone, progress)
    return _results(virtual_time.simulate_experiment(request))


def run_experiment(
    experiment: str | Path,
    *,
    overrides: Mapping[str, str] | None = None,
    runs: str | Path | None = None,
    plan: str | Path | None = None,
    alone: str | None = None,
    progress: Progress | None = None,
) -> RunResults:
    """Run an experiment on its fabric, as ``chakram run`` does.

    It has an event loop of its own, so it cannot be called where one runs. In the main
    thread SIGINT, SIGTERM and SIGHUP end the run in order.

    Args:
        experiment: As for `simulate_experiment`, like all others.
        overrides: Likewise; `lab` and `metrics` of the command are keys of the file.
        runs: Likewise.
        plan: Likewise.
        alone: Likewise.
        progress: Likewise.

    Returns:
        What its run directory holds.

    Raises:
        ChakramError: As for `simulate_experiment`.
    """
    request = _request(experiment, overrides, runs, plan, alone, progress)
    return _results(asyncio.run(shell.run_experiment(request)))


def _request(
    experiment: str | Path,
    overrides: Mapping[str, str] | None,
    runs: str | Path | None,
    plan: str | Path | None,
    alone: str | None,
    progress: Progress | None,
) -> RunRequest:
    said = [f"{key}={value}" for key, value in (overrides or {}).items()]
    settings, text = read_experiment(Path(experiment), said)
    return RunRequest(
        experiment=settings,
        text=text,
        runs_directory=Path(runs or settings.runs),
        progress=progress or Silent(),
        plan_file=None if plan is None else Path(plan),
        alone=alone,
    )


def _results(outcome: RunOutcome) -> RunResults:
    if outcome.error is not None:
        raise outcome.error
    return open_run(outcome.directory)
