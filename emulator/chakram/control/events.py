"""Events that an agent sends to its controller during a session."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from chakram.control.wall_clock_sync import TimeSource
from chakram.foundation.field_bounds import AtMost, Clipped, Name, Rows, Within
from chakram.records.counter_slots import TOTAL_SLOTS
from chakram.records.row_layout import RecordRows

Sentences = Annotated[tuple[str, ...], Clipped(64, 2000)]
"""Sentences for the user. Both sides shorten long texts and lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDescription:
    """The description of an agent and its host.

    Attributes:
        protocol: Version of the control protocol.
        version: Version of Chakram.
        max_rate_bps: Highest total rate of the agent. None if there is no limit.
        phase: Phase of the agent's state machine.
        clock: Name of the host's monotonic clock. Equal names mean the same clock.
        stalled_ns: Longest recent stall of the agent's event loop.
        ended_session: The last session that ended. Empty if no session has ended.
        ended_reason: Why *ended_session* ended.
        bundle: Digest of the bundle that the agent runs from. Empty if it is installed.
        numa_nodes: NUMA nodes with a CPU that the agent may use.
        wall_ahead_ns: How far the wall clock is ahead of the monotonic clock.
        time_source: Program that synchronizes the host's wall clock. None if unknown.
    """

    protocol: int
    version: str
    host: str
    kernel: str
    python: str
    cores: int
    compiled: bool
    max_rate_bps: int | None
    phase: str
    clock: str
    stalled_ns: int = 0
    ended_session: str = ""
    ended_reason: str = ""
    bundle: str = ""
    numa_nodes: tuple[int, ...] = ()
    wall_ahead_ns: int = 0
    time_source: TimeSource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChanged:
    """The agent entered another phase. ``phase`` is the name of a ``Phase``."""

    time_ns: int
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of the agent's ranks.

    Attributes:
        counter: Number that grows while the ranks make progress.
        iterations: For every rank, its number in the plan and its number of completed
            iterations.
        waiting_for: Sentences about what each unfinished rank waits for. Empty unless
            the run stalls.
        foreign: Sentences about queue pairs that received packets only from addresses
            other than their peer's.
        resting: Numbers of idle ranks: they must not begin an iteration, and neither
            send nor compute.
    """

    time_ns: int
    counter: int
    iterations: tuple[tuple[int, int], ...]
    waiting_for: Sentences = ()
    foreign: Sentences = ()
    resting: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBatch:
    """Rows of records that were added since the last batch."""

    time_ns: int
    rows: RecordRows


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLoad:
    """The load of a data-plane process.

    Attributes:
        shard: Index of the process.
        wall_ns: Time since the process was armed.
        cpu_ns: CPU time since the process was armed.
        max_lag_ns: Longest delay until the main loop served a port that was due.
        late_rounds: Number of such delays above 1 ms.
        rounds: Number of rounds of the main loop.
        busy_ns: Duration of the rounds that received or sent packets.
        measured_ns: Time during which the shard's ranks communicated in measured
            iterations.
        measured_busy_ns: Part of ``measured_ns`` in rounds that received or sent
            packets.
        queued_ns: Time that the process was runnable but waited for a core, or was
            stopped. 0 if unknown.
        queue_pairs: Number of queue pairs included in the following counts.
        queue_pairs_limited: Number of queue pairs with a rate below their initial rate.
        queue_pairs_failed: Number of queue pairs in the error state.
    """

    shard: int
    wall_ns: int
    cpu_ns: int
    max_lag_ns: int
    late_rounds: int
    rounds: int
    busy_ns: int = 0
    measured_ns: int = 0
    measured_busy_ns: int = 0
    queued_ns: int = 0
    queue_pairs: int = 0
    queue_pairs_limited: int = 0
    queue_pairs_failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CountersSnapshot:
    """Counters of a run, summed over the agent's shards, and loads of the shards.

    ``values`` has the layout of ``chakram.records.counter_slots``.
    """

    time_ns: int
    values: Annotated[Sequence[int], Rows(TOTAL_SLOTS, is_one=True)] = field(
        default_factory=lambda: array("q", bytes(8 * TOTAL_SLOTS))
    )
    loads: tuple[ShardLoad, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A message for the user. ``level`` is warning or info."""

    time_ns: int
    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """All ranks have completed all iterations, and the agent has sent all records.

    The agent continues to answer its peers until the controller resets it.
    """

    time_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NicCounters:
    """An RDMA NIC's settings, and its hardware counters since the start of the run.

    Attributes:
        port: Number of the port in the plan.
        counts: Name and count of every counter that the device has.
        settings: Name and value of every setting that could be read.
    """

    time_ns: int
    port: Annotated[int, Within(0, 2**31 - 1)]
    counts: Annotated[tuple[tuple[Name, int], ...], AtMost(256)] = ()
    settings: Annotated[tuple[tuple[Name, Name], ...], AtMost(256)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCounters:
    """Counters of the agent's host since the start of the run.

    Attributes:
        counts: Name and increase of each counter that could be read. A frequency is
            reported as its value instead.
    """

    time_ns: int
    counts: Annotated[tuple[tuple[Name, int], ...], AtMost(8192)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The run ended early on this agent, and its traffic has ended.

    ``waiting_for`` states what each unfinished rank waited for.
    """

    time_ns: int
    reason: str
    waiting_for: Sentences = ()


AgentEvent = (
    PhaseChanged
    | Progress
    | RecordBatch
    | CountersSnapshot
    | LogLine
    | Finished
    | Failed
    | NicCounters
    | HostCounters
)
