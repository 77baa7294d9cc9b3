"""Plots of sweeps: a heat map over two axes, changes, the spread of repetitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bokeh import models
from bokeh.palettes import RdYlBu11, Viridis256

from chakram.observe.report.plots import TICKS, hover, new_figure
from chakram.observe.report.run_plots import COLOURS, HALF, TOOLS, WHOLE

if TYPE_CHECKING:
    from bokeh.plotting import figure

_SHORTEST_LABELS = 8
"""Characters of a label on the x axis that still fit beside one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellValue:
    """A number in a grid, as it is written there, and what the pointer says."""

    value: float
    text: str
    tip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change in percent, from and to where it may be (two standard errors)."""

    name: str
    percent: float
    low: float
    high: float
    significant: bool
    tip: str


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
    """Return a heat map over two axes with names; what has no value stays white.

    Args:
        cells: By column and row.
        columns: Left to right.
        rows: Top to bottom.
        name: Of the figure.
        title: Above it.
        x_label: What the columns are.
        y_label: What the rows are.
        unit: Of the values, as in ``TICKS``, or another word.
        span: The least and the largest value of all grids that are compared.
        middle: The value that is neither good nor bad: below it blue, above it red.
    """
    low, high = span
    if middle is None:
        palette: tuple[str, ...] = tuple(reversed(Viridis256[60:]))
        low = min(low, 0)
    else:
        palette = tuple(RdYlBu11)
        reach = max(high - middle, middle - low, 0.01)
        low, high = middle - reach, middle + reach
    colours = models.LinearColorMapper(palette=palette, low=low, high=high or 1)
    longest = max(map(len, columns), default=0)
    plot = new_figure(
        name=name,
        title=title,
        width=HALF if len(columns) <= 8 else WHOLE,
        height=160
        + 34 * len(rows)
        + (5 * longest if longest > _SHORTEST_LABELS else 0),
        tools="save",
        x_range=models.FactorRange(*columns),
        y_range=models.FactorRange(*reversed(rows)),
        x_axis_label=x_label,
        y_axis_label=y_label,
    )
    plot.grid.visible = False
    if longest > _SHORTEST_LABELS:
        plot.xaxis.major_label_orientation = 0.6
    found = {
        "x": [column for column, _ in cells],
        "y": [row for _, row in cells],
        "value": [each.value for each in cells.values()],
        "text": [each.text for each in cells.values()],
        "tip": [each.tip for each in cells.values()],
        "ink": [
            _ink(each.value, low, high, two_sided=middle is not None)
            for each in cells.values()
        ],
    }
    source = models.ColumnDataSource(found)
    drawn = plot.rect(
        x="x",
        y="y",
        width=0.97,
        height=0.95,
        source=source,
        fill_color={"field": "value", "transform": colours},
        line_color=None,
    )
    if len(columns) <= 16:
        plot.text(
            x="x",
            y="y",
            text="text",
            text_color="ink",
            text_align="center",
            text_baseline="middle",
            text_font_size="12px" if len(columns) <= 6 else "10px",
            source=source,
        )
    hover(plot, drawn)
    bar = models.ColorBar(color_mapper=colours, width=12)
    if unit in TICKS:
        bar.formatter = models.CustomJSTickFormatter(code=TICKS[unit])
    else:
        bar.title = unit
    plot.add_layout(bar, "right")
    return plot


def _ink(value: float, low: float, high: float, *, two_sided: bool) -> str:
    """Return a colour that can be read on that of a value."""
    place = (value - low) / ((high - low) or 1)
    dark = abs(place - 0.5) > 0.28 if two_sided else place > 0.55
    return "white" if dark else "#1c2430"


def changes(found: Sequence[Change], *, name: str, title: str) -> figure:
    """Return changes from baselines with where they may be, the first one on top."""
    names = [each.name for each in found]
    plot = new_figure(
        name=name,
        title=title,
        width=WHOLE,
        height=120 + 22 * len(found),
        tools=TOOLS,
        y_range=models.FactorRange(*reversed(names)),
        x_axis_label="change of the iteration from its baseline (%)",
    )
    plot.add_layout(models.Span(location=0, dimension="height", line_color="#555"))
    plot.ygrid.visible = False
    for what, own, colour in (
        ("significant", [each for each in found if each.significant], COLOURS[0]),
        ("not significant", [each for each in found if not each.significant], "#999"),
    ):
        if not own:
            continue
        columns = {
            "y": [each.name for each in own],
            "percent": [each.percent for each in own],
            "low": [each.low for each in own],
            "high": [each.high for each in own],
            "tip": [each.tip for each in own],
        }
        source = models.ColumnDataSource(columns)
        plot.segment(
            x0="low", x1="high", y0="y", y1="y", color=colour, source=source,
            line_width=2,
        )  # fmt: skip
        drawn = plot.scatter(
            x="percent", y="y", size=8, color=colour, source=source, legend_label=what
        )
        hover(plot, drawn)
    plot.add_layout(plot.legend[0], "below")
    plot.legend.orientation = "horizontal"
    plot.legend.border_line_color = None
    return plot


def spread_plot(
    deviations: Mapping[str, Sequence[tuple[float, str]]], *, name: str, title: str
) -> figure:
    """Return how far each repetition is from the mean of its cell.

    Args:
        deviations: By cell: percent of its mean, and what the pointer says.
        name: Of the figure.
        title: Above it.
    """
    names = list(deviations)
    widest = max(
        (abs(percent) for each in deviations.values() for percent, _ in each),
        default=0,
    )
    plot = new_figure(
        name=name,
        title=title,
        width=WHOLE,
        height=110 + 20 * len(names),
        tools=TOOLS,
        y_range=models.FactorRange(*reversed(names)),
        x_range=models.Range1d(-1.1 * (widest or 1), 1.1 * (widest or 1)),
        x_axis_label="repetition from the mean of its cell (%)",
    )
    plot.add_layout(models.Span(location=0, dimension="height", line_color="#555"))
    drawn = plot.scatter(
        x="percent",
        y="y",
        size=8,
        fill_alpha=0.5,
        source={
            "y": [cell for cell, each in deviations.items() for _ in each],
            "percent": [p for each in deviations.values() for p, _ in each],
            "tip": [tip for each in deviations.values() for _, tip in each],
        },
    )
    hover(plot, drawn)
    return plot
