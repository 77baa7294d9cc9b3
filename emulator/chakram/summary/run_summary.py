"""Summary of a run: one row per collective, size and group size.

Definitions:

time
    Time from the first start to the last end over the ranks of the group.  It is the
    mean over the measured iterations and over all collectives of the row.  It excludes
    warm-up iterations and collectives that at least one rank has not finished.  The
    time of a barrier begins at its last start, so it does not include the wait for the
    last rank.
skew
    Time from the first start to the last start, averaged in the same way.  It is None
    for point-to-point messages, which one rank starts.
algbw, busbw
    Bandwidths for that time, defined as in nccl-tests (``chakram.summary.bandwidth``).
cv
    Coefficient of variation of the times of the row.  It is None if there is only one
    time.
bound, % of bound
    Mean lower bound on the collectives' times (``chakram.predict.bound``).  If a
    collective completes before its bound, because a shaper passes short bursts, its
    measured time replaces the bound.  The share is the bound divided by the measured
    time.  It is at most 100 %, and a fast collective does not offset the delay of
    another collective.
alone, % of alone
    Mean time of the collectives in simulations in which each collective is alone on the
    fabric, with the paths of the run.  The share is that time divided by the measured
    time.  Point-to-point messages have no schedule, so this column uses their fair
    times (``chakram.summary.message_summary``).
deviation
    Measured time divided by predicted time, minus 1.  If paths are unknown, several
    random draws of paths give a range of predicted times.  The deviation is 0 within
    the range.  Outside the range, it is relative to the nearer end.  Barriers have no
    deviation and no shares.  Their empty packets take longer at hosts than in the
    network, and the model does not cover hosts.
completion times
    Nearest-rank percentiles over the row's flows in measured iterations.

``chakram.summary.summarize_run`` calculates the summary.

A run with *dilation* is stretched in time.  Its records contain raw times.  A summary
divides raw times by the dilation, so times and bandwidths are those of the undilated
fabric.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
"""Name of the world of runs in virtual time."""

DRAW = "."
"""Separator between the source of a prediction and the number of a path draw."""

COMPLETE = "complete"
"""Status of a run in which all ranks have finished their work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Checks of received packets, and their results.

    Attributes:
        every: One in this many packets is checked. 0 means that none is checked.
        has_icrcs: Whether packets carry ICRCs.  If not, only payloads are checked.
        packets: Number of packets that were checked.
        icrc_errors: Number of checked packets that were dropped for a wrong ICRC.
        wrong_payloads: Number of checked packets that were accepted with a wrong
            payload.
    """

    every: int = 0
    has_icrcs: bool = True
    packets: int = 0
    icrc_errors: int = 0
    wrong_payloads: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Facts about a run that are not measurements.

    ``fabric`` and ``transport`` are one-line descriptions.  ``banners`` are warnings
    from other parts of the program.  ``rate_key`` is the key of the port rate in the
    experiment file.  ``stretches`` states whether time can be dilated in this world.
    ``nics`` contains the device and the counters of each port on an RDMA NIC.  Chakram
    does not see the packets of such ports.
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
    nics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def nic_counters(self) -> list[tuple[str, str]]:
        """Return the device and the nonzero counters of each NIC, as text."""
        found = []
        for port, each in self.nics.items():
            counters = each.get("counters")
            some = [
                f"{name} {count}" for name, count in (counters or {}).items() if count
            ]
            text = ", ".join(some) or "all counters are 0"
            if counters is None:
                text = "its counters are unknown"
            found.append((f"NIC {each['device']} of {port}", text))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Input of a summary, with raw times."""

    facts: RunFacts
    collectives: Sequence[CollectiveRecord]
    ranks: Sequence[RankRecord] = ()
    links: Sequence[LinkRecord] = ()
    completion_times: Mapping[CollectiveKey, array[int]] = field(default_factory=dict)
    messages: Sequence[SentMessage] = ()
    transport: MessageTransport | None = None
    generator: Mapping[str, GeneratorHealth] = field(default_factory=dict)
    """Health of the traffic generator by agent."""
    traffic: Traffic | None = None
    """Counters of the queue pairs, or None if unknown."""
    background: Collection[str] = ()
    """Jobs that repeat until all other jobs have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Mean predicted time of a row, and the deviation of the measured time from it.

    ``deviation`` is None for barriers.  If paths were drawn at random, ``time_ns`` is
    the median of the draws.  ``least_ns`` and ``most_ns`` are the range of the draws,
    and the deviation is 0 within that range.
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
    """One row of the results table.

    Bandwidths are bytes per second, or None for barriers and groups of one rank.

    ``job`` is the job of the collectives.  An iteration has ``per_iteration``
    collectives of the row, in ``groups`` process groups.  ``samples`` is the number of
    measured collectives, and ``generator_bound`` of them were generator-bound.
    ``generator_wait_share`` is the share of their total time in which packets waited
    for the generator.  The mean time is too long by at most this share.  ``wrong``
    counts packets accepted with a wrong payload.  It is None if no packet was checked,
    or if only a sample was checked and contained no wrong packet.
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
    cv: float | None
    skew_ns: float | None
    algbw: float | None
    busbw: float | None
    bound_ns: float | None
    bound_share: float | None
    alone_ns: float | None
    alone_share: float | None
    predictions: Mapping[str, Prediction]
    completion: CompletionTimes | None
    packets: int | None
    retransmitted: int | None
    marked: int | None
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
    """Times of the measured iterations of one job, over all its ranks.

    A background job repeats until all other jobs have ended.
    """

    job: str
    iterations: int
    mean_ns: float
    p50_ns: float
    p99_ns: float
    max_ns: float
    cv: float | None
    is_background: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SlipSummary:
    """Delays of one job's measured collectives after their recorded start times.

    A job has such a summary only if it follows recorded start times and has at least
    one late collective.  ``late`` is the number of late collectives.
    """

    job: str
    collectives: int
    late: int
    p50_ns: float
    p99_ns: float
    max_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Load balance of the links of one kind.

    ``jain`` is Jain's fairness index, (sum x)^2 / (n sum x^2).  1 means equal loads,
    and 1/n means that one link has the whole load.
    """

    links: int
    max_over_mean: float
    jain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Summary of a run, with undilated times.

    Attributes:
        banners: Warnings that precede all numbers, most important first.
        rows: Rows of the results table, by job, collective, group size and size.
        average_busbw: Mean busbw over the rows, as in nccl-tests, or None if there are
            no rows with a busbw.
        generator_bound: Number of generator-bound collectives, out of ``verdicts``.
        generator_wait_share: Largest share among the rows that move data.
        verdicts: Number of measured collectives sent by a generator. 0 in a simulation.
        unfinished: Number of collectives that at least one rank has not finished.
        uplinks: Balance of the links between switches, or None if there are none.
        packets: Number of data packets of the whole run, each counted once.  If there
            are no queue pair counters, this and the next two attributes are sums over
            the rows.
        retransmitted: Number of retransmitted packets.
        marked: Number of packets that arrived with the mark "congestion experienced".
        traffic: Reasons for the retransmissions, or None if unknown.
        messages: Summary of point-to-point messages, or None if there are none.
        generator: Health of the generator, or None if unknown.
        keeping_up: Rates at which the generator would have kept up, or None if it did.
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
    def deviation(self) -> float | None:
        """Deviation of all collectives from the simulation of the run.

        It is the mean of the rows' deviations, weighted by their simulated times.  It
        is None if no row has a deviation.
        """
        weighted = [
            (row.samples * prediction.time_ns, prediction.deviation)
            for row in self.rows
            if (prediction := row.predictions.get(SIMULATE)) is not None
            and prediction.deviation is not None
        ]
        total_ns = sum(time_ns for time_ns, _ in weighted)
        if not total_ns:
            return None
        return sum(time_ns * deviation for time_ns, deviation in weighted) / total_ns

    @property
    def longest(self) -> IterationSummary | None:
        """Iterations of the job with the longest mean, without background jobs."""
        own = (each for each in self.iterations if not each.is_background)
        return max(own, key=lambda each: each.mean_ns, default=None)

    @property
    def is_counted(self) -> bool:
        """Whether Chakram counted all packets before the run ended."""
        if self.facts.nics:
            return False
        is_complete = self.facts.status == COMPLETE
        return is_complete or self.traffic is not None or bool(self.rows)
