"""Execution of the cells of a suite, each once per repetition, with stored results."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.config.experiment import Experiment, load_experiment
from chakram.console.summary_document import summary_document
from chakram.execution.absent_hosts import run_tolerantly
from chakram.execution.observer import Silent
from chakram.execution.request import RunRequest
from chakram.execution.signals import interrupting_signals
from chakram.foundation.coroutines import run_coroutine
from chakram.foundation.errors import (
    ChakramError,
    RunFailed,
    RunInterrupted,
)
from chakram.preparation.workers import cluster
from chakram.settings.yaml_document import recorded_changes
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

if TYPE_CHECKING:
    from chakram.launch.launched_agents import LaunchOptions

_RESUME = "run the same command again to resume"

_POLL_S = 0.2
"""Interval in s at which this process checks for results of other processes."""

_KILL_S = 1.8
"""Time limit in s for interrupted simulations to mark their run directories."""


def shard(runs: Sequence[CellRun], index: int, count: int) -> list[CellRun]:
    """Return part *index* (from 1) of *count* disjoint parts of *runs*."""
    return list(runs[index - 1 :: count])


def run_cell(run: CellRun, launch: LaunchOptions | None = None) -> Outcome:
    """Run a cell, and return an error as part of the outcome.

    Args:
        run: Cell to run.
        launch: Options for starting agents. None if they already listen.
    """
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
        if launch is not None:
            experiment = launch.on_allocated_hosts(experiment)
        written = Path(run.base).read_text(encoding="utf-8")
        request = RunRequest(
            experiment=experiment,
            text=recorded_changes(overrides) + written,
            runs_directory=Path(run.runs),
            progress=Silent(),
            launch=launch,
        )
        if run.world == "simulate":
            done = simulate_experiment(request)
        else:
            tolerate = launch.tolerate if launch else 0
            done = run_coroutine(run_tolerantly(request, tolerate))
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
    launch: LaunchOptions | None = None,
    tell: Callable[[CellRun, Outcome], None],
    note: Callable[[str], None],
) -> None:
    """Run the cells that have no result yet, and store their results.

    Other processes may do the same in the same folder. Each cell runs in only one
    process.

    Args:
        runs: The cells to run.
        folder: The folder of the sweep.
        jobs: Number of concurrent simulations.
        dask: Address of a Dask scheduler for the simulations, or None to run them here.
        launch: Options for starting agents for fabric runs. None if they already
            listen.
        tell: Called with every result, including results of other processes.
        note: Called with a sentence when this process has to wait for others.

    Raises:
        RunFailed: If a process was killed.
        RunInterrupted: If the user interrupted the sweep.
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
        # Run one cell at a time on a fabric, because concurrent runs would disturb each
        # other.
        real = [run for run in left if run.world != "simulate"]
        for lab, together in _by_lab(real):
            on_this_machine = _experiment(together[0]).fabric.on_this_machine
            share.claim_fabric(on_this_machine=on_this_machine)
            # Another sweep may have run these cells in the meantime.
            todo = [run for run in together if kept_outcome(folder, run) is None]
            with _standing(lab if todo else None, todo):
                share.run(together, partial(_here, lab=lab, launch=launch))
            claims.release_fabric(on_this_machine=on_this_machine)


def _here(
    run: CellRun, *, lab: str | None = None, launch: LaunchOptions | None = None
) -> Future[Outcome]:
    """Run a cell in this process."""
    done: Future[Outcome] = Future()
    done.set_result(run_cell(run._replace(lab=lab), launch))
    return done


@dataclass(slots=True, eq=False)
class _Share:
    """The cells that this process runs, in a folder that other processes may share."""

    folder: Path
    claims: CellClaims
    tell: Callable[[CellRun, Outcome], None]
    note: Callable[[str], None]

    def claim_fabric(self, *, on_this_machine: bool) -> None:
        """Claim the fabric, and if necessary wait until no other sweep runs on it."""
        if not self.claims.claim_fabric(on_this_machine=on_this_machine):
            self.note("waiting for another sweep in this folder that uses the fabric")
            self.claims.claim_fabric(on_this_machine=on_this_machine, wait=True)

    def run(
        self,
        runs: Sequence[CellRun],
        start: Callable[[CellRun], Future[Outcome]],
        *,
        at_once: int = 1,
    ) -> None:
        """Run the cells that no other process runs. Take the results of other cells.

        Args:
            runs: The cells.
            start: Function that starts a cell.
            at_once: Number of cells that may run concurrently.
        """
        # The outcome_version of each waiting cell at the time when another process held
        # its claim.
        versions: dict[CellRun, int | None] = {}
        waiting = deque(runs)
        running: dict[Future[Outcome], CellRun] = {}
        while waiting or running:
            for _ in range(len(waiting) if len(running) < at_once else 0):
                run = waiting.popleft()
                if not self.claims.claim(run):
                    versions.setdefault(run, outcome_version(self.folder, run))
                    waiting.append(run)
                    continue
                self._begin(run, start, running, versions)
                if len(running) >= at_once:
                    break
            if running:
                self._keep_done(running, is_polling=bool(waiting))
            elif waiting:
                # This process holds no claim here, so two processes cannot deadlock.
                self.note(
                    f"waiting for {len(waiting)} cells of another sweep in this folder"
                )
                run = waiting.popleft()
                self.claims.claim(run, wait=True)
                self._begin(run, start, running, versions)

    def _begin(
        self,
        run: CellRun,
        start: Callable[[CellRun], Future[Outcome]],
        running: dict[Future[Outcome], CellRun],
        versions: Mapping[CellRun, int | None],
    ) -> None:
        """Start a claimed cell, unless another process has run it in the meantime."""
        if run in versions:
            found = outcome_of_other(self.folder, run, before=versions[run])
        else:
            found = kept_outcome(self.folder, run)
        if found is None:
            running[start(run)] = run
        else:
            self.claims.release(run)
            self.tell(run, found)

    def _keep_done(
        self, running: dict[Future[Outcome], CellRun], *, is_polling: bool
    ) -> None:
        """Store finished cells, and wait for at most ``_POLL_S`` if polling."""
        done, _ = wait(
            running,
            timeout=_POLL_S if is_polling else None,
            return_when=FIRST_COMPLETED,
        )
        for future in done:
            run, outcome = running.pop(future), future.result()
            keep_outcome(self.folder, run, outcome)
            self.claims.release(run)
            self.tell(run, outcome)
            if outcome.pop("interrupted", False):
                raise RunInterrupted("sweep", "was interrupted", _RESUME)


