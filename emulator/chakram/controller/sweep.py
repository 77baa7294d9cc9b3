"""Runs the cells of a suite, each once per repetition, and keeps what they gave."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

from chakram.config.experiment import Experiment, load_experiment
from chakram.controller.observer import Silent
from chakram.controller.request import RunRequest
from chakram.controller.shell import run_experiment
from chakram.controller.virtual_time import simulate_experiment
from chakram.errors import ChakramError, ConfigError, RunFailed
from chakram.fabric import lab as labs
from chakram.observe.document import summary_document
from chakram.observe.sweep_folder import (
    COMPLETE,
    CellRun,
    Outcome,
    keep_outcome,
    kept_outcome,
)


def shard(runs: Sequence[CellRun], index: int, count: int) -> list[CellRun]:
    """Return the *index*-th of *count* parts, from 1; together they are all."""
    return list(runs[index - 1 :: count])


def run_cell(run: CellRun) -> Outcome:
    """Run a cell; what goes wrong is in its outcome."""
    outcome: Outcome = {
        "number": run.number,
        "repetition": run.repetition,
        "digest": run.digest,
        "status": COMPLETE,
        "reason": None,
        "directory": None,
        "document": None,
    }
    try:
        overrides = dict(run.overrides)
        if run.lab is not None:
            overrides["lab"] = run.lab
        experiment = load_experiment(run.base, overrides=overrides)
        said = "".join(f"# --set {key}={value}\n" for key, value in overrides.items())
        request = RunRequest(
            experiment=experiment,
            text=said + Path(run.base).read_text(encoding="utf-8"),
            runs_directory=Path(run.runs),
            progress=Silent(),
        )
        if run.world == "simulate":
            done = simulate_experiment(request)
        else:
            done = asyncio.run(run_experiment(request))
        outcome["directory"] = str(done.directory)
        outcome["document"] = summary_document(done.summary)
        if done.error is not None:
            raise done.error
    except ChakramError as error:
        outcome["status"] = "failed"
        outcome["reason"] = str(error)
        outcome["interrupted"] = error.exit_code == 130
    return outcome


def run_cells(
    runs: Sequence[CellRun],
    folder: Path,
    *,
    jobs: int,
    dask: str | None,
    tell: Callable[[CellRun, Outcome], None],
) -> None:
    """Run what has no result yet, and keep the results.

    Args:
        runs: What to run.
        folder: Of the sweep.
        jobs: Simulations at a time.
        dask: Address of a scheduler that simulations are given to, None: here.
        tell: Told of every result.

    Raises:
        RunFailed: If a process was killed, or the user ended it.
    """
    left = [run for run in runs if kept_outcome(folder, run) is None]

    def keep(run: CellRun, outcome: Outcome) -> None:
        keep_outcome(folder, run, outcome)
        tell(run, outcome)
        if outcome.pop("interrupted", False):
            raise RunFailed("sweep", "was interrupted", "the same command goes on")

    simulated = [run for run in left if run.world == "simulate"]
    if dask is not None:
        _run_on_cluster(simulated, dask, keep)
    elif jobs > 1 and len(simulated) > 1:
        _run_in_processes(simulated, jobs, keep)
    else:
        for run in simulated:
            keep(run, run_cell(run))
    # On a fabric one at a time: they would be in one another's way.
    real = [run for run in left if run.world != "simulate"]
    for lab, together in _by_lab(real):
        with _standing(lab, together):
            for run in together:
                keep(run, run_cell(run._replace(lab=lab)))


def _run_in_processes(
    runs: Sequence[CellRun], jobs: int, keep: Callable[[CellRun, Outcome], None]
) -> None:
    # Spawned, not forked: Arrow and gRPC have threads.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(runs)), mp_context=context)
    try:
        of = {pool.submit(run_cell, run): run for run in runs}
        for future in as_completed(of):
            keep(of[future], future.result())
    except BrokenProcessPool:
        raise RunFailed(
            "sweep", "a process was killed, maybe for want of memory",
            "the same command goes on; try fewer --jobs",
        ) from None  # fmt: skip
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _run_on_cluster(
    runs: Sequence[CellRun], address: str, keep: Callable[[CellRun, Outcome], None]
) -> None:
    """Give cells to workers of Dask, which see the same files and have Chakram."""
    try:
        from distributed import Client
        from distributed import as_completed as as_done
    except ImportError as error:
        raise ConfigError(
            f"--dask {address}", "dask.distributed is not installed",
            "pip install 'chakram[dask]'",
        ) from error  # fmt: skip
    try:
        client = Client(address, timeout="30s")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--dask {address}", f"no scheduler answers: {error}",
            "e.g. tcp://10.0.0.1:8786, or tls:// with distributed.comm.tls configured",
        ) from error  # fmt: skip
    with client:
        # A worker that is lost has its cells done again by another. Workers stand in
        # folders of their own.
        futures = [
            client.submit(
                run_cell,
                run._replace(runs=str(Path(run.runs).absolute())),
                pure=False,
                retries=3,
            )
            for run in runs
        ]
        of = {future.key: run for future, run in zip(futures, runs, strict=True)}
        for future in as_done(futures):
            run, outcome = of[future.key], future.result()
            if outcome["directory"] is not None:
                name = Path(outcome["directory"]).name
                outcome["directory"] = str(Path(run.runs) / name)
            keep(run, outcome)


def _by_lab(runs: Sequence[CellRun]) -> Iterator[tuple[str | None, list[CellRun]]]:
    """Yield runs that follow one another and can share a lab, with its name.

    None: each builds what it needs.
    """
    for (kind, lab, _, _), group in itertools.groupby(runs, key=_world):
        together = list(group)
        shares = len(together) > 1 and kind == "namespaces"
        yield (lab if shares else None), together


def _world(run: CellRun) -> tuple[str, str, int, str]:
    """Return what a lab is made of: another seed has other paths."""
    experiment = _experiment(run)
    fabric = experiment.written.fabric.model_dump_json()
    return experiment.fabric.kind, experiment.lab_name, experiment.seed, fabric


def _experiment(run: CellRun) -> Experiment:
    return load_experiment(run.base, overrides=dict(run.overrides))


@contextmanager
def _standing(lab: str | None, runs: Sequence[CellRun]) -> Iterator[None]:
    """Keep one lab up for all runs; one that is up already is left up."""
    if lab is None or lab in {each.name for each in labs.status()}:
        yield
        return
    experiment = _experiment(runs[0])
    asyncio.run(experiment.fabric.start_lab(lab, seed=experiment.seed, lifetime="up"))
    try:
        yield
    finally:
        asyncio.run(labs.down(lab))
