"""The page of a sweep, written by ``chakram report`` for its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chakram.config.suite import text
from chakram.console.number_format import MISSING, errors_text, percent_text
from chakram.foundation.units import format_time
from chakram.report.blocks import Facts, Table
from chakram.report.page import Parts, render_page, section
from chakram.report.run.data import OBSERVED
from chakram.report.run.page import raw_files
from chakram.report.sweep import figures
from chakram.report.sweep.data import SuiteData, change_of, spread_of
from chakram.sweep.tables import cell_document

if TYPE_CHECKING:
    from chakram.analysis.comparison import Times
    from chakram.sweep.tables import CellResult


_KEPT = (
    *("cell", "case", "values", "world", "repetitions", "iteration_ns", "bus_bw"),
    *("baseline", "change", "significant"),
)
"""Fields of a cell's document that the document of the page contains."""

_ROWS_LISTED, _WORK_SHOWN, _BANNERS_SHOWN = 1000, 64, 20
_NOISY = 0.05
"""Coefficient of variation of repetitions above which they are reported as noisy."""


def suite_page(folder: Path, out: Path) -> str:
    """Return the page of a sweep as HTML.

    Args:
        folder: Folder of the sweep.
        out: Path of the page. Links to runs are relative to it.

    Raises:
        RunDirectoryError: If the folder cannot be read.
    """
    suite = SuiteData(folder, out)
    points = "; ".join(
        f"{letter} {OBSERVED[letter[1]]}" for letter in suite.seen("c", "f").split(", ")
    )
    return render_page(
        title=f"Suite {suite.facts['name']}",
        lead=f"{len(suite.cells)} cells of {suite.facts['base']}, each "
        f"{suite.facts['repetitions']} times; {' and '.join(suite.worlds)}.",
        notes=[f"Where values were observed: {points}."],
        banners=[]
        if not suite.missing
        else [f"{len(suite.missing)} of {suite.planned} results are missing."],
        sections=[
            _varied(suite),
            _best_and_worst(suite),
            _table(suite),
            figures.bandwidth(suite),
            figures.heat_maps(suite),
            figures.change_section(suite),
            figures.spread(suite),
            _anomalies(suite),
            _runs(suite),
            raw_files(
                folder, [folder / "suite.json", *sorted(folder.glob("results.*"))]
            ),
        ],
        document={
            "suite": dict(suite.facts),
            "cells": [
                {name: document[name] for name in _KEPT}
                for document in map(cell_document, suite.results)
            ],
        },
    )


@section("Varied settings", "f")
def _varied(suite: SuiteData) -> Parts:
    facts = suite.facts
    rows = [(key, ", ".join(values)) for key, values in suite.axes.items()]
    for case in facts["cases"]:
        changed = "; ".join(
            f"{key}: {text(value)}" for key, value in case["set"].items()
        )
        rows.append((f"case {case['name']}", changed or "the unchanged base"))
    said = ", ".join(f"{key} {text(v)}" for key, v in facts["baseline"].items())
    order = "each cell once"
    if facts["repetitions"] > 1:
        order = (
            "each repetition runs all cells with the next seed, every second one in "
            "reverse order"
        )
    yield Facts(
        rows=(
            *rows,
            ("base", str(facts["base"])),
            ("baseline", f"the same cell with {said}" if said else "the first cell"),
            ("world", ", ".join(suite.worlds)),
            ("results", f"{len(suite.runs)} of {suite.planned}"),
            ("order", order),
        )
    )


@section("Best and worst", "c")
def _best_and_worst(suite: SuiteData) -> Parts:
    groups: dict[tuple[str, ...], list[CellResult]] = {}
    for each in suite.results:
        if each.iteration is not None:
            key = tuple(suite.value(each.cell, axis) for axis in suite.work)
            groups.setdefault(key, []).append(each)
    rows = []
    for key, own in groups.items():
        if len(own) < 2:
            continue
        own.sort(key=_time)
        best, worst = own[0], own[-1]
        rows.append(
            (
                *key,
                *(suite.name(each.cell, suite.work) for each in (best, worst)),
                *(format_time(_time(each)) for each in (best, worst)),
                f"{_time(worst) / max(1, _time(best)):.3f}",
                str(len(own)),
            )
        )
    if not rows:
        yield "no two cells have the same work, so none is best."
        return
    gains = sorted(
        (change, number)
        for number, each in enumerate(suite.results)
        if (change := change_of(each)) is not None
    )
    facts = []
    for what, found in (("largest gain", gains[:1]), ("largest loss", gains[-1:])):
        for change, number in found:
            if (change < 0) == (what == "largest gain"):
                each = suite.results[number]
                weight = ""
                if each.difference and each.difference.significant is False:
                    weight = " (not significant)"
                said = f"{percent_text(change, sign='+')} % over its baseline{weight}"
                facts.append((what, f"{suite.name(each.cell)}: {said}"))
    if facts:
        yield Facts(rows=tuple(facts))
    yield Table(
        title="Ordered by the time of an iteration",
        header=(
            *(suite.short[axis] for axis in suite.work),
            *("best", "worst", "best iteration", "worst iteration", "ratio"),
            "of cells",
        ),
        rows=tuple(rows),
        left=len(suite.work) + 2,
        note="Cells with the same work are compared with each other.",
    ).cut(_WORK_SHOWN)


