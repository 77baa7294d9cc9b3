"""Execution of an experiment, from its file to its run directory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial

from chakram.analysis.run_causes import quick_why
from chakram.execution.interrupts import Interrupts
from chakram.execution.observer import Progress
from chakram.execution.outcome import RunOutcome
from chakram.execution.request import RunRequest, new_run_id
from chakram.execution.run import Run
from chakram.foundation.errors import ChakramError, RunFailed, RunInterrupted
from chakram.metrics.exporter import MetricsServer, exposition, open_listener
from chakram.metrics.live_samples_json import LiveRows
from chakram.metrics.state import MetricsState, metrics_of
from chakram.preparation.link_fault_times import refuse_faults_of_runs
from chakram.preparation.plan_settings import refuse_neighbors_on_one_port
from chakram.run_directory.reader import RunResults, open_run


async def run_experiment(request: RunRequest) -> RunOutcome:
    """Build the fabric, replay the traces, collect the results, and tear down.

    Returns:
        The outcome. If the run ended early, the outcome contains the records so far.

    Raises:
        ChakramError: If nothing was run, for example because of wrong input, missing
            privileges or an absent agent.
        RunInterrupted: If the user interrupted the run before it started, or twice.
    """
    experiment, progress = request.experiment, request.progress
    refuse_faults_of_runs(experiment)
    async with AsyncExitStack() as stack:
        # Open the port before anything is built, to fail early if it is in use.
        listener = live = None
        if experiment.metrics.listen is not None:
            listener = open_listener(experiment.metrics.listen)
            stack.enter_context(closing(listener))
            live = LiveRows()
        interrupts = stack.enter_context(Interrupts())
        resolved = await asyncio.to_thread(request.resolve)
        started = datetime.now(UTC)
        run_id = new_run_id(started)
        # Plan before anything is built, to fail early if ranks do not fit the fabric.
        plan = await asyncio.to_thread(
            resolved.expected_plan, run_id, alone=request.alone
        )
        if experiment.fabric.has_switches:
            refuse_neighbors_on_one_port(plan)
        directory = request.new_directory(resolved, run_id, started=started)
        metrics = metrics_of(directory.manifest)
        run = Run(
            request,
            resolved,
            directory,
            metrics,
            interrupts,
            live=live,
            iterations=max(plan.iterations_of().values()),
        )
        if listener is not None and live is not None:
            server = MetricsServer(
                metrics, listener, live.pages(), partial(live.show, metrics)
            )
            progress.note(f"metrics: {server.url}")
            linger_ns = experiment.metrics.linger_ns
            await stack.enter_async_context(
                _serving(server, linger_ns, interrupts, progress)
            )
        try:
            await run.execute()
        except asyncio.CancelledError:
            run.finish(RunInterrupted("run", "interrupted before its end"))
            raise
        except ChakramError as error:
            run.finish(error)
            if not run.began:
                raise
        except Exception as error:
            # Keep the records from before an internal error readable.
            what = f"internal error: {type(error).__name__}: {error}"
            run.finish(RunFailed("run", what))
            raise
        else:
            run.finish(None)
        results = open_run(directory.path)
        if live is not None:
            live.show(metrics)
            await asyncio.to_thread(_show_causes, metrics, results)
        directory.write_metrics(exposition(metrics))
        summary = await asyncio.to_thread(results.summary)
        if summary.keeping_up is not None:
            directory.update(keeping_up=asdict(summary.keeping_up))
        return RunOutcome(results=results, summary=summary, error=run.error)


@asynccontextmanager
async def _serving(
    server: MetricsServer, linger_ns: int, interrupts: Interrupts, progress: Progress
) -> AsyncIterator[None]:
    """Serve metrics during the block, and then until the final values are scraped.

    An interruption of the run skips this wait, and an interruption of the wait ends it.
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


def _show_causes(metrics: MetricsState, results: RunResults) -> None:
    """Export the causes of lost time, if that takes only seconds."""
    if (why := quick_why(results)) is not None:
        metrics.set_why(why)
