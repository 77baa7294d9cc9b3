"""Faults of some iterations only."""

from __future__ import annotations

import pytest

from chakram.analysis.cause_ranking import Finding, Saving, Suspect, Verdict
from chakram.diagnosis.slow_iterations import (
    of_some_iterations,
    outliers,
    slow_iterations,
)

TIMES_NS = {1: 100, 2: 150, 3: 200, 4: 190, 5: 100, 6: 100}


def test_slow_iterations_are_near_the_slowest() -> None:
    assert slow_iterations(TIMES_NS) == {3, 4}


@pytest.mark.parametrize("times_ns", [{}, {1: 100, 2: 200}, {1: 90, 2: 100, 3: 95}])
def test_iterations_of_about_equal_times_are_not_slow(
    times_ns: dict[int, int],
) -> None:
    assert slow_iterations(times_ns) == frozenset()


def test_savings_are_shares_of_all_iterations() -> None:
    half = Saving(share=0.5, low=0.4, high=0.6)
    suspect = Suspect(cause="slow link", place="a-b up", evidence="8Mbit/s")
    finding = Finding(suspect=suspect, saving=half, after_previous=half)
    part = Verdict(faults=(finding,), limits=(finding,), joint=half)
    whole = of_some_iterations(part, slow_iterations(TIMES_NS), TIMES_NS)
    (found,) = whole.faults
    # The slow iterations take 390 of 840 ns, and all but three exceed 100 ns.
    assert found.saving.share == pytest.approx(0.5 * 390 / 840)
    assert found.saving.low == pytest.approx(0.4 * 390 / 840)
    assert found.saving.high == pytest.approx((50 + 100 + 90) / 840)
    assert found.suspect.evidence == "8Mbit/s; in 2 of 6 iterations only (3, 4)"
    assert whole.limits == ()
    assert whole.joint == found.saving


def test_saving_may_be_all_that_other_iterations_take_longer() -> None:
    little = Saving(share=0.1, low=0.1, high=0.1)
    suspect = Suspect(cause="slow link", place="a-b up")
    finding = Finding(suspect=suspect, saving=little, after_previous=little)
    whole = of_some_iterations(Verdict(faults=(finding,)), {3, 4}, TIMES_NS)
    assert whole.faults[0].saving.high == pytest.approx((50 + 100 + 90) / 840)


def test_a_fault_counts_in_other_iterations_that_lose_as_much() -> None:
    three_quarters = Saving(share=0.75, low=0.7, high=0.8)
    suspect = Suspect(cause="slow link", place="a-b up", evidence="8Mbit/s")
    finding = Finding(
        suspect=suspect, saving=three_quarters, after_previous=three_quarters
    )
    times_ns = {1: 160, 2: 200, 3: 160, 4: 160}
    whole = of_some_iterations(Verdict(faults=(finding,)), {2}, times_ns)
    (found,) = whole.faults
    # Without the fault, all would take 50 ns.
    assert found.saving.share == pytest.approx((150 + 3 * 110) / 680)
    assert found.saving.low == pytest.approx(0.7 * 200 / 680)
    assert found.saving.high == found.saving.share
    assert found.suspect.evidence == "8Mbit/s; fitted to 1 of 4 iterations only (2)"


def test_few_iterations_that_take_long_are_noted() -> None:
    usual = dict.fromkeys(range(1, 8), 100)
    assert outliers(usual | {8: 140}) == []
    assert outliers({1: 100, 2: 100, 3: 300}) == []
    assert outliers(dict.fromkeys(range(4), 100) | dict.fromkeys((7, 8), 200)) == []
    assert outliers(usual | {8: 210}) == [
        "1 of 8 iterations (8) took up to 2.1 times the median"
    ]
    assert outliers(usual | {8: 210}, "a")[0].startswith("1 of 8 iterations (8) of job")
