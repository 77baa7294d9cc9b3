"""Execution of a plan in virtual time, with the programs and queue pairs of a run."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from chakram.foundation.errors import PlanError, RunFailed
from chakram.native.huge_pages import use_huge_pages
from chakram.plan.plan import (
    AgentPlan,
    Plan,
    RankPlan,
    RunSettings,
)
from chakram.predict.routing import Router, ports_of
from chakram.predict.simulator.burst_size import coarse_burst, plan_traffic
from chakram.predict.simulator.flow_routes import FlowRoutes
from chakram.predict.simulator.samples import FabricSampler
from chakram.predict.simulator.switch_fabric import SwitchFabric
from chakram.predict.simulator.virtual_fabric import VirtualFabric
from chakram.records.counter_definitions import FAULT_COUNTERS
from chakram.records.counter_slots import INJECTED
from chakram.records.row_layout import RecordRows
from chakram.replay.endpoint import Endpoint, connect_local
from chakram.switch.ecmp import DrawnPaths
from chakram.switch.fault_schedule import FaultSchedule
from chakram.switch.faults import LinkFault
from chakram.switch.packet_outcomes import DROP_REASONS
from chakram.switch.profiles import Switching
from chakram.topology.topology import Topology

_NAMED_PORTS = 3
_NAMED_WAITS = 3
_MANY_QUEUE_PAIRS = 1 << 11
"""Number of queue pairs above which 4 KiB pages no longer fit the TLB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """Result of a simulated run.

    Attributes:
        records: Rows of all ranks, port by port, and samples of ports and queue pairs.
            There is one sample for every bin, and a final sample of each used port and
            queue pair.
        link_samples: Rows of ``LINK_SAMPLE_FIELDS``, by the number of a port in
            ``port_names``.
        end_ns: Time at which the last rank finished. The run starts at 0.
        link_bytes: Number of layer-2 bytes in each direction of a link, by the port at
            its start.
        marked_packets: Number of packets marked "congestion experienced", by the port
            at the start of the link, only for ports with marks.
        dropped: Number of dropped packets by reason. A burst that crosses links as a
            unit counts once.
        drops: Number of dropped packets by port, only for ports with drops.
        pauses: Number of received PFC frames by port, only for ports with such frames.
        paused_ns: Paused time by port, summed over its classes, only for paused ports.
        cycle: Ports in a buffer dependency cycle if ports may be paused. PFC can
            deadlock in such a cycle.
        down_ns: Time by port during which faults kept its link down, only for
            ports with such faults.
        burst_packets: Maximum number of packets that crossed a link as a unit.
        hops: Number of departures from ports. A burst that crosses links as a unit
            counts once.
        events: Number of simulated events.
        injected: Number of packets that ports disturbed on purpose, by type of
            disturbance.
        disturbed: Number of disturbed packets, by fault of the plan.
        resent_for_timeout: Number of packets retransmitted after a timeout.
        round_trips: Counts of round-trip times by agent, by bucket of
            ``FCT_BUCKET_BOUNDS_NS``.
    """

    records: RecordRows
    link_samples: array[int]
    end_ns: int
    link_bytes: dict[str, int]
    marked_packets: dict[str, int]
    dropped: dict[str, int]
    drops: dict[str, int]
    pauses: dict[str, int]
    paused_ns: dict[str, int]
    cycle: tuple[str, ...]
    down_ns: dict[str, int]
    burst_packets: int
    hops: int
    events: int
    injected: dict[str, int]
    disturbed: tuple[int, ...]
    resent_for_timeout: int
    round_trips: dict[str, tuple[int, ...]]


