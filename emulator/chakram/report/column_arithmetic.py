"""Arithmetic on columns of up to a million numbers, for plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


_TAIL = 100
"""Number of the largest values that a distribution keeps individually."""

_INNER = 200
"""Number of steps of a distribution that represent all other values."""


def mixed_keys(columns: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return a number for each row of integers, equal only for rows with equal values.

    The numbers are in the order of the rows' values.
    """
    numbers = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if not len(column):
            break
        column = column - column.min()
        radix = int(column.max()) + 1
        if int(numbers.max()) >= (1 << 62) // radix:
            _, numbers = np.unique(numbers, return_inverse=True)
        numbers = numbers * radix + column
    return numbers


def percentiles(values: NDArray[Any], percents: Sequence[float]) -> tuple[float, ...]:
    """Return nearest-rank percentiles of *values*, which must not be empty."""
    ordered = np.sort(values)
    # Compute in tenths of a percent, because 99.9 has no exact binary representation.
    ranks = [-(-len(ordered) * round(10 * percent) // 1000) for percent in percents]
    return tuple(float(ordered[max(rank, 1) - 1]) for rank in ranks)


def cdf_points(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return a cumulative distribution: values, and the fraction not above each value.

    The smallest value and the ``_TAIL`` largest values are all kept. Percentiles
    represent the other values. Each percentile is one of *values*.
    """
    ordered = np.sort(values)
    count = len(ordered)
    inner = np.linspace(0, count - 1, min(count, _INNER)).round().astype(np.int64)
    tail = np.arange(max(0, count - _TAIL), count)
    kept = np.unique(np.concatenate([inner, tail]))
    # Equal values form one step, at the index of the last one.
    kept = np.unique(np.searchsorted(ordered, ordered[kept], side="right") - 1)
    return ordered[kept], (kept + 1) / count


def spread(
    rows: NDArray[np.int64],
    starts: NDArray[Any],
    ends: NDArray[Any],
    amounts: NDArray[Any],
    *,
    shape: tuple[int, int],
) -> NDArray[np.float64]:
    """Return sums by row and bin, with each amount spread evenly over its time.

    Args:
        rows: Row of each amount.
        starts: Start of each amount, in bins. Starts outside the range count for the
            first or last bin.
        ends: End of each amount, in the same unit.
        amounts: Amounts to spread.
        shape: Number of rows and of bins.
    """
    nrows, nbins = shape
    starts = np.clip(starts, 0, nbins)
    # An amount without duration still counts for one bin.
    ends = np.clip(np.maximum(ends, starts + 1e-6), 1e-6, nbins)
    starts = np.minimum(starts, ends - 1e-6)
    slopes = amounts / (ends - starts)
    # The sum up to each bin edge is piecewise linear. Its second differences have two
    # terms at the start of an amount and two at its end.
    bends = np.zeros(nrows * (nbins + 3))
    for points, signs in ((starts, 1.0), (ends, -1.0)):
        edges = np.ceil(points).astype(np.int64)
        beyond = edges - points
        for edge, weights in ((edges, beyond), (edges + 1, 1 - beyond)):
            bends += np.bincount(
                rows * (nbins + 3) + edge,
                weights=signs * slopes * weights,
                minlength=len(bends),
            )
    sums: NDArray[np.float64] = bends.reshape(nrows, nbins + 3).cumsum(axis=1)
    return sums[:, 1 : nbins + 1].clip(min=0)


def under_way(
    keys: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return how long each distinct key has at least one row in flight.

    Returns:
        The distinct keys in ascending order, the time of each key, and the index of
        each row's key.
    """
    found, places = np.unique(keys, return_inverse=True)
    order = np.lexsort([starts, places])
    own, start, end = places[order], starts[order], ends[order]
    if not len(own):
        return found, np.zeros(0, np.int64), places
    # Compute the latest end so far of each key. Use the rank of each end among all
    # ends, so that the keys occupy disjoint ranges of one sequence.
    values, ranks = np.unique(end, return_inverse=True)
    latest = np.maximum.accumulate(ranks + own * len(values)) - own * len(values)
    is_first = np.concatenate([[True], own[1:] != own[:-1]])
    before = np.where(is_first, start, values[np.roll(latest, 1)])
    gained = np.maximum(0, end - np.maximum(start, before))
    return found, np.bincount(own, weights=gained).astype(np.int64), places


def joined_spans(
    starts: NDArray[Any], ends: NDArray[Any], *, gap: float
) -> list[tuple[float, float]]:
    """Return the intervals that spans cover, and merge those at most *gap* apart."""
    spans: list[tuple[float, float]] = []
    for start, end in sorted(zip(starts.tolist(), ends.tolist(), strict=True)):
        if spans and start <= spans[-1][1] + gap:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))
    return spans
