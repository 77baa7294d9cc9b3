"""Simulation of an experiment at message or flow level, or with ASTRA-sim's costs.

These levels are for jobs of thousands of ranks. They use no queue pairs, and do not
record individual messages of large jobs. The run directory has the usual format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from chakram.execution.request import RunRequest, new_run_id
from chakram.plan.wire_cost import overhead_bytes_of
from chakram.predict.levels.cost_models import (
    ASTRA_SIM_AWARE,
    ASTRA_SIM_NS3,
    AstraSimDivision,
    AstraSimTimes,
    Division,
)
from chakram.predict.levels.flow_level import FlowLevel
from chakram.predict.levels.level_network import LevelNetwork, network_of
from chakram.predict.levels.message_level import MessageLevel
from chakram.predict.levels.message_times import LevelTimes, WireTimes
from chakram.predict.levels.router_passes import RouterPasses
from chakram.predict.levels.row_offsets import NONE
from chakram.predict.levels.run_plan import LevelRun, LocalPlace
from chakram.predict.levels.symmetry import is_symmetric
from chakram.preparation.link_fault_times import LinkFaults
from chakram.preparation.predictions import AloneTimes
from chakram.preparation.schedule_bounds import HostRates, level_bounds
from chakram.simulation.common import ended, simulated_topology, simulating
from chakram.simulation.expected_cost import cost_at_level
from chakram.simulation.isolated_collectives import IsolatedCollectives
from chakram.simulation.recorded_ranks import recorded_ranks
from chakram.summary.run_summary import SIMULATE

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.config.link_faults import LinkFaultSettings
    from chakram.execution.outcome import RunOutcome
    from chakram.plan.plan import Plan
    from chakram.plan.transport import TransportPlan
    from chakram.preparation.resolved_run import ResolvedRun
    from chakram.topology.topology import PortRef, Topology


MOST_FLOWS = 250_000
"""Maximum number of messages to record individually, which takes seconds and 50 MB."""

ALONE_MESSAGES = {"message": 2_000_000, "flow": 300_000}
"""Maximum number of messages in all simulations of collectives alone, which takes two
seconds. The limit is a quarter of the messages of the run if that is more."""


def simulate_at_level(request: RunRequest) -> RunOutcome:
    """Simulate all iterations of an experiment at the configured level.

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
    plan = resolved.plan(ports, run_id, alone=request.alone, connected=False)
    recorded = recorded_ranks([rank.program for rank in plan.ranks()])
    run, described = _level_run(resolved, plan, topology, recorded)
    count = run.messages()
    run.record_flows(count <= MOST_FLOWS and recorded is None)
    directory = request.new_directory(resolved, run_id, started=started, world=SIMULATE)
    banners = _banners(experiment, topology)
    if recorded is None and count > MOST_FLOWS:
        banners.append(
            f"{count} messages are more than {MOST_FLOWS}: no single message is "
            "recorded"
        )
    if run.is_folded:
        banners.append(
            f"one of {len(plan.ranks())} ranks is simulated: all do the same, at equal "
            "links of one switch, so all have the same times"
        )
    if run.is_stepped:
        banners.append(
            "rings are simulated in steps of all ranks, with exact times: no link "
            "carries messages of two pairs of hosts, so no order of arrivals matters"
        )
    if recorded is not None:
        banners.append(
            f"collectives are recorded for {len(recorded)} of {len(plan.ranks())} "
            "ranks, iterations for all, and messages for none"
        )
    directory.update(
        transport=described, banners=(*banners, *directory.manifest.banners)
    )
    directory.begin(plan, recorded=recorded)
    level = experiment.simulation.level
    at_once = run.most_at_once() if level == "flow" else 0
    cost = cost_at_level(level, count, at_once=at_once, is_stepped=run.is_stepped)
    if not run.is_folded and (note := cost.note()):
        progress.note(note)
    progress.phase("simulating")
    with simulating(directory):
        progress.iterations(0, count, "message")
        result = run.run(
            report=lambda done: progress.iterations(min(done, count), count, "message"),
            flush=directory.add,
        )
        by_itself = _alone(resolved, plan, topology, recorded, run.is_folded, count)
    progress.phase("writing results")
    return ended(
        directory,
        topology,
        result.link_bytes,
        **_bounds(resolved, plan, topology, recorded),
        alone=by_itself.times_ns,
        banners=(*directory.manifest.banners, *by_itself.notes),
        counted=_down_times(experiment.faults.links, topology, result.end_ns),
        groups=_equal_cost(topology),
        link_faults=LinkFaults(experiment.faults.links, topology).described(
            experiment.written.faults.links
        ),
    )


