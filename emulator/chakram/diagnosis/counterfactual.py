"""Simulation of a recorded run, unchanged or with a change, to time its iterations.

A run directory contains the experiment and the digests of its traces, so Chakram can
repeat the run in virtual time.  If the run was a simulation, the repetition takes
exactly the recorded time, to the nanosecond.  The cost of a fault is the time that the
run saves without the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from chakram.analysis.cause_ranking import Suspect
from chakram.config.experiment import Experiment, recorded_experiment
from chakram.foundation.errors import InputError
from chakram.foundation.grouping import grouped, spans
from chakram.plan.isolated_collective import job_alone
from chakram.plan.packet_faults import FaultAction, PacketFault
from chakram.plan.plan import Plan
from chakram.plan.port_plan import PortPlan
from chakram.predict.simulator.run_plan import SimulationResult, simulate_plan
from chakram.predict.simulator.switch_fabric import port_names
from chakram.preparation.host_delay_predictions import with_delay
from chakram.preparation.job_loading import LoadedJob, load_jobs
from chakram.preparation.link_fault_times import LinkFaults, simulated_with
from chakram.preparation.resolved_run import resolve
from chakram.records.named_rows import OperationTable
from chakram.records.row_layout import IterationRow, rows_of
from chakram.roce.constants import NEVER
from chakram.run_directory.manifest import RunManifest
from chakram.run_directory.reader import RunResults
from chakram.simulation.common import simulated_topology
from chakram.switch.ecmp import EcmpHash, RestrictedPaths
from chakram.switch.faults import FAULT_KINDS, FaultKind, LinkFault
from chakram.topology.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """A fault that may have affected a run.

    Attributes:
        kind: A kind of ``LinkFault``, or one of four other kinds. With ``avoided``, the
            switch selects other equal-cost ports although the link is up. With ``host
            delay``, all hosts delay packets. With ``delay``, both directions of the
            link delay packets. With ``reordering``, packets of the host at the link
            overtake others.
        port: Name of the port where the link direction begins.  Empty for all hosts.
        rate_bps: Rate of a slow link.
        probability: Probability that a packet is lost, or overtaken.
        at_ns: Start of the fault in ns after the start of the first iteration.
        until_ns: End of the fault in ns after the start of the first iteration.
        classes: Traffic classes that are paused.
        delay_ns: Time by which hosts delay each packet at sending and at receiving, or
            by which a link delays packets in each direction.
        behind: Number of packets that overtake another packet.
    """

    kind: FaultKind | Literal["avoided", "host delay", "delay", "reordering"]
    port: str
    rate_bps: int | None = None
    probability: float | None = None
    at_ns: int = 0
    until_ns: int = NEVER
    classes: tuple[int, ...] = ()
    delay_ns: int = 0
    behind: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A recorded run with changes to simulate.

    Attributes:
        experiment: The experiment.
        jobs: Loaded jobs of the experiment.
        alone: The only job to run. None means all jobs.
        link_rates_bps: Changed rates of both directions, by link.  The rate also
            applies to the port of a host on that link.
        link_delays_ns: Changed delays, by link.
        port_rates_bps: Changed egress rates, by port.
        without_queue_limit: Links whose queues drop no packets.
        seed: Seed of random faults and marks. None means the seed of the experiment.
        assumed: Faults that the experiment does not declare.
        ports: Ports of a run on a network. None means the ports of a simulation.
        shards: Number of data-plane processes by agent, for a run on a network.
        psn_seed: Seed of the first packet sequence numbers.
        ecmp: Path selection of the flows. None means that of the experiment's fabric.
    """

    experiment: Experiment
    jobs: tuple[LoadedJob, ...]
    alone: str | None = None
    link_rates_bps: Mapping[str, int | None] = field(default_factory=dict)
    link_delays_ns: Mapping[str, int] = field(default_factory=dict)
    port_rates_bps: Mapping[str, int] = field(default_factory=dict)
    without_queue_limit: frozenset[str] = frozenset()
    seed: int | None = None
    assumed: tuple[Assumption, ...] = ()
    ports: tuple[PortPlan, ...] | None = None
    shards: Mapping[str, int] | None = None
    psn_seed: int | None = None
    ecmp: EcmpHash | None = None

    def edited(self, edit: Callable[[dict[str, Any]], None]) -> Variant:
        """Return a variant with an experiment file that *edit* changes in place.

        Raises:
            InputError: If the result is not a valid experiment.
        """
        document = self.experiment.written.model_dump(mode="json", by_alias=True)
        edit(document)
        return replace(
            self, experiment=recorded_experiment(document, "a changed experiment")
        )

    def with_faults(self, **changes: Any) -> Variant:
        """Return a variant with fewer faults: *changes* replace keys of ``faults``."""
        experiment = self.experiment
        faults = experiment.faults
        changed = experiment.model_copy(
            update={"faults": faults.model_copy(update=changes)}
        )
        if experiment.written is not experiment:
            # Remove the same entries from the experiment as written.
            written = experiment.written.faults
            kept: dict[str, Any] = {}
            for name, value in changes.items():
                kept[name] = value
                if isinstance(value, tuple):
                    kept[name] = tuple(
                        said
                        for said, own in zip(
                            getattr(written, name), getattr(faults, name), strict=True
                        )
                        if any(own is each for each in value)
                    )
            changed._written = experiment.written.model_copy(
                update={"faults": written.model_copy(update=kept)}
            )
        return replace(self, experiment=changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedVariant:
    """A variant that is ready to be simulated.

    Attributes:
        plan: The plan to simulate.
        topology: Topology of the fabric.
        ecmp: Path selection of the switches.
        assumed: Faults in addition to those of the experiment.
    """

    plan: Plan
    topology: Topology
    ecmp: EcmpHash
    assumed: tuple[Assumption, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun(PlannedVariant):
    """A simulated variant.

    Attributes:
        result: Result of the simulation.
    """

    result: SimulationResult

    def iterations_ns(self, job: str | None = None) -> dict[tuple[str, int], int]:
        """Return the time of each measured iteration by job and number, in ns."""
        return iteration_times(self.plan, self.result, job)


Change = Callable[[Variant], Variant]
"""Function that removes a suspect from a variant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A suspect, and the change that removes it.

    Attributes:
        suspect: The suspect.
        change: Function that returns a variant of the run without the suspect.
        other_change: Another change that removes the suspect.  The slower of the two
            variants counts.
        job: The only job whose time changes. None means all jobs.
    """

    suspect: Suspect
    change: Change
    other_change: Change | None = None
    job: str | None = None


def variant_of(manifest: RunManifest, where: str) -> Variant:
    """Return the variant of a run without changes.

    Args:
        manifest: Manifest of the run.
        where: Name of the run in error messages.

    Raises:
        InputError: If the experiment cannot be read, or a trace has changed since the
            run.
        ChakramError: If the traces cannot be read.
    """
    experiment = recorded_experiment(manifest.experiment, where)
    jobs = tuple(load_jobs(experiment))
    names = set(manifest.jobs)
    for job in jobs:
        recorded = manifest.traces.get(job.name, {}).get("sha256", job.digest)
        if job.name in names and recorded != job.digest:
            raise InputError(
                f"job {job.name}",
                f"its trace {job.trace} has changed since the run",
                "run the experiment again",
            )
    alone = next(iter(names)) if len(names) == 1 < len(jobs) else None
    return Variant(experiment=experiment, jobs=jobs, alone=alone)


def without_declared_faults(results: RunResults) -> Variant:
    """Return the variant of a run on a network without any declared fault.

    Raises:
        ChakramError: As for :func:`variant_of`.
    """
    manifest = results.manifest
    variant = variant_of(manifest, str(results.path))
    plan = results.plan()
    return replace(
        variant.with_faults(links=(), packets=(), drop=0.0),
        ports=tuple(results.ports()),
        shards={
            each.agent: each.shards for each in (() if plan is None else plan.agents)
        },
        psn_seed=manifest.psn_seed,
    )


def planned(variant: Variant) -> PlannedVariant:
    """Return a variant that is ready to be simulated.

    Raises:
        ChakramError: If the variant cannot be planned.
    """
    experiment = variant.experiment
    resolved = resolve(experiment, variant.jobs)
    topology = simulated_topology(resolved)
    changed = _changed(topology, variant)
    # The recorded plan has only the ports in use, but the placement of jobs needs all
    # ports.  Each port sends at the rate of its link in this variant.
    recorded = {port.number: port for port in variant.ports or ()}
    plan = resolved.plan(
        tuple(
            replace(
                recorded.get(port.number, port),
                rate_bps=port.rate_bps or recorded.get(port.number, port).rate_bps,
            )
            for port in experiment.fabric.simulated_ports(changed)
        ),
        "rerun",
        shards=variant.shards,
        psn_seed=variant.psn_seed,
    )
    if variant.alone is not None:
        plan = job_alone(plan, variant.alone)
    plan = _with_reordering(plan, topology, variant.assumed)
    ecmp = variant.ecmp or experiment.fabric.switching(experiment.seed).ecmp
    return PlannedVariant(
        plan=plan,
        topology=topology,
        ecmp=_narrowed(ecmp, topology, variant.assumed),
        assumed=variant.assumed,
    )


Limit = int | Mapping[str, int]
"""Maximum number of measured iterations for all jobs, or for each job by name."""


def rerun(variant: Variant, *, measured: Limit | None = None) -> Rerun:
    """Simulate a variant.

    Args:
        variant: The variant.
        measured: Maximum number of iterations after the warm-up. None means all.

    Raises:
        ChakramError: If the variant cannot be planned, or does not end.
    """
    experiment = variant.experiment
    ready = planned(variant)
    plan, topology = ready.plan, ready.topology
    if measured is not None:
        plan = limited(plan, measured)
    changed = _changed(topology, variant)
    wire, always = _faster_ports(changed, variant.port_rates_bps)
    delay_ns = sum(
        each.delay_ns for each in variant.assumed if each.kind == "host delay"
    )
    if delay_ns:
        wire = with_delay(wire, delay_ns)
    wire = _longer(wire, [each for each in variant.assumed if each.kind == "delay"])
    numbers = {name: at for at, name in enumerate(port_names(topology))}
    always += [
        LinkFault(
            kind=each.kind,
            port=numbers[each.port],
            at_ns=each.at_ns,
            until_ns=each.until_ns,
            rate_bps=each.rate_bps,
            probability=each.probability,
            classes=each.classes,
        )
        for each in variant.assumed
        if each.kind in FAULT_KINDS
    ]
    switching = experiment.fabric.switching(experiment.seed)
    switching = replace(switching, ecmp=ready.ecmp)
    settings = experiment.faults.links
    result = simulated_with(
        LinkFaults(settings, topology),
        settings,
        plan,
        lambda happening: simulate_plan(
            plan,
            wire,
            seed=variant.seed,
            switching=switching,
            faults=[*happening, *always],
        ),
        may_never_begin=True,
    )
    return Rerun(
        plan=plan,
        topology=topology,
        ecmp=ready.ecmp,
        assumed=variant.assumed,
        result=result,
    )


def limited(plan: Plan, measured: Limit) -> Plan:
    """Return a plan whose jobs have a limited number of measured iterations."""
    settings = plan.agents[0].settings
    jobs = dict.fromkeys(rank.program.job for rank in plan.ranks())
    most = measured if isinstance(measured, Mapping) else dict.fromkeys(jobs, measured)
    limited = tuple(
        replace(
            settings.of(job),
            iterations=min(
                settings.iterations_of(job),
                max(1, settings.warmup + most.get(job, 0)),
            ),
        )
        for job in jobs
    )
    agents = tuple(
        replace(agent, settings=replace(agent.settings, jobs=limited))
        for agent in plan.agents
    )
    return replace(plan, agents=agents)


def _with_reordering(
    plan: Plan, topology: Topology, assumed: Sequence[Assumption]
) -> Plan:
    """Return a plan whose hosts reorder packets, if *assumed* contains reordering."""
    overtaken = {each.port: each for each in assumed if each.kind == "reordering"}
    if not overtaken:
        return plan
    hosts = {port.number: port.host for port in plan.ports()}
    faults = []
    for link in topology.links:
        for end in (link.a, link.b):
            each, is_up = overtaken.get(str(end)), end == link.a
            for rank in plan.ranks() if each else ():
                if each is not None and hosts[rank.port] == link.a.node:
                    number = rank.program.rank
                    faults.append(
                        PacketFault(
                            action=FaultAction.REORDER,
                            at_send=is_up,
                            job=rank.program.job,
                            source=number if is_up else None,
                            destination=None if is_up else number,
                            probability=each.probability or 0.0,
                            behind=each.behind,
                        )
                    )
    agents = tuple(
        replace(
            agent,
            settings=replace(agent.settings, faults=(*agent.settings.faults, *faults)),
        )
        for agent in plan.agents
    )
    return replace(plan, agents=agents)


def _narrowed(
    ecmp: EcmpHash, topology: Topology, assumed: Sequence[Assumption]
) -> EcmpHash:
    """Return an ECMP hash that does not select ports with the fault ``avoided``."""
    avoided = {each.port for each in assumed if each.kind == "avoided"}
    if not avoided:
        return ecmp
    groups = grouped((name, str(end)) for end, name in topology.equal_cost().items())
    numbers = {switch: at for at, switch in enumerate(topology.switches)}
    kept = {}
    for name, ends in groups.items():
        left = tuple(at for at, end in enumerate(ends) if end not in avoided)
        if 0 < len(left) < len(ends):
            kept[numbers[name.rpartition("#")[0]], len(ends)] = left
    return RestrictedPaths(inner=ecmp, kept=tuple(kept.items()))


def _changed(topology: Topology, variant: Variant) -> Topology:
    """Return a topology with the changed links of a variant."""
    rates_bps, delays_ns = variant.link_rates_bps, variant.link_delays_ns
    unlimited = variant.without_queue_limit
    if not (rates_bps or delays_ns or unlimited):
        return topology
    return replace(
        topology,
        links=tuple(
            replace(
                link,
                rate_bps=rates_bps.get(link.name, link.rate_bps),
                delay_ns=delays_ns.get(link.name, link.delay_ns),
                queue_bytes=None if link.name in unlimited else link.queue_bytes,
            )
            for link in topology.links
        ),
    )


def _longer(topology: Topology, delays: Sequence[Assumption]) -> Topology:
    """Return a topology whose links at the ports of *delays* are longer."""
    if not delays:
        return topology
    added_ns = {each.port: each.delay_ns for each in delays}
    return replace(
        topology,
        links=tuple(
            replace(
                link,
                delay_ns=link.delay_ns
                + added_ns.get(str(link.a), 0)
                + added_ns.get(str(link.b), 0),
            )
            for link in topology.links
        ),
    )


def _faster_ports(
    topology: Topology, rates_bps: Mapping[str, int]
) -> tuple[Topology, list[LinkFault]]:
    """Return a topology with some faster ports, and faults that slow opposite ports.

    A link has one rate for both directions, so a fault slows the opposite port to its
    own rate.
    """
    if not rates_bps:
        return topology, []
    numbers = {name: at for at, name in enumerate(port_names(topology))}
    links, slowed = [], []
    for link in topology.links:
        wanted = {end: rates_bps.get(str(end)) for end in (link.a, link.b)}
        fastest = max((each for each in wanted.values() if each), default=None)
        if fastest is None or link.rate_bps is None:
            links.append(link)
            continue
        links.append(replace(link, rate_bps=fastest))
        slowed += [
            LinkFault(
                kind="degrade",
                port=numbers[str(end)],
                at_ns=0,
                until_ns=NEVER,
                rate_bps=own or link.rate_bps,
            )
            for end, own in wanted.items()
            if (own or link.rate_bps) < fastest
        ]
    return replace(topology, links=tuple(links)), slowed


def iteration_times(
    plan: Plan, result: SimulationResult, job: str | None = None
) -> dict[tuple[str, int], int]:
    """Return the simulated time of each measured iteration, by job and number.

    The time lasts from the first start to the last end over all ranks, in ns.  The
    result omits background jobs, unless *job* is one.
    """
    settings = plan.agents[0].settings
    table = OperationTable(plan)
    found = spans(
        ((name, row.iteration), row.start_ns, row.end_ns)
        for row in rows_of(IterationRow, result.records.iterations)
        for name, _ in (table.rank(row.rank),)
        if row.iteration >= settings.warmup and job in (None, name)
    )
    background = {each.job for each in settings.jobs if each.is_background}
    return _without_background(found, background)


def _without_background(
    found: Mapping[tuple[str, int], tuple[int, int]], background: Collection[str]
) -> dict[tuple[str, int], int]:
    """Return the times of the iterations of all jobs except background jobs.

    If there are only background jobs, return the times of all iterations.
    """
    times_ns = {key: end_ns - start_ns for key, (start_ns, end_ns) in found.items()}
    kept = {key: each for key, each in times_ns.items() if key[0] not in background}
    return kept or times_ns


def mean_time(times_ns: Mapping[tuple[str, int], int]) -> int:
    """Return the mean over all iterations in ns, or 0 if there are none."""
    return round(sum(times_ns.values()) / len(times_ns)) if times_ns else 0


def recorded_iterations(
    results: RunResults, job: str | None
) -> dict[tuple[str, int], int]:
    """Return the recorded time of each measured iteration, by job and number.

    The time lasts from the first start to the last end over all ranks, in ns.  The
    result omits background jobs, unless *job* is one.
    """
    found = spans(
        ((row.job, row.iteration), row.start_ns, row.end_ns)
        for row in results.ranks(whole=True)
        if row.measured and job in (None, row.job)
    )
    return _without_background(found, results.manifest.background_jobs)
