"""Runs an experiment from its file to its run directory."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chakram.controller.interrupts import Interrupts
from chakram.controller.planning import (
    build_plan,
    planned_ports,
    refuse_neighbours_on_one_port,
    transport_plan,
)
from chakram.controller.reporting import manifest_of
from chakram.controller.run import Run
from chakram.controller.saved_plans import jobs_of
from chakram.errors import ChakramError, RunInterrupted
from chakram.observe.exporter import MetricsServer
from chakram.observe.live_rows import LiveRows
from chakram.observe.metrics_state import MetricsState
from chakram.observe.run_directory import RunDirectory
from chakram.observe.run_results import open_run

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator
    from pathlib import Path

    from chakram.config.experiment import Experiment
    from chakram.controller.observer import Progress
    from chakram.results.summary import Summary

__all__ = ["RunOutcome", "run_experiment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """What a run leaves to its caller.

    ``error`` is why the run is not complete, None where it is.
    """

    directory: Path
    summary: Summary
    error: ChakramError | None

    @property
    def exit_code(self) -> int:
        """What the process should end with."""
        return 0 if self.error is None else self.error.exit_code


async def run_experiment(
    experiment: Experiment,
    *,
    experiment_text: str,
    runs_directory: Path,
    lab_name: str,
    listener: socket.socket | None,
    progress: Progress,
    plan_file: Path | None = None,
    alone: str | None = None,
) -> RunOutcome:
    """Bring the fabric up, replay, collect, tear down.

    Args:
        experiment: What to run.
        experiment_text: Its file, word for word, for the run directory.
        runs_directory: Folder of all run directories.
        lab_name: Prefix of whatever is made on this machine.
        listener: Where metrics are served while the run goes; None: nowhere.
        progress: Told how far it is.
        plan_file: A saved plan to take programs from, instead of the traces.
        alone: The one job that is run, where it is placed beside the others; None: all.

    Returns:
        The outcome, also of a run that ended early: what was recorded is kept.

    Raises:
        ChakramError: If nothing was run: wrong input, no rights, no agent.
        RunInterrupted: If the user ended it before it had begun, or insisted.
    """
    with Interrupts() as interrupts:
        try:
            return await _run(
                experiment,
                experiment_text,
                runs_directory,
                lab_name,
                listener,
                progress,
                interrupts,
                plan_file,
                alone,
            )
        except asyncio.CancelledError:
            if interrupts.name is None:
                raise
            raise RunInterrupted("run", f"interrupted by {interrupts.name}") from None
        finally:
            if listener is not None:
                listener.close()


async def _run(
    experiment: Experiment,
    experiment_text: str,
    runs_directory: Path,
    lab_name: str,
    listener: socket.socket | None,
    progress: Progress,
    interrupts: Interrupts,
    plan_file: Path | None,
    alone: str | None,
) -> RunOutcome:
    progress.phase("reading traces" if plan_file is None else "reading the plan")
    jobs = await asyncio.to_thread(jobs_of, experiment, plan_file)
    started = datetime.now(UTC)
    run_id = f"{started:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    # What does not fit onto the fabric is said before anything is made for it.
    plan = build_plan(
        experiment,
        jobs,
        planned_ports(experiment, jobs),
        run_id=run_id,
        alone=alone,
    )
    if experiment.fabric.has_switches:
        refuse_neighbours_on_one_port(plan)
    directory = RunDirectory.create(
        runs_directory,
        manifest=manifest_of(
            experiment,
            jobs,
            transport_plan(experiment),
            run_id=run_id,
            started=started,
            alone=alone,
        ),
        started=started,
        experiment_text=experiment_text,
    )
    metrics = _metrics_of(experiment, directory)
    live = None if listener is None else LiveRows()
    run = Run(
        experiment,
        jobs,
        directory,
        run_id,
        metrics,
        progress,
        interrupts,
        live=live,
        alone=alone,
        iterations=max(plan.iterations_of().values()),
    )
    async with AsyncExitStack() as stack:
        if listener is not None and live is not None:
            server = MetricsServer(metrics, listener, live.pages())
            progress.note(f"metrics: {server.url}")
            linger_ns = experiment.metrics.linger_ns
            await stack.enter_async_context(
                _serving(server, linger_ns, interrupts, progress)
            )
        try:
            await run.execute(lab_name)
        except asyncio.CancelledError:
            run.finish(RunInterrupted("run", "interrupted before it had ended"))
            raise
        except ChakramError as error:
            run.finish(error)
            if not run.began:
                raise
        else:
            run.finish(None)
        summary = await asyncio.to_thread(open_run(directory.path).summary)
        if summary.keeping_up is not None:
            directory.update(keeping_up=asdict(summary.keeping_up))
    return RunOutcome(
        directory=directory.path,
        summary=summary,
        error=run.error,
    )


@asynccontextmanager
async def _serving(
    server: MetricsServer, linger_ns: int, interrupts: Interrupts, progress: Progress
) -> AsyncIterator[None]:
    """Serve metrics while the block runs, and then until its end has been scraped.

    Whoever interrupts the run, or this wait, does not want to wait.
    """

    async def linger() -> None:
        if interrupts.name is not None:
            return
        progress.phase("waiting for the last scrape of the metrics (Ctrl-C ends it)")
        interrupts.listener = lambda _: server.stop_waiting()
        try:
            await asyncio.to_thread(server.wait_for_last_scrape, linger_ns * 1e-9)
        finally:
            interrupts.listener = None
            server.stop_waiting()

    server.start()
    try:
        yield
    except ChakramError:
        await linger()
        raise
    else:
        await linger()
    finally:
        await asyncio.to_thread(server.close)


def _metrics_of(experiment: Experiment, directory: RunDirectory) -> MetricsState:
    manifest = directory.manifest
    return MetricsState(
        manifest.run_id,
        info={
            "name": manifest.name,
            "case": manifest.case or "",
            "world": manifest.world,
            "congestion_control": experiment.transport.congestion_control.name,
            "size_scale": manifest.size_scale,
            "dilation": str(manifest.dilation),
        },
        build={
            "version": manifest.versions["chakram"],
            "python": manifest.versions["python"],
            "compiled": str(bool(manifest.compiled["all_compiled"])).lower(),
        },
    )
