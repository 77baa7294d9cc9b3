"""How the generator itself did: is a result the network's, or ours?

Every agent counts how long what was due had to wait for its loop, how late bursts were
for their pace and how long packets went round, in buckets that double.  So percentiles
are known as the upper bounds of their buckets: "at most".
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
"""A process that is busy for more of the time has no room left to tell it by: bursts of
work queue behind one another before the mean reaches 1."""

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

    Attributes:
        count: Of the times; 0: there was none, and nothing is known.
        p50_ns: Half of them were at most so long; None: longer than the last bound,
            67 s, or there was none.
        p99_ns: 99 % of them, likewise.
        max_ns: All of them, likewise.
    """

    count: int = 0
    p50_ns: int | None = None
    p99_ns: int | None = None
    max_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardHealth:
    """Load of one data-plane process.

    Attributes:
        shard: Its number.
        wall_ns: Time since it was told when to start.
        cpu_ns: CPU time in that; it spins while packets flow.
        busy_ns: Time in which something was received or sent.
        measured_ns: Time in which its ranks communicated in measured iterations; 0 in
            runs of versions that did not note it.
        measured_busy_ns: What of that it was busy for.
        max_lag_ns: The longest that something due had to wait for its loop.
        late_rounds: Times that this was more than a millisecond.
        rounds: All rounds of the loop.
    """

    shard: int
    wall_ns: int = 0
    cpu_ns: int = 0
    busy_ns: int = 0
    measured_ns: int = 0
    measured_busy_ns: int = 0
    max_lag_ns: int = 0
    late_rounds: int = 0
    rounds: int = 0

    @property
    def busy_share(self) -> float:
        """Part of the time in which its ranks were measured, else of all its time."""
        if self.measured_ns:
            return self.measured_busy_ns / self.measured_ns
        return self.busy_ns / self.wall_ns if self.wall_ns else 0.0

    @property
    def is_saturated(self) -> bool:
        """Whether it had to do nearly all of the time that its ranks were measured."""
        return self.measured_ns > 0 and self.busy_share > SATURATED_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorHealth:
    """How one agent did; raw times of the whole run, warm-up included.

    Attributes:
        round_trip: From a packet that asks for an acknowledgement to that.
        pacing_error: How much later than its pace allowed a burst was offered.
        generator_lag: How long something due waited for the loop.
        generator_wait_ns: How long ports stood still for the data plane, in all.
        socket_drops: Packets for which the kernel had no room.
        send_retries: Times that the kernel had no room to send, or the interface was
            down.
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
    """A data-plane process that may have been what limited its ranks."""

    agent: str
    shard: int
    busy_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorSummary:
    """The worst of all agents and of their processes; undilated times.

    Times are upper bounds in ns, None where nothing was counted.  Those that ``beyond``
    names are longer than that: they are above the last bucket, and unknown.

    Attributes:
        pacing_error_p99_ns: Of the agent where it is largest; as the next ones.
        generator_lag_p99_ns: Likewise.
        generator_lag_max_ns: Likewise, and exact.
        round_trip_p50_ns: Likewise.
        round_trip_p99_ns: Likewise.
        busy_share: Of the process that was busy for the largest part of the time in
            which its ranks communicated in measured iterations.
        cpu_share: Of the one that had the CPU for the largest part of all its time.
        saturated: The processes that were busy nearly all of that time, by agent and
            number, the busiest first.
        beyond: Names of the times above that are above the last bucket.
        socket_drops: Of all agents.
        send_retries: Likewise.
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
        counts: By bucket, not cumulative; bounds as ``FCT_BUCKET_BOUNDS_NS``.
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


def _nearest_rank(counts: Sequence[int], rank: int) -> int | None:
    """Return the bound of the bucket that holds the time of *rank*, from 1 on."""
    for count, bound_ns in zip(counts, FCT_BUCKET_BOUNDS_NS, strict=False):
        rank -= count
        if rank <= 0:
            return bound_ns
    return None


def agent_health(
    values: Sequence[int], shards: Iterable[ShardHealth]
) -> GeneratorHealth:
    """Return how an agent did.

    Args:
        values: Its counters, with the layout of ``chakram.records.counter_slots``.
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


def summarise_health(
    agents: Mapping[str, GeneratorHealth], *, dilation: int = 1
) -> GeneratorSummary | None:
    """Return the worst of all agents, None if nobody has counted anything."""
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
            longest_ns = min(longest_ns, lag_max_ns)  # which is exact
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
