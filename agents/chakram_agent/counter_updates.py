"""Updates of the counters that a shard shares with its agent.

The updates transfer the statistics of the engine. Reading the statistics of a queue
pair or port takes tens of microseconds, during which the shard handles no packets. A
shard may have thousands of queue pairs. Each turn therefore updates only a few queue
pairs, and turns are frequent. A counter is exact as soon as turns have updated every
queue pair. ``finish`` updates all of them. A turn also writes the row of each queue
pair and port that it updates.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from chakram.control.events import ShardLoad
from chakram.plan.plan import AgentPlan
from chakram.records.counter_definitions import (
    HistogramCounts,
    PortStatistics,
    QueuePairStatistics,
    counters_of,
    sampled_of,
)
from chakram.records.counter_slots import distribution_slot, fault_slot, slot
from chakram.replay import samples
from chakram.replay.samples import port_values, queue_pair_owners, queue_pair_row
from chakram_agent.agent_clock import monotonic_ns
from chakram_agent.dataplane.loop import DataPlane, Line
from chakram_agent.dataplane.verbs_engine import VerbsEngine
from chakram_agent.shared_counters import SharedCounters

LOOKED_AT_PER_BIN = 512
ROWS_PER_BIN = 64
TURNS_PER_BIN = 8
"""Number of turns per sample bin. The turns divide the work, because the shard handles
no packets in the few microseconds that a sample takes."""


class Sampler(samples.Sampler):
    """Sampler of the lines of one data plane.

    Args:
        plane: Data plane to sample.
        plan: The part of the plan that this shard executes.
        bin_ns: Time between two samples. If 0, there are samples only at the end.
    """

    def __init__(self, plane: DataPlane, plan: AgentPlan, *, bin_ns: int) -> None:
        (shard,) = plan.shard_numbers()
        # Leave out ports on NICs, because a NIC sends the packets itself.
        lines = [line for line in plane.lines if not _is_on_nic(line)]
        super().__init__(
            [line.endpoint for line in lines],
            [plan],
            port_row=lambda at, *sampled: port_row(lines[at], shard, *sampled),
            bin_ns=bin_ns,
            most_looked_at=LOOKED_AT_PER_BIN,
            most_rows=ROWS_PER_BIN,
            turns_per_bin=TURNS_PER_BIN,
        )


def _is_on_nic(line: Line) -> bool:
    return isinstance(line.endpoint.engine, VerbsEngine)


def _counted_pairs(line: Line) -> Sequence[CountedPair]:
    engine = line.endpoint.engine
    if isinstance(engine, VerbsEngine):
        return engine.counted_pairs()
    return engine.queue_pairs()


def port_row(
    line: Line, shard: int, counted: tuple[int, ...], disturbances: int
) -> tuple[int, ...]:
    """Return the values of ``PORT_FIELDS``, without the time and the port number."""
    port = line.port
    return port_values(
        counted,
        disturbances,
        shard=shard,
        rx_bytes=line.received_bytes,
        socket_drops=port.socket_drops,
        send_retries=port.send_retries,
    )


# This class measures load because two simpler measures do not reveal an overloaded
# process. An overloaded process sends acknowledgments late, so the windows of its peers
# limit traffic. Few packets become due, and their lag stays small. The busy share of
# the whole run also includes the time in which ranks compute.
class Utilization:
    """Meter for the load of a data plane while its ranks communicate.

    Args:
        plane: Data plane to measure.

    Attributes:
        measured_ns: Time during which a rank communicated in a measured iteration.
        measured_busy_ns: Part of ``measured_ns`` in which the data plane was busy.
        stopped_ns: Time during which the process was stopped.
    """

    def __init__(self, plane: DataPlane) -> None:
        self.measured_ns = 0
        self.measured_busy_ns = 0
        self.stopped_ns = 0
        self._plane = plane
        self._looked_ns: int | None = None
        self._busy_ns = 0

    def look(self, now_ns: int) -> None:
        """Add the time since the last call if a rank communicates now."""
        before_ns, self._looked_ns = self._looked_ns, now_ns
        busy_before_ns, self._busy_ns = self._busy_ns, self._plane.busy_ns
        if before_ns is None:
            return
        if now_ns - before_ns > 2 * LONGEST_WAIT_NS:
            self.stopped_ns += now_ns - before_ns - LONGEST_WAIT_NS
        if any(line.endpoint.is_measuring() for line in self._plane.lines):
            self.measured_ns += now_ns - before_ns
            self.measured_busy_ns += self._busy_ns - busy_before_ns


LONGEST_WAIT_NS = 50_000_000
"""Longest time for which a process waits for packets, and thus between calls of
``look``."""
QUEUE_PAIRS_PER_TURN = 2
TURNS_PER_PORT = 10
"""Number of turns that together update every port and the load once."""
TURNS_PER_DISTRIBUTION = 500


def _slots_of(kind: type) -> tuple[tuple[str, int], ...]:
    return tuple(
        (counter.name, slot(counter.slot))
        for counter in counters_of(kind)
        if counter.slot is not None
    )


_QUEUE_PAIR_SLOTS = _slots_of(QueuePairStatistics)
_PORT_SLOTS = _slots_of(PortStatistics)
_RX_BYTES = slot("rx_bytes")
_SOCKET_DROPS = slot("socket_drops")
_SEND_RETRIES = slot("send_retries")
_CPU_NS = slot("cpu_ns")


def _queued_ns() -> int:
    """Return how long this process has waited for a core, or 0 if unknown."""
    try:
        with open("/proc/self/schedstat", "rb") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


class CountedPair(Protocol):
    """A queue pair with statistics."""

    @property
    def qpn(self) -> int:
        """Number of the queue pair in the plan."""

    def statistics(self) -> QueuePairStatistics:
        """Return the current counters."""


@dataclass(slots=True, eq=False)
class _Pair:
    """A queue pair with its rank, its peer and the statistics at its last update."""

    pair: CountedPair
    rank: int
    peer: int
    first_rate_bps: int
    is_on_nic: bool
    counted: QueuePairStatistics | None = None
    is_limited: bool = False
    has_failed: bool = False


class Tally:
    """Updater of a shard's shared counters, which reads all lines of its data plane.

    Args:
        plane: Data plane whose lines are counted.
        plan: The part of the plan that this shard executes.
        counters: Shared counters to write to.
        shard: Index of the shard among the agent's processes.
    """

    def __init__(
        self,
        plane: DataPlane,
        plan: AgentPlan,
        counters: SharedCounters,
        *,
        shard: int,
    ) -> None:
        self._plane = plane
        self._counters = counters
        self._shard = shard
        # The shard's number in the plan. Unlike *shard*, these numbers may have gaps.
        (self._place,) = plan.shard_numbers()
        # The first turn sets these times. Before that turn, the process waits for other
        # agents.
        self._began_ns = 0
        self._began_cpu_ns = 0
        self._began_queued_ns = 0
        self._utilization = Utilization(plane)
        self._ports: list[PortStatistics | None] = [None] * len(plane.lines)
        self._sockets = [(0, 0, 0)] * len(plane.lines)
        self._disturbed: list[dict[int, int]] = [{} for _ in plane.lines]
        owners = queue_pair_owners(plan)
        self._pairs = [
            _Pair(
                pair,
                *owners[line.endpoint.port.number, pair.qpn],
                pair.statistics().rate_bps or 0,
                _is_on_nic(line),
            )
            for line in plane.lines
            for pair in _counted_pairs(line)
        ]
        self._limited = 0
        self._failed = 0
        self._next = 0
        self._turns = 0
        self._distributions: dict[tuple[str, int], HistogramCounts] = {}

    def look(self, now_ns: int) -> None:
        """Measure how busy the plane is. Call this much more often than ``turn``."""
        self._utilization.look(now_ns)

    def turn(self) -> None:
        """Update the next few ports, queue pairs and distributions."""
        lines = len(self._plane.lines)
        for index in range(self._turns % TURNS_PER_PORT, lines, TURNS_PER_PORT):
            self._count_port(index)
        if self._turns % TURNS_PER_PORT == 0:
            self._count_load()
        for index in range(
            self._turns % TURNS_PER_DISTRIBUTION, lines + 1, TURNS_PER_DISTRIBUTION
        ):
            self._count_distributions_of(index)
        self._turns += 1
        pairs = min(QUEUE_PAIRS_PER_TURN, len(self._pairs))
        for _ in range(pairs):
            self._count_pair(self._next)
            self._next = (self._next + 1) % len(self._pairs)

    def finish(self) -> None:
        """Update all counters."""
        lines = len(self._plane.lines)
        for index in range(lines):
            self._count_port(index)
        for index in range(len(self._pairs)):
            self._count_pair(index)
        self._count_load()
        for index in range(lines + 1):
            self._count_distributions_of(index)

    def _count_port(self, index: int) -> None:
        values = self._counters.values
        line = self._plane.lines[index]
        now = line.endpoint.engine.statistics()
        _add(values, _PORT_SLOTS, self._ports[index], now)
        self._ports[index] = now
        drops, retries, received = self._sockets[index]
        sockets = (line.port.socket_drops, line.port.send_retries, line.received_bytes)
        values[_SOCKET_DROPS] += sockets[0] - drops
        values[_SEND_RETRIES] += sockets[1] - retries
        values[_RX_BYTES] += sockets[2] - received
        self._sockets[index] = sockets
        disturbed = line.endpoint.engine.faults_disturbed()
        for fault, count in disturbed.items():
            values[fault_slot(fault)] += count - self._disturbed[index].get(fault, 0)
        self._disturbed[index] = disturbed
        if _is_on_nic(line):
            return
        port = line.endpoint.port.number
        sampled = port_row(line, self._place, *sampled_of(now))
        row = (monotonic_ns(), port, *sampled)
        self._counters.set_port(index, row)

    def _count_load(self) -> None:
        cpu_ns = time.process_time_ns()
        self._counters.values[_CPU_NS] = cpu_ns
        if not self._began_ns:
            self._began_ns = monotonic_ns()
            self._began_cpu_ns = cpu_ns
            self._began_queued_ns = _queued_ns()
        plane = self._plane
        self._counters.set_load(
            ShardLoad(
                shard=self._shard,
                wall_ns=monotonic_ns() - self._began_ns,
                cpu_ns=cpu_ns - self._began_cpu_ns,
                max_lag_ns=plane.max_lag_ns,
                late_rounds=plane.late_rounds,
                rounds=plane.rounds,
                busy_ns=plane.busy_ns,
                measured_ns=self._utilization.measured_ns,
                measured_busy_ns=self._utilization.measured_busy_ns,
                queued_ns=_queued_ns()
                - self._began_queued_ns
                + self._utilization.stopped_ns,
                queue_pairs=len(self._pairs),
                queue_pairs_limited=self._limited,
                queue_pairs_failed=self._failed,
            )
        )

    def _count_distributions_of(self, index: int) -> None:
        """Update the distributions of a line, which have about thirty numbers each.

        If *index* is the number of lines, update the distribution of the data plane.
        """
        if index == len(self._plane.lines):
            self._count_distribution("generator_lag", -1, self._plane.lags.snapshot())
            return
        engine = self._plane.lines[index].endpoint.engine
        self._count_distribution("round_trip", index, engine.round_trips.snapshot())
        self._count_distribution("pacing_error", index, engine.pacing_errors.snapshot())

    def _count_distribution(self, name: str, index: int, now: HistogramCounts) -> None:
        before = self._distributions.get((name, index))
        if before == now:
            return
        self._distributions[name, index] = now
        values = self._counters.values
        first = distribution_slot(name)
        for bucket, count in enumerate((*now.counts, now.sum_ns)):
            if before is not None:
                count -= (*before.counts, before.sum_ns)[bucket]
            if count:
                values[first + bucket] += count

    def _count_pair(self, index: int) -> None:
        entry = self._pairs[index]
        now = entry.pair.statistics()
        _add(self._counters.values, _QUEUE_PAIR_SLOTS, entry.counted, now)
        entry.counted = now
        has_failed = now.failure is not None
        is_limited = not has_failed and (now.rate_bps or 0) < entry.first_rate_bps
        self._limited += is_limited - entry.is_limited
        entry.is_limited = is_limited
        self._failed += has_failed - entry.has_failed
        entry.has_failed = has_failed
        if entry.is_on_nic:
            return
        row = queue_pair_row(
            monotonic_ns(), entry.rank, entry.peer, entry.pair.qpn, now
        )
        self._counters.set_queue_pair(index, row)


def _add(
    values: memoryview[int],
    slots: Sequence[tuple[str, int]],
    before: object | None,
    now: object,
) -> None:
    for name, number in slots:
        count = getattr(now, name)
        if before is not None:
            count -= getattr(before, name)
        if count:
            values[number] += count
