"""Sections of a sweep's page that are figures: bandwidths, heat maps, changes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from chakram.observe.number_format import percent_text
from chakram.observe.report.page import NO_BANDWIDTHS, Parts, Plot, section
from chakram.observe.report.run_curves import BANDWIDTH
from chakram.observe.report.run_plots import HALF, WHOLE, Curve, curves
from chakram.observe.report.suite_data import CASE, SuiteData, change_of, spread_of
from chakram.observe.report.suite_plots import (
    CellValue,
    Change,
    changes,
    grid,
    spread_plot,
)
from chakram.units import about_size, format_rate, format_time

if TYPE_CHECKING:
    from chakram.observe.sweep_tables import CellResult


_LINES, _BW_FIGURES, _PANELS = 10, 6, 6
"""Lines in a figure, figures of bandwidths, and heat maps of a kind that are drawn."""
_ROWS_DRAWN = 60


@section("Bus bandwidth by size", "c")
def bandwidth(suite: SuiteData) -> Parts:
    """Return bus bandwidth by size, a figure for each case."""
    by_case: dict[str, dict[str, dict[int, list[float]]]] = {}
    several = {
        name: len({each[name] for run in suite.runs for each in run.rows}) > 1
        for name in ("job", "collective", "algorithm", "nranks")
    }
    # What the axis of an algorithm says already is not said twice.
    several["algorithm"] &= not any("algorithm" in a or "coll" in a for a in suite.axes)
    several["nranks"] &= "ranks" not in suite.axes
    for run in suite.runs:
        for row in run.rows:
            busbw = row["out_of_place"]["bus_bw"]
            if busbw is None:
                continue
            words = [suite.name(run.cell, (*suite.sizes(), CASE))]
            words += [
                f"N={row[name]}" if name == "nranks" else str(row[name])
                for name, is_told in several.items()
                if is_told
            ]
            line = ", ".join(word for word in words if word != "all") or "busbw"
            sizes = by_case.setdefault(run.cell.case, {}).setdefault(line, {})
            sizes.setdefault(row["size"], []).append(busbw * 8e9)
    if not by_case:
        yield NO_BANDWIDTHS
        return
    left_out = 0
    highest = {
        (case, line): max(map(max, sizes.values()))
        for case, lines in by_case.items()
        for line, sizes in lines.items()
    }
    for number, (case, lines) in enumerate(by_case.items()):
        best = sorted(lines, key=lambda line: -highest[case, line])
        drawn = best[:_LINES] if number < _BW_FIGURES else []
        left_out += len(lines) - len(drawn)
        if not drawn:
            continue
        look = {
            "name": "busbw" if number == 0 else f"busbw-{number + 1}",
            "title": f"Case {case}" if case else "Bus bandwidth against S",
            "width": WHOLE if len(by_case) == 1 else HALF,
        }
        chosen = {line: _curve(lines[line]) for line in lines if line in drawn}
        figure = curves(chosen, **{**BANDWIDTH, **look})
        figure.y_range.end = 1.12 * max(highest.values())
        yield Plot(figure=figure)
    yield "Means of the repetitions; whiskers: the least and the largest of them."
    if left_out:
        yield f"{left_out} lines with less bandwidth are left out."


def _curve(sizes: Mapping[int, Sequence[float]]) -> Curve:
    xs = sorted(sizes)
    return Curve(
        x=xs,
        y=[fmean(sizes[x]) for x in xs],
        low=[min(sizes[x]) for x in xs],
        high=[max(sizes[x]) for x in xs],
        text=[
            f"{about_size(x)}: {format_rate(fmean(sizes[x]))}, n={len(sizes[x])}"
            for x in xs
        ],
    )


@section("Over two axes", "c")
def heat_maps(suite: SuiteData) -> Parts:
    """Return heat maps over the two axes with most values, one for all others each."""
    several = [axis for axis, values in suite.axes.items() if len(values) > 1]
    if len(several) < 2:
        yield "the suite varies less than two things."
        return
    # Stable: of equally long ones the first; the longest lies across.
    x, y = sorted(several, key=lambda axis: -len(suite.axes[axis]))[:2]
    yield f"{suite.short[x]} across, {suite.short[y]} down."
    others = [axis for axis in several if axis not in (x, y)]
    panels: dict[tuple[str, ...], list[CellResult]] = {}
    for each in suite.results:
        key = tuple(suite.value(each.cell, axis) for axis in others)
        panels.setdefault(key, []).append(each)
    if len(panels) > _PANELS:
        yield f"{len(panels) - _PANELS} combinations of other axes are left out."
    for kind, heading, unit, middle, values_of in (
        ("ratio", "Iteration over its baseline", "ratio", 1.0, _ratios),
        ("busbw", "Mean bus bandwidth", "bit/s", None, _busbws),
    ):
        drawn = [
            (key, values_of(suite, own))
            for key, own in itertools.islice(panels.items(), _PANELS)
        ]
        every = [value.value for _, found in drawn for _, value in found]
        for number, (key, found) in enumerate(drawn, 1):
            if not found:
                continue
            where = ", ".join(
                f"{suite.short[axis]} {value}"
                for axis, value in zip(others, key, strict=True)
            )
            figure = grid(
                {
                    (suite.value(each.cell, x), suite.value(each.cell, y)): value
                    for each, value in found
                },
                columns=suite.axes[x],
                rows=suite.axes[y],
                name=f"heat-{kind}" + (f"-{number}" if number > 1 else ""),
                title=heading + (f" ({where})" if where else ""),
                x_label=suite.short[x],
                y_label=suite.short[y],
                unit=unit,
                span=(min(every), max(every)),
                middle=middle,
            )
            yield Plot(figure=figure)


def _ratios(
    suite: SuiteData, own: Sequence[CellResult]
) -> list[tuple[CellResult, CellValue]]:
    if len({each.cell.baseline for each in own}) == 1 and suite.work:
        return []  # one baseline for cells with other work says nothing
    found = []
    for each in own:
        change = 0.0 if each.cell.baseline is None else change_of(each)
        if change is not None and each.iteration is not None:
            tip = f"{suite.name(each.cell)}: {format_time(each.iteration.mean_ns)}"
            value = CellValue(value=1 + change, text=f"{1 + change:.3f}", tip=tip)
            found.append((each, value))
    return found


def _busbws(
    suite: SuiteData, own: Sequence[CellResult]
) -> list[tuple[CellResult, CellValue]]:
    found = []
    for each in own:
        if each.bus_bw is not None:
            rate = format_rate(each.bus_bw * 8e9)
            tip, text = f"{suite.name(each.cell)}: {rate}", rate.removesuffix("bit/s")
            found.append((each, CellValue(value=each.bus_bw * 8e9, text=text, tip=tip)))
    return found


@section("Changes from the baselines", "c")
def change_section(suite: SuiteData) -> Parts:
    """Return what cells have changed from their baselines."""
    found = []
    for each in suite.results:
        change = change_of(each)
        if change is None or each.difference is None:
            continue
        errors = each.difference.errors
        half = 0.0 if not errors or errors > 1e6 else 2 * abs(change / errors)
        found.append(
            Change(
                name=f"{each.cell.number}: {suite.name(each.cell)}",
                percent=100 * change,
                low=100 * (change - half),
                high=100 * (change + half),
                significant=bool(each.difference.significant),
                tip=f"{suite.name(each.cell)}: {percent_text(change, sign='+')} %",
            )
        )
    if not found:
        yield "no cell has another one as its baseline."
        return
    most = sorted(found, key=lambda each: -abs(each.percent))[:_ROWS_DRAWN]
    drawn = [each for each in found if each in most]
    caption = (
        "Bars: two standard errors to either side; virtual time of one repetition has "
        "none."
    )
    if len(drawn) < len(found):
        caption += f" The {_ROWS_DRAWN} largest of {len(found)} are drawn."
    title = "Change of the iteration, by cell"
    yield Plot(figure=changes(drawn, name="changes", title=title), caption=caption)


@section("Spread of repetitions", "c")
def spread(suite: SuiteData) -> Parts:
    """Return how far repetitions are from one another."""
    several = suite.repeated
    if not several:
        yield "every cell was run once."
        return
    cvs = {number: spread_of(own) for number, own in several.items()}
    deviations = {}
    for number in sorted(sorted(cvs, key=lambda each: -cvs[each])[:_ROWS_DRAWN]):
        own = several[number]
        mean = fmean(time for _, time in own)
        name = f"{number}: {suite.name(suite.cells[number])}"
        deviations[name] = [
            (
                100 * (time / mean - 1),
                f"{name}, repetition {run.repetition}: {format_time(time)}",
            )
            for run, time in own
        ]
    ordered = sorted(cvs.values())
    yield (
        f"CV of the repetitions: median {percent_text(ordered[len(cvs) // 2])} %, "
        f"largest {percent_text(ordered[-1])} %."
    )
    caption = ""
    if len(several) > _ROWS_DRAWN:
        caption = f"The {_ROWS_DRAWN} cells with the widest spread."
    plot = spread_plot(deviations, name="spread", title="Repetitions of each cell")
    yield Plot(figure=plot, caption=caption)
