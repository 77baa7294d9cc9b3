"""Builder of the manifest of a run, descriptions of its parts, and banners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import chakram
from chakram.config.jobs import TraceFiles
from chakram.foundation.units import format_share, format_size
from chakram.plan.isolated_collective import settings_alone
from chakram.plan.plan import RunSettings
from chakram.plan.transport import TransportPlan
from chakram.predict.simulator.run_plan import SimulationResult
from chakram.preparation.experiment_warnings import faults_above_link_rate
from chakram.preparation.job_loading import LoadedJob, job_warnings
from chakram.preparation.plugin_versions import plug_in_versions
from chakram.records.run_records import CollectiveKey
from chakram.run_directory.manifest import RunManifest
from chakram.run_directory.provenance import compiled, host_facts, versions
from chakram.switch.profiles import Switching

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.config.transport import Faults
    from chakram.control.events import AgentDescription
    from chakram.preparation.resolved_run import ResolvedRun
    from chakram.preparation.schedule_bounds import (
        FlowBound,
    )
    from chakram.run_directory.added_flow_columns import FairTimesOf, PathsOf


@dataclass(slots=True)
class Reference:
    """Reference times to compare measured times with, in ns by collective.

    Attributes:
        bounds: Lower bounds for the schedules that the run uses.
        alone: Simulated times of collectives that run alone on the fabric.
        ceilings: Lower bounds for any algorithm.
        predictions: Times that models predict, by source.
        flow_bound: Function that returns the lower bound on a message's time. None if
            unknown.
        fair_times: Function that estimates the times of messages that share ports. None
            if unknown.
        ways: Function that returns the paths of messages. None if unknown.
        notes: Notes about these values.
    """

    bounds: dict[CollectiveKey, int] = field(default_factory=dict)
    alone: dict[CollectiveKey, int] = field(default_factory=dict)
    ceilings: dict[CollectiveKey, int] = field(default_factory=dict)
    predictions: dict[str, dict[CollectiveKey, int]] = field(default_factory=dict)
    flow_bound: FlowBound | None = None
    fair_times: FairTimesOf | None = None
    ways: PathsOf | None = None
    notes: tuple[str, ...] = ()


def manifest_of(
    resolved: ResolvedRun,
    *,
    run_id: str,
    started: datetime,
    world: str | None = None,
    alone: str | None = None,
) -> RunManifest:
    """Return the initial ``run.json``, where *alone* is the only job to run, if any."""
    experiment, settings = resolved.experiment, resolved.settings
    jobs: Sequence[LoadedJob] = resolved.jobs
    if alone is not None:
        jobs = [job for job in jobs if job.name == alone]
        settings = settings_alone(settings, alone)
    scales = {str(job.size_scale) for job in experiment.jobs}
    return RunManifest(
        run_id=run_id,
        name=experiment.name,
        case=None if alone is None else f"{alone} alone",
        world=world or experiment.fabric.kind,
        started_at=started.isoformat(timespec="seconds"),
        fabric=experiment.written.fabric.describe(),
        family=experiment.fabric.family,
        transport=describe_transport(
            resolved.transport, experiment.transport.congestion_control.describe()
        ),
        seed=experiment.seed,
        dilation=experiment.dilation,
        size_scale=scales.pop() if len(scales) == 1 else "various",
        warmup=experiment.iterations.warmup,
        measured=experiment.iterations.measured,
        sync=experiment.iterations.sync,
        traces={
            job.name: {
                "trace": job.trace,
                "producer": job.producer,
                "nodes": job.nodes,
                "sha256": job.digest,
            }
            for job in jobs
        },
        jobs=_jobs(experiment, jobs, settings),
        experiment=experiment.written.model_dump(mode="json", by_alias=True),
        versions=versions() | plug_in_versions(experiment),
        compiled=compiled(),
        host=host_facts(),
        banners=_banners(resolved, jobs),
    )


def _jobs(
    experiment: Experiment, jobs: Sequence[LoadedJob], settings: RunSettings
) -> dict[str, dict[str, Any]]:
    described: dict[str, dict[str, Any]] = {}
    jobs_of_file = {job.name: job for job in experiment.jobs}
    for job in jobs:
        own = settings.of(job.name)
        trace = jobs_of_file[job.name].trace
        described[job.name] = {
            "ranks": job.nranks,
            "offset_ns": own.offset_ns,
            "iterations": None
            if own.is_background
            else settings.iterations_of(job.name),
            "order": own.order,
            "policy": own.policy,
            "resources": jobs_of_file[job.name].resources,
            "replicated_rank": trace.rank
            if isinstance(trace, TraceFiles) and trace.replicate is not None
            else None,
        }
    return described


def _banners(resolved: ResolvedRun, jobs: Sequence[LoadedJob]) -> tuple[str, ...]:
    experiment = resolved.experiment
    banners = [*job_warnings(jobs), *resolved.warnings()]
    if experiment.faults.drop:
        banners.append(
            f"fault: ports drop {format_share(experiment.faults.drop)} of received "
            "packets"
        )
    banners += [
        f"fault: {each.fault().describe()}"
        for each in experiment.written.faults.packets
    ]
    idle = faults_above_link_rate(experiment)
    banners += [
        f"fault: {each.describe()}"
        for at, each in enumerate(experiment.written.faults.links)
        if at not in idle
    ]
    return tuple(banners)


_AGENT_FACTS = ("version", "protocol", "python", "kernel", "host", "compiled")


def agent_facts(
    descriptions: Mapping[str, AgentDescription],
) -> dict[str, dict[str, object]]:
    """Return the facts about each agent for ``run.json``."""
    return {
        name: {
            **{fact: getattr(agent, fact) for fact in _AGENT_FACTS},
            "bundle": agent.bundle or None,
            "numa_nodes": list(agent.numa_nodes),
        }
        for name, agent in descriptions.items()
    }


def agent_banners(descriptions: Mapping[str, AgentDescription]) -> list[str]:
    """Return warnings about agents with another version, or without compiled modules.

    The controller refuses agents with another protocol version when it connects.
    """
    ours = chakram.__version__
    bundles = {agent.bundle or "installed" for agent in descriptions.values()}
    return [
        *(
            f"agent {name} has chakram {agent.version}, but the controller has {ours}: "
            "both use the same protocol, but may generate and measure traffic "
            "differently (install the same version on both)"
            for name, agent in descriptions.items()
            if agent.version != ours
        ),
        *(
            f"agent {name} is not compiled, and reaches a lower rate (chakram doctor "
            "shows the reason)"
            for name, agent in descriptions.items()
            if not agent.compiled
        ),
        *(
            [f"agents run from different bundles: {', '.join(sorted(bundles))}"]
            if len(bundles) > 1
            else []
        ),
    ]


def simulated_banners(
    result: SimulationResult, switching: Switching
) -> tuple[str, ...]:
    """Return banners about the switches of a simulation and their drops and pauses."""
    found: list[str] = []
    profile = switching.profile
    if profile.name != "fifo":
        found.append(
            f"simulated: switches of profile {profile.name}; a paused host delays its "
            "acknowledgments like its data"
        )
    if profile.balancing != "hash":
        found.append(
            f"simulated: a path is chosen for every packet ({profile.balancing})"
        )
    drops = {reason: count for reason, count in result.dropped.items() if count}
    if drops:
        what = "bursts" if result.burst_packets > 1 else "packets"
        text = ", ".join(f"{reason} {count}" for reason, count in drops.items())
        found.append(f"simulated: {what} dropped: {text}")
    if result.cycle:
        found.append(
            "simulated: pauses may deadlock, because they form a cycle of "
            f"{len(result.cycle)} ports: {', '.join(result.cycle)}"
        )
    paused_ns = result.paused_ns
    if paused_ns:
        longest = max(paused_ns, key=lambda port: paused_ns[port])
        found.append(
            f"simulated: {len(paused_ns)} ports were paused, longest {longest}: "
            f"{paused_ns[longest] / 1e3:.0f} us"
        )
    return tuple(found)


def injected_banners(
    injected: Mapping[str, int],
    disturbed: Sequence[int],
    faults: Faults,
    *,
    alone: str | None = None,
) -> tuple[str, ...]:
    """Return banners about the packets that faults disturbed.

    Args:
        injected: Number of packets by kind of disturbance.
        disturbed: Number of packets by entry of ``faults.packets``.
        faults: The faults of the experiment.
        alone: The only job of the run, or None if all jobs run.
    """
    if not faults.drop and not faults.packets:
        return ()
    found = ", ".join(f"{name} {count}" for name, count in injected.items())
    return (
        f"fault: packets disturbed: {found or 'none, no packet matched'}",
        # Report each rule that matched no packet, even if other rules did.
        *(
            f"fault: faults.packets[{index}] disturbed no packet: {each['fault']}"
            for index, each in enumerate(faults_disturbed(disturbed, faults))
            if not each["packets"]
            and (alone is None or faults.packets[index].job in (None, alone))
        ),
    )


def invalid_banners(invalid: Mapping[str, int]) -> tuple[str, ...]:
    """Return banners about rejected packets, by reason.

    Packets that a fault made invalid are reported with the fault.
    """
    foreign = invalid.get("address", 0)
    if not foreign:
        return ()
    return (
        f"{foreign} packet(s) from addresses that are not those of their queue pairs "
        "were dropped: another program sends to these ports, or the network "
        "translates addresses",
    )


def verification_banners(found: Mapping[str, int]) -> tuple[str, ...]:
    """Return banners about packets that were modified on their path."""
    banners = []
    if count := found.get("icrc_errors", 0):
        banners.append(
            f"{count} packet(s) arrived with a wrong ICRC, and were dropped: a device "
            "on the path changes bits"
        )
    if count := found.get("wrong_payloads", 0):
        banners.append(
            f"{count} packet(s) arrived with a correct ICRC but a wrong payload, and "
            "were accepted (#wrong): they were changed before the ICRC was computed, "
            "or after the last device that checks it"
        )
    return tuple(banners)


def faults_disturbed(
    disturbed: Sequence[int], faults: Faults
) -> tuple[dict[str, Any], ...]:
    """Return a description and the packet count of each entry of ``faults.packets``."""
    return tuple(
        {
            "kind": each.fault().name,
            "fault": each.fault().describe(),
            "packets": packets,
        }
        for each, packets in zip(faults.packets, disturbed, strict=True)
    )


def describe_transport(transport: TransportPlan, congestion_control: str) -> str:
    """Return a one-line description of the transport and its congestion control."""
    return (
        f"RC {transport.verb.upper()}, path MTU {transport.path_mtu}, "
        f"window {format_size(transport.window_bytes)}, "
        f"congestion control {congestion_control}, "
        f"bursts of {transport.max_burst_packets}"
    )
