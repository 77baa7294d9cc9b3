"""From an experiment to a plan: traces, programs, ports, placement."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.chakra.lint import require_replayable
from chakram.chakra.options import (
    DependencyPolicy,
    ReadOptions,
    WarningKind,
    merge_warnings,
)
from chakram.chakra.synth_set import synthesized_trace_set
from chakram.chakra.synthesize import synthesize
from chakram.chakra.trace_set import load_replicated, load_trace_set
from chakram.config.dcqcn import dcqcn_parameters
from chakram.config.fabric import ExternalFabric, LoopbackFabric, NamespaceFabric
from chakram.config.fabric_checks import (
    address_family,
    available_ports,
    port_rate,
    smallest_mtu,
)
from chakram.config.jobs import TraceFiles
from chakram.config.transport import largest_path_mtu
from chakram.controller.job_settings import job_settings
from chakram.core.algorithms import user_algorithms
from chakram.core.algorithms.least_bytes import too_small_warnings
from chakram.core.burst_rule import (
    ack_interval_packets,
    burst_packets,
    window_bytes,
)
from chakram.core.collectives import CollectiveOp
from chakram.core.job_alone import job_alone
from chakram.core.job_check import check_job
from chakram.core.lowering import LoweringOptions, lower_job
from chakram.core.placement import PlacementOptions, place
from chakram.core.plan import PortPlan, RunSettings, TransportPlan
from chakram.core.plan_check import check_plan
from chakram.core.queue_pairs import MAX_SHARDS, QueuePairLayout
from chakram.core.replication import Replication
from chakram.errors import ConfigError, PlanError
from chakram.fabric.cores import data_plane_cores
from chakram.fabric.from_config import topology_from_config
from chakram.roce.constants import local_ack_timeout_ns
from chakram.user_algorithms.files import load_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from chakram.chakra.trace_set import TraceSet
    from chakram.config.experiment import Experiment
    from chakram.config.fabric import Fabric, LinkSettings
    from chakram.config.jobs import Job, Placement
    from chakram.core.algorithms import AlgorithmSource, UserAlgorithm
    from chakram.core.lowering import LoweredJob
    from chakram.core.plan import Plan
    from chakram.core.program import RankProgram

__all__ = [
    "LoadedJob",
    "build_plan",
    "experiment_warnings",
    "load_jobs",
    "lowering_options",
    "placement_options",
    "queue_pair_layout",
    "run_settings",
    "shards_of",
    "transport_plan",
]


_ECN_BITS = {"off": 0, "ect1": 1, "ect0": 2}

_USUAL_PORTS = 8
"""Of a fabric that has as many as are needed: what bursts are made for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedJob:
    """A job whose trace has been read and lowered.

    Attributes:
        name: Its name.
        trace: Where its trace came from.
        producer: Which tool wrote the trace.
        digest: SHA-256 of the trace set.
        nodes: Nodes of all ranks.
        lowered: The programs.
        warnings: What is odd in the trace or in how it is run, one sentence each.
        size_scale: Factor on all sizes, as text, e.g. ``1/64``.
        placement: How its ranks are placed.
    """

    name: str
    trace: str
    producer: str
    digest: str
    nodes: int
    lowered: LoweredJob
    warnings: tuple[str, ...]
    size_scale: str
    placement: PlacementOptions

    @property
    def programs(self) -> tuple[RankProgram, ...]:
        """The programs of all ranks, ascending."""
        return self.lowered.programs

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return len(self.lowered.programs)


def load_jobs(
    experiment: Experiment, *, on_rank: Callable[[str, int, int], None] | None = None
) -> list[LoadedJob]:
    """Read and lower the traces of all jobs.

    Args:
        experiment: What to run.
        on_rank: Called with (job, ranks read, ranks in all) after every file.

    Raises:
        ConfigError: If the experiment asks for a trace that cannot be made.
        TraceError: If a trace cannot be read or replayed.
        MatchingError: If ranks disagree about their collectives.
    """
    loaded: list[LoadedJob] = []
    sources = load_sources(
        user
        for choice in experiment.collectives.values()
        for user in user_algorithms(choice)
    )
    for job in experiment.jobs:

        def read(done: int, of: int, name: str = job.name) -> None:
            if on_rank is not None:
                on_rank(name, done, of)

        traces = _trace_set(job, read)
        require_replayable(traces.graphs, traces.groups)
        lowered = lower_job(
            job.name,
            traces.graphs,
            traces.groups,
            lowering_options(experiment, job, sources),
        )
        problems = check_job(lowered.programs)
        if problems:
            raise PlanError(f"job {job.name}", problems[0], _more(len(problems)))
        loaded.append(
            LoadedJob(
                name=job.name,
                trace=traces.name,
                producer=traces.producer,
                digest=traces.digest,
                nodes=sum(map(len, traces.graphs.values())),
                lowered=lowered,
                warnings=(
                    *traces.notes,
                    *merge_warnings(traces.warnings).values(),
                    *lowered.warnings,
                    *too_small_warnings(lowered.programs),
                ),
                size_scale=str(job.size_scale),
                placement=placement_options(job.placement),
            )
        )
    return loaded


