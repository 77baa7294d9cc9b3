"""Serial arithmetic."""

from __future__ import annotations

import pytest

from chakram.roce.psn import psn_add, psn_distance, psn_precedes

LAST = 2**24 - 1


def test_addition_wraps_both_ways() -> None:
    assert psn_add(LAST, 1) == 0
    assert psn_add(0, -1) == LAST
    assert psn_add(5, 2**24) == 5


@pytest.mark.parametrize(
    ("start", "end", "distance"),
    [
        (0, 0, 0),
        (LAST, 0, 1),
        (0, LAST, -1),
        (0, 2**23 - 1, 2**23 - 1),
        (0, 2**23, -(2**23)),
        (LAST - 2, 4, 7),
    ],
)
def test_distance_is_the_short_way_round(start: int, end: int, distance: int) -> None:
    assert psn_distance(start, end) == distance


def test_order_survives_the_wrap() -> None:
    assert psn_precedes(LAST, 0)
    assert not psn_precedes(0, LAST)
    assert not psn_precedes(7, 7)
