"""Runs the cells of a suite, each once per repetition, and keeps what they gave."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from chakram.config.experiment import Experiment, load_experiment
from chakram.console.summary_document import summary_document
from chakram.execution.observer import Silent
from chakram.execution.request import RunRequest
from chakram.execution.run_experiment import run_experiment
from chakram.fabric.labs import lab as labs
from chakram.foundation.errors import ChakramError, ConfigError, RunFailed
from chakram.simulation.simulate_experiment import simulate_experiment
from chakram.sweep.folder import (
    COMPLETE,
    CellClaims,
    CellRun,
    Outcome,
    keep_outcome,
    kept_outcome,
    outcome_of_other,
    outcome_version,
)

_POLL_S = 0.2
"""How often cells that another process runs are looked at, while cells run here."""


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
    note: Callable[[str], None],
) -> None:
    """Run what has no result yet, and keep the results.

    Other processes may do the same in the same folder: each cell is run by one of them.

    Args:
        runs: What to run.
        folder: Of the sweep.
        jobs: Simulations at a time.
        dask: Address of a scheduler that simulations are given to, None: here.
        tell: Told of every result, also of those of others.
        note: Gets a sentence when there is nothing to do but to wait for others.

    Raises:
        RunFailed: If a process was killed, or the user ended it.
    """
    left = [run for run in runs if kept_outcome(folder, run) is None]
    simulated = [run for run in left if run.world == "simulate"]
    with CellClaims(folder) as claims:
        share = _Share(folder, claims, tell, note)
        if dask is not None:
            _run_on_cluster(simulated, dask, share)
        elif jobs > 1 and len(simulated) > 1:
            _run_in_processes(simulated, jobs, share)
        else:
            share.run(simulated, _here)
        # On a fabric one at a time: they would be in one another's way.
        real = [run for run in left if run.world != "simulate"]
        for lab, together in _by_lab(real):
            on_this_machine = _experiment(together[0]).fabric.on_this_machine
            share.claim_fabric(on_this_machine=on_this_machine)
            # Meanwhile another sweep may have run them.
            todo = [run for run in together if kept_outcome(folder, run) is None]
            with _standing(lab if todo else None, todo):
                share.run(together, partial(_here, lab=lab))
            claims.release_fabric(on_this_machine=on_this_machine)


def _here(run: CellRun, *, lab: str | None = None) -> Future[Outcome]:
    """Run a cell in this process."""
    done: Future[Outcome] = Future()
    done.set_result(run_cell(run._replace(lab=lab)))
    return done


class _Share:
    """This process's share of the cells in a folder, which others may run as well."""

    def __init__(
        self,
        folder: Path,
        claims: CellClaims,
        tell: Callable[[CellRun, Outcome], None],
        note: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._claims = claims
        self._tell = tell
        self._note = note

    def claim_fabric(self, *, on_this_machine: bool) -> None:
        """Claim the fabric; wait for another sweep that runs on it."""
        if not self._claims.claim_fabric(on_this_machine=on_this_machine):
            self._note("another sweep in this folder runs on the fabric")
            self._claims.claim_fabric(on_this_machine=on_this_machine, wait=True)

    def run(
        self,
        runs: Sequence[CellRun],
        start: Callable[[CellRun], Future[Outcome]],
        *,
        at_once: int = 1,
    ) -> None:
        """Run the cells that no other process runs; take the results of the others.

        Args:
            runs: The cells.
            start: Starts one.
            at_once: How many are started before one has ended.
        """
        # By cell that waits, its outcome_version when another process was found to run
        # it; absent until then.
        versions: dict[CellRun, int | None] = {}
        waiting = deque(runs)
        running: dict[Future[Outcome], CellRun] = {}
        while waiting or running:
            for _ in range(len(waiting) if len(running) < at_once else 0):
                run = waiting.popleft()
                if not self._claims.claim(run):
                    versions.setdefault(run, outcome_version(self._folder, run))
                    waiting.append(run)
                    continue
                self._begin(run, start, running, versions)
                if len(running) >= at_once:
                    break
            if running:
                self._keep_done(running, is_polling=bool(waiting))
            elif waiting:
                # Nothing is claimed here, so that no two processes wait for each other.
                self._note(
                    f"{len(waiting)} cells are being run by another sweep in this "
                    "folder"
                )
                run = waiting.popleft()
                self._claims.claim(run, wait=True)
                self._begin(run, start, running, versions)

    def _begin(
        self,
        run: CellRun,
        start: Callable[[CellRun], Future[Outcome]],
        running: dict[Future[Outcome], CellRun],
        versions: Mapping[CellRun, int | None],
    ) -> None:
        """Start a claimed cell, unless another process has run it meanwhile."""
        if run in versions:
            found = outcome_of_other(self._folder, run, before=versions[run])
        else:
            found = kept_outcome(self._folder, run)
        if found is None:
            running[start(run)] = run
        else:
            self._claims.release(run)
            self._tell(run, found)

    def _keep_done(
        self, running: dict[Future[Outcome], CellRun], *, is_polling: bool
    ) -> None:
        """Keep what has ended; others may have released a cell after ``_POLL_S``."""
        done, _ = wait(
            running,
            timeout=_POLL_S if is_polling else None,
            return_when=FIRST_COMPLETED,
        )
        for future in done:
            run, outcome = running.pop(future), future.result()
            keep_outcome(self._folder, run, outcome)
            self._claims.release(run)
            self._tell(run, outcome)
            if outcome.pop("interrupted", False):
                raise RunFailed("sweep", "was interrupted", "the same command goes on")


def _run_in_processes(runs: Sequence[CellRun], jobs: int, share: _Share) -> None:
    # Spawned, not forked: Arrow and gRPC have threads.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(runs)), mp_context=context)
    try:
        share.run(runs, lambda run: pool.submit(run_cell, run), at_once=jobs)
    except BrokenProcessPool:
        raise RunFailed(
            "sweep", "a process was killed, maybe for want of memory",
            "the same command goes on; try fewer --jobs",
        ) from None  # fmt: skip
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _run_on_cluster(runs: Sequence[CellRun], address: str, share: _Share) -> None:
    """Give cells to workers of Dask, which see the same files and have Chakram."""
    try:
        from distributed import Client
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
        # A worker that is lost has its cells done again by another.
        executor = client.get_executor(pure=False, retries=3)
        share.run(
            runs,
            lambda run: executor.submit(
                _run_elsewhere, run, str(Path(run.runs).absolute())
            ),
            at_once=len(runs),
        )


def _run_elsewhere(run: CellRun, runs: str) -> Outcome:
    """Run a cell in a worker, whose folder is another; *runs* is absolute."""
    outcome = run_cell(run._replace(runs=runs))
    if outcome["directory"] is not None:
        outcome["directory"] = str(Path(run.runs) / Path(outcome["directory"]).name)
    return outcome


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