def _trace_set(job: Job, on_rank: Callable[[int, int], None]) -> TraceSet:
    if isinstance(job.trace, TraceFiles):
        return _trace_files(job.trace, on_rank)
    return synthesized_trace_set(synthesize(job.trace), on_rank=on_rank)


def _trace_files(trace: TraceFiles, on_rank: Callable[[int, int], None]) -> TraceSet:
    options = ReadOptions(
        bytes_per_element=trace.bytes_per_element,
        dependencies=DependencyPolicy(trace.dependencies),
        drop_missing_dependencies=trace.drop_missing_dependencies,
        duration_unit_ns=trace.duration_unit_ns,
        uncorrected=frozenset(map(WarningKind, trace.uncorrected)),
        unnamed_group=trace.unnamed_group,
    )
    if trace.replicate is None:
        return load_trace_set(
            trace.path,
            comm_groups=trace.comm_groups,
            kineto=trace.kineto,
            options=options,
            on_rank=on_rank,
        )
    return load_replicated(
        trace.path,
        Replication(
            nranks=trace.replicate,
            dimensions=trace.dimensions,
            groups=trace.groups,
            peer_offset=trace.peer_offset,
        ),
        rank=trace.rank,
        comm_groups=trace.comm_groups,
        kineto=trace.kineto,
        options=options,
    )


def lowering_options(
    experiment: Experiment,
    job: Job,
    sources: Mapping[UserAlgorithm, AlgorithmSource],
) -> LoweringOptions:
    """Return how the traces of *job* become programs."""
    return LoweringOptions(
        compute_from=job.compute.source,
        scale=job.compute.scale,
        peak_flops=job.compute.peak_flops,
        memory_bytes_per_s=job.compute.memory_bytes_per_s,
        size_scale=job.size_scale,
        algorithms={op: experiment.algorithm_of(op) for op in CollectiveOp},
        sources=sources,
        sync_barrier=experiment.iterations.sync == "barrier",
        ordering=job.ordering,
        order=job.order,
        with_starts=job.policy == "start_time",
    )


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
        line_rate_bps = port_rate(fabric)
        if line_rate_bps is None:
            raise ConfigError(
                "transport.congestion_control",
                "dcqcn begins at line rate, and the fabric's ports have no rate",
                "give the links of hosts, or the ports, a rate",
            )
        parameters = dcqcn_parameters(congestion.dcqcn, line_rate_bps)
    burst = transport.burst or burst_packets(
        rate_bps=port_rate(fabric),
        path_mtu=path_mtu,
        window_bytes=transport.window_bytes,
        on_kernel=not isinstance(fabric, ExternalFabric),
        ports=available_ports(fabric) or _USUAL_PORTS,
        tiers=_tiers(fabric),
    )
    adaptive = transport.adaptive_retransmission
    return TransportPlan(
        path_mtu=path_mtu,
        window_bytes=transport.window_bytes
        or window_bytes(burst_packets=burst, path_mtu=path_mtu),
        congestion_control=congestion.name,
        congestion_parameters=parameters,
        verb=transport.verb,
        dscp_data=transport.dscp.data,
        dscp_ack=transport.dscp.ack,
        dscp_cnp=transport.dscp.cnp,
        ecn=_ECN_BITS[transport.ecn],
        ack_interval_packets=transport.ack_interval or ack_interval_packets(burst),
        retransmit_timeout_ns=transport.retransmit_timeout_ns
        if transport.local_ack_timeout is None
        else local_ack_timeout_ns(transport.local_ack_timeout),
        retry_limit=transport.retry_limit,
        rnr_retry_limit=transport.rnr_retry_limit,
        rnr_timer=transport.rnr_timer,
        adaptive_low_ns=0 if adaptive is None else adaptive.low_ns,
        adaptive_tries=1 if adaptive is None else adaptive.tries,
        split=transport.queue_pairs.split,
        message_bytes=transport.queue_pairs.message_size_bytes or 0,
        icrc=transport.icrc,
        icrc_check=transport.icrc_check,
        max_burst_packets=burst,
    )


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