def _run_in_processes(runs: Sequence[CellRun], jobs: int, share: _Share) -> None:
    # Spawn processes instead of forking them, because Arrow and gRPC have threads.
    context = multiprocessing.get_context("spawn")
    # Simulations handle SIGINT in any case. Other processes would print tracebacks.
    pool = ProcessPoolExecutor(
        min(jobs, len(runs)),
        mp_context=context,
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        with interrupting_signals():
            share.run(runs, lambda run: pool.submit(run_cell, run), at_once=jobs)
    except (KeyboardInterrupt, RunInterrupted):
        _end_processes(pool)
        raise RunInterrupted("sweep", "was interrupted", _RESUME) from None
    except BrokenProcessPool:
        raise RunFailed(
            "sweep", "a process was killed, perhaps for lack of memory",
            f"{_RESUME}, with fewer --jobs",
        ) from None  # fmt: skip
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _end_processes(pool: ProcessPoolExecutor) -> None:
    """Interrupt simulations, and kill processes that read traces or free memory."""
    processes = multiprocessing.active_children()
    timers = [threading.Timer(_KILL_S, process.kill) for process in processes]
    for process, timer in zip(processes, timers, strict=True):
        assert process.pid is not None  # it has started
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGINT)
        timer.start()
    pool.shutdown(wait=True, cancel_futures=True)
    for timer in timers:
        timer.cancel()


def _run_on_cluster(runs: Sequence[CellRun], address: str, share: _Share) -> None:
    """Run cells on Dask workers. If one is lost, another one repeats its cells."""
    with cluster(address, hint=_RESUME) as executor:
        share.run(
            runs,
            lambda run: executor.submit(
                _run_elsewhere, run, str(Path(run.runs).absolute())
            ),
            at_once=len(runs),
        )


def _run_elsewhere(run: CellRun, runs: str) -> Outcome:
    """Run a cell in a worker with another current folder, so *runs* is absolute."""
    outcome = run_cell(run._replace(runs=runs))
    if outcome["directory"] is not None:
        outcome["directory"] = str(Path(run.runs) / Path(outcome["directory"]).name)
    return outcome


def _by_lab(runs: Sequence[CellRun]) -> Iterator[tuple[str | None, list[CellRun]]]:
    """Yield groups of consecutive runs that can share a lab, with the lab's name.

    The name is None if each run builds its own fabric.
    """
    for (kind, lab, _, _), group in itertools.groupby(runs, key=_world):
        together = list(group)
        shares = len(together) > 1 and kind == "namespaces"
        yield (lab if shares else None), together


def _world(run: CellRun) -> tuple[str, str, int, str]:
    """Return the properties that define a lab. The seed determines its paths."""
    experiment = _experiment(run)
    fabric = experiment.written.fabric.model_dump_json()
    return experiment.fabric.kind, experiment.lab_name, experiment.seed, fabric


def _experiment(run: CellRun) -> Experiment:
    return load_experiment(run.base, overrides=dict(run.overrides))


@contextmanager
def _standing(lab: str | None, runs: Sequence[CellRun]) -> Iterator[None]:
    """Keep one lab up for all runs.  A lab that was already up stays up."""
    from chakram.fabric.labs import lab as labs  # on Linux only

    if lab is None or lab in {each.name for each in labs.status()}:
        yield
        return
    experiment = _experiment(runs[0])
    asyncio.run(experiment.fabric.start_lab(lab, seed=experiment.seed, lifetime="up"))
    try:
        yield
    finally:
        asyncio.run(labs.down(lab))
