"""Faults are kept only if they save time with other random seeds."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from chakram.analysis.cause_ranking import Finding, Saving, Suspect, Verdict
from chakram.diagnosis.simulation_budget import SimulationBudget
from chakram.diagnosis.suspect_removal import RemovalTimer, _are_alike

LOSS = Suspect(cause="loss", place="h1-s0 up")
HASH = Suspect(cause="hash imbalance", place="leaf1")


def exactly(share: float) -> Saving:
    return Saving(share=share, low=share, high=share)


def kept(times_ns: dict[tuple[int, ...], list[int]]) -> list[Suspect]:
    """Return the faults that remain, for times by removed suspects and seed.

    With the seed of the run, removing the loss saves 14 %, and then the hash 40 %.
    """
    timer: Any = RemovalTimer.__new__(RemovalTimer)
    timer._cases = [SimpleNamespace(suspect=each) for each in (LOSS, HASH)]
    timer._budget = SimulationBudget(math.inf)
    timer._seeded = lambda removed, number: times_ns[tuple(sorted(removed))][number % 8]
    loss = Finding(suspect=LOSS, saving=exactly(0.14), after_previous=exactly(0.14))
    masked = Finding(
        suspect=HASH,
        saving=exactly(-0.28),
        after_previous=exactly(0.4),
        previous=(LOSS,),
    )
    verdict = timer.with_intervals(Verdict(faults=(loss, masked)))
    assert {*verdict.excluded} == {LOSS, HASH} - {
        each.suspect for each in verdict.faults
    }
    # A fault that seems to save time is noted; a masked one is not.
    noted = [note for note in verdict.notes if note.startswith(f"{LOSS} would save 14")]
    assert len(noted) == len(verdict.notes) == (LOSS in verdict.excluded)
    return [each.suspect for each in verdict.faults]


UNSURE = [90, 110, 95, 105, 90, 110, 95, 105]
NEVER = [100] * 8


@pytest.mark.parametrize(
    ("without_loss", "without_both", "expected"),
    [
        (UNSURE, [60] * 8, [LOSS, HASH]),  # together, they cost time with all seeds
        (UNSURE, UNSURE[::-1], []),
        ([80] * 8, UNSURE, [LOSS]),
        ([80] * 8, [50] * 8, [LOSS, HASH]),
    ],
)
def test_masked_faults_are_kept_with_those_that_mask_them(
    without_loss: list[int], without_both: list[int], expected: list[Suspect]
) -> None:
    times_ns = {
        (): NEVER,
        (0,): without_loss,
        (1,): [130] * 8,
        (0, 1): without_both,
    }
    assert kept(times_ns) == expected


@pytest.mark.parametrize("probability", [None, 0.01])
def test_iterations_differ_if_a_link_loses_packets(probability: float | None) -> None:
    link = SimpleNamespace(
        at_ns=0, when=None, duration_ns=None, probability=probability
    )
    faults = SimpleNamespace(links=(link,), packets=(), drop=0.0)
    experiment = SimpleNamespace(faults=faults, jobs=(), arrivals=None)
    variant: Any = SimpleNamespace(experiment=experiment, assumed=())
    assert _are_alike(variant) == (probability is None)
