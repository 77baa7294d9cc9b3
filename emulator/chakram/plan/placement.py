"""Placement: which rank uses which port, in which shard, over which queue pairs.

Ranks are assigned to ports in order. ``PATTERNS`` lists the orders.
``chakram.plan.shards`` chooses the process that drives each rank. The same input gives
the same plan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from chakram.foundation.errors import PlanError
from chakram.plan.plan import AgentPlan, Plan, QueuePairPlan, RankPlan, RunSettings
from chakram.plan.port_plan import PortPlan
from chakram.plan.queue_pairs import Place, QueuePairLayout, connect
from chakram.plan.shards import counted_as_a_whole, most_parts, shards_of_seats
from chakram.plan.transport import limits_by_destination

if TYPE_CHECKING:
    from chakram.plan.port_plan import PortPlan
    from chakram.plan.transport import TransportPlan
    from chakram.program.operations import RankProgram


PATTERNS = ("packed", "striped", "random")
"""Orders in which ports are taken. ``packed``: one after another; ``striped``:
alternating between switches (or hosts); ``random``: shuffled by the seed."""


def patterned(
    pattern: str,
    candidates: Sequence[int],
    ports: Sequence[PortPlan],
    *,
    near: Callable[[PortPlan], str],
    seed: str,
) -> list[int]:
    """Return *candidates* in the order that a pattern defines.

    Args:
        pattern: One of ``PATTERNS``.
        candidates: Indices of ports, in the order of the fabric.
        ports: All ports.
        near: Function that returns the switch or host of a port. Ports with equal
            results are near each other.
        seed: Seed of ``random``. The same seed gives the same order.
    """
    if pattern == "random":
        return sorted(
            candidates,
            key=lambda index: hashlib.sha256(f"{seed} {index}".encode()).digest(),
        )
    if pattern == "packed":
        return list(candidates)
    seen: dict[str, int] = {}
    turns: list[tuple[int, int]] = []
    for index in candidates:
        place = near(ports[index])
        turn = seen.get(place, 0)
        seen[place] = turn + 1
        turns.append((turn, index))
    return [index for _, index in sorted(turns)]


def named_ports(
    names: Sequence[int | str], ports: Sequence[PortPlan], *, where: str
) -> list[int]:
    """Return the indices of ports given by number or by name.

    A name is the name of a host in the topology, or the name of an agent. The name of
    an agent means all ports of the agent. The port names of a host begin with the
    host's name and a colon. The name of a host therefore also works in simulations,
    where all ports share one agent.

    Raises:
        PlanError: If a port does not exist or occurs twice.
    """
    found: dict[int, None] = {}
    for name in names:
        if isinstance(name, int):
            indices = [name] if name < len(ports) else []
        else:
            indices = [
                index
                for index, port in enumerate(ports)
                if name in (port.host, port.agent, port.host.partition(":")[0])
            ]
        if not indices:
            hosts = ", ".join(port.host for port in ports[:4])
            raise PlanError(
                where,
                f"there is no port {name}",
                f"use ports 0 to {len(ports) - 1}: "
                f"{hosts}{', ...' if len(ports) > 4 else ''}",
            )
        for index in indices:
            if index in found:
                raise PlanError(
                    where, f"names port {index} twice", "name every port once"
                )
            found[index] = None
    return list(found)


_DIVISIBLE = "udp:"
"""Prefix of ports with sockets, which several processes may share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOptions:
    """Placement of the ranks of one job.

    Attributes:
        order: Ranks in the order of the ports. None means ascending.
        ranks_per_port: Number of ranks that share a port.
        first_port: Index of the first rank's port. None means the first port after
            those of earlier jobs.
        pattern: Order in which ports are taken, one of ``PATTERNS``.
        ports: Numbers or names of the ports that may be taken, in order. None means all
            ports that no earlier job uses.
        local_rate_bps: Rate of messages between ranks of one host. 0 means that these
            messages take no time. None means that they go through the ports.
    """

    order: tuple[int, ...] | None = None
    ranks_per_port: int = 1
    first_port: int | None = None
    pattern: str = "packed"
    ports: tuple[int | str, ...] | None = None
    local_rate_bps: int | None = None

    def __post_init__(self) -> None:
        if self.pattern not in PATTERNS:
            raise ValueError(f"pattern {self.pattern!r} is not one of {PATTERNS}")


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
    near: Callable[[PortPlan], str] = lambda port: port.agent,
    host_of: Callable[[PortPlan], str] = lambda port: str(port.number),
    psn_seed: int | None = None,
    connected: bool = True,
) -> Plan:
    """Return the plan of a run.

    Args:
        programs_by_job: The programs of all ranks of every job.
        ports: All ports of the fabric, in the order in which they are used.
        options: Placement by job. Other jobs get the default placement.
        transport: Settings of the queue pairs.
        settings: Settings of the run, such as iterations, faults and seed.
        shards: Number of data-plane processes that each agent may start.
        run_id: Name of the run.
        layout: Queue pairs between two ranks. None means the default layout.
        near: Function that returns the switch or host of a port, for patterns.
        host_of: Function that returns the host of a port, for messages that stay within
            a host.
        psn_seed: Seed of the initial PSNs. None means the seed of *settings*.
        connected: Whether ranks get queue pairs. A thousand ranks in a full mesh have a
            million queue pairs.

    Raises:
        PlanError: If a rank is placed twice or not at all, or there are too few ports.
    """
    seats = _seats(programs_by_job, ports, options, near, settings.seed)
    rates_bps = {
        job: option.local_rate_bps
        for job, option in options.items()
        if option.local_rate_bps is not None
    }
    layout = layout or QueuePairLayout()
    whole = counted_as_a_whole(seats, settings.faults)
    shard_of = shards_of_seats(
        seats,
        shards,
        together=host_of if rates_bps else lambda port: str(port.number),
        is_whole=lambda port: (
            bool(rates_bps)
            or port.number in whole
            # CNP limiters are per process, so the port must not be divided.
            or limits_by_destination(transport)
            or not port.open.startswith(_DIVISIBLE)
        ),
        parts=most_parts(layout.source_ports),
    )
    places = {
        (program.job, program.rank): Place(
            number=number, program=program, port=port, shard=shard_of[number]
        )
        for number, (program, port) in enumerate(seats)
    }
    if settings.credits:
        layout = replace(layout, with_grants=True)
    queue_pairs: Mapping[tuple[str, int], Sequence[QueuePairPlan]]
    if connected:
        queue_pairs = connect(
            programs_by_job,
            places,
            psn_seed=settings.seed if psn_seed is None else psn_seed,
            layout=layout,
            local_rate=lambda job, a, b: (
                rates_bps.get(job) if host_of(a) == host_of(b) else None
            ),
        )
    else:
        queue_pairs = dict.fromkeys(places, ())
    return _assemble(places, queue_pairs, transport, settings, run_id)


