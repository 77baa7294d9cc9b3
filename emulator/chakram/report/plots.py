"""Plots of pages: matrix, bars, cumulative distributions, counts.

Every plot shows exact numbers when the pointer is over it. It has at most a few
thousand points, so pages stay small and open quickly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from bokeh import models
from bokeh.palettes import Category10, Viridis256
from bokeh.plotting import figure

from chakram.foundation.units import about_size, format_rate, format_time

if TYPE_CHECKING:
    from chakram.chakra.summary.distribution import Distribution


MATRIX_CELLS: Final = 256
"""Maximum rows and columns of a drawn matrix. A larger matrix is drawn in blocks of
cells."""

_TOOLS: Final = "pan,wheel_zoom,box_zoom,reset"
_WIDTH, _HEIGHT = 520, 340


def _ticks(base: int, *units: str) -> str:
    """Return JavaScript that formats a tick's number in the unit that fits."""
    return f"""
    const units = {json.dumps(units)};
    let value = tick, unit = 0;
    while (Math.abs(value) >= {base} && unit < units.length - 1) {{
        value /= {base};
        unit += 1;
    }}
    return `${{Number(value.toPrecision(3))}} ${{units[unit]}}`;
"""


TICKS: Final = {
    "bytes": _ticks(1024, "B", "KiB", "MiB", "GiB", "TiB", "PiB"),
    "ns": _ticks(1000, "ns", "us", "ms", "s"),
    "bit/s": _ticks(1000, "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"),
}
"""Tick format by unit; other units use plain numbers."""


def new_figure(*, tools: str = _TOOLS, **look: Any) -> figure:
    """Return an empty figure with its tools at the top."""
    return figure(tools=tools, toolbar_location="above", **look)


def hover(plot: figure, drawn: Any, tips: list[tuple[str, str]] | str = "@tip") -> None:
    """Show *tips* when the pointer is over *drawn*."""
    plot.add_tools(models.HoverTool(renderers=[drawn], tooltips=tips))


