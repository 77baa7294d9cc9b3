"""What the page of a run says first, of runs made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from chakram.analysis.cause_ranking import (
    CauseClass,
    Finding,
    Saving,
    Suspect,
    Verdict,
)
from chakram.analysis.critical_path import Part
from chakram.analysis.lost_time_causes import Cause, Why
from chakram.diagnosis.verified_causes import UNEXPLAINED, Verified
from chakram.report.page import OBSERVED, render_page
from chakram.report.run.data import RunData
from chakram.report.run.overview import answer
from chakram.report.run.rows import report_rows
from tests.made_runs import COUNTED, made_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from chakram.run_directory.reader import RunResults


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    return made_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def data(results: RunResults) -> RunData:
    found = RunData(results)
    found.why = why(("own port", "rank 6", 300_000), ("own port", "rank 2", 100_000))
    return found


def why(*charges: tuple[str, str, int]) -> Why:
    """Return causes of two iterations of 1 ms in all."""
    return Why(
        iterations=2,
        time_ns=1_000_000,
        parts_ns={Part.TRANSFER: 1_000_000},
        causes=tuple(
            Cause(cause=cause, place=place, lost_ns=lost_ns, share=lost_ns / 1e6)
            for cause, place, lost_ns in charges
        ),
        by_rank=(),
        by_collective=(),
        path=None,
    )


def finding(
    cause: str, place: str, share: float, *, after: float | None = None, **more: Any
) -> Finding:
    """Return a cause without which the run takes *share* less."""
    saving = Saving(share=share, low=share, high=share)
    then = share if after is None else after
    return Finding(
        suspect=Suspect(cause=cause, place=place, **more),
        saving=saving,
        after_previous=replace(saving, share=then, low=then, high=then),
    )


def verified(*faults: Finding, limits: Sequence[Finding] = ()) -> Verified:
    return Verified(verdict=Verdict(faults=faults, limits=tuple(limits)))


def test_untested_run_has_neither_a_fault_nor_none(data: RunData) -> None:
    found = answer(data, report_rows(data))
    assert found.verdict == (
        "One iteration takes <b>750.0 us</b>; its collectives take 25.7 % longer than "
        "simulated. Whether there was a fault was not tested: "
        "<code>chakram why</code> tests causes. Most of the lost time is charged to "
        "<b>Own port at ranks 6, 2</b>."
    )
    assert found.status == "complete"
    assert found.heading == "Where time was lost"


def test_page_of_a_generator_bound_run_refuses_a_verdict(data: RunData) -> None:
    data.why = why(("generator slow", "h1", 300_000))
    for tested in (verified(), Verified(verdict=None, reason="no time")):
        verdict = answer(data, report_rows(data), tested).verdict
        assert (
            "<b>The traffic generator took 30.0 % of the time, so this run says little "
            "about the network, and may hide its faults.</b> "
        ) in verdict
        assert "more agents or cores" in verdict
    data.why = why(("own port", "rank 6", 300_000))
    assert "says little" not in answer(data, report_rows(data), verified()).verdict


def test_iterations_of_several_jobs_are_named_the_longest_first(data: RunData) -> None:
    (one,) = data.summary.iterations
    other = replace(one, job="late", mean_ns=2_000_000.0)
    data.summary = replace(data.summary, iterations=(one, other))
    assert answer(data, report_rows(data)).verdict.startswith(
        "One iteration of late takes <b>2.000 ms</b>, of moe <b>750.0 us</b>; its "
    )


def test_iterations_of_a_background_job_are_named_last(data: RunData) -> None:
    (one,) = data.summary.iterations
    other = replace(one, job="load", mean_ns=2_000_000.0, is_background=True)
    data.summary = replace(data.summary, iterations=(other, one))
    found = answer(data, report_rows(data))
    assert found.verdict.startswith(
        "One iteration of moe takes <b>750.0 us</b>, of load <b>2.000 ms</b>; its "
    )
    assert found.tiles[0].value == "750.0 us"


def test_charges_name_no_fault(data: RunData) -> None:
    data.why = why(("own port", "rank 1", 400_000), ("slow link", "a-b up", 50_000))
    found = answer(data, report_rows(data))
    assert "slow link" not in found.verdict
    assert [str(point) for point, _ in found.points] == [
        "<b>Own port at rank 1</b>: 40.0 % of the iteration",
        "<b>Slow link at a-b up</b>: 5.0 % of the iteration",
    ]
    details = [each for _, each in found.points]
    assert details[0] == "200.0 us of an iteration are charged to it"


def test_tested_faults_and_limits_are_named_with_their_savings(data: RunData) -> None:
    slow = finding("slow link", "a-b up", 0.4, evidence="10Gbit/s", advice="check it")
    second = replace(
        finding("hash imbalance", "leaf1", -0.017, after=0.2), previous=(slow.suspect,)
    )
    limit = finding(
        "own port",
        "all hosts",
        0.3,
        kind=CauseClass.LIMIT,
        remedy="with host ports ten times as fast",
    )
    found = answer(data, report_rows(data), verified(slow, second, limits=[limit]))
    assert found.verdict.endswith(
        "A fault was found: without <b>slow link at a-b up</b>, the iteration takes "
        "40.0 % less. After that, without <b>hash imbalance at leaf1</b>, the "
        "remaining time is 20.0 % less. With host ports ten times as fast, it would "
        "take 30.0 % less."
    )
    assert found.heading == "What costs time"
    texts = [f"{point} {details}" for point, details in found.points]
    assert texts == [
        "<b>Slow link at a-b up</b>: 40.0 % less without it fault · 10Gbit/s · check "
        "it",
        "<b>Hash imbalance at leaf1</b>: 20.0 % less without it, relative to the time "
        "without the other faults fault",
        "<b>Own port at all hosts</b>: 30.0 % less with host ports ten times as fast "
        "limit of the design",
    ]


def test_faults_that_act_jointly_are_named_together(data: RunData) -> None:
    other = Suspect(cause="slow link", place="c-d up")
    joint = replace(finding("slow link", "a-b up", 0.2), together_with=(other,))
    found = answer(data, report_rows(data), verified(joint))
    both = "<b>slow link at a-b up and slow link at c-d up</b>"
    assert f"without {both}, the iteration takes 20.0 % less" in found.verdict


def test_unexplained_time_is_no_proof_of_health(data: RunData) -> None:
    tested = Verdict(notes=(f"{UNEXPLAINED}; also simulated: nothing",))
    found = answer(data, report_rows(data), Verified(verdict=tested))
    assert found.verdict.endswith("A part of its time is <b>unexplained</b>.")


def test_tested_run_without_faults_says_so(data: RunData) -> None:
    found = answer(data, report_rows(data), verified())
    assert found.verdict.endswith("No fault was found.")
    assert found.points == []


def test_charges_below_three_percent_are_not_named(data: RunData) -> None:
    data.why = why(("slow link", "a-b up", 29_000))
    found = answer(data, report_rows(data))
    assert found.points == []
    assert "charged" not in found.verdict


def test_many_places_of_a_cause_are_shortened(data: RunData) -> None:
    data.why = why(*(("contention", f"l{at} up", 50_000) for at in range(6)))
    ((point, _),) = answer(data, report_rows(data)).points
    assert "at l0 up, l1 up, l2 up and 3 more</b>: 30.0 %" in point
    data.why = why(*(("contention", f"l{at} up", 50_000) for at in range(4)))
    ((point, _),) = answer(data, report_rows(data)).points
    assert "at l0 up, l1 up, l2 up, l3 up</b>" in point
    data.why = why(
        ("slow compute", "rank 1, mm", 50_000), ("slow compute", "rank 3, mm", 40_000)
    )
    ((point, _),) = answer(data, report_rows(data)).points
    assert "at rank 1, mm, rank 3, mm</b>" in point


def test_five_figures_are_those_of_the_summary(
    data: RunData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data.results, "traffic", lambda: COUNTED)
    tiles = answer(data, report_rows(data)).tiles
    assert [tile.value for tile in tiles] == [
        *("750.0 us", "2859.8 %", "72.4 %", "+25.7 %", "30"),
    ]
    assert tiles[0].label == "iteration, CV 0.0 %, n = 3"
    assert tiles[1].label.endswith("of all_reduce, 4 ranks, 1MiB")
    assert tiles[4].label == "packets sent again of 6,720"


def test_figures_that_do_not_apply_are_blank_with_a_reason(tmp_path: Path) -> None:
    data = RunData(made_run(tmp_path, iterations=(), world="simulate"))
    found = answer(data, ())
    assert [tile.value for tile in found.tiles[:4]] == [""] * 4
    assert found.tiles[3].why == "This run is itself a simulation."
    assert all(tile.why for tile in found.tiles)
    assert found.bars is None
    assert found.verdict.startswith("No iteration was measured.")
    page = render_page(title="t", lead="", groups=[], document={}, answer=found)
    assert 'data-tip="This run is itself a simulation."' in page


def test_packets_of_nics_are_blank_with_their_reason(data: RunData) -> None:
    nics = {"h0": {"device": "mlx5_0"}}
    facts = replace(data.summary.facts, nics=nics)
    data.summary = replace(data.summary, facts=facts)
    tile = answer(data, report_rows(data)).tiles[4]
    assert tile.value == ""
    assert tile.why.startswith("RDMA NICs sent the packets")


def test_bars_compare_measured_simulated_and_bound(data: RunData) -> None:
    bars = answer(data, report_rows(data)).bars
    assert bars is not None
    assert bars.title == "Measured, simulated and bound time of each collective"
    assert bars.series == ["measured", "simulated", "bound"]
    # The largest total time first.
    assert bars.rows[0] == ("all_reduce, 4 ranks, 1MiB", [440_000, 350_000, 320_000])
    assert bars.rows[1][1] == [100_000, None, 80_000]
    assert (
        "all_reduce, 4 ranks, 1MiB: measured 440.0 us, simulated 350.0 us" in bars.words
    )


def test_collectives_that_took_no_time_have_no_bars(data: RunData) -> None:
    rows = [
        replace(each, row=replace(each.row, time_ns=0.0, bound_ns=None, predictions={}))
        for each in report_rows(data)
    ]
    assert answer(data, rows).bars is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"generator_wait_share": 0.2},
            "The <b>traffic generator</b>, not the network, limited collectives",
        ),
        (
            {"status": "aborted"},
            "The run is <b>aborted</b>, so this page covers a part",
        ),
    ],
)
def test_doubtful_runs_are_called_so_in_the_verdict(
    data: RunData, changes: dict[str, Any], text: str
) -> None:
    if "status" in changes:
        changes = {"facts": replace(data.summary.facts, **changes)}
    data.summary = replace(data.summary, **changes)
    assert text in answer(data, report_rows(data)).verdict


def test_an_unknown_cause_is_said(data: RunData) -> None:
    data.why = "it has no records of operations"
    found = answer(data, report_rows(data))
    assert found.verdict.endswith("is unknown: it has no records of operations.")
    assert found.points == []


def test_marks_lead_to_the_legend_at_the_end(data: RunData) -> None:
    from chakram.report.run.sections import collectives

    groups = [collectives(data, report_rows(data))]
    page = render_page(title="t", lead="", groups=groups, document={}, letters="bcmf")
    for letter in "cmf":
        assert (
            f'href="#observed-{letter}" data-tip="Observed: {OBSERVED[letter]}"' in page
        )
        assert f'<dt id="observed-{letter}">' in page
    assert page.index('id="observed-c"') > page.index("<tbody>")
