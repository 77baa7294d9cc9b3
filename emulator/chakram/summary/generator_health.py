"""Health of the traffic generator: whether it limited the results of a run.

Every agent keeps histograms of loop delays, pacing errors and round-trip times.  Each
bucket is twice as wide as the previous one.  Only the bucket of a percentile is known,
so the upper bound of that bucket is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from chakram.records.counter_slots import (
    FCT_BUCKET_BOUNDS_NS,
    FCT_BUCKETS,
    distribution_slot,
    slot,
)

SATURATED_SHARE = 0.9
"""Busy share above which a process is saturated.

Bursts of work queue up before the mean busy share reaches 1.
"""

_LAST_BOUND_NS = FCT_BUCKET_BOUNDS_NS[-1]
_TIMES = (
    ("pacing_error_p99_ns", "pacing_error", "p99_ns"),
    ("generator_lag_p99_ns", "generator_lag", "p99_ns"),
    ("round_trip_p50_ns", "round_trip", "p50_ns"),
    ("round_trip_p99_ns", "round_trip", "p99_ns"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBounds:
    """Upper bounds of percentiles of times.

    A bound is None if there are no times, or if the time exceeds the bound of the last
    bucket (67 s).

    Attributes:
        count: Number of times.
        p50_ns: Upper bound of the median.
        p99_ns: Upper bound of the 99th percentile.
        max_ns: Upper bound of the maximum.
    """

    count: int = 0
    p50_ns: int | None = None
    p99_ns: int | None = None
    max_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardHealth:
    """Load of one data-plane process.

    Attributes:
        shard: Number of the process.
        wall_ns: Time since the process received its start time.
        cpu_ns: CPU time during ``wall_ns``.  The process spins while packets flow.
        busy_ns: Time during which the process sent or received.
        measured_ns: Time during which its ranks communicated in measured iterations. 0
            in runs of Chakram versions that did not record this time.
        measured_busy_ns: Busy time within ``measured_ns``.
        queued_ns: Time for which the process was runnable but had no core, or was
            stopped. 0 in runs of Chakram versions that did not record this time.
        max_lag_ns: Longest time that due work waited for the loop.
        late_rounds: Number of waits of due work above 1 ms.
        rounds: Number of rounds of the data-plane loop.
    """

    shard: int
    wall_ns: int = 0
    cpu_ns: int = 0
    busy_ns: int = 0
    measured_ns: int = 0
    measured_busy_ns: int = 0
    queued_ns: int = 0
    max_lag_ns: int = 0
    late_rounds: int = 0
    rounds: int = 0

    @property
    def busy_share(self) -> float:
        """Busy share of ``measured_ns``, or of ``wall_ns`` if ``measured_ns`` is 0."""
        if self.measured_ns:
            return self.measured_busy_ns / self.measured_ns
        return self.busy_ns / self.wall_ns if self.wall_ns else 0.0

    @property
    def is_saturated(self) -> bool:
        """Whether the busy share exceeds ``SATURATED_SHARE``."""
        return self.measured_ns > 0 and self.busy_share > SATURATED_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorHealth:
    """Health of one agent, with raw times of the whole run, including warm-up.

    Attributes:
        round_trip: Time from a packet that requests an acknowledgment to the ACK.
        pacing_error: Delay of bursts relative to their scheduled times.
        generator_lag: Time that due work waited for the loop.
        generator_wait_ns: Total time that ports waited for the data plane.
        socket_drops: Number of packets dropped because the kernel's receive buffer was
            full.
        send_retries: Number of sends that failed because the kernel's send buffer was
            full, or the interface was down.
        shards: Load of each process.
    """

    round_trip: TimeBounds = TimeBounds()
    pacing_error: TimeBounds = TimeBounds()
    generator_lag: TimeBounds = TimeBounds()
    generator_wait_ns: int = 0
    socket_drops: int = 0
    send_retries: int = 0
    shards: tuple[ShardHealth, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SaturatedProcess:
    """A data-plane process that may have limited its ranks."""

    agent: str
    shard: int
    busy_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorSummary:
    """The worst values of all agents and their processes, with undilated times.

    Times are upper bounds in ns, or None if nothing was counted.  Times named in
    ``beyond`` exceed the last bucket, so their bounds are unknown.

    Attributes:
        pacing_error_p99_ns: Largest value of any agent.
        generator_lag_p99_ns: Largest value of any agent.
        generator_lag_max_ns: Largest value of any process, exact.
        round_trip_p50_ns: Largest value of any agent.
        round_trip_p99_ns: Largest value of any agent.
        busy_share: Largest busy share of any process, in the time in which its ranks
            communicated in measured iterations.
        cpu_share: Largest CPU share of any process, over the whole time of the process.
        saturated: Saturated processes, busiest first.
        beyond: Names of the times that exceed the last bucket.
        socket_drops: Sum over all agents.
        send_retries: Sum over all agents.
    """

    pacing_error_p99_ns: float | None
    generator_lag_p99_ns: float | None
    generator_lag_max_ns: float
    round_trip_p50_ns: float | None
    round_trip_p99_ns: float | None
    busy_share: float
    cpu_share: float
    socket_drops: int
    send_retries: int
    saturated: tuple[SaturatedProcess, ...] = ()
    beyond: tuple[str, ...] = ()


def time_bounds(counts: Sequence[int]) -> TimeBounds:
    """Return the bounds of the percentiles of a histogram.

    Args:
        counts: Counts by bucket, not cumulative.  The bounds of the buckets are
            ``FCT_BUCKET_BOUNDS_NS``.
    """
    total = sum(counts)
    if not total:
        return TimeBounds()
    return TimeBounds(
        count=total,
        p50_ns=_nearest_rank(counts, -(-total // 2)),
        p99_ns=_nearest_rank(counts, -(-total * 99 // 100)),
        max_ns=_nearest_rank(counts, total),
    )


def median_ns(counts: Sequence[int]) -> float | None:
    """Return the interpolated median of a histogram, or None if it is empty.

    Args:
        counts: Counts by bucket, with the bounds ``FCT_BUCKET_BOUNDS_NS``.
    """
    rest = sum(counts) / 2
    least_ns = 0
    for count, most_ns in zip(counts, FCT_BUCKET_BOUNDS_NS, strict=False):
        if count and rest <= count:
            return least_ns + (most_ns - least_ns) * rest / count
        rest -= count
        least_ns = most_ns
    return None


def _nearest_rank(counts: Sequence[int], rank: int) -> int | None:
    """Return the bound of the bucket that contains the time of 1-based *rank*."""
    for count, bound_ns in zip(counts, FCT_BUCKET_BOUNDS_NS, strict=False):
        rank -= count
        if rank <= 0:
            return bound_ns
    return None


def agent_health(
    values: Sequence[int], shards: Iterable[ShardHealth]
) -> GeneratorHealth:
    """Return the health of an agent.

    Args:
        values: Counters of the agent, laid out as in ``chakram.records.counter_slots``.
        shards: Load of its processes.
    """

    def times(name: str) -> TimeBounds:
        first = distribution_slot(name)
        return time_bounds(values[first : first + FCT_BUCKETS])

    return GeneratorHealth(
        round_trip=times("round_trip"),
        pacing_error=times("pacing_error"),
        generator_lag=times("generator_lag"),
        generator_wait_ns=values[slot("generator_wait_ns")],
        socket_drops=values[slot("socket_drops")],
        send_retries=values[slot("send_retries")],
        shards=tuple(sorted(shards, key=lambda shard: shard.shard)),
    )


def summarize_health(
    agents: Mapping[str, GeneratorHealth], *, dilation: int = 1
) -> GeneratorSummary | None:
    """Return the worst values of all agents, or None if there are no counters."""
    shards = [
        (name, shard)
        for name, agent in sorted(agents.items())
        for shard in agent.shards
        if shard.wall_ns > 0
    ]
    if not shards:
        return None
    lag_max_ns = max(shard.max_lag_ns for _, shard in shards)
    times_ns: dict[str, float | None] = {}
    beyond = []
    for name, column, percentile in _TIMES:
        bounds = [getattr(agent, column) for agent in agents.values()]
        found_ns = [getattr(each, percentile) for each in bounds if each.count]
        longest_ns = max((each or inf for each in found_ns), default=None)
        if longest_ns is not None and column == "generator_lag":
            longest_ns = min(longest_ns, lag_max_ns)  # the maximum lag is exact
        elif longest_ns is not None and longest_ns > _LAST_BOUND_NS:
            longest_ns = _LAST_BOUND_NS
            beyond.append(name)
        times_ns[name] = None if longest_ns is None else longest_ns / dilation
    saturated = [
        SaturatedProcess(agent=name, shard=shard.shard, busy_share=shard.busy_share)
        for name, shard in shards
        if shard.is_saturated
    ]
    return GeneratorSummary(
        **times_ns,
        generator_lag_max_ns=lag_max_ns / dilation,
        busy_share=max(shard.busy_share for _, shard in shards),
        cpu_share=max(shard.cpu_ns / shard.wall_ns for _, shard in shards),
        socket_drops=sum(each.socket_drops for each in agents.values()),
        send_retries=sum(each.send_retries for each in agents.values()),
        saturated=tuple(sorted(saturated, key=lambda each: -each.busy_share)),
        beyond=tuple(beyond),
    )