def _alone(
    resolved: ResolvedRun,
    plan: Plan,
    topology: Topology,
    recorded: frozenset[int] | None,
    is_folded: bool,
    messages: int,
) -> AloneTimes:
    """Return the times of collectives that run alone on the fabric without faults.

    The result is empty with the costs of other simulators, or without ``alone`` in
    ``predict``.

    Args:
        resolved: The experiment with its derived settings.
        plan: Plan of the run.
        topology: Topology of the fabric.
        recorded: Numbers of the ranks whose collectives are wanted. None means all
            ranks.
        is_folded: Whether one rank represents all ranks.
        messages: Number of messages of the run, which limits the simulations.
    """
    experiment = resolved.experiment
    if _is_foreign(experiment) or "alone" not in experiment.predict:
        return AloneTimes()
    network, number_of = network_of(topology)
    times, _, _ = _costs(experiment, resolved.transport)
    traffic = _traffic(experiment, network, times, experiment.seed)
    traffic.is_folded = is_folded
    isolated = IsolatedCollectives(
        plan,
        traffic,
        host_of={port.number: number_of[port.host] for port in plan.ports()},
        places=_local_places(resolved, plan, topology, traffic),
    )
    limit = ALONE_MESSAGES[experiment.simulation.level]
    return isolated.times(recorded, max(limit, messages // 4))


def _bounds(
    resolved: ResolvedRun,
    plan: Plan,
    topology: Topology,
    recorded: frozenset[int] | None,
) -> dict[str, Any]:
    """Return the bounds of collectives and messages, as arguments of ``ended``.

    The result is empty at level flow, with the costs of other simulators, or without
    ``bound`` in ``predict``.
    """
    experiment = resolved.experiment
    is_modeled = experiment.simulation.level == "message" and not _is_foreign(
        experiment
    )
    if not is_modeled or "bound" not in experiment.predict:
        return {}
    server_of = experiment.fabric.host_names(len(topology.hosts))
    hosts: dict[str, dict[int, str]] = {}
    for rank in plan.ranks():
        program = rank.program
        hosts.setdefault(program.job, {})[program.rank] = server_of[rank.port]
    rates = {
        name: HostRates(hosts[name], rate_bps)
        for name, rate_bps in _local_bps(resolved).items()
        if name in hosts
    }
    # The wires of this level store and forward, even those of labs.
    wires = replace(topology, is_shaped=False)
    times_ns, of_message = level_bounds(plan, wires, rates, recorded)
    return {"bound": times_ns, "flow_bound": of_message}


def _local_bps(resolved: ResolvedRun) -> dict[str, int]:
    """Return the rates of messages within hosts, by job with such a rate."""
    return {
        job.name: job.placement.local_rate_bps
        for job in resolved.jobs
        if job.placement.local_rate_bps is not None
    }


def _equal_cost(topology: Topology) -> dict[PortRef, str]:
    """Return ``topology.equal_cost()``, for fabrics of thousands of switches."""
    network, _ = network_of(topology)
    times = WireTimes(path_mtu=1, verb="write", overhead_bytes=0)
    groups = MessageLevel(network, times).equal_cost()
    ends = (end for link in topology.links for end in (link.a, link.b))
    return {
        end: f"{end.node}#{group}"
        for end, group in zip(ends, groups, strict=True)
        if group != NONE
    }


def _down_times(
    faults: Sequence[LinkFaultSettings], topology: Topology, end_ns: int
) -> dict[str, dict[str, int]]:
    """Return the link counters of a run with faults, or no counters for other runs."""
    if not faults:
        return {}
    down = {fault.link for fault in faults if fault.kind == "down"}
    ports = (
        str(end)
        for link in topology.links
        if link.name in down
        for end in (link.a, link.b)
    )
    return {"down_ns": dict.fromkeys(ports, end_ns)}


def _level_run(
    resolved: ResolvedRun,
    plan: Plan,
    topology: Topology,
    recorded: frozenset[int] | None,
) -> tuple[LevelRun, str]:
    """Return the run of a plan, and a one-line description of the level."""
    experiment, transport = resolved.experiment, resolved.transport
    faults = experiment.faults.links
    links = {link.name: link for link in topology.links}
    rates_bps: dict[str, int] = {}
    for fault in faults:
        if fault.rate_bps is not None:
            for port in fault.ends(links[fault.link]):
                known_bps = rates_bps.get(port, fault.rate_bps)
                rates_bps[port] = min(known_bps, fault.rate_bps)
    network, number_of = network_of(
        topology,
        without={fault.link for fault in faults if fault.kind == "down"},
        rates_bps=rates_bps,
    )
    seed: int | None = experiment.seed
    if _has_fixed_paths(experiment, topology):
        network, seed = network.upwards_first(), None
    times, division, described = _costs(experiment, transport)
    traffic: MessageLevel
    if experiment.simulation.cost_model == ASTRA_SIM_NS3:
        # Imported here because other levels do not need it.
        from chakram.simulation.ns3_level import packet_level

        traffic = packet_level(experiment, topology, network, times, transport)
    else:
        traffic = _traffic(experiment, network, times, seed)
    place_of = _local_places(resolved, plan, topology, traffic)
    host_of = {port.number: number_of[port.host] for port in plan.ports()}
    ranks = plan.ranks()
    make_run = partial(
        LevelRun,
        plan,
        traffic,
        host_of=host_of,
        division=division,
        places=place_of,
        recorded=recorded,
    )
    if experiment.simulation.level != "message" or _is_foreign(experiment) or place_of:
        return make_run(), described
    if is_symmetric(
        [rank.program for rank in ranks],
        [host_of[rank.port] for rank in ranks],
        network,
    ):
        run = make_run(fold=True)
        if run.messages() > MOST_FLOWS and run.is_alike():
            return run, described
    run = make_run()
    if run.messages() > MOST_FLOWS:
        run.use_steps()
    return run, described


def _traffic(
    experiment: Experiment, network: LevelNetwork, times: LevelTimes, seed: int | None
) -> MessageLevel:
    """Return the traffic model of the level, whose paths are drawn with *seed*."""
    if experiment.simulation.level == "flow":
        batch = float(experiment.simulation.batch)
        return FlowLevel(network, times, batch=batch, seed=experiment.seed)
    return RouterPasses(network, times, seed=seed)


def _local_places(
    resolved: ResolvedRun, plan: Plan, topology: Topology, traffic: MessageLevel
) -> dict[int, LocalPlace]:
    """Return the handling of messages within servers, by number of the rank.

    The result covers the ranks of jobs with a rate within hosts. The lines of these
    ranks are added to *traffic*.
    """
    local_bps = _local_bps(resolved)
    server_of = resolved.experiment.fabric.host_names(len(topology.hosts))
    servers: dict[str, int] = {}
    place_of = {}
    for rank in plan.ranks():
        rate_bps = local_bps.get(rank.program.job)
        if rate_bps is not None:
            name = server_of[rank.port]
            place_of[rank.number] = LocalPlace(
                servers.setdefault(name, len(servers)),
                *((traffic.add_local_line(rate_bps),) if rate_bps else ()),
            )
    return place_of


def _costs(
    experiment: Experiment, transport: TransportPlan
) -> tuple[LevelTimes, Division, str]:
    """Return message costs, how collectives are divided, and a description of both."""
    settings = experiment.simulation
    if not _is_foreign(experiment):
        times = WireTimes(
            path_mtu=transport.path_mtu,
            verb=transport.verb,
            overhead_bytes=overhead_bytes_of(experiment.fabric.family),
        )
        how = "message level: whole messages, stored and forwarded,"
        if settings.level == "flow":
            how = (
                "flow level: max-min fair shares, renewed within "
                f"{float(settings.batch):.3g} of a message's time,"
            )
        return (
            times,
            Division(),
            f"{how} with the headers of packets of {transport.path_mtu} bytes",
        )
    return (
        AstraSimTimes(
            is_shared=settings.cost_model == ASTRA_SIM_AWARE,
            start_ns=settings.endpoint_delay_ns,
            local_memory_bytes_per_s=settings.local_memory_bytes_per_s,
            dilation=experiment.dilation,
        ),
        AstraSimDivision(parts=settings.parts),
        f"{settings.level} level with cost model {settings.cost_model}, "
        f"{settings.parts} part{'s' if settings.parts > 1 else ''} of a collective, "
        f"endpoint delay {settings.endpoint_delay_ns // experiment.dilation} ns",
    )


def _is_foreign(experiment: Experiment) -> bool:
    return experiment.simulation.cost_model != "chakram"


def _has_fixed_paths(experiment: Experiment, topology: Topology) -> bool:
    """Return whether messages always take the first of several equal-cost paths.

    ASTRA-sim uses a fixed direction around a ring in networks whose hosts forward
    messages.
    """
    forwarding = set(map(topology.switch_of, topology.hosts))
    return _is_foreign(experiment) and len(forwarding) == len(topology.hosts) == len(
        topology.switches
    )


def _banners(experiment: Experiment, topology: Topology) -> list[str]:
    """Return banners about the limitations of the level."""
    if experiment.simulation.cost_model == ASTRA_SIM_NS3:
        banners = [
            "simulated as ASTRA-sim over ns-3: each message has a separate queue pair; "
            "without retransmissions, credits, pieces of messages and intervals of CNPs"
        ]
    else:
        left_out = "packets, queue pairs, windows, acknowledgments, congestion "
        left_out += "control, marks, PFC, limits of queues and losses"
        banners = [
            f"simulated at {experiment.simulation.level} level: without {left_out}"
        ]
        if not _has_fixed_paths(experiment, topology) and any(
            topology.has_choice(switch) for switch in topology.switches
        ):
            banners.append(
                "seed determines which of several paths of equal cost each pair of "
                "hosts takes: in a run, other messages share links"
            )
    if experiment.faults.drop or experiment.faults.packets:
        banners.append("faults of packets are not simulated at this level")
    return banners
