"""Faults that explain why one run takes longer than another."""

from __future__ import annotations

from chakram.analysis.cause_ranking import Finding, Saving, Suspect, Verdict
from chakram.analysis.lost_time_causes import Why
from chakram.analysis.run_causes import why_difference

FIRST, SECOND, COMMON = (
    Suspect(cause="slow link", place=place) for place in ("h1-s0 up", "h2-s0", "h3-s0")
)


def taking(time_ns: int) -> Why:
    return Why(
        iterations=2,
        time_ns=2 * time_ns,
        causes=(),
        parts_ns={},
        by_rank=(),
        by_collective=(),
        path=None,
    )


def finding(suspect: Suspect, alone: float, then: float, *before: Suspect) -> Finding:
    savings = [Saving(share=each, low=each, high=each) for each in (alone, then)]
    return Finding(
        suspect=suspect,
        saving=savings[0],
        after_previous=savings[1],
        previous=before,
    )


def test_each_fault_takes_a_share_of_what_is_left() -> None:
    masked = finding(SECOND, 0.0, 0.25, FIRST)
    found = why_difference(
        (taking(600), Verdict(), None),
        (taking(1000), Verdict(faults=(masked, finding(FIRST, 0.2, 0.2))), None),
    )
    times = {each["place"]: each["time_ns"] for each in found["causes"]}
    assert times == {"h1-s0 up": 200, "h2-s0": 200}
    assert (found["difference_ns"], found["unexplained_ns"]) == (400, 0)


def test_faults_of_both_runs_explain_nothing() -> None:
    both = finding(COMMON, 0.5, 0.5)
    found = why_difference(
        (taking(1000), Verdict(faults=(both, finding(FIRST, 0.1, 0.2, COMMON))), None),
        (taking(900), Verdict(faults=(both,)), None),
    )
    (only,) = found["causes"]
    assert (only["place"], only["time_ns"]) == ("h1-s0 up", -100)
    assert found["unexplained_ns"] == 0
