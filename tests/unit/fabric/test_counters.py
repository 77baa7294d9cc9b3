from __future__ import annotations

import pytest

from chakram.fabric.counters import LinkCounters, difference, max_over_mean


def counters(start: int) -> LinkCounters:
    return LinkCounters(
        tx_bytes=start,
        tx_packets=start + 1,
        tx_drops=start + 2,
        rx_bytes=start + 3,
        rx_packets=start + 4,
        rx_drops=start + 5,
    )


def test_difference_is_taken_field_by_field_and_link_by_link() -> None:
    before = {"a": counters(10), "gone": counters(0)}
    after = {"a": counters(110), "new": counters(5)}

    assert difference(after, before) == {
        "a": LinkCounters(
            tx_bytes=100,
            tx_packets=100,
            tx_drops=100,
            rx_bytes=100,
            rx_packets=100,
            rx_drops=100,
        )
    }


def test_drops_are_those_of_both_directions() -> None:
    assert counters(1).drops == 3 + 6


@pytest.mark.parametrize(
    ("values", "expected"),
    [([5, 5], 1.0), ([9, 3], 1.5), ([4, 0, 0, 0], 4.0), ([7], 1.0)],
)
def test_max_over_mean(values: list[int], expected: float) -> None:
    assert max_over_mean(values) == expected


@pytest.mark.parametrize("values", [[], [0, 0]])
def test_without_load_there_is_no_imbalance(values: list[int]) -> None:
    assert max_over_mean(values) is None
