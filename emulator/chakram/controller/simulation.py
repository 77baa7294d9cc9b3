"""Runs an experiment in virtual time, into the same kind of run directory."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chakram.controller.interrupts import interrupting_signals
from chakram.controller.outcome import RunOutcome
from chakram.controller.planning import ports_needed
from chakram.controller.predictions import alone_times, bounds, fair_times, flow_bound
from chakram.controller.reporting import (
    faults_disturbed,
    injected_banners,
    simulated_banners,
)
from chakram.controller.request import new_run_id
from chakram.errors import ChakramError, ConfigError, RunInterrupted
from chakram.observe.manifest import COMPLETE, FAILED
from chakram.observe.message_columns import MessageColumns
from chakram.observe.run_results import open_run
from chakram.predict.routing import Ways
from chakram.predict.simulator.job import simulate_plan
from chakram.results.run_records import LinkRecord
from chakram.results.summary import SIMULATE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chakram.controller.request import RunRequest
    from chakram.fabric.topology import Topology

__all__ = ["simulate_experiment"]


def simulate_experiment(request: RunRequest) -> RunOutcome:
    """Run an experiment in virtual time, all its iterations.

    Raises:
        ConfigError: If nobody told the topology of an external fabric.
        ChakramError: If the experiment cannot be planned, or does not end.
    """
    experiment, progress = request.experiment, request.progress
    jobs = request.jobs()
    topology = experiment.fabric.to_topology(ports_needed(jobs))
    if topology is None:
        raise ConfigError(
            "fabric.topology",
            "is not given, so there is nothing to simulate",
            "describe the fabric under test: topology and links",
        )
    started = datetime.now(UTC)
    run_id = new_run_id(started)
    plan = request.plan(jobs, experiment.fabric.simulated_ports(topology), run_id)
    directory = request.new_directory(jobs, run_id, started=started, world=SIMULATE)
    directory.begin(plan)
    switching = experiment.fabric.switching(experiment.seed)
    total = max(plan.iterations_of().values())
    progress.phase("simulating")
    try:
        with interrupting_signals():
            lower_bounds, ceilings = bounds(plan, topology)
            bound_of_flow = flow_bound(plan, topology)
            fair = fair_times(plan, topology)
            by_itself = alone_times(plan, topology, experiment.seed, switching)
            progress.iterations(0, total)
            result = simulate_plan(
                plan,
                topology,
                rng=random.Random(experiment.seed),
                switching=switching,
                report=lambda done: progress.iterations(done, total),
            )
    except ChakramError as error:
        directory.finish(FAILED, ended=datetime.now(UTC), reason=str(error))
        raise
    except KeyboardInterrupt as interrupt:
        stopped = RunInterrupted("simulation", f"interrupted by {interrupt}")
        directory.finish(FAILED, ended=datetime.now(UTC), reason=str(stopped))
        raise stopped from None
    directory.add(result.records)
    injected = {name: count for name, count in result.injected.items() if count}
    directory.finish(
        COMPLETE,
        ended=datetime.now(UTC),
        injected=injected,
        packet_faults=faults_disturbed(result.disturbed, experiment.faults),
        banners=(
            *directory.manifest.banners,
            *by_itself.notes,
            *simulated_banners(result, switching),
            *injected_banners(
                injected, result.disturbed, experiment.faults, alone=request.alone
            ),
        ),
        links=_links(topology, result.link_bytes),
        bound=lower_bounds,
        alone=by_itself.times_ns,
        ceiling=ceilings,
        flow_bound=bound_of_flow,
        messages=MessageColumns(fair, Ways(plan, topology, switching.ecmp)),
    )
    summary = open_run(directory.path).summary()
    return RunOutcome(directory=directory.path, summary=summary, error=None)


def _links(topology: Topology, link_bytes: Mapping[str, int]) -> list[LinkRecord]:
    uplinks = {link.name for link in topology.uplinks()}
    return [
        LinkRecord(
            link=link.name,
            kind="uplink" if link.name in uplinks else "host",
            direction=direction,
            bytes_before=0,
            bytes_after=link_bytes[str(end)],
        )
        for link in topology.links
        for direction, end in (("up", link.a), ("down", link.b))
    ]
