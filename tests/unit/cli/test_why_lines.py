"""How ``chakram why`` prints a fault that other faults mask."""

from __future__ import annotations

from chakram.analysis.cause_ranking import Finding, Saving, Suspect
from chakram.cli.why import _fault_lines

SLOW = Suspect(cause="slow link", place="a-b up")
HASH = Suspect(cause="hash imbalance", place="leaf1", evidence="uneven")


def saving(share: float) -> Saving:
    return Saving(share=share, low=share, high=share)


def test_fault_that_costs_nothing_yet_is_masked() -> None:
    masked = Finding(
        suspect=HASH,
        saving=saving(-0.054),
        after_previous=saving(0.12),
        previous=(SLOW,),
    )
    first, second, *_ = _fault_lines(masked)
    assert first == "   masked  hash imbalance at leaf1: uneven"
    assert second.strip() == (
        "Without slow link at a-b up, it takes 12.0 % of the remaining time."
    )


def test_fault_that_saves_time_by_itself_has_its_saving() -> None:
    own = Finding(
        suspect=HASH,
        saving=saving(0.1),
        after_previous=saving(0.12),
        previous=(SLOW,),
    )
    assert _fault_lines(own)[0] == "   10.0 %  hash imbalance at leaf1: uneven"
