"""Settings of a plan derived from an experiment: transport, run, shards, ports."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chakram.config.congestion import congestion_arguments
from chakram.config.transport import Transport, largest_path_mtu
from chakram.fabric.fabric_types.base import SIMULATED_PORT
from chakram.foundation.errors import PlanError
from chakram.foundation.platform_support import usable_cores
from chakram.plan.plan import JobSettings, Plan, RunSettings
from chakram.plan.port_plan import PortPlan
from chakram.plan.queue_pairs import MAX_SHARDS, ClassRule, QueuePairLayout
from chakram.plan.transport import TransportPlan
from chakram.plan.transport_defaults import (
    ack_interval_packets,
    burst_packets,
    window_bytes,
)
from chakram.roce.congestion import CONTROLS
from chakram.roce.constants import local_ack_timeout_ns
from chakram.roce.payload import is_compiled
from chakram.settings.declared_sections import field_values

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.preparation.job_loading import LoadedJob


_USUAL_SAMPLE = 64
"""Sampling mode verifies one in this many packets."""

_USUAL_PORTS = 8
"""Number of ports assumed for burst sizes if a fabric has no fixed number."""


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
            is_modeled=fabric.is_modeled,
        )

    # Bursts fit the dilated rate, at which this machine has to send. With bursts sized
    # for 400 Gbit/s at a dilated rate of 100 Mbit/s, collectives took 20 to 50 % longer
    # than simulated. With bursts of 2 to 4 packets, the difference was -8 to +16 %.
    # Windows fit the undilated rate, because dilation does not change the bytes in the
    # fabric.
    burst = usual_burst(fabric.port_rate_bps)
    undilated_burst = usual_burst(experiment.written.fabric.port_rate_bps)
    derived: dict[str, Any] = {
        "path_mtu": path_mtu,
        "window_bytes": window_bytes(
            burst_packets=undilated_burst,
            path_mtu=path_mtu,
            modeled_rate_bps=fabric.port_rate_bps if fabric.is_modeled else None,
        ),
        "ack_interval_packets": burst
        if control.wants_round_trips
        else ack_interval_packets(burst),
        "max_burst_packets": burst,
    }
    said = field_values(transport, TransportPlan)
    said["retransmit_timeout_ns"] = _timeout_ns(transport)
    return TransportPlan(
        **(derived | said),
        congestion_control=congestion.name,
        congestion_parameters=arguments,
        verify_every=_verify_every(transport),
        # Hosts of modeled switches have a queue in front of their wire. Time in that
        # queue would add to the round trips that a delay-based congestion control
        # measures.
        saves_up=fabric.is_modeled and not control.wants_round_trips,
    )


def _verify_every(transport: Transport) -> int:
    """Return N if one in N received packets is verified, or 0 for none."""
    sample = transport.icrc_check
    if transport.verify is None and sample is not None:
        return sample
    # In pure Python, verification takes longer than all other work on a packet.
    verify = transport.verify or ("full" if is_compiled() else "sample")
    return {"full": 1, "sample": sample or _USUAL_SAMPLE, "off": 0}[verify]


def _timeout_ns(transport: Transport) -> int:
    """Return the retransmission timeout, or 0 for none."""
    exponent = transport.local_ack_timeout
    timeout_ns: int = transport.retransmit_timeout_ns
    if exponent is None:
        return timeout_ns
    return local_ack_timeout_ns(exponent) if exponent else 0


def queue_pair_layout(experiment: Experiment) -> QueuePairLayout:
    """Return the number of queue pairs between two ranks, and their source ports."""
    transport = experiment.transport
    ports = transport.source_ports
    return QueuePairLayout(
        count=transport.queue_pairs.count,
        source_ports=() if isinstance(ports, str) else ports,
        classes=tuple(
            ClassRule(
                dscp=each.code_point,
                job=each.job,
                op=each.collective,
                group=each.group,
            )
            for each in transport.class_of
        ),
    )


def run_settings(experiment: Experiment) -> RunSettings:
    """Return the settings of the run that all agents share."""
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

    On this machine, one core is reserved for agent and controller. In a lab, half of
    the cores are reserved for the switches instead. A remote host gets one process per
    port. A simulation gets a single process. The experiment can override all of these
    numbers.
    """
    count_of = Counter(port.agent for port in ports)
    if experiment.agents.shards is not None:
        return dict.fromkeys(count_of, experiment.agents.shards)
    if all(port.open == SIMULATED_PORT for port in ports):
        # Queue pair numbers contain the shard. One shard gives the same numbers
        # everywhere.
        return dict.fromkeys(count_of, 1)
    cores = usable_cores()
    return {
        agent: min(MAX_SHARDS, experiment.fabric.data_plane_processes(count, cores))
        for agent, count in count_of.items()
    }


def ports_needed(jobs: Sequence[LoadedJob]) -> int:
    """Return the number of ports that the ranks of all jobs need.

    For placement patterns, this number is a lower bound. A fabric without a fixed
    number of ports has exactly this number.
    """
    needed = 0
    for job in jobs:
        placement = job.placement
        count = -(-job.nranks // placement.ranks_per_port)
        if placement.ports is not None:
            # A name represents at least one port.
            numbers = [port for port in placement.ports if isinstance(port, int)]
            needed = max(needed, len(placement.ports), max(numbers, default=-1) + 1)
            continue
        first = needed if placement.first_port is None else placement.first_port
        needed = max(needed, first + count)
    return needed


def refuse_neighbors_on_one_port(plan: Plan) -> None:
    """Refuse a plan in which ranks on the same port send to each other.

    Raises:
        PlanError: For the first two such ranks.
    """
    for rank in plan.ranks():
        for pair in rank.queue_pairs:
            if pair.remote_port == rank.port and pair.local_rate_bps is None:
                job = rank.program.job
                raise PlanError(
                    f"job {job}: placement",
                    f"ranks {rank.program.rank} and {pair.peer_rank} share port "
                    f"{rank.port}, so their messages to each other (group "
                    f"{pair.group!r}) would not cross the fabric",
                    "give each a separate port (ranks_per_port: 1), keep these "
                    "messages off the fabric (placement.same_host: skip), or use "
                    "fabric kind loopback",
                )


def job_settings(experiment: Experiment) -> tuple[JobSettings, ...]:
    """Return the settings of each job whose settings differ from the defaults."""
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
    """Return the start time of every job, counted from the start of the run."""
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
