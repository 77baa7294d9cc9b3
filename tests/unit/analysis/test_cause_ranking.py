"""Suspects are ranked by the time that a run saves without them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from chakram.analysis.cause_ranking import (
    CauseClass,
    Finding,
    Saving,
    Suspect,
    Times,
    class_of,
    find_causes,
    ranked,
)

SLOW = Suspect(cause="slow link", place="h0-s0")
LATE = Suspect(cause="late rank", place="rank 3")
LOSS = Suspect(cause="loss", place="h1-s0 up")
HASH = Suspect(cause="hash imbalance", place="leaf0", round=1)
WINDOW = Suspect(cause="window", place="all queue pairs", kind=CauseClass.LIMIT)


def times(base_ns: int, costs_ns: Mapping[frozenset[int], int]) -> Times:
    """Return a run in which each present set of suspects costs time."""

    def time_ns(removed: frozenset[int]) -> int | None:
        present = [cost for who, cost in costs_ns.items() if not who & removed]
        return base_ns + sum(present)

    return time_ns


def alone(*costs_ns: int) -> dict[frozenset[int], int]:
    return {frozenset({at}): cost for at, cost in enumerate(costs_ns)}


def test_faults_are_sorted_by_their_saving() -> None:
    verdict = find_causes([SLOW, LATE, LOSS], times(700, alone(100, 0, 200)))
    assert [each.suspect for each in verdict.faults] == [LOSS, SLOW]
    assert verdict.faults[0].saving.share == pytest.approx(0.2)
    assert verdict.faults[1].saving.share == pytest.approx(0.1)
    assert verdict.excluded == (LATE,)
    assert verdict.joint is not None
    assert verdict.joint.share == pytest.approx(0.3)


@pytest.mark.parametrize(("cost_ns", "found"), [(29, False), (31, True)])
def test_a_cause_below_three_percent_is_excluded(cost_ns: int, found: bool) -> None:
    verdict = find_causes([SLOW], times(1000 - cost_ns, alone(cost_ns)))
    assert bool(verdict.faults) is found
    assert bool(verdict.excluded) is not found


def test_a_cause_that_another_masks_is_found_once_that_is_removed() -> None:
    """The slower of two parallel paths decides: 500 ns against 300 ns."""

    def time_ns(removed: frozenset[int]) -> int:
        first = 0 if 0 in removed else 500
        second = 0 if 1 in removed else 300
        return 500 + max(first, second)

    verdict = find_causes([SLOW, LATE], time_ns)
    first, second = verdict.faults
    assert (first.suspect, second.suspect) == (SLOW, LATE)
    assert first.saving.share == pytest.approx(0.2)
    assert second.saving.share == 0
    assert second.after_previous.share == pytest.approx(0.375)


def test_a_cause_whose_saving_is_part_of_anothers_is_noted() -> None:
    """Any of both removals removes most of the time."""

    def time_ns(removed: frozenset[int]) -> int:
        return 1000 - 500 * (0 in removed) - (0 if 0 in removed else 100 * len(removed))

    verdict = find_causes([SLOW, LOSS], time_ns)
    assert [each.suspect for each in verdict.faults] == [SLOW]
    assert verdict.notes == (
        f"{LOSS} alone saves 10.0 %, but little once the faults above are repaired",
    )


def test_causes_that_save_time_only_together_are_joint() -> None:
    """Two parallel paths of the same length, and a bystander."""

    def time_ns(removed: frozenset[int]) -> int:
        return 500 if {0, 2} <= removed else 1000

    (joint,) = find_causes([SLOW, LATE, LOSS], time_ns).faults
    assert (joint.suspect, joint.together_with) == (SLOW, (LOSS,))
    assert joint.saving.share == joint.after_previous.share == pytest.approx(0.5)


def test_simulation_that_does_not_end_counts_as_longer() -> None:
    """A fabric where only one of two dead links comes back loses all packets."""

    def time_ns(removed: frozenset[int]) -> int | None:
        return {0: 1000, 2: 400}.get(len(removed))

    (joint,) = find_causes([SLOW, LOSS], time_ns).faults
    assert joint.together_with == (LOSS,)
    assert joint.saving.share == pytest.approx(0.6)


def test_limits_are_ranked_apart_from_faults() -> None:
    verdict = find_causes([SLOW, WINDOW], times(500, alone(100, 400)))
    assert [each.suspect for each in verdict.faults] == [SLOW]
    assert [each.suspect for each in verdict.limits] == [WINDOW]
    assert verdict.limits[0].saving.share == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("of_one_ns", "first"), [(410, "window"), (390, "own port")], ids=["half", "less"]
)
def test_a_limit_of_one_place_comes_first_if_it_saves_half_as_much(
    of_one_ns: int, first: str
) -> None:
    ports = Suspect(
        cause="own port", place="all hosts", kind=CauseClass.LIMIT, weight=0.5
    )
    costs = {frozenset({0}): 800 - of_one_ns, frozenset({0, 1}): of_one_ns}
    verdict = find_causes([ports, WINDOW], times(200, costs))
    assert verdict.limits[0].suspect.cause == first
    assert verdict.limits == ranked(reversed(verdict.limits))


def test_masked_causes_keep_their_order_after_the_others() -> None:
    def finding(place: str, share: float) -> Finding:
        saving = Saving(share=share, low=share, high=share)
        suspect = Suspect(cause="loss", place=place)
        return Finding(suspect=suspect, saving=saving, after_previous=saving)

    found = [
        finding("a", 0.2),
        finding("b", -0.1),
        finding("c", 0.0),
        finding("d", 0.3),
    ]
    assert [each.suspect.place for each in ranked(found)] == ["d", "a", "b", "c"]


def test_a_clean_run_has_limits_only() -> None:
    verdict = find_causes([SLOW, WINDOW], times(500, alone(0, 500)))
    assert verdict.faults == ()
    assert verdict.joint is None
    assert verdict.limits


def test_suspects_of_a_later_round_are_judged_without_earlier_faults() -> None:
    """A better hash avoids the slow link: only what it saves beyond that counts."""

    def time_ns(removed: frozenset[int]) -> int:
        return 500 if removed & {0, 1} else 1000

    verdict = find_causes([SLOW, HASH], time_ns)
    assert [each.suspect for each in verdict.faults] == [SLOW]
    assert verdict.excluded == (HASH,)


def test_each_run_is_timed_once() -> None:
    seen: list[frozenset[int]] = []

    def time_ns(removed: frozenset[int]) -> int:
        seen.append(removed)
        return 1000 - 100 * len(removed)

    verdict = find_causes([SLOW, LATE, LOSS], time_ns)
    assert len(seen) == len(set(seen)) == verdict.simulations


def test_a_run_without_a_time_is_refused() -> None:
    with pytest.raises(ValueError, match="has no time"):
        find_causes([SLOW], lambda _: None)


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        ("slow link", CauseClass.FAULT),
        ("generator slow", CauseClass.FAULT),
        ("contention", CauseClass.LIMIT),
        ("window", CauseClass.LIMIT),
    ],
)
def test_charged_causes_have_a_class(cause: str, kind: CauseClass) -> None:
    assert class_of(cause) is kind
