"""Events that an agent sends to its controller during a session."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from chakram.foundation.field_bounds import Clipped, Rows
from chakram.records.counter_slots import TOTAL_SLOTS
from chakram.records.row_layout import RecordRows

Sentences = Annotated[tuple[str, ...], Clipped(64, 2000)]
"""Sentences for the user; long texts and lists are clipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDescription:
    """The description of an agent and its host.

    Attributes:
        protocol: Version of the control protocol.
        version: Version of Chakram.
        uncompiled_modules: Hot modules that run in their slower, plain form.
        port_kinds: Supported prefixes of port specifications, e.g. ``udp``.
        allow: Prefixes that the agent sends to, regardless of the plan.
        max_rate_bps: Highest total rate of the agent; None: no limit.
        free_shards: Number of data-plane processes that the host has cores for.
        phase: Phase of the agent's state machine.
        monotonic_ns: Time of the host's monotonic clock when the agent answered.
        receive_buffer_bytes: Largest receive buffer of a socket; None: unknown.
        clock: Name of the host's monotonic clock; equal names mean the same clock.
        stalled_ns: Longest recent stall of the agent's event loop.
        ended_session: The last session that ended; empty if none has.
        ended_reason: Why that session ended.
    """

    protocol: int
    version: str
    host: str
    kernel: str
    python: str
    cores: int
    compiled: bool
    uncompiled_modules: tuple[str, ...]
    port_kinds: tuple[str, ...]
    allow: tuple[str, ...]
    max_rate_bps: int | None
    free_shards: int
    phase: str
    monotonic_ns: int
    receive_buffer_bytes: int | None
    clock: str
    stalled_ns: int = 0
    ended_session: str = ""
    ended_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChanged:
    """The agent entered another phase; ``phase`` is the name of a ``Phase``."""

    time_ns: int
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of the agent's ranks.

    Attributes:
        counter: Number that grows while the ranks make progress.
        iterations: (number in the plan, iterations done) of every rank.
        waiting_for: Sentences about what each unfinished rank waits for; empty unless
            the run stalls.
        foreign: Sentences about queue pairs that received packets only from addresses
            other than their peer's.
    """

    time_ns: int
    counter: int
    iterations: tuple[tuple[int, int], ...]
    waiting_for: Sentences = ()
    foreign: Sentences = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBatch:
    """New rows of records since the last batch."""

    time_ns: int
    rows: RecordRows


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLoad:
    """The load of a data-plane process.

    Attributes:
        shard: Index of the process.
        wall_ns: Time since it was armed.
        cpu_ns: CPU time since it was armed.
        max_lag_ns: Longest delay until the main loop served a port that was due.
        late_rounds: Number of such delays above 1 ms.
        rounds: Number of rounds of the main loop.
        busy_ns: Duration of the rounds that received or sent packets.
        measured_ns: Time in which its ranks communicated in measured iterations.
        measured_busy_ns: Part of ``measured_ns`` in rounds that received or sent
            packets.
        queued_ns: Time in which it was ready to run but had no core; 0 if unknown.
        queue_pairs: Number of queue pairs included in the following counts.
        queue_pairs_limited: Queue pairs whose rate is below their initial rate.
        queue_pairs_failed: Queue pairs in the error state.
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
    """The counters of a run, summed over the agent's shards, and the shards' loads.

    ``values`` has the layout of ``chakram.records.counter_slots``.
    """

    time_ns: int
    values: Annotated[Sequence[int], Rows(TOTAL_SLOTS, is_one=True)] = field(
        default_factory=lambda: array("q", bytes(8 * TOTAL_SLOTS))
    )
    loads: tuple[ShardLoad, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A message for the user; ``level`` is warning or info."""

    time_ns: int
    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """All ranks have done all iterations, and all records have been sent.

    The agent continues to answer its peers until it is reset.
    """

    time_ns: int


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
)
