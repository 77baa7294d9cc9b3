"""Sections of a sweep's page that are figures: bandwidths, heat maps, changes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from chakram.observe.number_format import percent_text
from chakram.observe.report.page import Block, Plot, Section
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


def bandwidth(suite: SuiteData) -> Section:
    """Return bus bandwidth by size, a figure for each case."""
    title = "Bus bandwidth by size"
    points: dict[tuple[str, str], dict[int, list[float]]] = {}
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
            sizes = points.setdefault((run.cell.case, line), {})
            sizes.setdefault(row["size"], []).append(busbw * 8e9)
    if not points:
        return Section(
            title=title, text="no collective with a bus bandwidth was measured."
        )
    by_case: dict[str, dict[str, dict[int, list[float]]]] = {}
    for (case, line), sizes in points.items():
        by_case.setdefault(case, {})[line] = sizes
    blocks: list[Block] = []
    left_out = 0
    top = max(max(map(max, sizes.values())) for sizes in points.values())
    for number, (case, lines) in enumerate(by_case.items()):
        best = sorted(lines, key=lambda line: -max(map(max, lines[line].values())))
        drawn = best[:_LINES] if number < _BW_FIGURES else []
        left_out += len(lines) - len(drawn)
        if not drawn:
            continue
        chosen = {line: _curve(lines[line]) for line in lines if line in drawn}
        figure = curves(
            chosen,
            name="busbw" if number == 0 else f"busbw-{number + 1}",
            title=f"Case {case}" if case else "Bus bandwidth against S",
            x="bytes",
            y="bit/s",
            x_label="S of nccl-tests",
            y_label="bus bandwidth per accelerator",
            x_log=True,
            width=WHOLE if len(by_case) == 1 else HALF,
            height=380,
        )
        figure.y_range.end = 1.12 * top
        blocks.append(Plot(figure=figure))
    return Section(
        title=title,
        text="Means of the repetitions; whiskers: the least and the largest of them."
        + (f" {left_out} lines with less bandwidth are left out." if left_out else ""),
        observed=suite.seen,
        blocks=tuple(blocks),
    )


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


def heat_maps(suite: SuiteData) -> Section:
    """Return heat maps over the two axes with most values, one for all others each."""
    title = "Over two axes"
    several = [axis for axis, values in suite.axes.items() if len(values) > 1]
    if len(several) < 2:
        return Section(title=title, text="the suite varies less than two things.")
    # Stable: of equally long ones the first; the longest lies across.
    x, y = sorted(several, key=lambda axis: -len(suite.axes[axis]))[:2]
    others = [axis for axis in several if axis not in (x, y)]
    panels: dict[tuple[str, ...], list[CellResult]] = {}
    for each in suite.results:
        key = tuple(suite.value(each.cell, axis) for axis in others)
        panels.setdefault(key, []).append(each)
    shown = list(itertools.islice(panels.items(), _PANELS))
    blocks: list[Block] = []
    for kind, heading, unit, middle, values_of in (
        ("ratio", "Iteration over its baseline", "ratio", 1.0, _ratios),
        ("busbw", "Mean bus bandwidth", "bit/s", None, _busbws),
    ):
        drawn = [(key, values_of(suite, own)) for key, own in shown]
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
            blocks.append(Plot(figure=figure))
    more = len(panels) - _PANELS
    return Section(
        title=title,
        text=f"{suite.short[x]} across, {suite.short[y]} down."
        + (f" {more} combinations of other axes are left out." if more > 0 else ""),
        observed=suite.seen,
        blocks=tuple(blocks),
    )


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
            found.append(
                (
                    each,
                    CellValue(value=1 + change, text=f"{1 + change:.3f}", tip=tip),
                )
            )
    return found


def _busbws(
    suite: SuiteData, own: Sequence[CellResult]
) -> list[tuple[CellResult, CellValue]]:
    return [
        (
            each,
            CellValue(
                value=each.bus_bw * 8e9,
                text=format_rate(each.bus_bw * 8e9).removesuffix("bit/s"),
                tip=f"{suite.name(each.cell)}: {format_rate(each.bus_bw * 8e9)}",
            ),
        )
        for each in own
        if each.bus_bw is not None
    ]


def change_section(suite: SuiteData) -> Section:
    """Return what cells have changed from their baselines."""
    title = "Changes from the baselines"
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
        return Section(title=title, text="no cell has another one as its baseline.")
    most = sorted(found, key=lambda each: -abs(each.percent))[:_ROWS_DRAWN]
    drawn = [each for each in found if each in most]
    return Section(
        title=title,
        observed=suite.seen,
        blocks=(
            Plot(
                figure=changes(
                    drawn, name="changes", title="Change of the iteration, by cell"
                ),
                caption="Bars: two standard errors to either side; virtual time of one "
                "repetition has none."
                + (
                    f" The {_ROWS_DRAWN} largest of {len(found)} are drawn."
                    if len(drawn) < len(found)
                    else ""
                ),
            ),
        ),
    )


def spread(suite: SuiteData) -> Section:
    """Return how far repetitions are from one another."""
    title = "Spread of repetitions"
    several = suite.repeated
    if not several:
        return Section(title=title, text="every cell was run once.")
    widest = sorted(several, key=lambda number: -spread_of(several[number]))[
        :_ROWS_DRAWN
    ]
    deviations = {}
    for number in sorted(widest):
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
    cvs = sorted(map(spread_of, several.values()))
    return Section(
        title=title,
        text=f"CV of the repetitions: median {percent_text(cvs[len(cvs) // 2])} %, "
        f"largest {percent_text(cvs[-1])} %.",
        observed=suite.seen,
        blocks=(
            Plot(
                figure=spread_plot(
                    deviations, name="spread", title="Repetitions of each cell"
                ),
                caption=""
                if len(several) <= _ROWS_DRAWN
                else f"The {_ROWS_DRAWN} cells with the widest spread.",
            ),
        ),
    )
