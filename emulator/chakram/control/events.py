"""What an agent tells its controller while a session lasts."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from chakram.foundation.field_bounds import Clipped, Rows
from chakram.records.counter_slots import TOTAL_SLOTS
from chakram.records.row_layout import RecordRows

Sentences = Annotated[tuple[str, ...], Clipped(64, 2000)]
"""For people: more than anybody reads is left out on the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDescription:
    """What an agent says about itself and its host.

    Attributes:
        protocol: Version of the control protocol.
        version: Of chakram.
        uncompiled_modules: Hot modules that run in their plain, slower form.
        port_kinds: What a port specification may begin with, e.g. ``udp``.
        allow: Prefixes that the agent sends to; nothing else, whatever a plan says.
        max_rate_bps: The most that the agent sends in all; None: no limit.
        free_shards: Data-plane processes that the host has cores for.
        phase: Of the agent's state machine.
        monotonic_ns: The host's clock while it answered.
        receive_buffer_bytes: The most that a socket may have there; None: unknown.
        clock: Names the host's monotonic clock: who has the same name reads the same.
        stalled_ns: Longest stall of the agent's event loop in the last seconds.
        ended_session: The last session that ended; empty: none has.
        ended_reason: Why it did.
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
    """The agent is in another phase; ``phase`` is the name of a ``Phase``."""

    time_ns: int
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the ranks of the agent are.

    Attributes:
        counter: Grows whenever a message or an iteration ends.
        iterations: (number of the rank in the plan, iterations done) of every rank.
        waiting_for: What each unfinished rank waits for, as sentences; only while
            nothing moves, empty otherwise.
        foreign: Which queue pairs got packets from other addresses than their peer's,
            and none from there, as sentences.
    """

    time_ns: int
    counter: int
    iterations: tuple[tuple[int, int], ...]
    waiting_for: Sentences = ()
    foreign: Sentences = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBatch:
    """Rows of records, new since the last batch."""

    time_ns: int
    rows: RecordRows


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLoad:
    """How a data-plane process keeps up.

    Attributes:
        shard: Its number.
        wall_ns: Time since it began to send.
        cpu_ns: CPU time in that.
        max_lag_ns: The longest that something due had to wait for the loop.
        late_rounds: Rounds of the loop that came more than 1 ms late.
        rounds: All rounds.
        busy_ns: Time of those rounds in which something was received or sent.
        measured_ns: Time in which its ranks communicated in measured iterations.
        measured_busy_ns: What of that belongs to such rounds.
        queued_ns: Time in which it could have run and had no core; 0 if the kernel
            does not say.
        queue_pairs: Queue pairs that the following were counted of.
        queue_pairs_limited: Those whose rate is below the one that they begin at.
        queue_pairs_failed: Those in the error state.
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
    """The counters of a run of all shards of the agent, added up, and their loads.

    ``values`` has the layout of ``chakram.records.counter_slots``.
    """

    time_ns: int
    values: Annotated[Sequence[int], Rows(TOTAL_SLOTS, is_one=True)] = field(
        default_factory=lambda: array("q", bytes(8 * TOTAL_SLOTS))
    )
    loads: tuple[ShardLoad, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """Something that people should read; ``level`` is warning or info."""

    time_ns: int
    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """All ranks have done all iterations; every record was sent before this.

    The agent goes on answering its peers until it is reset.
    """

    time_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The run has ended early on this agent, and its traffic has ended.

    ``waiting_for`` says for each unfinished rank what it waited for.
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
