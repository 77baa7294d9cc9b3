"""Histograms with buckets that double."""

from __future__ import annotations

import pytest

from chakram.records.counter_slots import FCT_BUCKETS, fct_bucket
from chakram.roce.histogram import Histogram


@pytest.mark.parametrize(
    "time_ns", [0, 1, 1_000, 1_001, 2_000, 2_001, 67_108_864_000, 10**15]
)
def test_buckets_equal_those_of_completion_times(time_ns: int) -> None:
    histogram = Histogram()
    histogram.add(time_ns)
    counts = histogram.snapshot()

    assert len(counts.counts) == FCT_BUCKETS
    assert counts.counts[fct_bucket(time_ns)] == 1
    assert counts.sum_ns == time_ns


def test_negative_time_is_not_counted() -> None:
    histogram = Histogram()
    histogram.add(-5)

    assert histogram.snapshot().counts[0] == 1
    assert histogram.snapshot().sum_ns == 0
