"""Expected cost of a simulation, to show before the simulation starts.

Costs are those of the compiled modules on one core of 2.6 GHz, within a factor of about
two where messages cross several switches. At a single switch, messages at level
``message`` cost a tenth to a third as much. The measurements are in
``docs/reference/scale.md``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.foundation.units import format_size
from chakram.predict.simulator.burst_size import (
    coarse_burst,
    longest_path,
    plan_traffic,
)
from chakram.summary.interval_lines import time_left

if TYPE_CHECKING:
    from chakram.plan.plan import Plan
    from chakram.topology.topology import Topology

_LONG_NS = 60 * 10**9
_MESSAGE_NS = {"message": 1_100, "flow": 7_000}
"""Time per message, by level."""

_STEPPED_NS = 3
"""Time per message of a ring that is simulated in steps of all ranks."""

_BURST_NS = 250
"""Time per burst and link at level packet."""

_QUEUE_PAIR_MESSAGE_NS = 18_000
_QUEUE_PAIR_BYTES = 10 << 10
_IN_FLIGHT_BYTES = 400
"""Memory per message in flight at level flow: 330 to 480 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Expected cost of a simulation.

    Attributes:
        messages: Number of messages.
        time_ns: CPU time.
        memory_bytes: Memory for queue pairs, or at level flow, for messages in flight;
            0 at level message.
    """

    messages: int
    time_ns: int
    memory_bytes: int = 0

    def note(self, memory_bytes: int | None = None) -> str | None:
        """Return a sentence for the user, or None if the simulation is cheap.

        A simulation is cheap if it takes less than a minute and less than half the
        memory.

        Args:
            memory_bytes: Memory of this machine, or None to ask the system.
        """
        if memory_bytes is None:
            memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        is_large = self.memory_bytes > memory_bytes / 2
        if self.time_ns < _LONG_NS and not is_large:
            return None
        memory = f" and {format_size(self.memory_bytes)}" if is_large else ""
        return (
            f"{self.messages} messages: the simulation may take about "
            f"{time_left(self.time_ns)}{memory}"
        )


def cost_at_level(
    level: str, messages: int, *, at_once: int = 0, is_stepped: bool = False
) -> Cost:
    """Return the cost at a level without queue pairs.

    The time is 0 (unknown) with ASTRA-sim's costs over ns-3 at level ``packet``.

    Args:
        level: Level of the simulation.
        messages: Number of messages of all iterations.
        at_once: Maximum number of messages that are in flight at the same time, if
            this determines the memory.
        is_stepped: Whether rings are simulated in steps of all ranks.
    """
    message_ns = _STEPPED_NS if is_stepped else _MESSAGE_NS.get(level, 0)
    return Cost(
        messages=messages,
        time_ns=messages * message_ns,
        memory_bytes=at_once * _IN_FLIGHT_BYTES,
    )


def cost_of_packets(plan: Plan, topology: Topology) -> Cost:
    """Return the cost at level ``packet``, for all iterations of a plan."""
    iterations = max(plan.planned_iterations().values())
    traffic = plan_traffic(plan, iterations=iterations)
    crossing = plan_traffic(plan, iterations=iterations, with_local=False)
    coarse = coarse_burst(plan, topology, crossing)
    bursts = max(crossing.packets // coarse, crossing.messages)
    queue_pairs = sum(len(rank.queue_pairs) for rank in plan.ranks())
    return Cost(
        messages=traffic.messages,
        time_ns=bursts * (longest_path(topology) + 1) * _BURST_NS
        + traffic.messages * _QUEUE_PAIR_MESSAGE_NS,
        memory_bytes=queue_pairs * _QUEUE_PAIR_BYTES,
    )
