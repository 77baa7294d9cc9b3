# cython: annotation_typing=False, language_level=3, cdivision=True
# cython: boundscheck=False, wraparound=False
"""Histogram of times in buckets whose bounds double.

An update is fast enough to run for every burst.
"""

from __future__ import annotations

from chakram.records.counter_definitions import HistogramCounts
from chakram.records.counter_slots import FCT_BUCKETS

__all__ = ["Histogram"]

_LAST = FCT_BUCKETS - 1


class Histogram:
    """Counts of times, by bucket."""

    __slots__ = ("_counts", "_sum_ns")

    def __init__(self) -> None:
        self._counts = [0] * 28  # FCT_BUCKETS, as a literal for the C array
        self._sum_ns = 0

    def add(self, time_ns: int) -> None:
        """Count a time, or 0 for a negative time."""
        if time_ns < 0:
            time_ns = 0
        self._sum_ns += time_ns
        # Bounds double from 1 us. Round the time up to microseconds and subtract one.
        # The bucket is the bit length of the result.
        rest = (time_ns - 1) // 1000 if time_ns > 0 else 0
        bucket = 0
        while rest > 0 and bucket < _LAST:
            rest >>= 1
            bucket += 1
        self._counts[bucket] += 1

    def snapshot(self) -> HistogramCounts:
        """Return the current counts."""
        return HistogramCounts(counts=tuple(self._counts), sum_ns=self._sum_ns)
