"""Simulation of an experiment at packet level, in virtual time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chakram.execution.request import RunRequest, new_run_id
from chakram.plan.isolated_collective import is_collective_alone
from chakram.predict.routing import PathFinder
from chakram.predict.simulator.run_plan import UnfinishedSimulation, simulate_plan
from chakram.predict.simulator.switch_fabric import port_names
from chakram.preparation.idle_faults import idle_faults
from chakram.preparation.link_fault_times import LinkFaults, simulated_with
from chakram.preparation.predictions import (
    AloneTimes,
    alone_times,
    durations,
    early_timeouts,
    lost_in,
)
from chakram.preparation.run_description import (
    faults_disturbed,
    injected_banners,
    simulated_banners,
)
from chakram.preparation.schedule_bounds import (
    bounds,
    fair_times,
)
from chakram.run_directory.added_flow_columns import MessageColumns
from chakram.run_directory.manifest import COMPLETE, PARTIAL
from chakram.simulation.common import ended, simulated_topology, simulating
from chakram.simulation.expected_cost import cost_of_packets
from chakram.summary.run_summary import SIMULATE

if TYPE_CHECKING:
    from chakram.execution.outcome import RunOutcome


def simulate_experiment(request: RunRequest) -> RunOutcome:
    """Simulate all iterations of an experiment at packet level.

    Raises:
        ConfigError: If the topology of an external fabric is not given.
        ChakramError: If the experiment cannot be planned, or does not end.
    """
    experiment, progress = request.experiment, request.progress
    resolved = request.resolve()
    topology = simulated_topology(resolved)
    started = datetime.now(UTC)
    run_id = new_run_id(started)
    ports = experiment.fabric.simulated_ports(topology)
    plan = resolved.plan(ports, run_id, alone=request.alone)
    directory = request.new_directory(resolved, run_id, started=started, world=SIMULATE)
    directory.begin(plan, ports=port_names(topology))
    switching = experiment.fabric.switching(experiment.seed)
    total = max(plan.iterations_of().values())
    note = cost_of_packets(plan, topology).note()
    idle = idle_faults(experiment, plan, topology)
    for text in (*([] if note is None else [note]), *idle):
        progress.note(text)
    progress.phase("simulating")
    unfinished: UnfinishedSimulation | None = None
    with simulating(directory):
        least = bounds(plan, topology)
        fair = fair_times(plan, topology)
        is_alone = is_collective_alone(plan) and not experiment.faults.links
        by_itself = (
            AloneTimes()
            if is_alone
            else alone_times(plan, topology, experiment.seed, switching)
        )
        progress.iterations(0, total)
        faults = LinkFaults(experiment.faults.links, topology)
        try:
            result = simulated_with(
                faults,
                experiment.faults.links,
                plan,
                lambda happening: simulate_plan(
                    plan,
                    topology,
                    seed=experiment.seed,
                    switching=switching,
                    faults=happening,
                    sample_bin_ns=experiment.records.sample_bin_ns,
                    report=lambda done: progress.iterations(done, total),
                ),
            )
        except UnfinishedSimulation as error:
            unfinished, result = error, error.result
    if is_alone and unfinished is None:
        by_itself = AloneTimes(times_ns=durations(plan, result))
    directory.add(result.records)
    directory.add_link_samples(result.link_samples)
    injected = {name: count for name, count in result.injected.items() if count}
    outcome = ended(
        directory,
        topology,
        [
            result.link_bytes[str(end)]
            for link in topology.links
            for end in (link.a, link.b)
        ],
        counted={
            "drops": result.drops,
            "marked": result.marked_packets,
            "pauses": result.pauses,
            "paused_ns": result.paused_ns,
            "down_ns": result.down_ns,
        },
        status=COMPLETE if unfinished is None else PARTIAL,
        reason=None if unfinished is None else str(unfinished),
        injected=injected,
        packet_faults=faults_disturbed(result.disturbed, experiment.faults),
        link_faults=faults.described(experiment.written.faults.links),
        banners=(
            *directory.manifest.banners,
            *by_itself.notes,
            *simulated_banners(result, switching),
            *early_timeouts(result.resent_for_timeout, lost_in(result)),
            *faults.banners(),
            *idle,
            *injected_banners(
                injected, result.disturbed, experiment.faults, alone=request.alone
            ),
        ),
        bound=least.times_ns,
        alone=by_itself.times_ns,
        ceiling=least.ceilings_ns,
        flow_bound=least.of_message,
        messages=MessageColumns(fair, PathFinder(plan, topology, switching.ecmp)),
    )
    if unfinished is not None:
        raise unfinished
    return outcome
