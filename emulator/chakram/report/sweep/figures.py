"""Figure sections of a sweep's page: bandwidths, heat maps, changes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from bokeh import models
from bokeh.palettes import RdYlBu11, Viridis256

from chakram.console.number_format import percent_text
from chakram.foundation.units import about_size, format_rate, format_time
from chakram.report import figure_elements, plots
from chakram.report.page import NO_BANDWIDTHS, Absent, Parts, Plot, section
from chakram.report.palette import BLUE, GRAY
from chakram.report.run.bandwidth_and_fct import BANDWIDTH
from chakram.report.sweep.data import CASE, SuiteData, change_of, spread_of

if TYPE_CHECKING:
    from bokeh.plotting import figure

    from chakram.sweep.tables import CellResult


_LINES, _BW_FIGURES, _PANELS = 10, 6, 6
"""Limits on lines per figure, figures of bandwidths, and heat maps of one quantity."""
_ROWS_DRAWN = 60
_SHORTEST_LABELS = 8
"""Longest label, in characters, for which labels on the x axis fit side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellValue:
    """A number in a heat map, with its displayed text and its tooltip."""

    value: float
    text: str
    tip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change in percent, with a range of two standard errors in each direction."""

    name: str
    percent: float
    low: float
    high: float
    significant: bool
    tip: str


@section("Bus bandwidth by size", "c")
def bandwidth(suite: SuiteData) -> Parts:
    """Return the section of bus bandwidth by size, with a figure for each case."""
    by_case: dict[str, dict[str, dict[int, list[float]]]] = {}
    several = {
        name: len({each[name] for run in suite.runs for each in run.rows}) > 1
        for name in ("job", "collective", "algorithm", "nranks")
    }
    # Omit the algorithm and the number of ranks if an axis already shows them.
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
        raise Absent(NO_BANDWIDTHS)
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
            "width": figure_elements.WHOLE
            if len(by_case) == 1
            else figure_elements.HALF,
        }
        chosen = {line: _curve(lines[line]) for line in lines if line in drawn}
        plot = plots.curves(chosen, **{**BANDWIDTH, **look})
        plot.y_range.end = 1.12 * max(highest.values())
        yield Plot(figure=plot)
    yield "Means over the repetitions; whiskers: minimum and maximum."
    if left_out:
        yield f"{left_out} lines with less bandwidth are left out."


def _curve(sizes: Mapping[int, Sequence[float]]) -> plots.Curve:
    xs = sorted(sizes)
    return plots.Curve(
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
    """Return heat maps over the two axes with the most values.

    Each combination of values of the other axes has its own heat map.
    """
    several = [axis for axis, values in suite.axes.items() if len(values) > 1]
    if len(several) < 2:
        raise Absent("the suite varies fewer than two settings.")
    # The longest axis is horizontal. The sort is stable, so the first of equally long
    # axes comes first.
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
            plot = grid(
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
            yield Plot(figure=plot)


def _ratios(
    suite: SuiteData, own: Sequence[CellResult]
) -> list[tuple[CellResult, CellValue]]:
    if len({each.cell.baseline for each in own}) == 1 and suite.work:
        return []  # a single baseline is no reference for cells with different work
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
    """Return the section of cells' changes relative to their baselines."""
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
        raise Absent("no cell has another cell as its baseline.")
    most = sorted(found, key=lambda each: -abs(each.percent))[:_ROWS_DRAWN]
    drawn = [each for each in found if each in most]
    caption = (
        "Error bars: two standard errors in each direction. A single repetition in "
        "virtual time has none. The errors of a single measured iteration are unknown."
    )
    if len(drawn) < len(found):
        caption += f" The {_ROWS_DRAWN} largest of {len(found)} are drawn."
    title = "Change of the iteration, by cell"
    yield Plot(figure=changes(drawn, name="changes", title=title), caption=caption)


@section("Spread of repetitions", "c")
def spread(suite: SuiteData) -> Parts:
    """Return the section of the spread of repetitions."""
    several = suite.repeated
    if not several:
        raise Absent("every cell ran once.")
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
    yield (
        f"CV of the repetitions: median {percent_text(median(cvs.values()))} %, "
        f"largest {percent_text(max(cvs.values()))} %."
    )
    caption = ""
    if len(several) > _ROWS_DRAWN:
        caption = f"The {_ROWS_DRAWN} cells with the widest spread."
    plot = spread_plot(deviations, name="spread", title="Repetitions of each cell")
    yield Plot(figure=plot, caption=caption)