def simulate_plan(
    plan: Plan,
    topology: Topology,
    *,
    seed: int | None = None,
    warmup: int | None = None,
    measured: int | None = None,
    burst_packets: int | None = None,
    switching: Switching | None = None,
    faults: Sequence[LinkFault] = (),
    sample_bin_ns: int = 0,
    report: Callable[[int], None] | None = None,
) -> SimulationResult:
    """Run *plan* over *topology* in virtual time, from time 0.

    Args:
        plan: The plan, whose ports are on hosts of the topology.
        topology: Hosts, switches and links.
        seed: Seed of all random draws, if different from the plan.
        warmup: Number of iterations before the measured ones, if different from the
            plan.
        measured: Number of measured iterations, if different from the plan and its
            jobs.
        burst_packets: Number of packets that cross a link as a unit. 1 is exact. None
            means that hosts send the bursts of the plan. Their packets cross links one
            by one, except in labs and in large jobs (see
            ``chakram.predict.simulator.burst_size``).
        faults: Link faults, by the number of a port in ``port_names``.
        sample_bin_ns: Time between two samples of ports, queue pairs and links. 0 means
            only at the end.
        switching: How packets cross the fabric. None means that they cross one by one,
            through one queue per port with the limits of its link. Paths are then drawn
            with the seed of the run.
        report: Function called at intervals with the number of completed iterations.

    Raises:
        PlanError: If the plan contradicts itself.
        FabricError: If the topology lacks something that the plan needs.
        RunFailed: If the run does not end. The error lists the stuck operations.
    """
    if not plan.agents:
        raise PlanError("plan", "it has no agent", "place at least one rank")
    settings = _settings(plan.agents[0], warmup, measured, seed)
    transport = plan.agents[0].transport
    how = switching or Switching(ecmp=DrawnPaths(seed=settings.seed))
    burst_packets, whole_bursts, topology = _bursts(
        plan, topology, burst_packets, settings.iterations
    )
    if sum(len(rank.queue_pairs) for rank in plan.ranks()) >= _MANY_QUEUE_PAIRS:
        use_huge_pages()
    endpoints: list[Endpoint] = []
    for agent in plan.agents:
        own = _settings(agent, warmup, measured, seed)
        endpoints += _endpoints(agent, settings=own, burst_packets=burst_packets)
    connect_local(endpoints)
    switches = SwitchFabric(
        topology, how.profile, ecn=bool(transport.ecn), seed=settings.seed
    )
    ports = ports_of(plan)
    router = Router(ports=ports, topology=topology, ecmp=how.ecmp)
    hosts = [switches.host_port(port.host) for port in ports]
    sampler = FabricSampler(
        plan,
        endpoints,
        switches.model,
        hosts,
        dscp=transport.dscp_data,
        bin_ns=sample_bin_ns,
    )
    fabric = VirtualFabric(
        endpoints=endpoints,
        model=switches.model,
        hosts=hosts,
        delays_ns=switches.delays_ns,
        routes=FlowRoutes(router, endpoints, ports, switches, how.ecmp),
        dscps=(transport.dscp_data, transport.dscp_ack, transport.dscp_cnp),
        is_marked=bool(transport.ecn),
        whole_bursts=whole_bursts,
        faults=FaultSchedule(switches.model, faults) if faults else None,
        sampler=sampler,
    )
    is_done = fabric.run(
        start_ns=0, hang_timeout_ns=settings.hang_timeout_ns, report=report
    )
    result = _result(
        plan,
        endpoints,
        switches,
        fabric,
        sampler,
        faults=faults,
        packet_faults=len(settings.faults),
        burst_packets=burst_packets if whole_bursts else 1,
    )
    if not is_done:
        raise _failure(
            endpoints, result, has_timeout=transport.retransmit_timeout_ns > 0
        )
    return result


def _result(
    plan: Plan,
    endpoints: Sequence[Endpoint],
    switches: SwitchFabric,
    fabric: VirtualFabric,
    sampler: FabricSampler,
    *,
    faults: Sequence[LinkFault],
    packet_faults: int,
    burst_packets: int,
) -> SimulationResult:
    """Return the records and counters of a simulation up to the current time."""
    sampler.finish(fabric.now_ns)
    records = RecordRows()
    for endpoint in endpoints:
        records.extend(endpoint.records.take())
    records.extend(sampler.rows)
    return SimulationResult(
        records=records,
        link_samples=sampler.links.rows,
        end_ns=fabric.now_ns,
        link_bytes={
            port.name: sum(port.counted(fabric.now_ns)["sent_bytes"])
            for port in switches.model.ports()
        },
        marked_packets=_at_ports(switches, "marked_packets", fabric.now_ns),
        dropped=_dropped(switches, fabric.now_ns),
        cycle=switches.buffer_cycle(),
        drops=_at_ports(switches, "drop_packets", fabric.now_ns),
        pauses=_at_ports(switches, "pfc_received", fabric.now_ns),
        paused_ns=_at_ports(switches, "paused_ns", fabric.now_ns),
        down_ns=_down(switches, faults, fabric.now_ns),
        burst_packets=burst_packets,
        events=fabric.events,
        hops=fabric.hops,
        injected=_injected(endpoints),
        disturbed=_disturbed(endpoints, packet_faults),
        resent_for_timeout=sum(
            pair.requester.retries.for_timeout
            for endpoint in endpoints
            for pair in endpoint.engine.queue_pairs()
        ),
        round_trips=_round_trips(plan, endpoints),
    )


def _round_trips(
    plan: Plan, endpoints: Sequence[Endpoint]
) -> dict[str, tuple[int, ...]]:
    """Return the counts of round-trip times by agent."""
    ports = iter([each.engine.round_trips.snapshot().counts for each in endpoints])
    return {
        agent.agent: tuple(map(sum, zip(*islice(ports, len(agent.ports)), strict=True)))
        for agent in plan.agents
    }


def _bursts(
    plan: Plan, topology: Topology, asked: int | None, iterations: int
) -> tuple[int, bool, Topology]:
    """Return the burst size, whether a burst crosses links as a unit, and the fabric.

    Args:
        plan: The plan.
        topology: The fabric.
        asked: Requested number of packets of a burst, as in ``simulate_plan``.
        iterations: Number of iterations of the run.
    """
    if asked is not None:
        return asked, True, topology
    burst_packets = plan.agents[0].transport.max_burst_packets
    traffic = plan_traffic(plan, iterations=iterations, with_local=False)
    coarse = coarse_burst(plan, topology, traffic)
    if coarse > 1 and not (topology.is_shaped and burst_packets >= coarse):
        # Bursts this long do not occur in a lab, so wires store them whole.
        return coarse, True, replace(topology, is_shaped=False)
    return burst_packets, topology.is_shaped, topology


