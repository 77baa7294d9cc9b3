"""Distribution of integers, compact enough to print and plot."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

CDF_POINTS = 512
"""Maximum number of points in a cumulative distribution; enough for a plot."""

_PERCENTS = (Fraction(50), Fraction(90), Fraction(99), Fraction(999, 10))


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A distribution of integers. Percentiles use the nearest-rank method.

    ``cdf`` has points (value, number of samples up to that value), ascending. With more
    than ``CDF_POINTS`` distinct values, it has an evenly spaced selection that includes
    the smallest and the largest value.
    """

    count: int
    total: int
    smallest: int
    p50: int
    p90: int
    p99: int
    p99_9: int
    largest: int
    cdf: tuple[tuple[int, int], ...]


def distribution(numbers: Iterable[int] | Mapping[int, int]) -> Distribution | None:
    """Return the distribution of *numbers*, or None if there are none.

    Args:
        numbers: The numbers, or a mapping from each number to its count.
    """
    counts = Counter(numbers)
    values = sorted(value for value, count in counts.items() if count > 0)
    if not values:
        return None
    up_to = list(accumulate(counts[value] for value in values))
    count = up_to[-1]

    def percentile(percent: Fraction) -> int:
        return values[bisect_left(up_to, -(-count * percent // 100))]

    p50, p90, p99, p99_9 = map(percentile, _PERCENTS)
    last = len(values) - 1
    kept = (
        range(len(values))
        if len(values) <= CDF_POINTS
        else sorted({index * last // (CDF_POINTS - 1) for index in range(CDF_POINTS)})
    )
    return Distribution(
        count=count,
        total=sum(value * counts[value] for value in values),
        smallest=values[0],
        p50=p50,
        p90=p90,
        p99=p99,
        p99_9=p99_9,
        largest=values[-1],
        cdf=tuple((values[index], up_to[index]) for index in kept),
    )
