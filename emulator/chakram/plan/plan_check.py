"""Consistency checks of plans. Agents do not repeat these checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chakram.foundation.ip_addresses import socket_text
from chakram.plan.plan import Plan, PortPlan, QueuePairPlan, RankPlan
from chakram.plan.queue_pairs import MAX_SHARDS


def check_plan(plan: Plan) -> list[str]:
    """Return the problems of a plan, one sentence each, or an empty list."""
    ports = {port.number: port for port in plan.ports()}
    return [
        *_check_ports(plan, ports),
        *_check_ranks(plan, ports),
        *_check_queue_pairs(plan, ports),
    ]


def _check_ports(plan: Plan, ports: Mapping[int, PortPlan]) -> Iterator[str]:
    if len(ports) < len(plan.ports()):
        yield "two ports have the same number"
    first: dict[tuple[str, int], int] = {}
    for port in plan.ports():
        place = port.address, port.udp_port
        other = first.setdefault(place, port.number)
        if other != port.number:
            yield (
                f"port {port.number}: has the address {socket_text(*place)} of port "
                f"{other}"
            )
    addresses = {port.address for port in ports.values()}
    for agent in plan.agents:
        yield from (
            f"agent {agent.agent}: port {port.number} belongs to {port.agent}"
            for port in agent.ports
            if port.agent != agent.agent
        )
        if set(agent.peers) != addresses:
            yield f"agent {agent.agent}: its peers differ from the ports of the plan"


def _check_ranks(plan: Plan, ports: Mapping[int, PortPlan]) -> Iterator[str]:
    seen: set[tuple[str, int]] = set()
    for number, rank in enumerate(plan.ranks()):
        where = f"job {rank.program.job} rank {rank.program.rank}"
        key = (rank.program.job, rank.program.rank)
        if key in seen:
            yield f"{where}: occurs twice"
        seen.add(key)
        if rank.number != number:
            yield f"{where}: is number {rank.number}, but must be {number}"
    numbers = {
        (rank.program.job, rank.program.rank): rank.number for rank in plan.ranks()
    }
    for agent in plan.agents:
        if agent.numbers() != numbers:
            yield f"agent {agent.agent}: its rank numbers differ from those of the plan"
        for rank in agent.ranks:
            where = f"job {rank.program.job} rank {rank.program.rank}"
            port = ports.get(rank.port)
            if port is None or port.agent != agent.agent:
                yield f"{where}: agent {agent.agent} has no port {rank.port}"
            if not 0 <= rank.shard < agent.shards:
                yield f"{where}: there is no shard {rank.shard}"


def _check_queue_pairs(plan: Plan, ports: Mapping[int, PortPlan]) -> Iterator[str]:
    ends: dict[tuple[int, int], tuple[RankPlan, QueuePairPlan]] = {}
    for rank in plan.ranks():
        for end in rank.queue_pairs:
            where = _where(rank, end)
            if (rank.port, end.qpn) in ends:
                yield f"{where}: its number is used twice on its port"
            ends[rank.port, end.qpn] = (rank, end)
            if end.qpn % MAX_SHARDS != rank.shard:
                yield f"{where}: its number does not belong to shard {rank.shard}"
    shard_of_flow: dict[tuple[int, int, int], int] = {}
    for rank, end in ends.values():
        where = _where(rank, end)
        remote = ports.get(end.remote_port)
        place = (end.remote_address, end.remote_udp_port)
        if remote is None or (remote.address, remote.udp_port) != place:
            yield (
                f"{where}: port {end.remote_port} does not have the address "
                f"{socket_text(*place)}"
            )
            continue
        other_rank, other = ends.get((end.remote_port, end.remote_qpn), (None, None))
        if other_rank is None or other is None:
            yield f"{where}: has no other end"
        elif _seen_from(other_rank, other) != _seen_from_there(rank, end):
            yield f"{where}: its other end has different properties"
        else:
            # Packets that the kernel or adapter merges are delivered to one shard.
            flow = (rank.port, end.source_port, end.remote_port)
            shard = shard_of_flow.setdefault(flow, other_rank.shard)
            if shard != other_rank.shard and rank.port != end.remote_port:
                yield (
                    f"{where}: its source port {end.source_port} leads to shards "
                    f"{shard} and {other_rank.shard} of port {end.remote_port}"
                )


def _where(rank: RankPlan, end: QueuePairPlan) -> str:
    return f"job {rank.program.job} rank {rank.program.rank}: queue pair {end.qpn:#x}"


def _seen_from(rank: RankPlan, end: QueuePairPlan) -> tuple[object, ...]:
    """Return the queue pair's properties as recorded at one end."""
    return (
        (
            (rank.program.job, end.group, end.channel, end.index),
            (end.source_port, end.local_rate_bps),
        ),
        (rank.program.rank, rank.port, end.qpn, end.send_psn),
        (end.peer_rank, end.remote_port, end.remote_qpn, end.receive_psn),
    )


def _seen_from_there(rank: RankPlan, end: QueuePairPlan) -> tuple[object, ...]:
    """Return the properties that must match at the other end."""
    common, own, others = _seen_from(rank, end)
    return (common, others, own)
