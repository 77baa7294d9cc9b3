"""Serial arithmetic."""

from __future__ import annotations

import pytest

from chakram.roce.psn import psn_distance

LAST = 2**24 - 1


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
