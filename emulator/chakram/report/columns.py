"""Arithmetic on columns of a million numbers: what pages draw of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


_TAIL = 100
"""Largest values that a distribution keeps each by itself."""

_INNER = 200
"""Steps that stand for all the others."""


def mixed_keys(columns: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return one number per row that tells rows of whole numbers from 0 apart."""
    numbers = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if not len(column):
            break
        radix = int(column.max()) + 1
        if int(numbers.max()) >= (1 << 62) // radix:
            _, numbers = np.unique(numbers, return_inverse=True)
        numbers = numbers * radix + column
    return numbers


def percentiles(values: NDArray[Any], percents: Sequence[float]) -> tuple[float, ...]:
    """Return nearest-rank percentiles of *values*, of which there is at least one."""
    ordered = np.sort(values)
    # Tenths of a percent in whole numbers: 99.9 is no binary fraction.
    ranks = [-(-len(ordered) * round(10 * percent) // 1000) for percent in percents]
    return tuple(float(ordered[max(rank, 1) - 1]) for rank in ranks)


def cdf_points(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return steps of a cumulative distribution: values, and the part not above each.

    The largest ``_TAIL`` values and the smallest are all there; of the others the
    percentiles are, each a value that occurs.
    """
    ordered = np.sort(values)
    count = len(ordered)
    inner = np.linspace(0, count - 1, min(count, _INNER)).round().astype(np.int64)
    tail = np.arange(max(0, count - _TAIL), count)
    kept = np.unique(np.concatenate([inner, tail]))
    # Equal values are one step, up to the last of them.
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
    """Return amounts by row and bin, each spread evenly from its start to its end.

    Args:
        rows: The row of each amount.
        starts: In bins; what is before the first or behind the last bin counts there.
        ends: Likewise.
        amounts: What is spread.
        shape: Rows and bins.
    """
    nrows, nbins = shape
    starts = np.clip(starts, 0, nbins)
    # What takes no time is in one bin all the same.
    ends = np.clip(np.maximum(ends, starts + 1e-6), 1e-6, nbins)
    starts = np.minimum(starts, ends - 1e-6)
    slopes = amounts / (ends - starts)
    # The sum up to each edge of bins is piecewise linear: its second differences have
    # two terms where an amount begins and two where it ends.
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
    """Return each key once, the time in which anything of it is under way, its order.

    Returns:
        The keys, ascending; their times; and by row the place of its key.
    """
    found, places = np.unique(keys, return_inverse=True)
    order = np.lexsort([starts, places])
    own, start, end = places[order], starts[order], ends[order]
    if not len(own):
        return found, np.zeros(0, np.int64), places
    # The latest end so far, of each key: as ranks, so that keys can be far apart on
    # one line.
    values, ranks = np.unique(end, return_inverse=True)
    latest = np.maximum.accumulate(ranks + own * len(values)) - own * len(values)
    is_first = np.concatenate([[True], own[1:] != own[:-1]])
    before = np.where(is_first, start, values[np.roll(latest, 1)])
    gained = np.maximum(0, end - np.maximum(start, before))
    return found, np.bincount(own, weights=gained).astype(np.int64), places


def joined_spans(
    starts: NDArray[Any], ends: NDArray[Any], *, gap: float
) -> list[tuple[float, float]]:
    """Return the stretches that spans cover; those nearer than *gap* are one."""
    spans: list[tuple[float, float]] = []
    for start, end in sorted(zip(starts.tolist(), ends.tolist(), strict=True)):
        if spans and start <= spans[-1][1] + gap:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))
    return spans