def matrix(rows: Sequence[Sequence[int]], *, title: str) -> figure:
    """Return a heat map of bytes, with a row per sender and a column per receiver.

    Cells without traffic stay white. With more than ``MATRIX_CELLS`` ranks, neighbors
    are summed into blocks.
    """
    nranks = len(rows)
    block = -(-nranks // MATRIX_CELLS)
    cells: dict[tuple[int, int], int] = {}
    for src, row in enumerate(rows):
        for dst, value in enumerate(row):
            if value:
                at = (src // block, dst // block)
                cells[at] = cells.get(at, 0) + value
    source = {
        "src": [src * block + (block - 1) / 2 for src, _ in cells],
        "dst": [dst * block + (block - 1) / 2 for _, dst in cells],
        "value": list(cells.values()),
        "text": [about_size(value) for value in cells.values()],
        "names": [
            f"{_block(src, block, nranks)} to {_block(dst, block, nranks)}"
            for src, dst in cells
        ],
    }
    colours = models.LinearColorMapper(
        palette=tuple(reversed(Viridis256)),
        low=0,
        high=max(cells.values(), default=1),
    )
    plot = new_figure(
        title=title,
        width=560,
        height=500,
        x_range=(-0.5, nranks - 0.5),
        # Rank 0 is at the top, as in a written matrix.
        y_range=(nranks - 0.5, -0.5),
        x_axis_label="to rank",
        y_axis_label="from rank",
        x_axis_location="below",
        match_aspect=True,
    )
    plot.grid.visible = False
    for axis in (plot.xaxis, plot.yaxis):
        axis.ticker = models.BasicTicker(
            desired_num_ticks=8, min_interval=1, num_minor_ticks=0
        )
        axis.formatter = models.NumeralTickFormatter(format="0")
    plot.rect(
        x="dst",
        y="src",
        width=block,
        height=block,
        source=source,
        fill_color={"field": "value", "transform": colours},
        line_color=None,
    )
    plot.add_tools(models.HoverTool(tooltips=[("ranks", "@names"), ("bytes", "@text")]))
    plot.add_layout(
        models.ColorBar(
            color_mapper=colours,
            ticker=_size_ticker(),
            formatter=models.CustomJSTickFormatter(code=TICKS["bytes"]),
            width=12,
        ),
        "right",
    )
    return plot


def bars(
    totals: Mapping[str, Sequence[float]],
    *,
    names: Sequence[str],
    title: str,
    unit: str,
    name: str | None = None,
) -> figure:
    """Return a bar chart of totals, with bars side by side for every name.

    Args:
        totals: Series by legend name, each with one number for each of *names*.
        names: Names of the bar groups, top to bottom; they must be unique.
        title: Title of the plot.
        unit: Unit of the numbers, for the axis: a key of ``TICKS``, or another word.
        name: Name of the figure.
    """
    plot = new_figure(
        name=name,
        title=title,
        width=2 * _WIDTH,
        height=120 + 24 * len(totals) * max(1, len(names)),
        y_range=list(reversed(names)),
        x_axis_label=unit if unit == "bytes" or unit not in TICKS else "",
    )
    set_ticks(plot.xaxis, unit)
    plot.x_range.start = 0
    height = 0.8 / max(1, len(totals))
    for number, (what, values) in enumerate(totals.items()):
        offset = 0.4 - height * (number + 0.5)
        source = {
            "y": [(name, offset) for name in names],
            "name": list(names),
            "value": list(values),
            "text": [_text(value, unit) for value in values],
        }
        drawn = plot.hbar(
            y="y",
            right="value",
            height=height * 0.9,
            source=source,
            color=Category10[10][number % 10],
            legend_label=what,
        )
        hover(plot, drawn, [("", "@name"), (what, "@text")])
    # Place the legend beside the plot, where it covers no bar.
    plot.add_layout(plot.legend[0], "right")
    plot.legend.visible = len(totals) > 1
    plot.ygrid.visible = False
    return plot


def cdf(
    spreads: Mapping[str, Distribution], *, title: str, unit: str, log: bool = True
) -> figure:
    """Return cumulative distributions: the fraction of values not above x.

    Args:
        spreads: The distributions, by legend name.
        title: Title of the plot.
        unit: Unit of the numbers: a key of ``TICKS``, or another word.
        log: Use a logarithmic x axis, with zeros at 1.
    """
    plot = new_figure(
        title=title,
        width=_WIDTH,
        height=_HEIGHT,
        x_axis_type="log" if log else "linear",
        x_axis_label=unit,
        y_axis_label="cumulative share",
        y_range=(0, 1.02),
    )
    set_ticks(plot.xaxis, unit, log=log)
    for number, (name, spread) in enumerate(spreads.items()):
        values = [value for value, _ in spread.cdf]
        parts = [up_to / spread.count for _, up_to in spread.cdf]
        # A distribution with one value is a step from 0 to 1 at that value.
        values.insert(0, values[0])
        parts.insert(0, 0.0)
        columns = {
            "x": [max(value, 1) if log else value for value in values],
            "part": parts,
            "text": [_text(value, unit) for value in values],
        }
        source = models.ColumnDataSource(columns)
        colour = Category10[10][number % 10]
        plot.step(
            x="x",
            y="part",
            source=source,
            mode="after",
            line_width=2,
            color=colour,
            legend_label=name,
        )
        points = plot.scatter(
            x="x", y="part", source=source, size=5, color=colour, legend_label=name
        )
        hover(plot, points, [(name, "@text"), ("cumulative share", "@part{0.0 %}")])
    plot.legend.location = "bottom_right"
    plot.legend.click_policy = "hide"
    return plot


def counts(spreads: Mapping[str, Distribution], *, title: str, unit: str) -> figure:
    """Return the number of occurrences of each value, as bars on a logarithmic scale.

    Args:
        spreads: The distributions, by legend name; each of their steps is a bar.
        title: Title of the plot.
        unit: Unit of the numbers.
    """
    plot = new_figure(
        title=title,
        width=_WIDTH,
        height=_HEIGHT,
        y_axis_type="log",
        x_axis_label=unit,
        y_axis_label="number of nodes",
    )
    for number, (name, spread) in enumerate(spreads.items()):
        before = 0
        rows: list[tuple[int, int]] = []
        for value, up_to in spread.cdf:
            rows.append((value, up_to - before))
            before = up_to
        width = 0.8 / len(spreads)
        source = {
            "x": [value - 0.4 + width * (number + 0.5) for value, _ in rows],
            "value": [value for value, _ in rows],
            "number": [count for _, count in rows],
        }
        drawn = plot.vbar(
            x="x",
            top="number",
            bottom=0.5,
            width=width,
            source=source,
            color=Category10[10][number % 10],
            legend_label=name,
        )
        hover(plot, drawn, [(name, "@value"), ("nodes", "@number{0,0}")])
    plot.legend.click_policy = "hide"
    return plot


def set_ticks(axes: Any, unit: str, *, log: bool = False) -> None:
    """Format the numbers of an axis in their unit."""
    if unit in TICKS:
        axes.formatter = models.CustomJSTickFormatter(code=TICKS[unit])
    if unit == "bytes":
        axes.ticker = models.LogTicker(base=2, mantissas=[1]) if log else _size_ticker()


def _size_ticker() -> models.AdaptiveTicker:
    """Return a ticker with ticks at 256 MiB and 512 MiB, not at 238.4 and 476.8."""
    return models.AdaptiveTicker(
        base=1024,
        mantissas=[2**power for power in range(10)],
        desired_num_ticks=6,
        num_minor_ticks=0,
    )


def _text(value: float, unit: str) -> str:
    if unit == "bytes":
        return about_size(int(value))
    return {"ns": format_time, "bit/s": format_rate}.get(unit, "{:g}".format)(value)


def _block(index: int, block: int, nranks: int) -> str:
    first = index * block
    last = min(first + block, nranks) - 1
    return str(first) if first == last else f"{first}-{last}"
