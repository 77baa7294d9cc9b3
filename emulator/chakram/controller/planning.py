"""From loaded jobs to a plan: transport, settings of a run, shards, placement."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from chakram.config.dcqcn import dcqcn_parameters
from chakram.config.fabric import ExternalFabric, LoopbackFabric, NamespaceFabric
from chakram.config.fabric_checks import (
    address_family,
    available_ports,
    port_rate,
    smallest_mtu,
)
from chakram.config.packet_fault_checks import check_packet_faults
from chakram.config.topology import topology_from_config
from chakram.config.transport import largest_path_mtu
from chakram.controller.job_settings import job_settings
from chakram.controller.port_plans import SIMULATED_PORT
from chakram.errors import ConfigError, PlanError
from chakram.fabric.cores import data_plane_cores
from chakram.plan.burst_rule import (
    ack_interval_packets,
    burst_packets,
    window_bytes,
)
from chakram.plan.job_alone import job_alone
from chakram.plan.placement import place
from chakram.plan.plan import PortPlan, RunSettings, TransportPlan
from chakram.plan.plan_check import check_plan
from chakram.plan.queue_pairs import MAX_SHARDS, QueuePairLayout
from chakram.program.operations import POINT_TO_POINT
from chakram.roce.constants import local_ack_timeout_ns
from chakram.roce.payload import is_compiled
from chakram.settings.mistakes import report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chakram.config.experiment import Experiment
    from chakram.config.transport import Transport
    from chakram.controller.job_loading import LoadedJob
    from chakram.plan.plan import Plan

__all__ = [
    "build_plan",
    "queue_pair_layout",
    "run_settings",
    "shards_of",
    "transport_plan",
]


_ECN_BITS = {"off": 0, "ect1": 1, "ect0": 2}

_USUAL_SAMPLE = 64
"""Of so many packets received one is looked at, where a sample is."""

_USUAL_PORTS = 8
"""Of a fabric that has as many as are needed: what bursts are made for."""


def transport_plan(experiment: Experiment) -> TransportPlan:
    """Return the settings of every queue pair."""
    transport = experiment.transport
    fabric = experiment.fabric
    path_mtu = transport.path_mtu or largest_path_mtu(
        smallest_mtu(fabric), address_family(fabric)
    )
    congestion = transport.congestion_control
    parameters: tuple[tuple[str, int], ...] = ()
    if congestion.fixed_rate is not None:
        rate_bps = congestion.fixed_rate.rate_bps or port_rate(fabric)
        if rate_bps is None:
            raise ConfigError(
                "transport.congestion_control",
                "fixed_rate has no rate",
                "e.g. {fixed_rate: {rate: 100Mbit}}",
            )
        parameters = (("rate_bps", rate_bps),)
    elif congestion.dcqcn is not None:
        line_rate_bps = port_rate(experiment.written.fabric)
        if line_rate_bps is None:
            raise ConfigError(
                "transport.congestion_control",
                "dcqcn begins at line rate, and the fabric's ports have no rate",
                "give the links of hosts, or the ports, a rate",
            )
        parameters = dcqcn_parameters(
            congestion.dcqcn, line_rate_bps, dilation=experiment.dilation
        )

    def usual_burst(rate_bps: int | None) -> int:
        return transport.burst or burst_packets(
            rate_bps=rate_bps,
            path_mtu=path_mtu,
            window_bytes=transport.window_bytes,
            on_kernel=not isinstance(fabric, ExternalFabric),
            ports=available_ports(fabric) or _USUAL_PORTS,
            tiers=_tiers(fabric),
        )

    # Bursts fit the rate that this machine has to carry: with those of 400 Gbit/s at
    # 100 Mbit/s collectives took 20 to 50 % longer than simulated; with bursts of 2
    # to 4 the difference was -8 to +16 %.  A window is bytes of the fabric, which are
    # not stretched.
    burst = usual_burst(port_rate(fabric))
    undilated_burst = usual_burst(port_rate(experiment.written.fabric))
    adaptive = transport.adaptive_retransmission
    return TransportPlan(
        path_mtu=path_mtu,
        window_bytes=transport.window_bytes
        or window_bytes(burst_packets=undilated_burst, path_mtu=path_mtu),
        congestion_control=congestion.name,
        congestion_parameters=parameters,
        verb=transport.verb,
        dscp_data=transport.dscp.data,
        dscp_ack=transport.dscp.ack,
        dscp_cnp=transport.dscp.cnp,
        ecn=_ECN_BITS[transport.ecn],
        ack_interval_packets=transport.ack_interval or ack_interval_packets(burst),
        retransmit_timeout_ns=_timeout_ns(transport),
        retry_limit=transport.retry_limit,
        rnr_retry_limit=transport.rnr_retry_limit,
        rnr_timer=transport.rnr_timer,
        adaptive_low_ns=0 if adaptive is None else adaptive.low_ns,
        adaptive_tries=1 if adaptive is None else adaptive.tries,
        split=transport.queue_pairs.split,
        message_bytes=transport.queue_pairs.message_size_bytes or 0,
        icrc=transport.icrc,
        verify_every=_verify_every(transport),
        max_burst_packets=burst,
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
    if exponent is None:
        return transport.retransmit_timeout_ns
    return local_ack_timeout_ns(exponent) if exponent else 0


def queue_pair_layout(experiment: Experiment) -> QueuePairLayout:
    """Return how many queue pairs two ranks have, and their source ports."""
    transport = experiment.transport
    ports = transport.source_ports
    return QueuePairLayout(
        count=transport.queue_pairs.count,
        source_ports=() if isinstance(ports, str) else ports,
    )


def _tiers(fabric: NamespaceFabric | LoopbackFabric | ExternalFabric) -> int:
    """Return how many tiers of switches a fabric has, as far as it is known."""
    if isinstance(fabric, LoopbackFabric) or fabric.topology is None:
        return 1
    return 1 if fabric.topology.clos is None else 2


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
        # Shards are in queue pair numbers, these in source ports, and these in paths:
        # a simulation is the same on every machine.
        return dict.fromkeys(count_of, 1)
    if isinstance(experiment.fabric, ExternalFabric):
        return {agent: min(MAX_SHARDS, count) for agent, count in count_of.items()}
    usable = os.sched_getaffinity(0)
    cores = (
        len(data_plane_cores(usable))
        if isinstance(experiment.fabric, NamespaceFabric)
        else max(1, len(usable) - 1)
    )
    return dict.fromkeys(count_of, min(MAX_SHARDS, cores))


def build_plan(
    experiment: Experiment,
    jobs: Sequence[LoadedJob],
    ports: Sequence[PortPlan],
    run_id: str,
    *,
    shards: Mapping[str, int] | None = None,
    alone: str | None = None,
    psn_seed: int | None = None,
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

    Raises:
        PlanError: If the ranks do not fit onto the ports.
    """
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
        host_of=_host_of(experiment),
        psn_seed=experiment.transport.psn_seed if psn_seed is None else psn_seed,
    )
    _check_faults(experiment, jobs)
    if alone is not None:
        plan = job_alone(plan, alone)
    problems = check_plan(plan)
    if problems:
        raise PlanError.of_problems(f"plan {run_id}", problems)
    return plan


