"""Results of `make bench` from its measurements."""

from __future__ import annotations

import pytest

from tests.bench.results import compare, table, turns


def test_measurements_alternate_and_none_is_always_first() -> None:
    order: list[str] = []

    def measure(name: str) -> int:
        order.append(name)
        return len(order)

    ours, others = turns(lambda: measure("ours"), lambda: measure("others"), 3)

    assert order == ["ours", "others", "others", "ours", "ours", "others"]
    assert (ours, others) == ([1, 4, 5], [2, 3, 6])


@pytest.mark.parametrize(
    ("is_time", "ratio", "ratios"),
    [(False, 0.5, (0.25, 4.0)), (True, 2.0, (0.25, 4.0))],
)
def test_result_is_the_median_of_ratios_within_a_round(
    is_time: bool, ratio: float, ratios: tuple[float, float]
) -> None:
    # Every figure moves by far more than the two differ.
    result = compare(
        "x", [1.0, 50.0, 8.0], "us", "y", [4.0, 100.0, 2.0], is_time=is_time
    )

    assert (result.value, result.other) == (8.0, 4.0)
    assert (result.ratio, result.ratios) == (ratio, ratios)


@pytest.mark.parametrize(
    ("others", "floor", "is_short"),
    [
        ([2.0], 0.5, False),
        ([2.1], 0.5, True),
        ([2.1], None, False),
        # What is demanded and could not be measured is not reached.
        ([], 0.5, True),
        ([], None, False),
    ],
)
def test_required_ratio_must_be_reached(
    others: list[float], floor: float | None, is_short: bool
) -> None:
    result = compare("x", [1.0], "us", "y", others, floor=floor)

    assert result.is_short() is is_short
    assert ("too little" in table([result])) == (is_short and bool(others))


@pytest.mark.parametrize("is_time", [False, True])
def test_round_without_a_measurement_has_no_ratio(is_time: bool) -> None:
    some = compare("x", [1.0, 2.0], "us", "y", [0.0, 2.0], is_time=is_time)
    assert some.ratios == (1.0, 1.0)
    none = compare("x", [1.0], "us", "y", [0.0], is_time=is_time, floor=0.5)
    assert none.ratio is None
    assert none.is_short()


def test_losses_of_the_bare_sender_are_reported() -> None:
    def note(losses: list[float]) -> str:
        return compare("x", [1.0], "us", "y", [1.0], losses=losses).note

    assert note([0.0, 0.0002, 0.0]) == ""
    assert note([0.0, 0.03, 0.2]) == (
        "the bare sender lost 3.0% of its packets (at most 20.0%); what arrived is "
        "compared"
    )
