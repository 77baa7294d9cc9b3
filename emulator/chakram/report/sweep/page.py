"""The report page of a sweep, as ``chakram report`` writes it for a sweep's folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.config.suite import text
from chakram.console.number_format import (
    MISSING,
    counted_text,
    errors_text,
    percent_text,
)
from chakram.foundation.units import format_time
from chakram.report import page
from chakram.report.blocks import facts, table
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
"""Fields of a cell's results that the page contains as numbers for programs."""

_ROWS_LISTED, _WORK_SHOWN, _BANNERS_SHOWN, _BARS = 1000, 64, 20, 10
_NOISY = 0.05
"""Coefficient of variation above which the page warns about noisy repetitions."""


def suite_page(folder: Path, out: Path) -> str:
    """Return the page of a sweep as HTML.

    Args:
        folder: Folder of the sweep.
        out: Path of the page. Links to runs are relative to it.

    Raises:
        RunDirectoryError: If the folder cannot be read.
    """
    suite = SuiteData(folder, out)
    repetitions = suite.facts["repetitions"]
    files = [folder / "suite.json", *sorted(folder.glob("results.*"))]
    compared = [
        figures.bandwidth(suite),
        figures.heat_maps(suite),
        figures.change_section(suite),
    ]
    return page.render_page(
        title=f"Suite {suite.facts['name']}",
        lead=f"{counted_text(len(suite.cells), 'cell')} of {suite.facts['base']}, each "
        f"{'once' if repetitions == 1 else f'{repetitions} times'}; "
        f"{' and '.join(suite.worlds)}.",
        answer=_answer(suite),
        warnings=_warnings(suite),
        groups=[
            page.Group("Best and worst", [_best_and_worst(suite)], is_open=True),
            page.Group("Cells", [_table(suite)], is_open=True),
            page.Group("Comparisons", compared, is_open=True),
            page.Group("Repetitions", [figures.spread(suite)]),
            page.Group("Settings", [_varied(suite)]),
            page.Group("Runs and raw files", [_runs(suite), raw_files(folder, files)]),
        ],
        document={
            "suite": dict(suite.facts),
            "cells": [
                {name: document[name] for name in _KEPT}
                for document in map(cell_document, suite.results)
            ],
        },
        letters="".join(each[1] for each in suite.seen("c", "f").split(", ")),
    )


def _answer(suite: SuiteData) -> page.Answer:
    """Return the answer: best cell, largest changes, and iteration times of cells."""
    timed = sorted((each for each in suite.results if each.iteration), key=_time)
    changes = sorted(
        ((change, each) for each in timed if (change := change_of(each)) is not None),
        key=lambda item: item[0],
    )
    sure = [
        each for _, each in changes if each.difference and each.difference.significant
    ]
    verdict = "No cell has a result."
    if timed:
        best, worst = timed[0], timed[-1]
        verdict = (
            f"The fastest cell is {suite.name(best.cell)} with "
            f"{format_time(_time(best))} per iteration, the slowest "
            f"{suite.name(worst.cell)} with {format_time(_time(worst))}."
        )
        if suite.work:
            verdict += " Cells differ in their work, so compare those with equal work."
    cvs = [spread_of(own) for own in suite.repeated.values()]
    tiles = [
        page.Tile(f"{len(suite.runs)} of {suite.planned}", "results"),
        page.Tile(format_time(_time(timed[0])) if timed else "", "fastest iteration"),
        _extreme("gain", [-change for change, _ in changes]),
        _extreme("loss", [change for change, _ in changes]),
        page.Tile(
            f"{percent_text(max(cvs))} %" if cvs else "",
            "largest CV of repetitions",
            "Every cell ran once.",
        ),
    ]
    bars = page.Bars(
        title="Iteration of each cell",
        series=["mean of the repetitions"],
        rows=[
            (f"{each.cell.number}: {suite.name(each.cell)}", [_time(each)])
            for each in timed[:_BARS]
        ],
        text=format_time,
        note=f"The fastest {_BARS} of {len(timed)}." * (len(timed) > _BARS),
    )
    largest = sorted(changes, key=lambda item: -abs(item[0]))[:3]
    return page.Answer(
        verdict=verdict,
        tiles=tiles,
        bars=bars if timed else None,
        heading="Largest changes from baselines",
        points=[
            (
                f"{suite.name(each.cell)}: {_percent(change)}",
                f"cell {each.cell.number}, {format_time(_time(each))} per iteration, "
                + ("significant" if each in sure else "not significant"),
            )
            for change, each in largest
        ],
    )