def _host_of(experiment: Experiment) -> Callable[[PortPlan], str]:
    """Return what tells the host of a port; of ours every one has one port."""
    fabric = experiment.fabric
    if not isinstance(fabric, ExternalFabric):
        return lambda port: str(port.number)
    names = [host.name for host in fabric.hosts for _ in host.ports]
    return lambda port: names[port.number]


def _near(experiment: Experiment, nports: int) -> Callable[[PortPlan], str]:
    """Return what tells the switch that a port hangs on, or else its host."""
    topology = topology_from_config(experiment.fabric, nports=nports)
    if topology is None:
        return lambda port: port.agent
    switch_of = {host: topology.switch_of(host) for host in topology.hosts}
    return lambda port: switch_of.get(port.host, port.agent)


def _groups_of(job: LoadedJob) -> set[str]:
    """Return what queue pairs of a job are for: its groups, and single messages."""
    groups = {group.name for program in job.programs for group in program.groups}
    return {*groups, POINT_TO_POINT}


def _check_faults(experiment: Experiment, jobs: Sequence[LoadedJob]) -> None:
    """Refuse faults of packets that nobody sends, once traces have told the ranks."""
    mistakes = check_packet_faults(
        experiment.faults,
        {job.name: job.nranks for job in jobs},
        {job.name: _groups_of(job) for job in jobs},
    )
    if mistakes:
        raise report(experiment.name, mistakes, lambda _: None)