def _seats(
    programs_by_job: Mapping[str, Sequence[RankProgram]],
    ports: Sequence[PortPlan],
    options: Mapping[str, PlacementOptions],
    near: Callable[[PortPlan], str],
    seed: int,
) -> list[tuple[RankProgram, PortPlan]]:
    """Return every rank with its port, ordered by job, then by rank."""
    seats: list[tuple[RankProgram, PortPlan]] = []
    choice = _PortChoice(ports, near, seed)
    for job, programs in programs_by_job.items():
        option = options.get(job, PlacementOptions())
        by_rank = {program.rank: program for program in programs}
        if len(by_rank) < len(programs):
            raise PlanError(
                f"job {job}",
                "has two programs for one rank",
                "give each rank one program",
            )
        order = _order(job, by_rank, option)
        chosen = choice.take(job, len(order), option)
        port_of = {
            rank: ports[chosen[index // option.ranks_per_port]]
            for index, rank in enumerate(order)
        }
        seats += [(by_rank[rank], port_of[rank]) for rank in sorted(by_rank)]
    return seats


class _PortChoice:
    """Selector of ports for one job after another."""

    def __init__(
        self, ports: Sequence[PortPlan], near: Callable[[PortPlan], str], seed: int
    ) -> None:
        self._ports = ports
        self._near = near
        self._seed = seed
        self._taken: set[int] = set()

    def take(self, job: str, nranks: int, option: PlacementOptions) -> Sequence[int]:
        """Return the indices of the ports of a job, in order."""
        needed = -(-nranks // option.ranks_per_port)
        if option.pattern == "packed" and option.ports is None:
            chosen = self._following(job, nranks, needed, option.first_port)
        else:
            chosen = self._patterned(job, nranks, needed, option)
        self._taken.update(chosen)
        return chosen

    def _following(
        self, job: str, nranks: int, needed: int, first: int | None
    ) -> Sequence[int]:
        """Return consecutive ports, by default those after all taken ports."""
        if first is None:
            first = max(self._taken, default=-1) + 1
        if first + needed > len(self._ports):
            raise PlanError(
                f"job {job}",
                f"its {nranks} ranks need ports {first} to {first + needed - 1}, but "
                f"the fabric has {len(self._ports)}",
                "use a larger fabric, fewer ranks, or more ranks_per_port",
            )
        return range(first, first + needed)

    def _patterned(
        self, job: str, nranks: int, needed: int, option: PlacementOptions
    ) -> Sequence[int]:
        """Return ports in the order of a pattern, from those that may be taken."""
        ports = self._ports
        if option.ports is not None:
            where = f"job {job}: placement.ports"
            candidates = named_ports(option.ports, ports, where=where)
        else:
            first = option.first_port or 0
            candidates = [
                index for index in range(first, len(ports)) if index not in self._taken
            ]
        if len(candidates) < needed:
            raise PlanError(
                f"job {job}",
                f"its {nranks} ranks need {needed} ports, but only {len(candidates)} "
                "are available",
                "use a larger fabric, fewer ranks, or more ranks_per_port, or name "
                "ports that other jobs also use",
            )
        seed = f"{self._seed} {job}"
        order = patterned(option.pattern, candidates, ports, near=self._near, seed=seed)
        return order[:needed]


def _order(
    job: str, by_rank: Mapping[int, RankProgram], option: PlacementOptions
) -> Sequence[int]:
    if option.order is None:
        return sorted(by_rank)
    where = f"job {job}: placement.order"
    seen: set[int] = set()
    for rank in option.order:
        if rank in seen:
            raise PlanError(where, f"rank {rank} occurs twice", "name every rank once")
        if rank not in by_rank:
            raise PlanError(
                where,
                f"there is no rank {rank}",
                f"choose from ranks {min(by_rank)} to {max(by_rank)}",
            )
        seen.add(rank)
    missing = sorted(by_rank.keys() - seen)
    if missing:
        raise PlanError(where, f"rank {missing[0]} is missing", "name every rank once")
    return option.order


def _assemble(
    places: Mapping[tuple[str, int], Place],
    queue_pairs: Mapping[tuple[str, int], Sequence[QueuePairPlan]],
    transport: TransportPlan,
    settings: RunSettings,
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
                queue_pairs=cast("tuple[QueuePairPlan, ...]", queue_pairs[key]),
            )
        )
    return Plan(
        run_id=run_id,
        agents=tuple(
            AgentPlan(
                run_id=run_id,
                agent=agent,
                # Processes without work would only idle.
                shards=1 + max(rank.shard for rank in ranks),
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