def placement_options(placement: Placement) -> PlacementOptions:
    """Return how the ranks of a job are placed."""
    order = placement.order
    return PlacementOptions(
        order=None if isinstance(order, str) else order,
        ranks_per_port=placement.ranks_per_port,
        first_port=placement.first_port,
        pattern=placement.pattern,
        ports=placement.ports,
        local_rate_bps=(
            None if placement.same_host == "fabric" else placement.local_rate_bps or 0
        ),
    )


def shards_of(experiment: Experiment, ports: Iterable[PortPlan]) -> dict[str, int]:
    """Return how many data-plane processes each agent may start.

    On this machine one core is left to agent and controller, or half of them to the
    switches of a lab; a host elsewhere gets one process per port unless the experiment
    says otherwise.
    """
    count_of: dict[str, int] = {}
    for port in ports:
        count_of[port.agent] = count_of.get(port.agent, 0) + 1
    if experiment.agents.shards is not None:
        return dict.fromkeys(count_of, experiment.agents.shards)
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
    )
    _check_faults(experiment, jobs)
    if alone is not None:
        plan = job_alone(plan, alone)
    problems = check_plan(plan)
    if problems:
        raise PlanError(f"plan {run_id}", problems[0], _more(len(problems)))
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


def _check_faults(experiment: Experiment, jobs: Sequence[LoadedJob]) -> None:
    """Refuse faults of packets that nobody sends."""
    ranks_of = {job.name: job.nranks for job in jobs}
    for index, fault in enumerate(experiment.faults.packets):
        where = f"faults.packets[{index}]"
        if fault.job is not None and fault.job not in ranks_of:
            raise ConfigError(
                f"{where}.job",
                f"there is no job {fault.job!r}",
                f"known: {', '.join(ranks_of)}",
            )
        ranks = max(ranks_of.values()) if fault.job is None else ranks_of[fault.job]
        for name in ("source", "destination"):
            rank = getattr(fault, name)
            if rank is not None and rank >= ranks:
                raise ConfigError(
                    f"{where}.{name}",
                    f"there is no rank {rank}",
                    f"ranks are 0 to {ranks - 1}",
                )


def experiment_warnings(experiment: Experiment) -> list[str]:
    """Return what of the experiment does not mean what one may think."""
    fabric = experiment.fabric
    warnings: list[str] = []
    if isinstance(fabric, NamespaceFabric) and (
        fabric.links.host.delay_ns or fabric.links.uplink.delay_ns
    ):
        warnings.append(
            "fabric.links: delays are simulated only; the links of a kernel fabric "
            "have none beside the kernel's own"
        )
    if isinstance(fabric, NamespaceFabric) and (
        fabric.links.host.ecn or fabric.links.uplink.ecn
    ):
        warnings.append(
            "fabric.links: ECN marks are simulated only; the links of a kernel fabric "
            "mark nothing"
        )
    if experiment.transport.congestion_control.dcqcn is not None:
        warnings += _dcqcn_warnings(experiment)
    return warnings


def _dcqcn_warnings(experiment: Experiment) -> list[str]:
    """Return why DCQCN may have nothing to react to."""
    where = "transport.congestion_control"
    fabric = experiment.fabric
    if experiment.transport.ecn == "off":
        return [f"{where}: dcqcn does nothing, since transport.ecn is off"]
    if isinstance(fabric, ExternalFabric) or any(
        link.ecn for link in _links_of(fabric)
    ):
        return []
    return [
        f"{where}: dcqcn reacts to marks, and no link of the fabric marks packets; "
        "in a simulation, fabric.links.host.ecn makes them"
    ]


def _links_of(fabric: Fabric) -> tuple[LinkSettings, ...]:
    if not isinstance(fabric, NamespaceFabric):
        return ()
    return fabric.links.host, fabric.links.uplink


def _more(count: int) -> str | None:
    return f"and {count - 1} more problems" if count > 1 else None
