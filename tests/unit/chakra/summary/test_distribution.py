"""Distributions of whole numbers."""

from __future__ import annotations

from chakram.chakra.summary.distribution import CDF_POINTS, distribution
from chakram.summary.bandwidth import percentile


def test_no_numbers_have_no_distribution() -> None:
    assert distribution([]) is None
    assert distribution({7: 0}) is None


def test_percentiles_are_nearest_rank_as_everywhere() -> None:
    numbers = [number * number % 1009 for number in range(1, 778)]
    got = distribution(numbers)
    assert got is not None
    assert (got.count, got.total) == (len(numbers), sum(numbers))
    assert (got.smallest, got.largest) == (min(numbers), max(numbers))
    for percent, found in ((50, got.p50), (90, got.p90), (99, got.p99)):
        assert found == percentile(numbers, percent)
    assert got.p99_9 == percentile(numbers, 99.9)


def test_counted_numbers_are_as_many_as_they_count() -> None:
    assert distribution({3: 2, 5: 1}) == distribution([3, 5, 3])


def test_steps_are_thinned_evenly_and_keep_both_ends() -> None:
    few = distribution([4, 4, 9])
    assert few is not None
    assert few.cdf == ((4, 2), (9, 3))
    many = distribution(range(10_000))
    assert many is not None
    assert len(many.cdf) == CDF_POINTS
    assert (many.cdf[0], many.cdf[-1]) == ((0, 1), (9_999, 10_000))
    assert all(up_to == value + 1 for value, up_to in many.cdf)
