"""Percentiles of histograms, and the worst of several agents."""

from __future__ import annotations

from array import array

import pytest

from chakram.records.counter_slots import (
    FCT_BUCKET_BOUNDS_NS,
    FCT_BUCKETS,
    TOTAL_SLOTS,
    distribution_slot,
    slot,
)
from chakram.summary.generator_health import (
    GeneratorHealth,
    SaturatedProcess,
    ShardHealth,
    TimeBounds,
    agent_health,
    summarize_health,
    time_bounds,
)


def histogram(**counts: int) -> list[int]:
    """Return counts by bucket; ``us4=3``: three of the bucket up to 4 us."""
    buckets = [0] * FCT_BUCKETS
    for name, count in counts.items():
        buckets[FCT_BUCKET_BOUNDS_NS.index(int(name[2:]) * 1000)] = count
    return buckets


def test_percentiles_are_the_bounds_of_their_buckets() -> None:
    assert time_bounds(histogram(us1=50, us4=48, us16=2)) == TimeBounds(
        count=100, p50_ns=1000, p99_ns=16_000, max_ns=16_000
    )
    assert time_bounds(histogram(us1=50, us4=49, us16=1)) == TimeBounds(
        count=100, p50_ns=1000, p99_ns=4000, max_ns=16_000
    )
    assert time_bounds(histogram(us2=1)) == TimeBounds(
        count=1, p50_ns=2000, p99_ns=2000, max_ns=2000
    )
    assert time_bounds(histogram(us1=1, us2=1)).p50_ns == 1000


def test_percentiles_without_times_or_beyond_the_last_bucket_are_unknown() -> None:
    assert time_bounds([0] * FCT_BUCKETS) == TimeBounds()
    open_ended = [1, *[0] * (FCT_BUCKETS - 2), 1]
    assert time_bounds(open_ended) == TimeBounds(count=2, p50_ns=1000)


def test_health_is_computed_from_counters_of_an_agent() -> None:
    values = array("q", bytes(8 * TOTAL_SLOTS))
    for number, name in enumerate(("round_trip", "pacing_error", "generator_lag")):
        values[distribution_slot(name) + number] = number + 1
    values[slot("generator_wait_ns")] = 5
    values[slot("socket_drops")] = 6
    values[slot("send_retries")] = 7
    second, first = ShardHealth(shard=1), ShardHealth(shard=0)

    assert agent_health(values, [second, first]) == GeneratorHealth(
        round_trip=TimeBounds(count=1, p50_ns=1000, p99_ns=1000, max_ns=1000),
        pacing_error=TimeBounds(count=2, p50_ns=2000, p99_ns=2000, max_ns=2000),
        generator_lag=TimeBounds(count=3, p50_ns=4000, p99_ns=4000, max_ns=4000),
        generator_wait_ns=5,
        socket_drops=6,
        send_retries=7,
        shards=(first, second),
    )


def agent(p99_ns: int | None, *, busy_ns: int, max_lag_ns: int) -> GeneratorHealth:
    times = TimeBounds(count=1, p50_ns=1000, p99_ns=p99_ns, max_ns=p99_ns)
    return GeneratorHealth(
        round_trip=times,
        pacing_error=TimeBounds(),
        generator_lag=times,
        socket_drops=1,
        send_retries=2,
        shards=(
            ShardHealth(
                shard=0, wall_ns=100, cpu_ns=80, busy_ns=busy_ns, max_lag_ns=max_lag_ns
            ),
        ),
    )


def test_worst_agent_and_busiest_process_are_reported() -> None:
    summary = summarize_health(
        {
            "a": agent(8000, busy_ns=10, max_lag_ns=70),
            "b": agent(4000, busy_ns=90, max_lag_ns=20),
        },
        dilation=2,
    )
    assert summary is not None
    assert summary.round_trip_p50_ns == 500
    assert summary.round_trip_p99_ns == 4000
    # The longest is known exactly, and tells more than the bound of a bucket.
    assert summary.generator_lag_p99_ns == summary.generator_lag_max_ns == 35
    assert summary.pacing_error_p99_ns is None
    assert (summary.busy_share, summary.cpu_share) == pytest.approx((0.9, 0.8))
    assert (summary.socket_drops, summary.send_retries) == (2, 4)
    # Of all its time, warm-up and computation included: that proves nothing.
    assert summary.saturated == summary.beyond == ()


def test_times_beyond_the_last_bound_show_the_known_maximum_or_a_lower_bound() -> None:
    longest_ns = 2 * FCT_BUCKET_BOUNDS_NS[-1]
    summary = summarize_health(
        {
            "a": agent(None, busy_ns=1, max_lag_ns=longest_ns),
            "b": agent(4000, busy_ns=1, max_lag_ns=1),
        },
        dilation=2,
    )
    assert summary is not None
    assert summary.round_trip_p99_ns == FCT_BUCKET_BOUNDS_NS[-1] / 2
    assert summary.beyond == ("round_trip_p99_ns",)
    assert summary.generator_lag_p99_ns == FCT_BUCKET_BOUNDS_NS[-1]


def loaded(*shares: float) -> GeneratorHealth:
    """Return an agent by how busy its processes were while ranks were measured."""
    return GeneratorHealth(
        shards=tuple(
            ShardHealth(
                shard=number,
                wall_ns=10**9,
                busy_ns=10**8,
                measured_ns=10**6,
                measured_busy_ns=round(share * 10**6),
            )
            for number, share in enumerate(shares)
        )
    )


def test_processes_that_are_busy_nearly_all_the_time_are_named() -> None:
    summary = summarize_health({"a": loaded(0.5, 0.95), "b": loaded(0.97, 0.9)})
    assert summary is not None
    assert summary.busy_share == 0.97
    assert summary.saturated == (
        SaturatedProcess(agent="b", shard=0, busy_share=0.97),
        SaturatedProcess(agent="a", shard=1, busy_share=0.95),
    )


def test_no_processes_give_no_report() -> None:
    assert summarize_health({}) is None
    assert summarize_health({"a": GeneratorHealth()}) is None
