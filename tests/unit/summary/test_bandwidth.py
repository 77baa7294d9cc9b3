"""Bandwidths and statistics compared with hand-computed values."""

from fractions import Fraction

import pytest

from chakram.collectives.ops import CollectiveOp
from chakram.summary.bandwidth import (
    algorithm_bandwidth,
    bus_factor,
    coefficient_of_variation,
    percentile,
)


@pytest.mark.parametrize(
    ("op", "factor"),
    [
        (CollectiveOp.ALL_REDUCE, Fraction(14, 8)),
        (CollectiveOp.ALL_GATHER, Fraction(7, 8)),
        (CollectiveOp.REDUCE_SCATTER, Fraction(7, 8)),
        (CollectiveOp.ALL_TO_ALL, Fraction(7, 8)),
        (CollectiveOp.GATHER, Fraction(7, 8)),
        (CollectiveOp.SCATTER, Fraction(7, 8)),
        (CollectiveOp.BROADCAST, Fraction(1)),
        (CollectiveOp.REDUCE, Fraction(1)),
        (CollectiveOp.SEND_RECV, Fraction(1)),
        (CollectiveOp.BARRIER, Fraction(0)),
    ],
)
def test_factors_equal_those_of_nccl_tests(op: CollectiveOp, factor: Fraction) -> None:
    assert bus_factor(op, nranks=8) == factor


def test_an_all_reduce_of_16_mib_in_10_ms() -> None:
    size = 16 * 2**20
    assert algorithm_bandwidth(size_bytes=size, elapsed_ns=10**7) == 1_677_721_600


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot take 0 ns"):
        algorithm_bandwidth(size_bytes=1, elapsed_ns=0)
    with pytest.raises(ValueError, match="of 0 ranks"):
        bus_factor(CollectiveOp.ALL_REDUCE, nranks=0)


@pytest.mark.parametrize(
    ("percent", "wanted"),
    [(50, 500), (95, 950), (99, 990), (99.9, 999), (100, 1000), (0.01, 1)],
)
def test_percentiles_of_a_thousand_are_nearest_rank(
    percent: float, wanted: int
) -> None:
    assert percentile(list(range(1000, 0, -1)), percent) == wanted


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile([7], 1) == 7
    assert percentile([1, 10], 50) == 1
    assert percentile([1, 10], Fraction(501, 10)) == 10


def test_percentiles_of_nothing_or_beyond_are_refused() -> None:
    with pytest.raises(ValueError, match="a percentile needs at least one sample"):
        percentile([], 50)
    for percent in (0, 100.5):
        with pytest.raises(ValueError, match="not a percentage"):
            percentile([1], percent)


def test_variation_uses_the_population_formula() -> None:
    assert coefficient_of_variation([2, 4, 4, 4, 5, 5, 7, 9]) == pytest.approx(2 / 5)
    assert coefficient_of_variation([3]) == 0
    assert coefficient_of_variation([0, 0]) == 0
    told = "a coefficient of variation needs at least one sample"
    with pytest.raises(ValueError, match=told):
        coefficient_of_variation([])
