"""The page of several runs side by side, of runs made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from bokeh.models import Step

from chakram.analysis.comparison import NOMINAL, Side, times_of
from chakram.report import compare_page
from chakram.report.figure_elements import WHOLE
from chakram.report.page import Answer, Bars, Section, render_page
from chakram.report.run.data import RunData
from chakram.report.run.rows import ReportRow
from tests.drawn_plots import (
    data_of,
    legend_of,
    plots_in,
    sections_of,
    tables_in,
)
from tests.made_runs import EXPERIMENT, ODD_LINKS, made_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chakram.run_directory.reader import RunResults


def page_of(
    *runs: RunResults, change: Callable[[RunData], RunData] = lambda data: data
) -> dict[str, Any]:
    """Return what the page of runs is made of; sections by title."""
    taken: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare_page, "RunData", lambda each: change(RunData(each)))
        patch.setattr(
            compare_page.page, "render_page", lambda **page: taken.update(page) or ""
        )
        compare_page.compare_page(runs)
    taken["sections"] = sections_of(taken["groups"])
    return taken


def rows_of(section: Section) -> dict[str, tuple[str, ...]]:
    """Return the rows of its only table by their first cell."""
    (table,) = tables_in(section).values()
    return {row[0]: row[1:] for row in table.rows}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResults, RunResults]:
    folder = tmp_path_factory.mktemp("runs")
    return (
        made_run(folder / "a", iterations=(0, 0, 0, 0), links=ODD_LINKS),
        # Twice as fast, but for a rank that is late.
        made_run(folder / "b", dilation=2, case="slow", banners=("LATE",)),
    )


@pytest.fixture(scope="module")
def page(runs: tuple[RunResults, RunResults]) -> dict[str, Any]:
    return page_of(*runs)


@pytest.fixture(scope="module")
def sections(page: dict[str, Any]) -> dict[str, Section]:
    found: dict[str, Section] = page["sections"]
    return found


def test_runs_have_letters_and_what_holds_for_all_is_said_once(
    page: dict[str, Any],
) -> None:
    assert page["title"] == "A: Run quick start against B: Run quick start, case slow"
    assert page["letters"] == "bcmf"
    assert page["lead"].startswith("differences below two standard errors are not ")
    assert (
        page["lead"]
        .partition("relative to A · ")[2]
        .startswith("B: time was stretched by 2; ")
    )
    assert "B: LATE" in page["warnings"]
    assert [each[:3] for each in page["warnings"]].count("A: ") == 2
    assert list(page["document"]) == ["A", "B"]
    titles = list(page["sections"])
    assert titles[-2:] == ["Raw files of A", "Raw files of B"]
    files = tables_in(page["sections"]["Raw files of B"])["Raw files"].rows
    assert "flows.parquet" in [row[0] for row in files]


def test_runs_that_differ_in_one_setting_are_called_by_it(tmp_path: Path) -> None:
    experiment = {**EXPERIMENT, "iterations": {"measured": 4}}
    one, other = (
        made_run(tmp_path / str(count), iterations=(), experiment=each)
        for count, each in enumerate((EXPERIMENT, experiment))
    )
    page = page_of(one, other, one)
    assert page["title"] == (
        "Run quick start: iterations.measured N/A (A) against 4 (B) against N/A (C)"
    )
    section = page["sections"]["Settings that differ"]
    assert tables_in(section)["Settings that differ"].rows == (
        ("iterations.measured", "N/A", "4", "N/A"),
    )
    assert section.observed == "(f)"


def test_what_differs_is_said_of_every_run_against_the_first(
    runs: tuple[RunResults, RunResults],
) -> None:
    found = page_of(*runs, runs[0])["sections"]["What differs"]
    (facts,) = found.blocks
    told = facts.rows  # type: ignore[union-attr] # facts are
    assert [name for name, _ in told if name] == ["B against A", "C against A"]
    assert told[0][1] == (
        "Iteration of moe takes 50.0 % less (375us against 750us) in B; the collective "
        "that differs most is all_reduce of 1MiB, 4 ranks: -180us, summed over an "
        "iteration."
    )
    assert told[1] == ("", "The settings are the same.")
    last = [name for name, _ in told].index("C against A")
    assert told[last][1].startswith("No significant difference")


def test_facts_of_runs_stand_side_by_side(sections: dict[str, Section]) -> None:
    rows = rows_of(sections["Runs"])
    assert rows["name"] == ("quick start", "quick start (slow)")
    assert rows["iterations"] == ("3 after 1", "3 after 1")
    assert rows["ranks"] == ("4", "4")
    assert rows["generator-bound"] == ("0 of 12", "0 of 12")
    assert rows["clock bound"] == ("0ns", "0ns")
    (table,) = tables_in(sections["Runs"]).values()
    assert table.header == ("", "A", "B")
    # They are texts.
    assert table.left == 3


def test_iterations_have_factors_over_the_first(sections: dict[str, Section]) -> None:
    assert rows_of(sections["Iterations"]) == {
        "JCT of moe, mean": ("750us, CV 0.0 %", "375us, CV 0.0 %"),
        "JCT of moe, factor": ("1.000", "0.500"),
        "JCT ratio of moe (m)": ("0.052", "0.052"),
        # Of two ranks 200 of 750 us, of two 200 of 700.
        "compute, of the iteration": ("27.6 %", "27.6 %"),
        "exposed communication, of the iteration": ("72.4 %", "72.4 %"),
        "idle, of the iteration": ("0.0 %", "0.0 %"),
        "data packets": ("5,040", "5,040"),
        "marked CE": ("60", "60"),
        "retransmitted": ("24", "24"),
        # 400 of 1200 bytes on one of eight.
        "uplinks: MMR, Jain's index (b)": ("2.667, 0.5625", "N/A"),
    }


def test_collectives_are_joined_by_what_they_are(sections: dict[str, Section]) -> None:
    (table,) = tables_in(sections["Collectives"]).values()
    assert table.header == (
        *("collective", "S", "N", "A: time (CV %)", "A: GB/s", "A: % of rate"),
        *("B: time (CV %)", "B: GB/s", "B: % of rate", "B/A"),
    )
    # 440 us, of which half.
    assert table.rows[0] == (
        *("all_reduce", "1MiB", "4", "400us (0.0)", "3.932", "3145.7"),
        *("220us (7.4)", "7.149", "2859.8", "0.550"),
    )
    assert [row[-1] for row in table.rows] == ["0.550", "0.500", "0.500"]


def without_first_row(data: RunData) -> RunData:
    """Return a run without its all-reduces, where it has a case."""
    if data.manifest.case:
        data.summary = replace(
            data.summary,
            rows=data.summary.rows[1:],
            iterations=tuple(
                replace(each, job="other") for each in data.summary.iterations
            ),
        )
    return data


def test_what_one_run_has_alone_has_no_factor(
    runs: tuple[RunResults, RunResults],
) -> None:
    found = page_of(*runs, change=without_first_row)["sections"]
    (table,) = tables_in(found["Collectives"]).values()
    assert table.rows[0][-4:] == ("N/A",) * 4
    assert table.rows[0][3] == "400us (0.0)"
    rows = rows_of(found["Iterations"])
    assert rows["JCT of moe, mean"][1] == rows["JCT of other, mean"][0] == "N/A"
    assert rows["JCT of moe, factor"] == ("1.000", "N/A")
    assert rows["JCT of other, factor"] == ("N/A", "N/A")


def test_what_only_others_have_has_no_factor(
    runs: tuple[RunResults, RunResults],
) -> None:
    found = page_of(*runs[::-1], change=without_first_row)["sections"]
    (table,) = tables_in(found["Collectives"]).values()
    (row,) = [row for row in table.rows if row[0] == "all_reduce"]
    assert row[3:6] == ("N/A",) * 3
    assert row[6:] == ("400us (0.0)", "3.932", "3145.7", "N/A")


def test_the_algorithm_tells_rows_apart_where_a_run_has_several(
    runs: tuple[RunResults, RunResults], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_of_run = compare_page.report_rows

    def rows(data: RunData) -> tuple[ReportRow, ...]:
        ring, *others = rows_of_run(data)
        tree = replace(ring, row=replace(ring.row, algorithm="tree"))
        return (tree, ring, *others) if data.manifest.case else (ring, *others)

    monkeypatch.setattr(compare_page, "report_rows", rows)
    found = page_of(*runs)["sections"]
    (table,) = tables_in(found["Collectives"]).values()
    one, other = [row for row in table.rows if row[0].startswith("all_reduce")]
    # The ring of A is compared with the ring of B, not with the first row of B.
    assert (one[0], one[-1]) == ("all_reduce, ring", "0.550")
    assert (other[0], other[3:6]) == ("all_reduce, tree", ("N/A",) * 3)


def with_another_job(data: RunData) -> RunData:
    """Return a run whose iterations belong to another job, where it has a case."""
    if data.manifest.case:
        data.summary = replace(
            data.summary,
            iterations=tuple(
                replace(each, job="other") for each in data.summary.iterations
            ),
        )
    return data


def test_the_only_jobs_of_runs_match_whatever_their_names(
    runs: tuple[RunResults, RunResults], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_of_run = compare_page.report_rows

    def rows(data: RunData) -> tuple[ReportRow, ...]:
        job = "other" if data.manifest.case else "moe"
        return tuple(
            replace(each, row=replace(each.row, job=job)) for each in rows_of_run(data)
        )

    monkeypatch.setattr(compare_page, "report_rows", rows)
    found = page_of(*runs, change=with_another_job)["sections"]
    (table,) = tables_in(found["Collectives"]).values()
    assert [row[-1] for row in table.rows].count("N/A") == 0
    assert rows_of(found["Iterations"])["JCT of moe, factor"] == ("1.000", "0.500")


def test_sessions_stand_by_collective_and_percentile(
    sections: dict[str, Section],
) -> None:
    rows = rows_of(sections["Session bandwidth"])
    assert list(rows)[:4] == [
        *("all_reduce, P01", "all_reduce, P50", "all_reduce, P99", "all_to_all, P01"),
    ]
    # Rank 3's takes 1.32 of 1.2 ms, in half the time.
    assert rows["all_reduce, P01"] == ("31.5Gbit/s", "57.2Gbit/s")
    assert rows["all_reduce, P99"] == ("31.5Gbit/s", "62.9Gbit/s")
    (table,) = tables_in(sections["Session bandwidth"]).values()
    assert table.left == 1


def test_lines_of_all_runs_are_in_one_figure(sections: dict[str, Section]) -> None:
    plot = plots_in(sections["Bus bandwidth by size"])["busbw"].figure
    assert legend_of(plot)[:3] == [
        "A: all_reduce, ring, N=4", "A: all_to_all, direct, N=2", "A: send_recv, N=2",
    ]  # fmt: skip
    assert len(legend_of(plot)) == 6
    plot = plots_in(sections["Flow completion times"])["fct-cdf"].figure
    names = ("all_reduce", "all_to_all", "send_recv")
    assert legend_of(plot) == [f"{letter}: {name}" for letter in "AB" for name in names]
    assert plot.width == WHOLE
    assert data_of(plot, Step)[4]["x"] == [50_000, 50_000]


def test_runs_of_nothing_are_compared_all_the_same(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / name, iterations=()) for name in "ab"]
    found = page_of(*runs)["sections"]
    assert found["Collectives"].text == "none was measured."
    assert found["Bus bandwidth by size"].blocks == ()
    for title in ("Flow completion times", "Session bandwidth"):
        assert found[title].text == "no flow of a measured iteration was recorded."
        assert found[title].blocks == ()
    rows = rows_of(found["Iterations"])
    assert rows["compute, of the iteration"] == ("N/A", "N/A")
    assert found["Settings that differ"].text == (
        "none: settings and versions are the same."
    )


def test_critical_paths_stand_beside_one_another_the_largest_part_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [made_run(tmp_path / name, iterations=()) for name in "abc"]
    parts = (
        {NOMINAL: 500_000, "slow link": 20_000},
        {NOMINAL: 500_000, "slow link": 70_000, "straggler": 90_000},
        {NOMINAL: 450_000, "straggler": 30_000},
    )
    sides = {
        run.path: Side(
            name=run.path.name,
            kind="run",
            explained=True,
            times={
                ("part", "moe", part): times_of([[float(time_ns)]], exact=True)
                for part, time_ns in own.items()
            },
        )
        for run, own in zip(runs, parts, strict=True)
    }
    monkeypatch.setattr(compare_page, "side_of_runs", lambda path, runs: sides[path])
    found = page_of(*runs)["sections"]["What differs"]
    assert found.observed == "(c)"
    (table,) = tables_in(found).values()
    assert table.title.startswith("Critical path: nominal time")
    assert table.header == ("", "A", "B", "C")
    assert [row[1:] for row in table.rows] == [
        ("500us", "500us", "450us"),
        ("0ns", "90us", "30us"),
        ("20us", "70us", "0ns"),
    ]
    assert [NOMINAL in row[0] for row in table.rows] == [True, False, False]
    assert table.left == 1
    # The causes of a run without critical paths are unknown.
    sides[runs[1].path] = Side(name="b", kind="run", times={})
    found = page_of(*runs)["sections"]["What differs"]
    (table,) = tables_in(found).values()
    assert [row[1:] for row in table.rows] == [
        ("500us", "N/A", "450us"),
        ("0ns", "N/A", "30us"),
        ("20us", "N/A", "0ns"),
    ]


def test_critical_paths_of_several_jobs_have_rows_by_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [made_run(tmp_path / name, iterations=()) for name in "ab"]
    sides = {
        run.path: Side(
            name=run.path.name,
            kind="run",
            explained=True,
            times={
                ("part", job, NOMINAL): times_of([[factor * each]], exact=True)
                for job, each in (("x", 100_000.0), ("y", 10_000.0))
            },
        )
        for run, factor in zip(runs, (1, 2), strict=True)
    }
    monkeypatch.setattr(compare_page, "side_of_runs", lambda path, runs: sides[path])
    (table,) = tables_in(page_of(*runs)["sections"]["What differs"]).values()
    assert table.rows == (
        ("x: nominal time of the critical path", "100us", "200us"),
        ("y: nominal time of the critical path", "10us", "20us"),
    )


def test_more_runs_than_colors_have_bars() -> None:
    runs = range(compare_page.MOST_RUNS)
    bars = Bars(
        title="Time",
        series=list(map(str, runs)),
        rows=[("all_reduce", [number + 1.0 for number in runs])],
        text=str,
    )
    answer = Answer(verdict="same", bars=bars)
    html = render_page(title="t", lead="", groups=[], document={}, answer=answer)
    # The bars and the key of runs 0, 10 and 20.
    assert html.count("--color:var(--series-0)") == 2 * 3
    assert "--series-10" not in html