def _extreme(what: str, changes: Sequence[float]) -> page.Tile:
    """Return the tile of the largest gain or loss.

    *changes* are positive for gains if *what* is ``gain``, else positive for losses.
    """
    sign = -1 if what == "gain" else 1
    why = "No cell has another cell as its baseline."
    if changes:
        why = (
            f"No cell is {'faster' if what == 'gain' else 'slower'} than its baseline."
        )
    most = max(changes, default=0.0)
    return page.Tile(_percent(sign * most) if most > 0 else "", f"largest {what}", why)


def _percent(change: float) -> str:
    return f"{percent_text(change, sign='+')} %"


@page.section("Varied settings", "f")
def _varied(suite: SuiteData) -> page.Parts:
    known = suite.facts
    rows = [(key, ", ".join(values)) for key, values in suite.axes.items()]
    for case in known["cases"]:
        changed = "; ".join(
            f"{key}: {text(value)}" for key, value in case["set"].items()
        )
        rows.append((f"case {case['name']}", changed or "the unchanged base"))
    said = ", ".join(f"{key} {text(v)}" for key, v in known["baseline"].items())
    order = "each cell once"
    if known["repetitions"] > 1:
        order = (
            "each repetition runs all cells with the next seed, every second one in "
            "reverse order"
        )
    yield facts(
        *rows,
        ("base", str(known["base"])),
        ("baseline", f"the same cell with {said}" if said else "the first cell"),
        ("world", ", ".join(suite.worlds)),
        ("results", f"{len(suite.runs)} of {suite.planned}"),
        ("order", order),
    )


@page.section("Best and worst", "c")
def _best_and_worst(suite: SuiteData) -> page.Parts:
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
        raise page.Absent("no two cells have the same work, so none is best.")
    columns = "best | worst | best iteration | worst iteration | ratio | of cells"
    yield table(
        "Ordered by the time of an iteration",
        " | ".join([*(suite.short[axis] for axis in suite.work), columns]),
        rows,
        left=len(suite.work) + 2,
        note="Cells with the same work are compared with each other.",
        limit=_WORK_SHOWN,
    )


def _time(each: CellResult) -> float:
    assert each.iteration is not None
    return each.iteration.mean_ns


@page.section("Cells", "c")
def _table(suite: SuiteData) -> page.Parts:
    if not suite.results:
        raise page.Absent("no cell has a result.")
    first = {run.cell.number: run for run in reversed(suite.runs)}
    # Runs in virtual time do not use the traffic generator.
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
    columns = (
        "n | iteration | +- | ratio | errors | busbw GB/s | retransmitted % | CE %"
    )
    axes = (suite.short[axis] for axis in suite.axes)
    yield table(
        "Cells",
        " | ".join(["cell", *axes, columns, *(["generator-bound %"] if real else [])]),
        rows,
        left=1 + len(suite.axes),
        note="n: repetitions. iteration: mean time of the job that takes longest. +-: "
        "its standard error. ratio: relative to the baseline. errors: the difference "
        "in standard errors, corrected for the number of samples; below 2 it is not "
        "significant. busbw: mean over the rows "
        "of the run's table. Cell numbers link to the run directory of the first "
        "repetition.",
        limit=_ROWS_LISTED,
    )


def _error(times: Times | None) -> str:
    if times is None or times.error_ns is None:
        return MISSING
    return format_time(times.error_ns) if times.error_ns else "exact"


def _warnings(suite: SuiteData) -> list[str]:
    """Return warnings about missing results, noise, losses and the generator."""
    found = []
    if suite.missing:
        found = [f"{len(suite.missing)} of {suite.planned} results are missing."]
    found += [f"no result: {name}: {reason}" for name, reason in suite.missing[:20]]
    if (unnamed := len(suite.missing) - 20) > 0:
        found.append(f"and {unnamed} more without a result")
    limit = _BANNERS_SHOWN + len(found)
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
    cut = len(found) - limit
    return found[:limit] + ([f"and {cut} more"] if cut > 0 else [])


@page.section("Runs of the cells", "c")
def _runs(suite: SuiteData) -> page.Parts:
    if not suite.runs:
        raise page.Absent("no cell has a result.")
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
    columns = "cell | what | run directory | repetition | iteration | CV % | busbw GB/s"
    yield table("Runs of the cells", columns, rows, left=3, limit=_ROWS_LISTED)
