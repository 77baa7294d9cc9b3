"""The page of a sweep: what its tables and figures say of cells made by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from bokeh.models import Line, Rect, Scatter, Segment

from chakram.foundation.errors import RunDirectoryError
from chakram.report.blocks import Link
from chakram.report.sweep import figures as suite_figures
from chakram.report.sweep import page as suite_page
from chakram.report.sweep.data import SuiteData
from chakram.sweep.folder import (
    keep_outcome,
    kept_outcome,
    read_sweep,
    reason_of,
)
from tests.drawn_plots import (
    data_of,
    facts_in,
    legend_of,
    plots_in,
    sections_of,
    tables_in,
)
from tests.made_sweeps import (
    CELLS,
    RUN_NAME,
    SUITE,
    document_of,
    made_sweep,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chakram.report.page import Section


def page_of(folder: Path) -> dict[str, Any]:
    """Return what the page of a sweep is made of; sections by title."""
    taken: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            suite_page.page, "render_page", lambda **page: taken.update(page) or ""
        )
        suite_page.suite_page(folder, folder / "pages" / "page.html")
    taken["sections"] = sections_of(taken["groups"])
    return taken


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_sweep(tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="module")
def page(folder: Path) -> dict[str, Any]:
    return page_of(folder)


@pytest.fixture(scope="module")
def sections(page: dict[str, Any]) -> dict[str, Section]:
    found: dict[str, Section] = page["sections"]
    return found


def only_table(section: Section) -> tuple[tuple[str, ...], ...]:
    (table,) = tables_in(section).values()
    return table.rows


# ---- head ----------------------------------------------------------------------------


def test_the_head_says_how_much_there_is(page: dict[str, Any]) -> None:
    assert page["title"] == "Suite shapes"
    assert page["lead"] == "8 cells of base.yaml, each 2 times; run."
    assert page["letters"] == "cf"
    answer = page["answer"]
    assert answer.verdict == (
        "The fastest cell is case plain, ranks 2, all_reduce tree with 900us per "
        "iteration, the slowest case slow, ranks 4, all_reduce ring with 3.2ms. Cells "
        "differ in their work, so compare those with equal work."
    )
    assert [tile.value for tile in answer.tiles[:4]] == [
        "16 of 16", "900us", "-10.0 %", "+60.0 %",
    ]  # fmt: skip
    assert ("case slow, ranks 4, all_reduce ring: +60.0 %") in dict(answer.points)
    assert {each.rpartition(", ")[2] for _, each in answer.points} == {"significant"}
    assert answer.bars.rows[0][1] == [pytest.approx(900_000)]


def test_the_document_has_the_cells(page: dict[str, Any]) -> None:
    cells = page["document"]["cells"]
    assert [cell["cell"] for cell in cells] == list(range(8))
    assert [cell["baseline"] for cell in cells] == [None, 0, None, 2, 0, 0, 2, 2]
    assert cells[1] == {
        "cell": 1,
        "case": "plain",
        "values": {"ranks": 2, "collectives.all_reduce": "tree"},
        "world": "run",
        "repetitions": 2,
        "iteration_ns": pytest.approx(900_000),
        "bus_bw": pytest.approx(2.0),
        "baseline": 0,
        "change": pytest.approx(-0.1),
        "significant": True,
    }
    assert cells[0]["change"] is cells[0]["significant"] is None


def test_what_varied_is_told_with_what_cases_set(sections: dict[str, Section]) -> None:
    assert facts_in(sections["Varied settings"]) == {
        "case": "plain, slow",
        "ranks": "2, 4",
        "collectives.all_reduce": "ring, tree",
        "case plain": "the unchanged base",
        "case slow": "rate: 80Gbit; count: 3",
        "base": "base.yaml",
        "baseline": "the same cell with case plain, collectives.all_reduce ring",
        "world": "run",
        "results": "16 of 16",
        "order": (
            "each repetition runs all cells with the next seed, every second one in "
            "reverse order"
        ),
    }


def test_one_repetition_has_an_order_of_one(tmp_path: Path) -> None:
    folder = made_sweep(tmp_path, repetitions=1, suite={"baseline": {}})
    page = page_of(folder)
    assert page["lead"] == "8 cells of base.yaml, each once; run."
    found = page["sections"]
    facts = facts_in(found["Varied settings"])
    assert facts["order"] == "each cell once"
    assert facts["baseline"] == "the first cell"
    spread = found["Spread of repetitions"]
    assert (spread.text, spread.blocks) == ("every cell ran once.", ())


# ---- tables --------------------------------------------------------------------------


def test_cells_of_the_same_work_are_compared(sections: dict[str, Section]) -> None:
    section = sections["Best and worst"]
    # By ranks: 900 to 1500 us, and 1900 to 3200.
    assert only_table(section) == (
        (
            *("2", "case plain, all_reduce tree", "case slow, all_reduce tree"),
            *("900us", "1.6ms", "1.778", "4"),
        ),
        (
            *("4", "case slow, all_reduce tree", "case slow, all_reduce ring"),
            *("1.9ms", "3.2ms", "1.684", "4"),
        ),
    )


def test_cases_that_change_the_work_are_not_compared(tmp_path: Path) -> None:
    sizes = {"size": "1MiB"}, {"jobs[0].trace.size": "2MiB"}
    names = ("plain", "slow")
    cases = [
        {"name": name, "set": each} for name, each in zip(names, sizes, strict=True)
    ]
    found = page_of(made_sweep(tmp_path, suite={"cases": cases}))["sections"]
    # By case and ranks, the ring and the tree.
    assert only_table(found["Best and worst"])[0] == (
        *("plain", "2", "all_reduce tree", "all_reduce ring"),
        *("900us", "1ms", "1.111", "2"),
    )


def test_gains_within_their_errors_are_told_as_such(tmp_path: Path) -> None:
    times = {0: 1000, 1: 999, 4: 1001}
    cells = [cell for cell in CELLS if cell["number"] in times]
    cells = [
        {**cell, "number": number, "baseline": 0 if number else None}
        for number, cell in enumerate(cells)
    ]
    folder = made_sweep(tmp_path, cells=cells, times_us=tuple(times.values()))
    answer = page_of(folder)["answer"]
    assert [tile.value for tile in answer.tiles[2:4]] == ["-0.1 %", "+0.1 %"]
    assert all(text.endswith(", not significant") for _, text in answer.points)


def test_where_all_lost_nothing_gained(tmp_path: Path) -> None:
    folder = made_sweep(tmp_path, times_us=(100, 200, 100, 200, 200, 200, 200, 200))
    tiles = {tile.label: tile for tile in page_of(folder)["answer"].tiles}
    assert tiles["largest gain"].value == ""
    assert tiles["largest gain"].why == "No cell is faster than its baseline."
    assert tiles["largest loss"].value == "+100.0 %"


def test_cells_are_listed_with_their_errors(sections: dict[str, Section]) -> None:
    table = tables_in(sections["Cells"])["Cells"]
    assert table.header == (
        *("cell", "case", "ranks", "all_reduce", "n", "iteration", "+-", "ratio"),
        *("errors", "busbw GB/s", "retransmitted %", "CE %", "generator-bound %"),
    )
    # Repetitions 1 % above and below: a standard error of 1 %.
    assert table.rows[0] == (
        *("0", "plain", "2", "ring", "2", "1ms", "10us", "base", "", "1", "1.0", "2.0"),
        "10.0",
    )
    # 100 us over the root of 10 us squared and 9 us squared is 7.4; of two repetitions
    # that says no more than 2.3 of many.
    assert table.rows[1] == (
        *("1", "plain", "2", "tree", "2", "900us", "9us", "0.900", "2.3", "2", "1.0"),
        *("2.0", "10.0"),
    )
    assert [row[7] for row in table.rows] == [
        "base", "0.900", "base", "1.200", "1.500", "1.600", "1.600", "0.950",
    ]  # fmt: skip
    assert table.left == 4


def test_virtual_time_is_exact_and_has_no_generator(tmp_path: Path) -> None:
    cells = [{**cell, "world": "simulate"} for cell in CELLS]
    folder = made_sweep(tmp_path, cells=cells, repetitions=1, bound=None)
    found = page_of(folder)["sections"]
    table = tables_in(found["Cells"])["Cells"]
    assert table.header[-1] == "CE %"
    assert {row[6] for row in table.rows} == {"exact"}
    assert table.rows[1][8] == "exact"
    assert found["Cells"].observed == "(v)"
    # Virtual time of one repetition has no bars.
    plot = plots_in(found["Changes from the baselines"])["changes"]
    bars = data_of(plot.figure, Segment)[0]
    assert bars["low"] == bars["high"] == bars["percent"]


def test_numbers_of_cells_lead_to_their_first_runs(
    folder: Path, sections: dict[str, Section]
) -> None:
    first = tables_in(sections["Cells"])["Cells"].rows[1][0]
    assert isinstance(first, Link)
    assert first.href == f"../runs/0001/{RUN_NAME}-0"
    # A run that was taken away has no link.
    assert not isinstance(tables_in(sections["Cells"])["Cells"].rows[7][0], Link)
    rows = only_table(sections["Runs of the cells"])
    assert [row[0] for row in rows] == [str(at // 2) for at in range(16)]
    assert [row[3] for row in rows[:2]] == ["0", "1"]
    link = rows[3][2]
    assert isinstance(link, Link)
    assert link.href == f"../runs/0001/{RUN_NAME}-1"
    assert rows[0][1:] == (
        *("case plain, ranks 2, all_reduce ring", f"{RUN_NAME}-0", "0", "990us"),
        *("3.0", "1"),
    )
    assert SuiteData(folder, folder / "page.html").runs[0].repetition == 0


def test_a_sweep_without_results_says_so(tmp_path: Path) -> None:
    folder = made_sweep(tmp_path, kept=lambda number, repetition: False)
    page = page_of(folder)
    found = page["sections"]
    assert page["warnings"][0] == "16 of 16 results are missing."
    assert page["answer"].verdict == "No cell has a result."
    for title, text in (
        ("Cells", "no cell has a result."),
        ("Runs of the cells", "no cell has a result."),
        ("Best and worst", "no two cells have the same work, so none is best."),
        ("Changes from the baselines", "no cell has another cell as its baseline."),
    ):
        assert (found[title].text, found[title].blocks) == (text, ())
    measured = found["Bus bandwidth by size"]
    assert measured.text == "no collective with a bus bandwidth was measured."
    warnings = page["warnings"]
    assert len(warnings) == 17
    assert warnings[1] == (
        "no result: plain ranks=2 collectives.all_reduce=ring, repetition 0: not run"
    )


@pytest.mark.parametrize(("repetitions", "told"), [(2, 16), (3, 21)])
def test_of_many_missing_results_twenty_are_named(
    tmp_path: Path, repetitions: int, told: int
) -> None:
    folder = made_sweep(
        tmp_path, repetitions=repetitions, kept=lambda number, repetition: False
    )
    warnings = page_of(folder)["warnings"][1:]
    assert len(warnings) == told
    if repetitions == 3:
        assert warnings[20] == "and 4 more without a result"


def test_a_failed_cell_says_why(tmp_path: Path) -> None:
    folder = made_sweep(tmp_path, kept=lambda number, repetition: number != 5)
    run = next(each for each in read_sweep(folder).runs if each.number == 5)
    keep_outcome(
        folder, run, {"digest": run.digest, "status": "failed", "reason": "no lab"}
    )
    page = page_of(folder)
    assert page["warnings"][0] == "2 of 16 results are missing."
    assert page["warnings"][1].endswith("repetition 0: no lab")
    assert page["warnings"][2].endswith("repetition 1: not run")
    assert facts_in(page["sections"]["Varied settings"])["results"] == "14 of 16"
    assert len(tables_in(page["sections"]["Cells"])["Cells"].rows) == 7


# ---- anomalies -----------------------------------------------------------------------


def test_what_is_odd_of_cells_is_told(page: dict[str, Any]) -> None:
    assert page["warnings"] == [
        "packets were retransmitted in 8 of 8 cells, most in cell 0: 1.0 %",
        "collectives were generator-bound in 8 of 8 cells, most in cell 0: 10.0 %",
    ]


def changed(**changes: Any) -> Callable[[int, int], dict[str, Any]]:
    """Return what makes documents, some of them with changes: by number of cell."""

    def make(number: int, repetition: int) -> dict[str, Any]:
        found = document_of(number, repetition)
        for name, by_number in changes.items():
            if number in by_number:
                found[name] = by_number[number]
        return found

    return make


def test_banners_are_told_once_with_their_cells(tmp_path: Path) -> None:
    late = {"world": "run", "banners": ["LATE"]}
    odd = {"world": "run", "banners": ["ODD", "LATE"]}
    wrong = document_of(3, 0)["results"]
    wrong[0]["out_of_place"]["nwrong"] = 7
    make = changed(
        run={0: late, 2: odd, 4: late, 5: late, 6: late},
        unfinished_collectives={1: 3},
        results={3: wrong},
    )
    folder = made_sweep(tmp_path, document=make)
    facts = page_of(folder)["warnings"]
    # That of most runs first; three of its cells are named, each once.
    assert facts[0] == (
        "cell 0 (case plain, ranks 2, all_reduce ring); "
        "2 (case plain, ranks 4, all_reduce ring); "
        "4 (case slow, ranks 2, all_reduce ring) and 2 more: LATE"
    )
    assert "cell 1 (case plain, ranks 2, all_reduce tree): 3 collectives were not" in (
        " ".join(facts)
    )
    assert facts[2:4] == [
        "cell 2 (case plain, ranks 4, all_reduce ring): ODD",
        "cell 3 (case plain, ranks 4, all_reduce tree): 7 packets arrived with a wrong "
        "payload",
    ]


def test_repetitions_that_vary_are_told(tmp_path: Path) -> None:
    def make(number: int, repetition: int) -> dict[str, Any]:
        found = document_of(number, repetition)
        factor = {2: 0.06, 5: 0.3}.get(number, 0.05)
        found["iterations"][0]["mean_ns"] = 1e6 * (1 + factor * (1, -1)[repetition])
        found["retransmitted_packets"] = 10 * number
        return found

    folder = made_sweep(tmp_path, document=make)
    page = page_of(folder)
    facts, found = page["warnings"], page["sections"]
    assert facts[-1] == (
        "repetitions of 2 cells vary by more than 5.0 % (CV), most in cell 5: 30.0 %"
    )
    # None of them was sent again in the first.
    assert (
        facts[0] == "packets were retransmitted in 7 of 8 cells, most in cell 7: 7.0 %"
    )
    section = found["Spread of repetitions"]
    assert section.text == "CV of the repetitions: median 5.0 %, largest 30.0 %."
    (data,) = data_of(plots_in(section)["spread"].figure, Scatter)
    at = data["y"].index("5: case slow, ranks 2, all_reduce tree")
    assert data["percent"][at : at + 2] == pytest.approx([30, -30])
    assert data["tip"][at].endswith("all_reduce tree, repetition 0: 1.3ms")
    assert plots_in(section)["spread"].caption == ""


def test_median_of_an_even_number_of_cells_is_between_two(tmp_path: Path) -> None:
    def make(number: int, repetition: int) -> dict[str, Any]:
        found = document_of(number, repetition)
        factor = 0.01 if number < 4 else 0.03
        found["iterations"][0]["mean_ns"] = 1e6 * (1 + factor * (1, -1)[repetition])
        return found

    section = page_of(made_sweep(tmp_path, document=make))["sections"]
    assert section["Spread of repetitions"].text == (
        "CV of the repetitions: median 2.0 %, largest 3.0 %."
    )


def test_nothing_odd_is_said_too(tmp_path: Path) -> None:
    make = changed(
        retransmitted_packets=dict.fromkeys(range(8), 0),
        generator_bound=dict.fromkeys(range(8)),
    )
    folder = made_sweep(tmp_path, document=make)
    assert page_of(folder)["warnings"] == []


def test_very_many_banners_are_cut(tmp_path: Path) -> None:
    said = {"world": "run", "banners": [f"banner {number:02}" for number in range(30)]}
    folder = made_sweep(tmp_path, document=changed(run={0: said}))
    warnings = page_of(folder)["warnings"]
    assert len(warnings) == 21
    # 30 banners, packets sent again, and the generator.
    assert warnings[20] == "and 12 more"


# ---- figures -------------------------------------------------------------------------


def test_bandwidths_have_a_figure_for_each_case(sections: dict[str, Section]) -> None:
    section = sections["Bus bandwidth by size"]
    plain, slow = plots_in(section).values()
    assert list(plots_in(section)) == ["busbw", "busbw-2"]
    assert plain.figure.title.text == "Case plain"
    assert legend_of(plain.figure) == [
        f"ranks {ranks}, all_reduce {algorithm}"
        for ranks in (2, 4)
        for algorithm in ("ring", "tree")
    ]
    ring, tree, *_ = data_of(plain.figure, Line)
    # 1 GB/s, 1 % less and more in the repetitions.
    assert (ring["x"], ring["y"]) == ([1024, 65536], pytest.approx([8e9, 8e9]))
    assert ring["low"] == pytest.approx([7.92e9] * 2)
    assert ring["high"] == pytest.approx([8.08e9] * 2)
    assert ring["text"] == ["1KiB: 8Gbit/s, n=2", "64KiB: 8Gbit/s, n=2"]
    assert tree["y"] == pytest.approx([16e9, 16e9])
    # All figures have one scale: that of the fastest.
    top = 1.12 * 8 * 8.08e9
    for plot in (plain, slow):
        assert plot.figure.y_range.end == pytest.approx(top)
    assert "left out" not in section.text


def test_of_many_lines_those_with_most_bandwidth_are_drawn(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite_figures, "_LINES", 1)
    suite = SuiteData(folder, folder / "page.html")
    section = suite_figures.bandwidth(suite)
    plots = plots_in(section)
    assert [data_of(plot.figure, Line)[0]["y"][0] for plot in plots.values()] == (
        pytest.approx([4 * 8e9, 8 * 8e9])
    )
    assert section.text.endswith(" 6 lines with less bandwidth are left out.")
    monkeypatch.setattr(suite_figures, "_BW_FIGURES", 1)
    section = suite_figures.bandwidth(suite)
    assert list(plots_in(section)) == ["busbw"]
    assert section.text.endswith(" 7 lines with less bandwidth are left out.")


def test_lines_are_told_apart_by_what_differs_within_a_run(tmp_path: Path) -> None:
    rows = [
        {**document_of(0, 0)["results"][0], **changes}
        for changes in (
            {"collective": "all_reduce", "nranks": 2},
            {"collective": "all_to_all", "nranks": 4},
            {"collective": "barrier", "nranks": 4},
        )
    ]
    one = [{**CELLS[0], "case": "", "values": {}}]
    suite = {"cases": [], "matrix": {}, "baseline": {}}
    folder = made_sweep(
        tmp_path, cells=one, suite=suite, repetitions=1,
        document=changed(results={0: rows}),
    )  # fmt: skip
    section = suite_figures.bandwidth(SuiteData(folder, folder / "page.html"))
    (plot,) = plots_in(section).values()
    assert legend_of(plot.figure) == [
        "all_reduce, N=2", "all_to_all, N=4",
    ]  # fmt: skip
    assert plot.figure.title.text == "Bus bandwidth against S"


def test_the_two_longest_axes_make_the_heat_maps(sections: dict[str, Section]) -> None:
    section = sections["Over two axes"]
    assert section.text == "case across, ranks down."
    plots = plots_in(section)
    assert list(plots) == ["heat-ratio", "heat-ratio-2", "heat-busbw", "heat-busbw-2"]
    ratio = plots["heat-ratio-2"].figure
    assert ratio.title.text == "Iteration over its baseline (all_reduce tree)"
    (data,) = data_of(ratio, Rect)
    cells = {
        (x, y): (text, tip)
        for x, y, text, tip in zip(
            *(data[name] for name in ("x", "y", "text", "tip")), strict=True
        )
    }
    assert cells == {
        ("plain", "2"): ("0.900", "case plain, ranks 2, all_reduce tree: 900us"),
        ("plain", "4"): ("1.200", "case plain, ranks 4, all_reduce tree: 2.4ms"),
        ("slow", "2"): ("1.600", "case slow, ranks 2, all_reduce tree: 1.6ms"),
        ("slow", "4"): ("0.950", "case slow, ranks 4, all_reduce tree: 1.9ms"),
    }
    # What is a baseline is as long as itself.
    (data,) = data_of(plots["heat-ratio"].figure, Rect)
    assert data["text"][data["x"].index("plain")] == "1.000"
    # All are held to the largest of all: 60 % more.
    colors = data_colors(plots["heat-ratio"].figure)
    assert colors == data_colors(ratio) == pytest.approx((0.4, 1.6))
    (data,) = data_of(plots["heat-busbw"].figure, Rect)
    assert sorted(data["value"]) == pytest.approx([8e9, 24e9, 40e9, 56e9])
    assert sorted(data["text"]) == ["24G", "40G", "56G", "8G"]
    assert data_colors(plots["heat-busbw"].figure) == pytest.approx((0, 64e9))


def data_colors(figure: Any) -> tuple[float, float]:
    (drawn,) = [each for each in figure.renderers if isinstance(each.glyph, Rect)]
    colors = drawn.glyph.fill_color["transform"]
    return colors.low, colors.high


def test_of_many_combinations_some_are_drawn(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite_figures, "_PANELS", 1)
    section = suite_figures.heat_maps(SuiteData(folder, folder / "page.html"))
    assert list(plots_in(section)) == ["heat-ratio", "heat-busbw"]
    assert section.text.endswith(" 1 combinations of other axes are left out.")


def test_one_axis_is_no_map(tmp_path: Path) -> None:
    cells = [{**cell, "case": ""} for cell in CELLS[:2]]
    cells = [{**cell, "values": {"ranks": cell["number"]}} for cell in cells]
    suite = {"cases": [], "matrix": {"ranks": [0, 1], "size": ["1MiB"]}}
    for cell in cells:
        cell["values"]["size"] = "1MiB"
    folder = made_sweep(tmp_path, cells=cells, suite=suite)
    section = suite_figures.heat_maps(SuiteData(folder, folder / "page.html"))
    assert section.text == "the suite varies fewer than two settings."
    assert section.blocks == ()


def test_changes_have_two_standard_errors_to_either_side(
    sections: dict[str, Section],
) -> None:
    plot = plots_in(sections["Changes from the baselines"])["changes"]
    assert legend_of(plot.figure) == ["significant", "not significant"]
    data, other = data_of(plot.figure, Scatter)
    assert [name[0] for name in data["y"]] == ["1", "3", "4", "5", "6"]
    assert other["y"] == ["7: case slow, ranks 4, all_reduce tree"]
    assert data["percent"] == pytest.approx([-10, 20, 50, 60, 60])
    # 10 % are 2.3 errors.
    assert data["low"][0] == pytest.approx(-10 - 2 * 10 / 2.3, abs=0.2)
    assert data["high"][0] == pytest.approx(-10 + 2 * 10 / 2.3, abs=0.2)
    assert data["tip"][0] == "case plain, ranks 2, all_reduce tree: -10.0 %"
    assert "largest of" not in plot.caption


def test_of_many_changes_the_largest_are_drawn_in_the_order_of_cells(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite_figures, "_ROWS_DRAWN", 2)
    suite = SuiteData(folder, folder / "page.html")
    plot = plots_in(suite_figures.change_section(suite))["changes"]
    assert [name[0] for name in plot.figure.y_range.factors] == ["6", "5"]
    assert plot.caption.endswith(" The 2 largest of 6 are drawn.")
    plot = plots_in(suite_figures.spread(suite))["spread"]
    assert len(plot.figure.y_range.factors) == 2
    assert plot.caption == "The 2 cells with the widest spread."


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cells", [{"number": 0}]),
        ("cells", []),
        ("runs", [[1, 2]]),
        ("suite", 3),
        ("suite", {**SUITE, "matrix": {**SUITE["matrix"], "gone": [1]}}),
        ("suite", {**SUITE, "cases": [3]}),
        ("runs", [{"number": 99}]),
    ],
)
def test_a_damaged_sweep_is_refused(tmp_path: Path, key: str, value: object) -> None:
    folder = made_sweep(tmp_path)
    path = folder / "suite.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, key: value}))
    with pytest.raises(RunDirectoryError, match=r"suite\.json: is damaged"):
        read_sweep(folder)


def test_a_result_of_nics_has_no_counts_of_packets(tmp_path: Path) -> None:
    folder = made_sweep(tmp_path)
    run, *_ = read_sweep(folder).runs
    path = next((folder / "cells").glob("0000-0.json"))
    outcome = json.loads(path.read_text())
    names = ("packets", "retransmitted_packets", "ecn_marked_packets")
    outcome["document"] |= dict.fromkeys(names)
    path.write_text(json.dumps(outcome))
    assert kept_outcome(folder, run) is not None


@pytest.mark.parametrize("gone", ["packets", "generator_bound", "results", "run"])
def test_a_damaged_result_is_none(tmp_path: Path, gone: str) -> None:
    folder = made_sweep(tmp_path)
    run, *_ = read_sweep(folder).runs
    assert kept_outcome(folder, run) is not None
    path = next((folder / "cells").glob("0000-0.json"))
    outcome = json.loads(path.read_text())
    del outcome["document"][gone]
    path.write_text(json.dumps(outcome))
    assert kept_outcome(folder, run) is None
    assert reason_of(folder, run) == "its file is damaged; run the sweep again"


@pytest.mark.parametrize(
    "key", ["algorithm", "min_ns", "generator_bound", "bus_bw", "nwrong"]
)
def test_a_result_without_a_column_of_the_tables_is_none(
    tmp_path: Path, key: str
) -> None:
    folder = made_sweep(tmp_path)
    run, *_ = read_sweep(folder).runs
    path = next((folder / "cells").glob("0000-0.json"))
    outcome = json.loads(path.read_text())
    result = outcome["document"]["results"][1]
    result = result["out_of_place"] if key in ("bus_bw", "nwrong") else result
    del result[key]
    path.write_text(json.dumps(outcome))
    assert kept_outcome(folder, run) is None