def _time(each: CellResult) -> float:
    assert each.iteration is not None
    return each.iteration.mean_ns


@section("Cells", "c")
def _table(suite: SuiteData) -> Parts:
    if not suite.results:
        yield "no cell has a result."
        return
    first = {run.cell.number: run for run in reversed(suite.runs)}
    # Virtual time has no generator.
    real = any(each.generator_bound_share is not None for each in suite.results)
    rows = []
    for each in suite.results:
        number, times, change = each.cell.number, each.iteration, change_of(each)
        difference = each.difference
        ratio = MISSING if change is None else f"{1 + change:.3f}"
        rows.append(
            (
                suite.link(str(number), first[number]),
                *(suite.value(each.cell, axis) for axis in suite.axes),
                str(each.repetitions),
                MISSING if times is None else format_time(times.mean_ns),
                _error(times),
                "base" if each.cell.baseline is None else ratio,
                "" if difference is None else errors_text(difference.errors),
                MISSING if each.bus_bw is None else f"{each.bus_bw:.4g}",
                percent_text(each.retransmitted_share),
                percent_text(each.marked_share),
                *([percent_text(each.generator_bound_share)] if real else []),
            )
        )
    yield Table(
        title="Cells",
        header=(
            *("cell", *(suite.short[axis] for axis in suite.axes), "n"),
            *("iteration", "+-", "ratio", "errors", "busbw GB/s"),
            *("retransmitted %", "CE %", *(["generator-bound %"] if real else [])),
        ),
        rows=tuple(rows),
        left=1 + len(suite.axes),
        note=(
            "n: repetitions. iteration: mean time of the job that takes longest. +-: "
            "its standard error. ratio: relative to the baseline. errors: the "
            "difference in standard errors; below 2 it is not significant. busbw: mean "
            "over the rows of the run's table. Cell numbers link to the run directory "
            "of the first repetition."
        ),
    ).cut(_ROWS_LISTED)


def _error(times: Times | None) -> str:
    if times is None or times.error_ns is None:
        return MISSING
    return format_time(times.error_ns) if times.error_ns else "exact"


@section("Anomalies")
def _anomalies(suite: SuiteData) -> Parts:
    found = [f"no result: {name}: {reason}" for name, reason in suite.missing[:20]]
    if len(suite.missing) > len(found):
        found.append(f"and {len(suite.missing) - len(found)} more without a result")
    limit = _BANNERS_SHOWN + len(suite.missing[:20])
    banners: dict[str, list[str]] = {}
    for run in suite.runs:
        said = list(run.document["run"]["banners"])
        if unfinished := run.document["unfinished_collectives"]:
            said.append(f"{unfinished} collectives were not finished")
        if wrong := sum(row["out_of_place"]["nwrong"] or 0 for row in run.rows):
            said.append(f"{wrong} packets arrived with a wrong payload")
        cell = f"{run.cell.number} ({suite.name(run.cell)})"
        for banner in said:
            banners.setdefault(banner, []).append(cell)
    for banner, cells in sorted(banners.items(), key=lambda item: -len(item[1])):
        names = list(dict.fromkeys(cells))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        found.append(f"cell {'; '.join(names[:3])}{more}: {banner}")
    for what, name in (
        ("packets were retransmitted", "retransmitted_share"),
        ("collectives were generator-bound", "generator_bound_share"),
    ):
        shares = {
            each.cell.number: share
            for each in suite.results
            if (share := getattr(each, name))
        }
        if shares:
            worst = max(shares, key=lambda number: shares[number])
            found.append(
                f"{what} in {len(shares)} of {len(suite.results)} cells, most in cell "
                f"{worst}: {percent_text(shares[worst])} %"
            )
    noisy = {
        number: cv
        for number, own in suite.repeated.items()
        if (cv := spread_of(own)) > _NOISY
    }
    if noisy:
        worst = max(noisy, key=lambda number: noisy[number])
        found.append(
            f"repetitions of {len(noisy)} cells vary by more than "
            f"{percent_text(_NOISY)} % (CV), most in cell {worst}: "
            f"{percent_text(noisy[worst])} %"
        )
    rows = [(str(number), each) for number, each in enumerate(found[:limit], 1)]
    if len(found) > limit:
        rows.append(("", f"and {len(found) - limit} more"))
    yield Facts(rows=tuple(rows) or (("none", ""),))


@section("Runs of the cells", "c")
def _runs(suite: SuiteData) -> Parts:
    if not suite.runs:
        yield "no cell has a result."
        return
    rows = []
    for run in suite.runs:
        iteration, busbw = run.iteration, run.document["average_bus_bandwidth"]
        rows.append(
            (
                str(run.cell.number),
                suite.name(run.cell),
                suite.link(Path(run.directory).name, run),
                str(run.repetition),
                MISSING if iteration is None else format_time(iteration["mean_ns"]),
                MISSING if iteration is None else percent_text(iteration["cv"]),
                MISSING if busbw is None else f"{busbw:.4g}",
            )
        )
    yield "You can use chakram report, why, show and timeline on every run directory."
    yield Table(
        title="Runs of the cells",
        header=(
            *("cell", "what", "run directory", "repetition"),
            *("iteration", "CV %", "busbw GB/s"),
        ),
        rows=tuple(rows),
        left=3,
    ).cut(_ROWS_LISTED)
