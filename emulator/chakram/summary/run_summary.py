"""What a run says in the end: one row per collective, size and group size.

Definitions:

time
    First start to last end over the ranks of the group; the mean over the measured
    iterations and over all collectives of the row.  Warm-up iterations and collectives
    that not every rank has finished are left out.  That of a barrier is from its last
    start: how long ranks wait for the last one says nothing of how it works.
skew
    First start to last start, the mean likewise; None for point-to-point messages,
    which one rank starts.
algbw, busbw
    Of that time, as nccl-tests has them (``chakram.summary.bandwidth``).
cv
    Coefficient of variation of the times of the row.
bound, % of bound
    Mean of what the collectives take at least (``chakram.predict.bound``), or of when
    they were done where that was sooner: a shaper lets short bursts pass.  The share is
    that over measured time, so that none is above 100 %: what one collective gained
    makes up for no other's delay.
alone, % of alone
    Mean of what the collectives take by themselves on the fabric, simulated with the
    paths of the run, and that over measured time.  Point-to-point messages have no
    schedule: by themselves they take their fair times
    (``chakram.summary.message_summary``).
deviation
    Measured over predicted time, minus 1; where paths are not known, over the nearest
    time of the range that draws of them give, 0 within it.  Neither it nor a share is
    known of barriers: hosts take longer for an empty packet than a network, and a model
    of the network says nothing of hosts.
completion times
    Of the row's flows in measured iterations; nearest-rank percentiles.

``chakram.summary.summarize_run`` makes it.

A run with *dilation* was stretched: records hold raw time, a summary divides it by the
dilation, so that its times and bandwidths are those of the undilated fabric.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram.collectives.ops import CollectiveOp
    from chakram.records.run_records import (
        CollectiveKey,
        CollectiveRecord,
        LinkRecord,
        RankRecord,
    )
    from chakram.summary.generator_advice import KeepingUp
    from chakram.summary.generator_health import GeneratorHealth, GeneratorSummary
    from chakram.summary.message_summary import (
        MessageSummary,
        MessageTransport,
        SentMessage,
    )
    from chakram.summary.retransmissions import Traffic

SIMULATE = "simulate"
"""World of a run in virtual time."""

DRAW = "."
"""Stands between the source of predictions and the number of a draw of paths."""

COMPLETE = "complete"
"""Status of a run whose ranks have all done all their work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """How packets were looked at that arrived, and what was found.

    Attributes:
        every: One in so many was looked at; 0: none.
        has_icrcs: Whether there were ICRCs to look at, else payloads alone.
        packets: How many were looked at.
        icrc_errors: Those of them that were dropped for a wrong ICRC.
        wrong_payloads: Those of them that were taken with a wrong payload.
    """

    every: int = 0
    has_icrcs: bool = True
    packets: int = 0
    icrc_errors: int = 0
    wrong_payloads: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is said of a run beside its numbers.

    ``fabric`` and ``transport`` are one line each; ``banners`` are warnings of other
    parts of the program that belong on top; ``rate_key`` is the key of the experiment
    file that states the rate of ports; ``stretches`` whether their time can be.
    """

    run_id: str
    name: str
    world: str
    status: str = COMPLETE
    reason: str | None = None
    case: str | None = None
    fabric: str = ""
    transport: str = ""
    sync: str = "barrier"
    warmup: int = 0
    measured: int = 1
    size_scale: str = "1"
    dilation: int = 1
    clock_uncertainty_ns: int = 0
    samples_dropped: int = 0
    verification: Verification = field(default_factory=Verification)
    banners: tuple[str, ...] = ()
    directory: str | None = None
    rate_key: str | None = None
    stretches: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """All that a summary is made of; raw times."""

    facts: RunFacts
    collectives: Sequence[CollectiveRecord]
    ranks: Sequence[RankRecord] = ()
    links: Sequence[LinkRecord] = ()
    completion_times: Mapping[CollectiveKey, array[int]] = field(default_factory=dict)
    messages: Sequence[SentMessage] = ()
    transport: MessageTransport | None = None
    generator: Mapping[str, GeneratorHealth] = field(default_factory=dict)
    """By agent."""
    traffic: Traffic | None = None
    """What the queue pairs have counted; None if nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Mean predicted time of a row, and what was measured over it, minus 1.

    ``deviation`` is None for barriers.  Where paths were drawn ``time_ns`` is the
    median of the draws, ``least_ns`` and ``most_ns`` their range, and the deviation is
    from that: 0 within it.
    """

    time_ns: float
    deviation: float | None
    draws: int = 1
    least_ns: float | None = None
    most_ns: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionTimes:
    """Percentiles of the completion times of a row's flows."""

    flows: int
    p50_ns: float
    p95_ns: float
    p99_ns: float
    p999_ns: float
    p100_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow:
    """One line of the table.

    Bandwidths are bytes per second; None for barriers and groups of one rank.

    ``wrong`` counts packets that were taken with a wrong payload, None where nobody
    looked.  ``job`` is whose collectives they are.  ``per_iteration`` is how many
    collectives of the row an iteration has, in ``groups`` process groups; ``samples``
    how many were measured in all; ``generator_bound`` of them were generator-bound, and
    for ``generator_wait_share`` of the time of all they waited for the generator: their
    mean is too long by that at most.
    """

    job: str
    op: CollectiveOp
    algorithm: str
    nranks: int
    root: int | None
    size_bytes: int
    trace_size_bytes: int
    groups: int
    per_iteration: int
    iterations: int
    samples: int
    time_ns: float
    min_ns: float
    p99_ns: float
    max_ns: float
    mean_over_ranks_ns: float
    cv: float
    skew_ns: float | None
    algbw: float | None
    busbw: float | None
    bound_ns: float | None
    bound_share: float | None
    alone_ns: float | None
    alone_share: float | None
    predictions: Mapping[str, Prediction]
    completion: CompletionTimes | None
    packets: int
    retransmitted: int
    marked: int
    generator_bound: int
    generator_wait_share: float
    wrong: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSummary:
    """Means of one rank over the measured iterations."""

    job: str
    rank: int
    iterations: int
    iteration_ns: float
    compute_ns: float
    communication_ns: float
    exposed_ns: float
    idle_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationSummary:
    """Times of the measured iterations of one job, over all its ranks."""

    job: str
    iterations: int
    mean_ns: float
    p50_ns: float
    p99_ns: float
    max_ns: float
    cv: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlipSummary:
    """How much later than recorded the measured collectives of one job started.

    Only of jobs that go by recorded times and of which at least one collective was
    late; ``late`` counts those.
    """

    job: str
    collectives: int
    late: int
    p50_ns: float
    p99_ns: float
    max_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """How evenly links of one kind were loaded.

    ``jain`` is Jain's fairness index, (sum x)^2 / (n sum x^2): 1 is even, 1/n all on
    one link.
    """

    links: int
    max_over_mean: float
    jain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run says in the end; times are undilated.

    Attributes:
        banners: What a reader must know before any number, most important first.
        rows: By job, collective, group size and size.
        average_busbw: Mean over the rows, as nccl-tests prints it; None without rows.
        generator_bound: Collectives that were generator-bound, of ``verdicts``: those
            that a generator has sent, so none in a simulation.
        generator_wait_share: The largest of the rows that move data.
        unfinished: Collectives that not all of their ranks have finished.
        uplinks: Balance of the links between switches, None where there are none.
        packets: Data packets of the whole run, each counted once; where the counters
            of queue pairs are not known, those of the rows, as the next two.
        retransmitted: Packets sent again.
        marked: Packets that came marked "congestion experienced".
        traffic: Why they were sent again; None if nobody knows.
        messages: What is said of point-to-point messages, None where there are none.
        generator: How the generator kept up, None where nobody noted it.
        keeping_up: At what it would have kept up, None where it did.
    """

    facts: RunFacts
    banners: tuple[str, ...]
    rows: tuple[SummaryRow, ...]
    average_busbw: float | None
    iterations: tuple[IterationSummary, ...]
    slips: tuple[SlipSummary, ...]
    ranks: tuple[RankSummary, ...]
    links: tuple[LinkRecord, ...]
    uplinks: Balance | None
    generator_bound: int
    generator_wait_share: float
    verdicts: int
    unfinished: int
    packets: int
    retransmitted: int
    marked: int
    messages: MessageSummary | None = None
    generator: GeneratorSummary | None = None
    keeping_up: KeepingUp | None = None
    traffic: Traffic | None = None

    @property
    def is_counted(self) -> bool:
        """Whether packets were counted before the run ended."""
        is_complete = self.facts.status == COMPLETE
        return is_complete or self.traffic is not None or bool(self.rows)
