"""How ``chakram why`` prints faults that act on one another, and unlike runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chakram.analysis.cause_ranking import Finding, Saving, Suspect, Verdict
from chakram.analysis.lost_time_causes import Why
from chakram.cli import main
from chakram.cli.results.why import _fault_lines, _lines, _tested, _unlike
from tests.made_runs import made_run

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


def test_joint_saving_is_that_of_all_its_faults() -> None:
    joint = Finding(
        suspect=SLOW,
        saving=saving(0.3),
        after_previous=saving(0.3),
        together_with=(HASH,),
    )
    headline, first, alone, *_ = _tested(Verdict(faults=(joint,)), "")
    assert headline == (
        "Faults: slow link at a-b up and hash imbalance at leaf1; without all of them "
        "the iteration takes 30.0 % less"
    )
    assert first.startswith(
        "   30.0 %  slow link at a-b up and hash imbalance at leaf1"
    )
    assert alone.strip() == "Each of them alone saves little."


def test_faults_of_an_ended_run_are_those_before_its_end() -> None:
    assert _tested(Verdict(), " before the run ended") == [
        "Fault before the run ended: none found"
    ]


def test_runs_of_other_traces_or_fabrics_are_noted() -> None:
    def run(trace: str, fabric: str) -> Any:
        manifest = SimpleNamespace(traces={"job": trace}, fabric=fabric)
        return cast("Any", SimpleNamespace(manifest=manifest))

    assert _unlike(run("a", "star"), run("a", "star")) == []
    (note,) = _unlike(run("a", "star"), run("b", "Clos"))
    assert note.startswith("the runs have different traces and fabrics, ")


def test_doubt_follows_the_verdict_at_once() -> None:
    empty = Why(
        iterations=1,
        time_ns=1000,
        parts_ns={},
        causes=(),
        by_rank=(),
        by_collective=(),
        path=None,
    )
    verdict, doubt, *_ = _lines(
        empty, Verdict(), None, dilation=1, is_whole=True, doubt="It says little."
    )
    assert (verdict, doubt) == ("Fault: none found", "!! It says little.")


def test_several_faults_have_a_saving_together() -> None:
    faults = tuple(
        Finding(suspect=each, saving=saving(0.05), after_previous=saving(0.05))
        for each in (SLOW, HASH)
    )
    lines = _tested(Verdict(faults=faults, joint=saving(0.3)), "")
    assert "   30.0 %  all of these faults together" in lines
    alone = _tested(Verdict(faults=faults[:1], joint=saving(0.05)), "")
    assert not any("together" in each for each in alone)


def test_runs_of_different_dilations_are_not_subtracted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [made_run(tmp_path / str(factor), dilation=factor) for factor in (1, 10)]
    assert main(["why", *(str(each.path) for each in runs), "--no-verify"]) == 2
    told = capsys.readouterr().err
    assert f"is dilated by 10, but {runs[0].path} by 1 (use chakram compare" in told


def test_ranks_of_several_jobs_have_their_names() -> None:
    why = Why(
        iterations=2,
        time_ns=1000,
        parts_ns={},
        causes=(),
        by_rank=(("a rank 3", 100), ("b rank 3", 50)),
        by_collective=(("a all_reduce 1#0", 100),),
        path=None,
        jobs=("a", "b"),
    )
    lines = _lines(why, None, "--no-verify", dilation=1, is_whole=True)
    assert "Lost by rank: a rank 3 10.0 %, b rank 3 5.0 %" in lines
    assert "Lost in: a all_reduce 1#0 10.0 %" in lines
