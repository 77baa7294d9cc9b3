"""Shards: which data-plane process of an agent drives which ranks.

Each port belongs to one shard as long as there are enough ports. If an agent has more
shards than ports with work, ports are *divided*: their ranks are in several shards.
Arriving packets are then separated by queue pair number (see
``chakram.plan.queue_pairs``). Ports of an agent with equal work are all divided
equally, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import isqrt
from typing import TYPE_CHECKING

from chakram.foundation.errors import PlanError
from chakram.plan.queue_pairs import MAX_SHARDS, SOURCE_PORT_POOL

if TYPE_CHECKING:
    from chakram.plan.packet_faults import PacketFault
    from chakram.plan.port_plan import PortPlan
    from chakram.program.operations import RankProgram


Seat = tuple["RankProgram", "PortPlan"]


def most_parts(source_ports: Collection[int]) -> int:
    """Return the maximum number of shards of a port.

    A UDP source port identifies a shard at each end. The number of source ports must
    therefore be at least the product of the shard counts of both ends.

    Args:
        source_ports: Source ports that the experiment lists. Empty means the default
            pool.
    """
    return isqrt(len(set(source_ports)) or SOURCE_PORT_POOL)


def counted_as_a_whole(
    seats: Sequence[Seat], faults: Sequence[PacketFault]
) -> frozenset[int]:
    """Return the ports where a fault counts packets of more than one rank.

    Such a count cannot be divided between shards, so the port cannot be divided either.
    """
    whole: set[int] = set()
    for fault in faults:
        if fault.nth == 0:
            continue
        rank = fault.source if fault.at_send else fault.destination
        seen: set[int] = set()
        for program, port in seats:
            if fault.job in (None, program.job) and rank in (None, program.rank):
                if port.number in seen:
                    whole.add(port.number)
                seen.add(port.number)
    return frozenset(whole)


@dataclass(slots=True)
class _Bunch:
    """Ports that share a shard, or one port that may be divided.

    Attributes:
        agent: Agent of the ports.
        seats: Indices of the ranks on the ports.
        most: Maximum number of parts.
        parts: Current number of parts.
    """

    agent: str
    seats: list[int] = field(default_factory=list)
    most: int = 1
    parts: int = 1

    @property
    def load(self) -> int:
        """Number of ranks in the largest part."""
        return -(-len(self.seats) // self.parts)


def shards_of_seats(
    seats: Sequence[Seat],
    shards: Mapping[str, int],
    *,
    together: Callable[[PortPlan], str],
    is_whole: Callable[[PortPlan], bool],
    parts: int,
) -> list[int]:
    """Return the shard of every rank, with each agent's ranks spread evenly.

    Args:
        seats: Ranks with their ports.
        shards: Number of data-plane processes of each agent. The default is 1.
        together: Function that returns a key of a port. Ports with equal keys share a
            shard, because messages between their ranks stay within the process.
        is_whole: Function that returns whether a port must not be divided.
        parts: Maximum number of shards of a port.

    Raises:
        PlanError: If an agent cannot have that number of shards.
    """
    bunches: dict[str, _Bunch] = {}
    for index, (_, port) in enumerate(seats):
        bunch = bunches.setdefault(together(port), _Bunch(port.agent))
        bunch.seats.append(index)
        bunch.most = 1 if is_whole(port) else min(parts, len(bunch.seats))
    by_agent: dict[str, list[_Bunch]] = {}
    for bunch in bunches.values():
        by_agent.setdefault(bunch.agent, []).append(bunch)
    shard_of = [0] * len(seats)
    for agent, its in by_agent.items():
        count = shards.get(agent, 1)
        if not 1 <= count <= MAX_SHARDS:
            raise PlanError(
                f"agent {agent}",
                f"{count} shards are not supported",
                f"use 1 to {MAX_SHARDS}",
            )
        _divide(its, count)
        load = [0] * count
        for bunch in its:
            # Seats are sorted by job, so every part gets ranks of each job.
            for part in range(bunch.parts):
                part_seats = bunch.seats[part :: bunch.parts]
                shard = min(range(count), key=load.__getitem__)
                load[shard] += len(part_seats)
                for seat in part_seats:
                    shard_of[seat] = shard
    return shard_of


def _divide(bunches: Sequence[_Bunch], count: int) -> None:
    """Divide the ports with the most ranks per shard, while shards are left."""
    left = count - len(bunches)
    while True:
        most = max((each.load for each in bunches if each.parts < each.most), default=0)
        crowd = [
            each for each in bunches if each.load == most and each.parts < each.most
        ]
        if not crowd or len(crowd) > left:
            return
        for bunch in crowd:
            bunch.parts += 1
        left -= len(crowd)
