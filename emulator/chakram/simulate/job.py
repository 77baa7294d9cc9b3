"""Runs a plan in virtual time: the same programs, replay and queue pairs, no kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chakram.core.records import RecordRows
from chakram.errors import RunFailed
from chakram.replay.endpoint import Endpoint
from chakram.simulate.engine import VirtualFabric, Wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from chakram.core.plan import Plan
    from chakram.fabric.topology import PortRef, Topology

VIRTUAL_TIME_LIMIT_NS = 24 * 3600 * 10**9
"""A run that takes longer in virtual time does not end."""

_HASH_PRIME = 0x9E3779B1
"""2**32 over the golden ratio: spreads consecutive numbers over all bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """What a simulated run gives.

    ``link_bytes`` are layer-2 bytes per direction, by the port they left at.
    """

    records: RecordRows
    end_ns: int
    link_bytes: dict[str, int]
    events: int


def simulate_plan(
    plan: Plan,
    topology: Topology,
    *,
    rng: Random,
    warmup: int | None = None,
    measured: int | None = None,
    burst_packets: int = 1,
    report: Callable[[int], None] | None = None,
) -> SimulationResult:
    """Run *plan* over *topology* in virtual time, from time 0.

    Args:
        plan: Its ports name hosts of the topology.
        topology: Hosts, switches and links.
        rng: For random faults.
        warmup: Iterations before the measured ones, if not those of the plan.
        measured: Measured iterations, if not those of the plan.
        burst_packets: Packets that cross a link as one; more is faster and
            stores each burst whole at every hop.
        report: Called with the iterations done, now and then.

    Raises:
        RunFailed: If the run does not end; it names who waits for whom.
    """
    ports = plan.ports()
    endpoints: list[Endpoint] = []
    for port in ports:
        agent = next(agent for agent in plan.agents if agent.agent == port.agent)
        settings = replace(
            agent.settings,
            warmup=agent.settings.warmup if warmup is None else warmup,
            measured=agent.settings.measured if measured is None else measured,
        )
        endpoints.append(
            Endpoint(
                port=port,
                ranks=[rank for rank in agent.ranks if rank.port == port.number],
                transport=replace(agent.transport, max_burst_packets=burst_packets),
                settings=settings,
                rank_numbers=agent.numbers(),
                rng=rng,
            )
        )
    wires: dict[PortRef, Wire] = {}
    for link in topology.links:
        for end in (link.a, link.b):
            wires[end] = Wire(
                name=str(end), rate_bps=link.rate_bps, delay_ns=link.delay_ns
            )
    endpoint_of = {port.address: index for index, port in enumerate(ports)}
    seed = plan.agents[0].settings.seed if plan.agents else 0

    def route(
        source: int, destination: int, source_port: int
    ) -> tuple[list[Wire], int]:
        address, _ = endpoints[source].destinations[destination]
        receiver = endpoint_of[address]
        paths = topology.paths(ports[source].host, ports[receiver].host)
        if not paths:
            return [], receiver  # both on one host
        choice = flow_hash(seed, source, receiver, source_port) % len(paths)
        path = paths[choice]
        egress = topology.egress_ports(ports[source].host, path)
        return [wires[port] for port in egress], receiver

    fabric = VirtualFabric(endpoints=endpoints, route=route)
    complete = fabric.run(start_ns=0, hang_timeout_ns=30*10**9, report=report)
    failures = [text for each in endpoints if (text := each.failed()) is not None]
    if failures:
        raise RunFailed("simulation", failures[0])
    if not complete:
        waiting = [text for each in endpoints for text in each.waiting_for()]
        raise RunFailed(
            "simulation",
            "no event is left, but the job is not done: " + "; ".join(waiting[:3]),
        )
    records = RecordRows()
    for endpoint in endpoints:
        records.extend(endpoint.records.take())
    return SimulationResult(
        records=records,
        end_ns=fabric.now_ns,
        link_bytes={wire.name: wire.sent_bytes for wire in wires.values()},
        events=fabric.events,
    )


def flow_hash(seed: int, source: int, destination: int, source_port: int) -> int:
    """Return a 32-bit number that tells flows apart, as a switch's ECMP hash does.

    It stands for a hash, not for the one of a particular switch or kernel: which flows
    collide is as random as there, and the same for the same seed.
    """
    value = seed & 0xFFFFFFFF
    for part in (source, destination, source_port):
        value = ((value ^ part) * _HASH_PRIME) & 0xFFFFFFFF
        value ^= value >> 15
    # The finaliser of MurmurHash3: callers take the remainder, so low bits must depend
    # on all others.
    value = ((value ^ (value >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    value = ((value ^ (value >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return value ^ (value >> 16)
