"""Live counters of the data plane, as slots of one flat array.

A shard owns an array of ``TOTAL_SLOTS`` 64-bit integers in shared memory, and only
increases them.  Readers take copies.  This module defines the layout of the array.
``chakram.records.counter_definitions`` declares names and units for the exporter.

====================  ================================================================
slots                 contents
====================  ================================================================
one per name          ``COUNTER_NAMES``, at ``slot(name)``
28 per collective     flows by completion time, not cumulative: a bucket for each of
                      ``FCT_BUCKET_BOUNDS_NS`` and one for longer times; at
                      ``fct_slot(op, bucket)``
one per collective    sum of the completion times in ns; at ``fct_sum_slot(op)``
29 per distribution   for each of ``DISTRIBUTIONS``: buckets with the same bounds, and
                      the sum of the times; the first is ``distribution_slot(name)``
64, one per fault     packets disturbed by each fault of a run, in the order of the
                      faults; at ``fault_slot(index)``
====================  ================================================================

Counters never decrease, and the counters of several shards or agents can be added.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chakram.collectives.ops import CollectiveOp
from chakram.foundation.field_bounds import MAX_FAULTS
from chakram.records.counter_definitions import (
    Counter,
    PortStatistics,
    ProcessStatistics,
    QueuePairStatistics,
    counters_of,
)

COUNTERS: tuple[Counter, ...] = tuple(
    counter
    for kind in (QueuePairStatistics, PortStatistics, ProcessStatistics)
    for counter in counters_of(kind)
    if counter.slot is not None
)
"""Counters that have a slot, in the order of their slots."""

COUNTER_NAMES: tuple[str, ...] = tuple(str(counter.slot) for counter in COUNTERS)
"""Names of the counters with a single slot, in the order of their slots."""

FCT_BUCKET_BOUNDS_NS: tuple[int, ...] = tuple(1000 << n for n in range(27))
"""Inclusive upper bounds of the buckets: 1 us, 2 us, 4 us ... 67.1 s."""

FCT_BUCKETS = len(FCT_BUCKET_BOUNDS_NS) + 1
"""Number of buckets in one histogram: one per bound, and one for longer times."""

OPS: tuple[CollectiveOp, ...] = tuple(CollectiveOp)
"""Collectives in the order of their histograms."""

INJECTED = tuple(
    name.removeprefix("injected_")
    for name in COUNTER_NAMES
    if name.startswith("injected_")
)
"""Faults that ports inject.  Each has a counter ``injected_...``."""

INVALID = tuple(
    name.removeprefix("invalid_")
    for name in COUNTER_NAMES
    if name.startswith("invalid_")
)
"""Reasons why a packet is invalid.  Each has a counter ``invalid_...``."""

_SLOTS = {name: index for index, name in enumerate(COUNTER_NAMES)}
_OP_SLOTS = {
    op: len(COUNTER_NAMES) + index * (FCT_BUCKETS + 1) for index, op in enumerate(OPS)
}

DISTRIBUTIONS = (
    "round_trip",  # time from a packet that requests an ACK to the ACK
    "pacing_error",  # delay of a burst relative to its pace
    "generator_lag",  # time that due work waits for the data-plane loop
)
"""Names of the distributions other than completion times, in order of their slots."""

_FIRST_DISTRIBUTION = len(COUNTER_NAMES) + len(OPS) * (FCT_BUCKETS + 1)

_FIRST_FAULT = _FIRST_DISTRIBUTION + len(DISTRIBUTIONS) * (FCT_BUCKETS + 1)

TOTAL_SLOTS = _FIRST_FAULT + MAX_FAULTS
"""Number of slots in a shard's array of counters."""


def slot(name: str) -> int:
    """Return the index of the scalar counter *name*.

    Raises:
        ValueError: If there is no counter with that name.
    """
    try:
        return _SLOTS[name]
    except KeyError:
        raise ValueError(f"there is no counter {name!r}") from None


def fct_bucket(fct_ns: int) -> int:
    """Return the index of the bucket of a completion time.

    This is the first bucket whose bound is not below *fct_ns*.
    """
    # Bounds double from 1 us, so a bit length replaces a search.
    bucket = (max(fct_ns, 1) - 1) // 1000
    return min(bucket.bit_length(), FCT_BUCKETS - 1)


def fct_slot(op: CollectiveOp, bucket: int) -> int:
    """Return the index of one bucket of the completion times of *op*.

    Raises:
        ValueError: If there is no such bucket.
    """
    if not 0 <= bucket < FCT_BUCKETS:
        raise ValueError(f"there is no bucket {bucket}")
    return _OP_SLOTS[op] + bucket


def fct_sum_slot(op: CollectiveOp) -> int:
    """Return the index of the sum, in ns, of the completion times of *op*."""
    return _OP_SLOTS[op] + FCT_BUCKETS


def distribution_slot(name: str) -> int:
    """Return the index of the first bucket of a distribution.

    The sum of the times follows the last bucket.

    Raises:
        ValueError: If there is no distribution with that name.
    """
    return _FIRST_DISTRIBUTION + DISTRIBUTIONS.index(name) * (FCT_BUCKETS + 1)


def fault_slot(index: int) -> int:
    """Return the slot that counts the packets disturbed by fault *index* of a run.

    Raises:
        ValueError: If *index* is not below the maximum number of faults.
    """
    if not 0 <= index < MAX_FAULTS:
        raise ValueError(f"there is no fault {index}")
    return _FIRST_FAULT + index


@dataclass(frozen=True, slots=True, kw_only=True)
class FctHistogram:
    """Histogram of the completion times of one collective's flows.

    ``counts`` contains the count of each bucket, not cumulative.
    """

    op: CollectiveOp
    counts: tuple[int, ...]
    sum_ns: int

    @property
    def total(self) -> int:
        """Number of flows in the histogram."""
        return sum(self.counts)


def fct_histograms(values: Sequence[int]) -> list[FctHistogram]:
    """Return the histograms in an array of counters, without empty histograms."""
    histograms = []
    for op in OPS:
        first = _OP_SLOTS[op]
        counts = tuple(values[first : first + FCT_BUCKETS])
        if any(counts):
            histograms.append(
                FctHistogram(op=op, counts=counts, sum_ns=values[fct_sum_slot(op)])
            )
    return histograms


def sum_counters(arrays: Iterable[Sequence[int]]) -> array[int]:
    """Return the sum of the counters of several shards or agents.

    Raises:
        ValueError: If the length of an array is not ``TOTAL_SLOTS``.
    """
    total = array("q", bytes(8 * TOTAL_SLOTS))
    for values in arrays:
        if len(values) != TOTAL_SLOTS:
            raise ValueError(f"{len(values)} counters instead of {TOTAL_SLOTS}")
        for index, value in enumerate(values):
            total[index] += value
    return total
