"""Column arithmetic for run pages."""

from __future__ import annotations

import random

import numpy as np
import pytest

from chakram.console.number_format import MISSING
from chakram.report.blocks import Table
from chakram.report.column_arithmetic import (
    cdf_points,
    joined_spans,
    mixed_keys,
    percentiles,
    spread,
    under_way,
)


def test_percentiles_are_nearest_rank() -> None:
    values = np.arange(1000, 0, -1)
    assert percentiles(values, (1, 50, 99, 99.9, 100)) == (10, 500, 990, 999, 1000)
    assert percentiles(np.array([7]), (1, 99.9)) == (7, 7)


def test_distribution_keeps_its_slowest_values_exactly() -> None:
    values = np.arange(100_000) * 3
    drawn, shares = cdf_points(values)
    assert drawn[0] == 0
    assert drawn[-100:].tolist() == values[-100:].tolist()
    assert len(drawn) < 301
    exact = [(values <= value).mean() for value in drawn]
    assert shares == pytest.approx(exact)


def test_equal_values_are_one_step() -> None:
    drawn, shares = cdf_points(np.array([5, 5, 5, 9]))
    assert (drawn.tolist(), shares.tolist()) == ([5, 9], [0.75, 1.0])


def test_spread_values_keep_their_sum_and_position() -> None:
    chance = random.Random(1)
    spans = []
    for _ in range(300):
        start = chance.uniform(0, 9)
        end = start + chance.choice((0.0, 0.3, 1.0, 4.0))
        spans.append((chance.randrange(3), start, min(end, 10.0), chance.randrange(99)))
    rows, starts, ends, amounts = map(np.array, zip(*spans, strict=True))
    found = spread(rows, starts, ends, amounts, shape=(3, 10))
    expected = np.zeros((3, 10))
    for row, start, end, amount in spans:
        for column in range(10):
            if end > start:
                inside = max(0.0, min(end, column + 1) - max(start, column))
                expected[row, column] += amount * inside / (end - start)
            elif int(start) == column:
                expected[row, column] += amount
    assert found == pytest.approx(expected, abs=1e-3)
    assert found.sum() == pytest.approx(amounts.sum())


def test_values_beyond_the_last_bin_count_in_it() -> None:
    found = spread(
        np.array([0, 0]),
        np.array([3.0, -2.0]),
        np.array([9.0, -1.0]),
        np.array([6, 4]),
        shape=(1, 4),
    )
    assert found.tolist() == [pytest.approx([4, 0, 0, 6])]


def test_time_in_flight_counts_overlaps_once() -> None:
    keys = np.array([4, 9, 4, 4, 4])
    starts = np.array([10, 0, 0, 12, 50])
    ends = np.array([20, 5, 15, 14, 60])
    found, busy, places = under_way(keys, starts, ends)
    assert found.tolist() == [4, 9]
    assert busy.tolist() == [30, 5]
    assert found[places].tolist() == keys.tolist()


def test_close_spans_are_joined() -> None:
    spans = joined_spans(np.array([0, 9, 30]), np.array([8, 20, 40]), gap=2)
    assert spans == [(0, 20), (30, 40)]


def test_large_keys_distinguish_rows() -> None:
    chance = random.Random(2)
    large = 1 << 40
    rows = [tuple(chance.choice((0, 1, large)) for _ in range(4)) for _ in range(200)]
    keys = mixed_keys([np.array(column) for column in zip(*rows, strict=True)])
    assert len(set(keys.tolist())) == len(set(rows))
    assert len(set(zip(keys.tolist(), rows, strict=True))) == len(set(rows))


def test_negative_keys_distinguish_rows() -> None:
    ports, classes = np.array([0, 1, 1, 0]), np.array([7, -1, 7, 7])
    assert len(set(mixed_keys([ports, classes]).tolist())) == 3
    assert mixed_keys([np.array([0, 1]), np.array([-1, -1])]).tolist() == [0, 1]


def test_empty_columns_are_omitted() -> None:
    table = Table(
        title="t",
        header=("name", "place", "time", "alone", "bound"),
        rows=(("a", MISSING, "1", MISSING, "2"), ("b", MISSING, "3", MISSING, MISSING)),
        left=2,
    ).without_unknown()
    # A column of texts stays, and so does one that some rows have.
    assert table.header == ("name", "place", "time", "bound")
    assert table.rows == (("a", MISSING, "1", "2"), ("b", MISSING, "3", MISSING))