def grid(
    cells: Mapping[tuple[str, str], CellValue],
    *,
    columns: Sequence[str],
    rows: Sequence[str],
    name: str,
    title: str,
    x_label: str,
    y_label: str,
    unit: str,
    span: tuple[float, float],
    middle: float | None = None,
) -> figure:
    """Return a heat map over two axes of names. Cells without a value are empty.

    Args:
        cells: Values by column and row.
        columns: Column names, left to right.
        rows: Row names, top to bottom.
        name: Name of the figure.
        title: Title above the figure.
        x_label: Meaning of the columns.
        y_label: Meaning of the rows.
        unit: Unit of the values: a key of ``TICKS`` or another word.
        span: Smallest and largest value over all heat maps that share a color scale.
        middle: Neutral value. Smaller values are blue, larger values red.
    """
    low, high = span
    if middle is None:
        low = min(low, 0)
        palette: tuple[str, ...] = tuple(reversed(Viridis256[60:]))
    else:
        reach = max(high - middle, middle - low, 0.01)
        low, high = middle - reach, middle + reach
        palette = tuple(RdYlBu11)
    colors = models.LinearColorMapper(palette=palette, low=low, high=high or 1)
    longest = max(map(len, columns), default=0)
    turned = 5 * longest if longest > _SHORTEST_LABELS else 0
    plot = figure_elements.new_figure(
        name=name,
        title=title,
        width=figure_elements.HALF if len(columns) <= 8 else figure_elements.WHOLE,
        height=160 + 34 * len(rows) + turned,
        tools="save",
        x_range=models.FactorRange(*columns),
        y_range=models.FactorRange(*reversed(rows)),
        x_label=x_label,
        y_label=y_label,
    )
    plot.grid.visible = False
    if turned:
        plot.xaxis.major_label_orientation = 0.6
    two_sided = middle is not None
    values = list(cells.values())
    found = {
        "x": [column for column, _ in cells],
        "y": [row for _, row in cells],
        "value": [each.value for each in values],
        "text": [each.text for each in values],
        "tip": [each.tip for each in values],
        "ink": [_ink(each.value, low, high, two_sided=two_sided) for each in values],
    }
    source = models.ColumnDataSource(found)
    fill = {"field": "value", "transform": colors}
    look: dict[str, Any] = {"width": 0.97, "height": 0.95, "line_color": None}
    place = {"x": "x", "y": "y"}
    drawn = figure_elements.draw(plot, "Rect", source, **place, fill_color=fill, **look)
    if len(columns) <= 16:
        size = "12px" if len(columns) <= 6 else "10px"
        look = {"text_align": "center", "text_baseline": "middle", "text_color": "ink"}
        place |= {"text": "text", "text_font_size": size}
        figure_elements.draw(plot, "Text", source, **place, **look)
    figure_elements.hover(plot, drawn)
    figure_elements.add_color_bar(
        plot, colors, unit, "" if unit in figure_elements.TICKS else unit
    )
    return plot


def _ink(value: float, low: float, high: float, *, two_sided: bool) -> str:
    """Return a text color that is readable on a value's background color."""
    place = (value - low) / ((high - low) or 1)
    dark = abs(place - 0.5) > 0.28 if two_sided else place > 0.55
    return "white" if dark else "#1c2430"


def _points(cells: Sequence[str], **look: Any) -> figure:
    """Return an empty figure with a row per cell and a line at zero."""
    rows = models.FactorRange(*reversed(cells))
    plot = figure_elements.new_figure(y_range=rows, **look)
    plot.add_layout(models.Span(location=0, dimension="height", line_color=GRAY))
    plot.ygrid.visible = False
    return plot


def changes(found: Sequence[Change], *, name: str, title: str) -> figure:
    """Return a plot of changes with their ranges, the first change at the top."""
    label = "change of the iteration from its baseline (%)"
    names = [each.name for each in found]
    look: dict[str, Any] = {"name": name, "title": title, "x_label": label}
    plot = _points(names, height=120 + 22 * len(names), **look)
    for what, is_sure, color in (
        ("significant", True, BLUE),
        ("not significant", False, GRAY),
    ):
        own = [each for each in found if each.significant is is_sure]
        if not own:
            continue
        columns: dict[str, list[Any]] = {
            "y": [each.name for each in own],
            "percent": [each.percent for each in own],
            "low": [each.low for each in own],
            "high": [each.high for each in own],
            "tip": [each.tip for each in own],
        }
        source = models.ColumnDataSource(columns)
        ends = {"x0": "low", "x1": "high", "y0": "y", "y1": "y"}
        figure_elements.draw(
            plot, "Segment", source, **ends, line_width=2, line_color=color
        )
        point: dict[str, Any] = {"x": "percent", "y": "y", "size": 8, "color": color}
        drawn = figure_elements.draw(
            plot, "Scatter", source, legend_label=what, **point
        )
        figure_elements.hover(plot, drawn)
    figure_elements.legend_below(plot)
    plot.legend.visible = True
    return plot


def spread_plot(
    deviations: Mapping[str, Sequence[tuple[float, str]]], *, name: str, title: str
) -> figure:
    """Return a plot of each repetition's deviation from the mean of its cell.

    Args:
        deviations: For each cell, deviations in percent of the mean, with tooltips.
        name: Name of the figure.
        title: Title above the figure.
    """
    label = "deviation of a repetition from the mean of its cell (%)"
    height = 110 + 20 * len(deviations)
    look: dict[str, Any] = {"name": name, "title": title, "x_label": label}
    plot = _points(list(deviations), height=height, **look)
    points = [(cell, *each) for cell, own in deviations.items() for each in own]
    widest = 1.1 * (max((abs(percent) for _, percent, _ in points), default=0) or 1)
    plot.x_range = models.Range1d(-widest, widest)
    source = {
        "y": [cell for cell, _, _ in points],
        "percent": [percent for _, percent, _ in points],
        "tip": [tip for _, _, tip in points],
    }
    look = {"x": "percent", "y": "y", "size": 8, "fill_alpha": 0.5, "color": BLUE}
    figure_elements.hover(plot, figure_elements.draw(plot, "Scatter", source, **look))
    return plot
