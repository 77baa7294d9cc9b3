"""Consistency checks of plans. Agents do not repeat these checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chakram.foundation.errors import PlanError
from chakram.foundation.ip_addresses import socket_text
from chakram.plan.packed_queue_pairs import RankQueuePairs
from chakram.plan.plan import MAX_PORTS, MAX_RANKS, Plan, QueuePairPlan, RankPlan
from chakram.plan.port_plan import PortPlan
from chakram.plan.queue_pairs import MAX_SHARDS

_NUMBER_BITS = 24


def check_plan(plan: Plan) -> list[str]:
    """Return the problems of a plan, one sentence each, or an empty list."""
    ports = {port.number: port for port in plan.ports()}
    return [
        *_check_ports(plan, ports),
        *_check_ranks(plan, ports),
        *_check_queue_pairs(plan, ports),
    ]


def refuse_large_agents(plan: Plan) -> None:
    """Reject a plan that gives an agent more work than agents accept.

    Raises:
        PlanError: If there is such an agent. The error is about the first one.
    """
    for agent in plan.agents:
        for what, count, most in (
            ("ports", len(agent.ports), MAX_PORTS),
            ("ranks", len(agent.ranks), MAX_RANKS),
        ):
            if count > most:
                raise PlanError(
                    f"agent {agent.agent}",
                    f"has {count} {what}, more than {most}",
                    "use more agents, or several ranks per port: "
                    "placement.ranks_per_port"
                    if what == "ports"
                    else "use more agents",
                )


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
    # Plans have millions of ends, so the keys are plain numbers.
    ends: dict[int, QueuePairPlan] = {}
    ranks = plan.ranks()
    if all(isinstance(each.queue_pairs, RankQueuePairs) for each in ranks):
        return  # each pair is one row, so its ends agree
    rank_at = {(each.program.job, each.program.rank): each for each in ranks}
    for rank in ranks:
        for end in rank.queue_pairs:
            key = rank.port << _NUMBER_BITS | end.qpn
            if key in ends:
                yield f"{_where(rank, end)}: its number is used twice on its port"
            ends[key] = end
            if end.qpn % MAX_SHARDS != rank.shard:
                yield (
                    f"{_where(rank, end)}: its number does not belong to shard "
                    f"{rank.shard}"
                )
    shard_of_flow: dict[tuple[int, int, int], int] = {}
    is_divided = len({rank.shard for rank in ranks}) > 1
    every_end = ((each, end) for each in ranks for end in each.queue_pairs)
    for rank, end in every_end:
        remote = ports.get(end.remote_port)
        if (
            remote is None
            or remote.address != end.remote_address
            or remote.udp_port != end.remote_udp_port
        ):
            place = end.remote_address, end.remote_udp_port
            yield (
                f"{_where(rank, end)}: port {end.remote_port} does not have the "
                f"address {socket_text(*place)}"
            )
            continue
        other = ends.get(end.remote_port << _NUMBER_BITS | end.remote_qpn)
        other_rank = rank_at.get((rank.program.job, end.peer_rank))
        if other is None:
            yield f"{_where(rank, end)}: has no other end"
        elif other_rank is None or not _are_ends_of_one(rank, end, other_rank, other):
            yield f"{_where(rank, end)}: its other end has different properties"
        elif is_divided:
            # Packets that the kernel or adapter merges are delivered to one shard.
            flow = (rank.port, end.source_port, end.remote_port)
            shard = shard_of_flow.setdefault(flow, other_rank.shard)
            if shard != other_rank.shard and rank.port != end.remote_port:
                yield (
                    f"{_where(rank, end)}: its source port {end.source_port} leads to "
                    f"shards {shard} and {other_rank.shard} of port {end.remote_port}"
                )


def _where(rank: RankPlan, end: QueuePairPlan) -> str:
    return f"job {rank.program.job} rank {rank.program.rank}: queue pair {end.qpn:#x}"


def _are_ends_of_one(
    rank: RankPlan, end: QueuePairPlan, other_rank: RankPlan, other: QueuePairPlan
) -> bool:
    """Return whether two ends record the same properties of one queue pair."""
    return (
        rank.program.job == other_rank.program.job
        and end.group == other.group
        and end.channel == other.channel
        and end.index == other.index
        and end.source_port == other.source_port
        and end.local_rate_bps == other.local_rate_bps
        and other.peer_rank == rank.program.rank
        and end.remote_port == other_rank.port
        and other.remote_port == rank.port
        and end.remote_qpn == other.qpn
        and other.remote_qpn == end.qpn
        and end.receive_psn == other.send_psn
        and other.receive_psn == end.send_psn
    )
