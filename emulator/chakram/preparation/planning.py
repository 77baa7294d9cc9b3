"""From loaded jobs to a plan: transport, settings of a run, shards, placement."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chakram.config.congestion import congestion_arguments
from chakram.config.transport import Transport, largest_path_mtu, written
from chakram.config.transport_checks import check_packet_faults
from chakram.fabric.fabric_types.base import SIMULATED_PORT
from chakram.foundation.errors import PlanError
from chakram.plan.burst_rule import (
    ack_interval_packets,
    burst_packets,
    window_bytes,
)
from chakram.plan.isolated_collective import job_alone
from chakram.plan.placement import place
from chakram.plan.plan import JobSettings, Plan, PortPlan, RunSettings
from chakram.plan.plan_check import check_plan
from chakram.plan.queue_pairs import MAX_SHARDS, ClassRule, QueuePairLayout
from chakram.plan.transport import TransportPlan
from chakram.preparation.plugin_versions import with_plug_ins
from chakram.program.operations import POINT_TO_POINT
from chakram.roce.congestion import CONTROLS
from chakram.roce.constants import local_ack_timeout_ns
from chakram.roce.payload import is_compiled
from chakram.settings.located_errors import report

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.preparation.job_loading import LoadedJob


_USUAL_SAMPLE = 64
"""Of so many packets received one is looked at, where a sample is."""

_USUAL_PORTS = 8
"""Of a fabric that has as many as are needed: what bursts are made for."""


def transport_plan(experiment: Experiment) -> TransportPlan:
    """Return the settings of every queue pair."""
    transport = experiment.transport
    fabric = experiment.fabric
    path_mtu = transport.path_mtu or largest_path_mtu(
        fabric.smallest_mtu, fabric.family
    )
    congestion = transport.congestion_control
    control = CONTROLS.load(congestion.name)
    arguments = congestion_arguments(
        congestion.name,
        congestion.settings,
        experiment.written.fabric.port_rate_bps,
        dilation=experiment.dilation,
    )

    def usual_burst(rate_bps: int | None) -> int:
        return transport.max_burst_packets or burst_packets(
            rate_bps=rate_bps,
            path_mtu=path_mtu,
            window_bytes=transport.window_bytes,
            on_kernel=fabric.on_this_machine,
            ports=fabric.nports or _USUAL_PORTS,
            tiers=fabric.tiers or 1,
            is_modelled=fabric.is_modelled,
        )

    # Bursts fit the rate that this machine has to carry: with those of 400 Gbit/s at
    # 100 Mbit/s collectives took 20 to 50 % longer than simulated; with bursts of 2
    # to 4 the difference was -8 to +16 %.  A window is bytes of the fabric, which are
    # not stretched.
    burst = usual_burst(fabric.port_rate_bps)
    undilated_burst = usual_burst(experiment.written.fabric.port_rate_bps)
    derived: dict[str, Any] = {
        "path_mtu": path_mtu,
        "window_bytes": window_bytes(
            burst_packets=undilated_burst,
            path_mtu=path_mtu,
            modelled_rate_bps=fabric.port_rate_bps if fabric.is_modelled else None,
        ),
        "ack_interval_packets": burst
        if control.wants_round_trips
        else ack_interval_packets(burst),
        "max_burst_packets": burst,
    }
    said = written(transport, TransportPlan)
    said["retransmit_timeout_ns"] = _timeout_ns(transport)
    return TransportPlan(
        **(derived | said),
        congestion_control=congestion.name,
        congestion_parameters=arguments,
        verify_every=_verify_every(transport),
        # Hosts of modelled switches have a queue in front of their wire; what waits
        # there would be part of the round trips that a control goes by.
        saves_up=fabric.is_modelled and not control.wants_round_trips,
    )


def _verify_every(transport: Transport) -> int:
    """Return of how many packets received one is looked at; 0: none."""
    sample = transport.icrc_check
    if transport.verify is None and sample is not None:
        return sample
    # Uncompiled, looking at a packet takes longer than all else.
    verify = transport.verify or ("full" if is_compiled() else "sample")
    return {"full": 1, "sample": sample or _USUAL_SAMPLE, "off": 0}[verify]


def _timeout_ns(transport: Transport) -> int:
    """Return how long an acknowledgement is waited for; 0: for ever."""
    exponent = transport.local_ack_timeout
    timeout_ns: int = transport.retransmit_timeout_ns
    if exponent is None:
        return timeout_ns
    return local_ack_timeout_ns(exponent) if exponent else 0


def queue_pair_layout(experiment: Experiment) -> QueuePairLayout:
    """Return how many queue pairs two ranks have, and their source ports."""
    transport = experiment.transport
    ports = transport.source_ports
    return QueuePairLayout(
        count=transport.queue_pairs.count,
        source_ports=() if isinstance(ports, str) else ports,
        classes=tuple(
            ClassRule(
                traffic_class=each.traffic_class,
                job=each.job,
                op=each.collective,
                group=each.group,
            )
            for each in transport.class_of
        ),
    )


def run_settings(experiment: Experiment) -> RunSettings:
    """Return what all agents do with their programs."""
    iterations = experiment.iterations
    return RunSettings(
        warmup=iterations.warmup,
        measured=iterations.measured,
        sync=iterations.sync,
        gap_ns=iterations.gap_ns,
        credits=experiment.transport.credits or 0,
        drop_ratio=experiment.faults.drop,
        faults=tuple(each.fault() for each in experiment.faults.packets),
        sample_bin_ns=experiment.records.sample_bin_ns,
        seed=experiment.seed,
        hang_timeout_ns=experiment.hang_timeout_ns,
        jobs=job_settings(experiment),
    )


def shards_of(experiment: Experiment, ports: Sequence[PortPlan]) -> dict[str, int]:
    """Return how many data-plane processes each agent may start.

    On this machine one core is left to agent and controller, or half of them to the
    switches of a lab; a host elsewhere gets one process per port, and a simulation one
    in all, unless the experiment says otherwise.
    """
    count_of: dict[str, int] = {}
    for port in ports:
        count_of[port.agent] = count_of.get(port.agent, 0) + 1
    if experiment.agents.shards is not None:
        return dict.fromkeys(count_of, experiment.agents.shards)
    if all(port.open == SIMULATED_PORT for port in ports):
        # Shards are in queue pair numbers: a simulation is the same on every machine.
        return dict.fromkeys(count_of, 1)
    cores = os.sched_getaffinity(0)
    return {
        agent: min(MAX_SHARDS, experiment.fabric.data_plane_processes(count, cores))
        for agent, count in count_of.items()
    }


def build_plan(
    experiment: Experiment,
    jobs: Sequence[LoadedJob],
    ports: Sequence[PortPlan],
    run_id: str,
    *,
    shards: Mapping[str, int] | None = None,
    alone: str | None = None,
    psn_seed: int | None = None,
    connected: bool = True,
) -> Plan:
    """Return the plan of a run over *ports*.

    Args:
        experiment: What to run.
        jobs: Its loaded jobs.
        ports: All ports, in the order in which ranks are placed on them.
        run_id: Name of the run.
        shards: Data-plane processes by agent; None: as ``shards_of`` has them.
        alone: The one job that has the fabric to itself, where it is placed beside the
            others; None: all.
        psn_seed: Of the first PSNs; None: the experiment's, or else its seed.
        connected: Whether ranks get queue pairs.

    Raises:
        PlanError: If the ranks do not fit onto the ports.
    """
    hosts = experiment.fabric.host_names(len(ports))
    plan = place(
        {job.name: job.programs for job in jobs},
        ports,
        {job.name: job.placement for job in jobs},
        transport_plan(experiment),
        run_settings(experiment),
        shards=shards_of(experiment, ports) if shards is None else shards,
        run_id=run_id,
        layout=queue_pair_layout(experiment),
        near=_near(experiment, len(ports)),
        host_of=lambda port: hosts[port.number],
        psn_seed=experiment.transport.psn_seed if psn_seed is None else psn_seed,
        connected=connected,
    )
    _check_faults(experiment, jobs)
    plan = with_plug_ins(plan, experiment)
    if alone is not None:
        plan = job_alone(plan, alone)
    problems = check_plan(plan)
    if problems:
        raise PlanError.of_problems(f"plan {run_id}", problems)
    return plan


def _near(experiment: Experiment, nports: int) -> Callable[[PortPlan], str]:
    """Return what tells the switch that a port hangs on, or else its host."""
    topology = experiment.fabric.to_topology(nports)
    if topology is None:
        return lambda port: port.agent
    switch_of = {host: topology.switch_of(host) for host in topology.hosts}
    return lambda port: switch_of.get(port.host, port.agent)


def ports_needed(jobs: Sequence[LoadedJob]) -> int:
    """Return how many ports the ranks of all jobs need.

    Of patterns it is what they need at least: where a fabric has as many ports as are
    needed, they have no others to choose from.
    """
    needed = 0
    for job in jobs:
        placement = job.placement
        count = -(-job.nranks // placement.ranks_per_port)
        if placement.ports is not None:
            numbers = [port for port in placement.ports if isinstance(port, int)]
            needed = max(needed, max(numbers, default=-1) + 1)
            continue
        first = needed if placement.first_port is None else placement.first_port
        needed = max(needed, first + count)
    return needed


def planned_ports(
    experiment: Experiment, jobs: Sequence[LoadedJob]
) -> tuple[PortPlan, ...]:
    """Return the ports that a run would have, as far as one knows before it.

    Raises:
        FabricError: If the fabric cannot have that shape.
    """
    return experiment.fabric.planned_ports(ports_needed(jobs))


def _groups_of(job: LoadedJob) -> set[str]:
    """Return what queue pairs of a job are for: its groups, and single messages."""
    groups = {group.name for program in job.programs for group in program.groups}
    return {*groups, POINT_TO_POINT}


def _check_faults(experiment: Experiment, jobs: Sequence[LoadedJob]) -> None:
    """Refuse faults of packets that nobody sends, once traces have told the ranks."""
    ranks_of = {job.name: job.nranks for job in jobs}
    groups_of = {job.name: _groups_of(job) for job in jobs}
    mistakes = list(check_packet_faults(experiment.faults, ranks_of, groups_of))
    if mistakes:
        raise report(experiment.name, mistakes, lambda _: None)


def refuse_neighbours_on_one_port(plan: Plan) -> None:
    """Refuse a plan in which ranks of one port send to one another.

    Raises:
        PlanError: With the first two of them.
    """
    for rank in plan.ranks():
        for pair in rank.queue_pairs:
            if pair.remote_port == rank.port and pair.local_rate_bps is None:
                job = rank.program.job
                raise PlanError(
                    f"job {job}: placement",
                    f"ranks {rank.program.rank} and {pair.peer_rank} share port "
                    f"{rank.port}, and what they send to each other (group "
                    f"{pair.group!r}) would never reach the fabric",
                    "give each a port of its own (ranks_per_port: 1), leave what they "
                    "exchange off the fabric (placement.same_host: skip), or use "
                    "fabric kind loopback",
                )


def job_settings(experiment: Experiment) -> tuple[JobSettings, ...]:
    """Return what the jobs do otherwise than usual."""
    offsets_ns = arrivals_ns(experiment)
    warmup = experiment.iterations.warmup
    found = tuple(
        JobSettings(
            job=job.name,
            offset_ns=offsets_ns[job.name],
            iterations=warmup + job.repeat if isinstance(job.repeat, int) else None,
            is_background=job.is_background,
            policy=job.policy,
            order=job.order,
        )
        for job in experiment.jobs
    )
    return tuple(each for each in found if each != JobSettings(job=each.job))


def arrivals_ns(experiment: Experiment) -> dict[str, int]:
    """Return when every job begins, from the start of the run."""
    start_ns = {job.name: job.start_ns for job in experiment.jobs}
    arrivals = experiment.arrivals
    if arrivals is None:
        return start_ns
    rng = random.Random(experiment.seed)
    names = list(start_ns)
    if arrivals.order == "random":
        rng.shuffle(names)
    elif not isinstance(arrivals.order, str):
        names = list(arrivals.order)
    arrival_ns = 0
    for name in names:
        start_ns[name] += arrival_ns
        arrival_ns += (
            arrivals.gap_ns
            if arrivals.spacing == "even" or not arrivals.gap_ns
            else round(rng.expovariate(1 / arrivals.gap_ns))
        )
    return start_ns
