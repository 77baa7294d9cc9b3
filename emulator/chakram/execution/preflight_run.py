"""Execution of a preflight, from the experiment file to a folder of results."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.execution.agents_of_run import AgentsOfRun, agents_of_run
from chakram.execution.clock_watch import ClockWatch, clock_of
from chakram.execution.concurrent_calls import call_all
from chakram.execution.interrupts import Interrupts
from chakram.execution.preflight_session import Preflight
from chakram.execution.request import RunRequest, new_run_id
from chakram.fabric.fabric_types.base import WorldRequest
from chakram.foundation.errors import (
    AgentError,
    PlanError,
    PreflightFailed,
)
from chakram.preparation.resolved_run import load_run, resolve
from chakram.run_directory import agent_logs
from chakram.run_directory.manifest import PREFLIGHT
from chakram.run_directory.preflight_files import save_preflight
from chakram.run_directory.writer import make_folder

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.control.client import AgentClient
    from chakram.execution.observer import Progress
    from chakram.fabric.fabric_types.base import AgentPlace, World
    from chakram.preflight.report import PreflightReport


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightOutcome:
    """Outcome of a preflight."""

    folder: Path
    report: PreflightReport


def preflight_failed(report: PreflightReport) -> PreflightFailed | None:
    """Return the error of a preflight that failed, or None if it passed."""
    failures = report.failures
    if not failures:
        return None
    listed = "; ".join(map(str, failures[:3]))
    more = f"; and {len(failures) - 3} more" if len(failures) > 3 else ""
    count = "one finding" if len(failures) == 1 else f"{len(failures)} findings"
    return PreflightFailed("preflight", f"failed, {count}: {listed}{more}")


async def preflight_experiment(request: RunRequest) -> PreflightOutcome:
    """Build the fabric, test every pair of its ports, and tear it down.

    Raises:
        ChakramError: If nothing could be tested.
        RunInterrupted: If the user interrupted the preflight.
    """
    experiment, progress = request.experiment, request.progress
    started = datetime.now(UTC)
    run_id = new_run_id(started)
    nports = await asyncio.to_thread(_ports_needed, experiment, progress)
    folder = make_folder(
        request.runs_directory,
        experiment.name,
        kind=PREFLIGHT,
        started=started,
        experiment_text=request.text,
    )
    async with AsyncExitStack() as stack:
        interrupts = stack.enter_context(Interrupts("preflight"))
        progress.phase("building the fabric")
        world = await stack.enter_async_context(
            experiment.fabric.open(
                WorldRequest(
                    seed=experiment.seed,
                    nports=nports,
                    processes=experiment.agents.shards,
                    lab_name=experiment.lab_name,
                    logs=folder,
                )
            )
        )
        if len(world.ports) < 2:
            raise PlanError("fabric", "has one port", "a pair needs two")
        agents = await stack.enter_async_context(
            agents_of_run(
                world.agents,
                launch=request.launch,
                allow=experiment.fabric.launched_allow(),
                logs=folder / agent_logs.FOLDER,
                progress=progress,
            )
        )
        clients, absent = await _connect(experiment, world, agents, stack)
        agents.check(clients)
        # Rounds of probes begin at fixed times. Within minutes, clocks drift apart by
        # more than the pause between two rounds.
        pings = await stack.enter_async_context(ClockWatch(clients))
        preflight = Preflight(
            resolve(experiment),
            ports=world.ports,
            clients=clients,
            clocks=pings.tracks,
            progress=progress,
            interrupts=interrupts,
            run_id=run_id,
            absent=absent,
        )
        async with agents.watched(preflight.abort):
            report = await preflight.run()
    save_preflight(folder, report, run_id=run_id, dilation=experiment.dilation)
    return PreflightOutcome(folder=folder, report=report)


def _ports_needed(experiment: Experiment, progress: Progress) -> int:
    """Return the number of ports that the jobs need, or 0 if the fabric sets it."""
    if experiment.fabric.nports is not None:
        return 0
    progress.phase("reading traces")
    return load_run(experiment).ports_needed


async def _connect(
    experiment: Experiment,
    world: World,
    agents: AgentsOfRun,
    stack: AsyncExitStack,
) -> tuple[dict[str, AgentClient], dict[str, str]]:
    """Return connected agents, and the reasons why others are absent."""
    clients: dict[str, AgentClient] = {}
    absent: dict[str, str] = {}

    async def connect_one(address: AgentPlace) -> None:
        try:
            client = await agents.connect(address)
            stack.push_async_callback(client.close)
            await clock_of(client)  # fails now if pings are not answered
        except AgentError as error:
            if experiment.fabric.on_this_machine:
                raise
            hint = f" ({error.hint})" if error.hint else ""
            absent[address.name] = f"{error.found}{hint}"
        else:
            clients[address.name] = client

    # Connect concurrently, because each absent agent costs a whole timeout.
    await call_all(connect_one, world.agents)
    return clients, absent
