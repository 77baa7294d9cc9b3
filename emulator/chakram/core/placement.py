"""Placement: which rank uses which port, in which shard, over which queue pairs.

Ranks go onto ports in order.  The same input gives the same plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.core.plan import (
    AgentPlan,
    Plan,
    PortPlan,
    QueuePairPlan,
    RankPlan,
    RunSettings,
    TransportPlan,
)
from chakram.core.queue_pairs import MAX_SHARDS, Place, connect
from chakram.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from chakram.core.program import RankProgram
    from chakram.core.queue_pairs import QueuePairLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOptions:
    """How the ranks of one job are placed.

    Attributes:
        order: Ranks in the order of the ports; None: ascending.
        ranks_per_port: Ranks that share a port.
        first_port: Index of the first rank's port; None: the first one after those of
            earlier jobs.
    """

    order: tuple[int, ...] | None = None
    ranks_per_port: int = 1
    first_port: int | None = None


def place(
    programs_by_job: Mapping[str, Sequence[RankProgram]],
    ports: Sequence[PortPlan],
    options: Mapping[str, PlacementOptions],
    transport: TransportPlan,
    settings: RunSettings,
    *,
    shards: Mapping[str, int],
    run_id: str,
    layout: QueuePairLayout | None = None,
) -> Plan:
    """Return the plan of a run.

    Args:
        programs_by_job: The programs of all ranks of every job.
        ports: All ports of the fabric, in the order in which they are used.
        options: By job; a job that is not there is placed in the usual way.
        transport: Settings of the queue pairs.
        settings: Iterations, faults, seed.
        shards: Data-plane processes that each agent may start.
        run_id: Name of the run.
        layout: Queue pairs between two ranks; None: the usual.

    Raises:
        PlanError: If a rank stands in two places or in none, or there are too few
            ports.
    """
    seats = _seats(programs_by_job, ports, options)
    shard_of = _shards(seats, shards)
    places = {
        (program.job, program.rank): Place(
            number=number, program=program, port=port, shard=shard_of[port.number]
        )
        for number, (program, port) in enumerate(seats)
    }
    queue_pairs = connect(programs_by_job, places, seed=settings.seed, layout=layout)
    return _assemble(places, queue_pairs, transport, settings, shards, run_id)


def _seats(
    programs_by_job: Mapping[str, Sequence[RankProgram]],
    ports: Sequence[PortPlan],
    options: Mapping[str, PlacementOptions],
) -> list[tuple[RankProgram, PortPlan]]:
    """Return every rank with its port, job by job, ranks ascending."""
    seats: list[tuple[RankProgram, PortPlan]] = []
    next_port = 0
    for job, programs in programs_by_job.items():
        option = options.get(job, PlacementOptions())
        by_rank = {program.rank: program for program in programs}
        if len(by_rank) < len(programs):
            raise PlanError(
                f"job {job}", "has two programs for one rank", "give each rank one"
            )
        order = _order(job, by_rank, option)
        first = next_port if option.first_port is None else option.first_port
        needed = -(-len(order) // option.ranks_per_port)
        if first + needed > len(ports):
            raise PlanError(
                f"job {job}",
                f"its {len(order)} ranks need ports {first} to {first + needed - 1}, "
                f"and the fabric has {len(ports)}",
                "use a larger fabric, fewer ranks, or more ranks_per_port",
            )
        port_of = {
            rank: ports[first + index // option.ranks_per_port]
            for index, rank in enumerate(order)
        }
        seats += [(by_rank[rank], port_of[rank]) for rank in sorted(by_rank)]
        next_port = max(next_port, first + needed)
    return seats


def _order(
    job: str, by_rank: Mapping[int, RankProgram], option: PlacementOptions
) -> Sequence[int]:
    if option.order is None:
        return sorted(by_rank)
    where = f"job {job}: placement.order"
    seen: set[int] = set()
    for rank in option.order:
        if rank in seen:
            raise PlanError(
                where, f"rank {rank} stands in two places", "name every rank once"
            )
        if rank not in by_rank:
            raise PlanError(
                where,
                f"there is no rank {rank}",
                f"the job has ranks {min(by_rank)} to {max(by_rank)}",
            )
        seen.add(rank)
    missing = sorted(by_rank.keys() - seen)
    if missing:
        raise PlanError(
            where, f"rank {missing[0]} stands nowhere", "name every rank once"
        )
    return option.order


def _shards(
    seats: Iterable[tuple[RankProgram, PortPlan]], shards: Mapping[str, int]
) -> dict[int, int]:
    """Return the shard of every port: each agent's ranks are spread evenly.

    Ranks of one port stay together, for they share its pacing.
    """
    ranks_on: dict[int, int] = {}
    agent_of: dict[int, str] = {}
    for _, port in seats:
        ranks_on[port.number] = ranks_on.get(port.number, 0) + 1
        agent_of[port.number] = port.agent
    loads: dict[str, list[int]] = {}
    shard_of: dict[int, int] = {}
    for number, agent in agent_of.items():
        count = shards.get(agent, 1)
        if not 1 <= count <= MAX_SHARDS:
            raise PlanError(
                f"agent {agent}",
                f"{count} shards are not possible",
                f"from 1 to {MAX_SHARDS}",
            )
        load = loads.setdefault(agent, [0] * count)
        shard = min(range(count), key=load.__getitem__)
        load[shard] += ranks_on[number]
        shard_of[number] = shard
    return shard_of


def _assemble(
    places: Mapping[tuple[str, int], Place],
    queue_pairs: Mapping[tuple[str, int], list[QueuePairPlan]],
    transport: TransportPlan,
    settings: RunSettings,
    shards: Mapping[str, int],
    run_id: str,
) -> Plan:
    ports = {seat.port.number: seat.port for seat in places.values()}
    peers = tuple(ports[number].address for number in sorted(ports))
    numbers = tuple((job, rank, seat.number) for (job, rank), seat in places.items())
    agents: dict[str, list[RankPlan]] = {}
    for key, seat in places.items():
        agents.setdefault(seat.port.agent, []).append(
            RankPlan(
                number=seat.number,
                port=seat.port.number,
                shard=seat.shard,
                program=seat.program,
                queue_pairs=tuple(queue_pairs[key]),
            )
        )
    return Plan(
        run_id=run_id,
        agents=tuple(
            AgentPlan(
                run_id=run_id,
                agent=agent,
                # More processes than ports would idle.
                shards=min(shards.get(agent, 1), len({rank.port for rank in ranks})),
                ports=tuple(
                    ports[number]
                    for number in sorted(ports)
                    if ports[number].agent == agent
                ),
                ranks=tuple(ranks),
                transport=transport,
                settings=settings,
                peers=peers,
                rank_numbers=numbers,
            )
            for agent, ranks in agents.items()
        ),
    )
