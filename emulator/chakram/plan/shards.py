"""Shards: which data-plane process of an agent drives which ranks.

Ports go onto shards as wholes as long as there are enough of them.  Where an agent has
more shards than ports with work, ports are *divided*: their ranks live in several
shards, and what arrives is told apart by the queue pair number (see
``chakram.plan.queue_pairs``).  All ports of an agent with equally much work are divided
alike, or none of them.
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
    from chakram.plan.plan import PortPlan
    from chakram.program.operations import RankProgram


Seat = tuple["RankProgram", "PortPlan"]


def most_parts(source_ports: Collection[int]) -> int:
    """Return among how many shards a port may be divided.

    A UDP source port names a shard of either end, so there are as many of them as
    shards of one end times shards of the other.

    Args:
        source_ports: Those that the experiment lists; none: the usual pool.
    """
    return isqrt(len(set(source_ports)) or SOURCE_PORT_POOL)


def counted_as_a_whole(
    seats: Sequence[Seat], faults: Sequence[PacketFault]
) -> frozenset[int]:
    """Return the ports whose packets some fault counts over more than one rank.

    Such a count cannot be divided; one of the packets of a single rank, or chance, can.
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
        agent: Whose they are.
        seats: Indices of their ranks.
        most: Parts that are possible.
        parts: Parts that it has.
    """

    agent: str
    seats: list[int] = field(default_factory=list)
    most: int = 1
    parts: int = 1

    @property
    def load(self) -> int:
        """Ranks of the largest part."""
        return -(-len(self.seats) // self.parts)


def shards_of_seats(
    seats: Sequence[Seat],
    shards: Mapping[str, int],
    *,
    together: Callable[[PortPlan], str],
    is_whole: Callable[[PortPlan], bool],
    parts: int,
) -> list[int]:
    """Return the shard of every rank: each agent's ranks are spread evenly.

    Args:
        seats: Ranks with their ports.
        shards: Data-plane processes of each agent; without one: 1.
        together: What ports have in common that share a shard, for messages of their
            ranks go from one to the other within the process.
        is_whole: Whether a port may not be divided.
        parts: Among how many shards a port may be divided.

    Raises:
        PlanError: If there cannot be so many shards.
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
                f"{count} shards are not possible",
                f"from 1 to {MAX_SHARDS}",
            )
        _divide(its, count)
        load = [0] * count
        for bunch in its:
            # One job after the other in the seats: so every part has some of each.
            for part in range(bunch.parts):
                part_seats = bunch.seats[part :: bunch.parts]
                shard = min(range(count), key=load.__getitem__)
                load[shard] += len(part_seats)
                for seat in part_seats:
                    shard_of[seat] = shard
    return shard_of


def _divide(bunches: Sequence[_Bunch], count: int) -> None:
    """Divide those with most ranks to a shard, as long as there are shards left."""
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