def _dropped(switches: SwitchFabric, now_ns: int) -> dict[str, int]:
    """Return the number of packets dropped at all ports, by reason."""
    totals = dict.fromkeys(DROP_REASONS.values(), 0)
    for port in switches.model.ports():
        counted = port.counted(now_ns)["drops_by_reason"]
        for reason, text in DROP_REASONS.items():
            totals[text] += counted[reason]
    return totals


def _down(
    switches: SwitchFabric, faults: Sequence[LinkFault], now_ns: int
) -> dict[str, int]:
    """Return the down time by port due to faults. Flaps count for half their time."""
    down_ns: dict[str, int] = {}
    for fault in faults:
        if fault.kind in ("down", "flap") and fault.at_ns < now_ns:
            time_ns = min(fault.until_ns, now_ns) - fault.at_ns
            port = switches.model.port(fault.port)
            for end in (port, switches.model.port(port.peer)):
                share_ns = time_ns if fault.kind == "down" else time_ns // 2
                down_ns[end.name] = down_ns.get(end.name, 0) + share_ns
    return down_ns


def _at_ports(switches: SwitchFabric, counter: str, now_ns: int) -> dict[str, int]:
    """Return a counter by port, summed over classes, without zeros."""
    found = {
        port.name: sum(port.counted(now_ns)[counter]) for port in switches.model.ports()
    }
    return {name: count for name, count in found.items() if count}


def _injected(endpoints: Sequence[Endpoint]) -> dict[str, int]:
    """Return the number of packets that all ports disturbed on purpose, by type."""
    counted = [endpoint.engine.statistics() for endpoint in endpoints]
    return {
        name: sum(getattr(each, counter) for each in counted)
        for name, counter in zip(INJECTED, FAULT_COUNTERS, strict=True)
    }


def _disturbed(endpoints: Sequence[Endpoint], faults: int) -> tuple[int, ...]:
    """Return the number of disturbed packets at all ports, by fault."""
    totals = [0] * faults
    for endpoint in endpoints:
        for fault, count in endpoint.engine.faults_disturbed().items():
            totals[fault] += count
    return tuple(totals)


def _settings(
    agent: AgentPlan, warmup: int | None, measured: int | None, seed: int | None
) -> RunSettings:
    settings = agent.settings.with_iterations(warmup, measured)
    return settings if seed is None else replace(settings, seed=seed)


def _endpoints(
    agent: AgentPlan, *, settings: RunSettings, burst_packets: int
) -> list[Endpoint]:
    """Return the endpoints of one agent, in the order of its ports."""
    transport = replace(agent.transport, max_burst_packets=burst_packets)
    if not transport.saves_up:
        # Virtual time has no scheduling delays, so there is nothing to catch up on.
        transport = replace(transport, burst_bound_ns=0)
    numbers = agent.numbers()
    ranks_of: dict[int, list[RankPlan]] = {port.number: [] for port in agent.ports}
    for rank in agent.ranks:
        if rank.port not in ranks_of:
            raise PlanError(
                f"plan: job {rank.program.job} rank {rank.program.rank}",
                f"agent {agent.agent} has no port {rank.port}",
                "create the plan again: it is incomplete",
            )
        ranks_of[rank.port].append(rank)
    return [
        Endpoint(
            port=port,
            ranks=ranks_of[port.number],
            transport=transport,
            settings=settings,
            rank_numbers=numbers,
        )
        for port in agent.ports
    ]


class UnfinishedSimulation(RunFailed):
    """A simulated job cannot end.

    Attributes:
        result: Records and counters up to the end of the simulation.
    """

    def __init__(self, result: SimulationResult, found: str, hint: str = "") -> None:
        super().__init__("simulation", found, hint or None)
        self.result = result


def _failure(
    endpoints: Sequence[Endpoint], result: SimulationResult, *, has_timeout: bool
) -> UnfinishedSimulation:
    """Return the error for a run that does not end."""
    most = sorted(result.drops.items(), key=lambda item: -item[1])[:_NAMED_PORTS]
    named = ", ".join(f"{port} ({count})" for port, count in most if count)
    lost = f"; egress ports that dropped most packets: {named}" if named else ""
    for endpoint in endpoints:
        failure = endpoint.failed()
        if failure is not None:
            return UnfinishedSimulation(result, failure + lost)
    waits = [text for endpoint in endpoints for text in endpoint.waiting_for()]
    named = "; ".join(waits[:_NAMED_WAITS])
    if len(waits) > _NAMED_WAITS:
        named += f"; and {len(waits) - _NAMED_WAITS} more"
    return UnfinishedSimulation(
        result,
        f"no operation can proceed, but the job is not done: {named}",
        "check that the programs of the ranks belong together"
        if has_timeout
        else (
            "set transport.local_ack_timeout, which is 0: without a timeout, the last "
            "lost packets of a queue pair are not retransmitted"
        ),
    )
