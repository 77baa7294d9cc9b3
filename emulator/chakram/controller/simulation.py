"""Runs an experiment in virtual time, into the same kind of run directory."""

from __future__ import annotations

import random
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chakram.controller.interrupts import interrupting_signals
from chakram.controller.planning import build_plan, ports_needed, transport_plan
from chakram.controller.predictions import alone_times, bounds, fair_times, flow_bound
from chakram.controller.reporting import (
    Reference,
    faults_disturbed,
    injected_banners,
    manifest_of,
    sum_counts,
)
from chakram.controller.saved_plans import jobs_of
from chakram.controller.shell import RunOutcome
from chakram.errors import ChakramError, ConfigError, RunInterrupted
from chakram.observe.manifest import COMPLETE, FAILED
from chakram.observe.message_columns import MessageColumns
from chakram.observe.run_directory import RunDirectory
from chakram.observe.run_results import open_run
from chakram.predict.routing import Ways
from chakram.predict.simulator.job import simulate_plan
from chakram.results.run_records import LinkRecord
from chakram.results.summary import SIMULATE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from chakram.config.experiment import Experiment
    from chakram.controller.observer import Progress
    from chakram.fabric.topology import Topology

__all__ = ["simulate_experiment"]


def simulate_experiment(
    experiment: Experiment,
    *,
    experiment_text: str,
    runs_directory: Path,
    progress: Progress,
    plan_file: Path | None = None,
    alone: str | None = None,
) -> RunOutcome:
    """Run an experiment in virtual time, all its iterations.

    Args:
        experiment: What to run.
        experiment_text: Its file, word for word, for the run directory.
        runs_directory: Folder of all run directories.
        progress: Told how far it is.
        plan_file: A saved plan to take programs from, instead of the traces.
        alone: The one job that is run, where it is placed beside the others; None: all.

    Raises:
        ConfigError: If nobody told the topology of an external fabric.
        ChakramError: If the experiment cannot be planned, or does not end.
    """
    progress.phase("reading traces" if plan_file is None else "reading the plan")
    jobs = jobs_of(experiment, plan_file)
    topology = experiment.fabric.to_topology(ports_needed(jobs))
    if topology is None:
        raise ConfigError(
            "fabric.topology",
            "is not given, so there is nothing to simulate",
            "describe the fabric under test: topology and links",
        )
    started = datetime.now(UTC)
    run_id = f"{started:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    ports = experiment.fabric.simulated_ports(topology)
    transport = transport_plan(experiment)
    plan = build_plan(experiment, jobs, ports, run_id=run_id, alone=alone)
    directory = RunDirectory.create(
        runs_directory,
        manifest=manifest_of(
            experiment,
            jobs,
            transport,
            run_id=run_id,
            started=started,
            world=SIMULATE,
            alone=alone,
        ),
        started=started,
        experiment_text=experiment_text,
    )
    directory.begin(plan)
    reference = Reference()
    ecmp = experiment.fabric.ecmp_hash(experiment.seed)
    total = max(plan.iterations_of().values())
    progress.phase("simulating")
    try:
        with interrupting_signals():
            reference.bounds, reference.ceilings = bounds(plan, topology)
            reference.flow_bound = flow_bound(plan, topology)
            reference.fair_times = fair_times(plan, topology)
            by_itself = alone_times(plan, topology, experiment.seed, ecmp)
            progress.iterations(0, total)
            result = simulate_plan(
                plan,
                topology,
                rng=random.Random(experiment.seed),
                ecmp=ecmp,
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
    injected = sum_counts([result.injected])
    directory.finish(
        COMPLETE,
        ended=datetime.now(UTC),
        injected=injected,
        packet_faults=faults_disturbed(result.disturbed, experiment.faults),
        banners=(
            *directory.manifest.banners,
            *by_itself.notes,
            *injected_banners(
                injected, result.disturbed, experiment.faults, alone=alone
            ),
        ),
        links=_links(topology, result.link_bytes),
        bound=reference.bounds,
        alone=by_itself.times_ns,
        ceiling=reference.ceilings,
        flow_bound=reference.flow_bound,
        messages=MessageColumns(reference.fair_times, Ways(plan, topology, ecmp)),
    )
    summary = open_run(directory.path).summary()
    return RunOutcome(
        directory=directory.path,
        summary=summary,
        error=None,
    )


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
