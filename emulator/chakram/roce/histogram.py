# cython: annotation_typing=False, language_level=3, cdivision=True
"""Distributions of times, in buckets that double; for what happens per burst."""

from __future__ import annotations

from dataclasses import dataclass

from chakram.results.counters import FCT_BUCKETS

__all__ = ["Histogram", "HistogramCounts"]

_LAST = FCT_BUCKETS - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramCounts:
    """What a `Histogram` holds.

    Attributes:
        counts: By bucket, not cumulative; the bounds are those of completion times,
            `chakram.results.counters.FCT_BUCKET_BOUNDS_NS`.
        sum_ns: Of all times.
    """

    counts: tuple[int, ...]
    sum_ns: int


class Histogram:
    """Counts times by bucket."""

    __slots__ = ("_counts", "_sum_ns")

    def __init__(self) -> None:
        self._counts = [0] * (_LAST + 1)
        self._sum_ns = 0

    def add(self, time_ns: int) -> None:
        """Count a time; a negative one counts as none."""
        if time_ns < 0:
            time_ns = 0
        self._sum_ns += time_ns
        # Bounds double from 1 us: the bucket is the length of the microseconds,
        # rounded up, less one.
        rest = (time_ns - 1) // 1000 if time_ns > 0 else 0
        bucket = 0
        while rest > 0 and bucket < _LAST:
            rest >>= 1
            bucket += 1
        self._counts[bucket] += 1

    def snapshot(self) -> HistogramCounts:
        """Return the counts as they are now."""
        return HistogramCounts(counts=tuple(self._counts), sum_ns=self._sum_ns)
