"""The layout of the shared counters."""

from __future__ import annotations

from array import array

import pytest

from chakram.collectives.ops import CollectiveOp
from chakram.foundation.field_bounds import MAX_FAULTS
from chakram.records.counter_slots import (
    COUNTER_NAMES,
    DISTRIBUTIONS,
    FCT_BUCKET_BOUNDS_NS,
    FCT_BUCKETS,
    OPS,
    TOTAL_SLOTS,
    distribution_slot,
    fault_slot,
    fct_bucket,
    fct_histograms,
    fct_slot,
    fct_sum_slot,
    slot,
    sum_counters,
)


def test_every_slot_is_used_exactly_once() -> None:
    slots = [slot(name) for name in COUNTER_NAMES]
    slots += [fct_slot(op, bucket) for op in OPS for bucket in range(FCT_BUCKETS)]
    slots += [fct_sum_slot(op) for op in OPS]
    slots += [
        distribution_slot(name) + bucket
        for name in DISTRIBUTIONS
        for bucket in range(FCT_BUCKETS + 1)
    ]
    slots += [fault_slot(index) for index in range(MAX_FAULTS)]
    assert sorted(slots) == list(range(TOTAL_SLOTS))


@pytest.mark.parametrize(
    ("fct_ns", "bucket"),
    [(0, 0), (1, 0), (1000, 0), (1001, 1), (2000, 1), (2001, 2), (4000, 2), (4001, 3)],
)
def test_bucket_is_the_first_with_a_sufficient_bound(fct_ns: int, bucket: int) -> None:
    assert fct_bucket(fct_ns) == bucket


def test_bounds_agree_with_buckets() -> None:
    for number, bound_ns in enumerate(FCT_BUCKET_BOUNDS_NS):
        assert fct_bucket(bound_ns) == number
        assert fct_bucket(bound_ns + 1) == number + 1
    assert fct_bucket(2**62) == FCT_BUCKETS - 1


def test_unknown_names_and_buckets_are_refused() -> None:
    with pytest.raises(ValueError, match="no counter 'flows'"):
        slot("flows")
    for index in (-1, MAX_FAULTS):
        with pytest.raises(ValueError, match="no fault"):
            fault_slot(index)
    for bucket in (-1, FCT_BUCKETS):
        with pytest.raises(ValueError, match="no bucket"):
            fct_slot(CollectiveOp.BARRIER, bucket)


def test_histograms_are_recovered_from_the_sum_of_shards() -> None:
    shards = [array("q", bytes(8 * TOTAL_SLOTS)) for _ in range(2)]
    for shard, fct_ns in zip(shards, (1500, 3000), strict=True):
        shard[fct_slot(CollectiveOp.ALL_TO_ALL, fct_bucket(fct_ns))] += 1
        shard[fct_sum_slot(CollectiveOp.ALL_TO_ALL)] += fct_ns
        shard[slot("flows_completed")] += 1
    total = sum_counters(shards)
    (histogram,) = fct_histograms(total)
    assert histogram.op is CollectiveOp.ALL_TO_ALL
    assert histogram.counts[:4] == (0, 1, 1, 0)
    assert (histogram.total, histogram.sum_ns) == (2, 4500)
    assert total[slot("flows_completed")] == 2


def test_counters_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="3 counters instead of"):
        sum_counters([[1, 2, 3]])


def test_a_distribution_has_a_name() -> None:
    with pytest.raises(ValueError, match="not in tuple"):
        distribution_slot("age")
