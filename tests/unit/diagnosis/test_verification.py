"""Which faults of a fitted simulation are proven."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chakram.analysis.cause_ranking import Finding, Saving, Suspect
from chakram.diagnosis.verification import _generator, separate

LINK = Suspect(cause="slow link", place="h1-s0 up")
LOSS = Suspect(cause="loss", place="h2-s0 up")
HOST = Suspect(cause="generator slow", place="h3")
OTHER = Suspect(cause="late rank", place="rank 4")


def saves(suspect: Suspect, share: float, then: float | None = None) -> Finding:
    """Return a finding that saves a share, and *then* after previous findings."""
    after = share if then is None else then
    return Finding(
        suspect=suspect,
        saving=Saving(share=share, low=share, high=share),
        after_previous=Saving(share=after, low=after, high=after),
    )


def judged(*findings: Finding, noise: float = 0.0) -> tuple[set[str], set[str]]:
    """Return the causes that are proven at an error of 5 %, and the others."""
    both = separate(
        findings,
        rivals={LINK: (), LOSS: (), HOST: ()},
        fitted={LINK, HOST},
        error=0.05,
        least=0.04,
        noise=noise,
    )
    proven, unproven = ({each.suspect.cause for each in some} for some in both)
    return proven, unproven


@pytest.mark.parametrize(
    ("suspect", "share", "is_proven"),
    [
        (LINK, 0.04, False),  # within the error of the fit
        (LINK, 0.10, True),
        (LOSS, 0.04, False),  # counters prove the losses, but not their cost
        (LOSS, 0.07, True),
        (HOST, 0.04, True),  # its lateness was measured
        (OTHER, 0.03, False),  # less than what is unexplained
        (OTHER, 0.05, True),
    ],
)
def test_faults_need_more_than_the_error_or_a_measurement(
    suspect: Suspect, share: float, *, is_proven: bool
) -> None:
    proven, unproven = judged(saves(suspect, share))
    assert (suspect.cause in proven) is is_proven
    assert (suspect.cause in unproven) is not is_proven


@pytest.mark.parametrize("is_no_better", [False, True])
def test_losses_that_explain_nothing_are_no_cause(*, is_no_better: bool) -> None:
    proven, unproven = separate(
        [saves(LOSS, 0.1)],
        rivals={LOSS: ()},
        fitted=(),
        error=0.5,
        least=0.0,
        noise=0.0,
        is_no_better=is_no_better,
    )
    assert (len(proven), len(unproven)) == (not is_no_better, is_no_better)


def test_a_poor_fit_proves_no_slow_link() -> None:
    findings = [saves(LINK, 0.7), saves(LOSS, 0.1), saves(HOST, 0.4)]
    proven, unproven = separate(
        findings,
        rivals={LINK: (), LOSS: (), HOST: ()},
        fitted={LINK, HOST},
        error=0.9,
        least=0.0,
        noise=0.0,
        is_poor=True,
    )
    assert [each.suspect for each in proven] == [LOSS, HOST]
    assert [each.suspect for each in unproven] == [LINK]


@pytest.mark.parametrize(("share", "is_proven"), [(0.05, False), (0.07, True)])
def test_a_small_saving_is_not_proven_by_a_poor_fit(
    share: float, *, is_proven: bool
) -> None:
    proven, _ = separate(
        [saves(OTHER, share)], rivals={}, fitted=(), error=0.4, least=0.03, noise=0.0
    )
    assert bool(proven) is is_proven


def test_a_masked_fault_is_proven_by_what_it_saves_after_the_others() -> None:
    assert judged(saves(LINK, 0.0, then=0.5))[0] == {"slow link"}


def test_the_range_of_a_late_host_allows_for_the_other_hosts() -> None:
    (found,), _ = separate(
        [saves(HOST, 0.6)],
        rivals={HOST: ()},
        fitted={HOST},
        error=0.1,
        least=0.1,
        noise=0.2,
    )
    assert found.saving.low == pytest.approx(0.6 - 0.1 * 0.4 - 0.2)
    assert found.saving.high == pytest.approx(0.6 + 0.1 * 0.4)


def late(
    hosts: dict[str, float], *charged: float, is_explained: bool, found: str = "s0"
) -> Finding | None:
    """Return the finding about late hosts if 30 % of the time is unexplained."""
    others = ((SimpleNamespace(place=found), ()),)
    fitted = SimpleNamespace(found=others, late=hosts, is_explained=is_explained)
    charges = {f"h{number}": share for number, share in enumerate(charged)}
    return _generator(cast("Any", fitted), charges, 0.3)


@pytest.mark.parametrize(
    ("hosts", "charged", "is_explained", "place"),
    [
        ({"h2": 0.4}, (), False, "h2"),
        ({"h2": 0.4}, (), True, "h2"),
        ({}, (0.06, 0.06), False, "all hosts"),
        ({}, (0.06, 0.06), True, None),
        ({}, (0.12, 0.12), True, "all hosts"),
        ({}, (0.08, 0.16), True, "h1"),
        ({}, (0.02, 0.03), False, None),
    ],
)
def test_a_host_is_named_only_if_it_was_later_than_the_others(
    hosts: dict[str, float],
    charged: tuple[float, ...],
    *,
    is_explained: bool,
    place: str | None,
) -> None:
    found = late(hosts, *charged, is_explained=is_explained)
    assert (found and found.suspect.place) == place
    rivals = [each.place for each in found.rivals] if found else []
    assert rivals == (["all hosts"] if place == "h1" else [])


def test_all_hosts_are_late_only_once() -> None:
    assert late({}, 0.12, 0.12, is_explained=True, found="all hosts") is None
    assert late({"h2": 0.4}, is_explained=True, found="all hosts") is not None


def test_no_cause_saves_more_than_the_whole_time() -> None:
    ((found,), _) = separate(
        [saves(LOSS, 0.4)],
        rivals={LOSS: ()},
        fitted=(),
        error=1.5,
        least=0.0,
        noise=0.0,
    )
    assert found.saving.high == 1.0


def test_a_fault_that_an_unproven_one_masks_is_unproven() -> None:
    masked = replace(saves(LOSS, 0.0, then=0.4), previous=(LINK,))
    assert judged(saves(LINK, 0.04), masked) == (set(), {"slow link", "loss"})
    assert judged(saves(LINK, 0.4), masked) == ({"slow link", "loss"}, set())
