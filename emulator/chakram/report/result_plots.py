"""Plots of runs: curves, heat maps, time spans, parts of a whole.

Every plot has a name, which identifies it on its page and in exports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from bokeh import models
from bokeh.palettes import Category10, Viridis256

from chakram.report.plots import TICKS, hover, new_figure, set_ticks

if TYPE_CHECKING:
    from bokeh.plotting import figure
    from numpy.typing import NDArray


COLOURS: Final = Category10[10]
TOOLS: Final = "pan,wheel_zoom,box_zoom,reset,save"
WHOLE, HALF = 1100, 540
"""Widths of figures in pixels: the whole page, and one of two side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points of a line.

    ``low`` and ``high`` are the ends of whiskers; ``text`` is shown when the pointer is
    over a point.
    """

    x: Sequence[float] | NDArray[Any]
    y: Sequence[float] | NDArray[Any]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    text: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Time spans of one kind, each in a row."""

    rows: Sequence[str]
    starts: Sequence[float]
    ends: Sequence[float]
    texts: Sequence[str]


def curves(
    lines: Mapping[str, Curve],
    *,
    name: str,
    title: str,
    x: str,
    y: str,
    x_label: str = "",
    y_label: str = "",
    x_log: bool = False,
    y_log: bool = False,
    steps: bool = False,
    levels: Mapping[str, float] | None = None,
    bands: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    x_range: models.Range1d | None = None,
    width: int = HALF,
    height: int = 340,
) -> figure:
    """Return a figure with lines and their legend.

    Args:
        lines: Curves by legend name.
        name: Name of the figure.
        title: Title above the figure.
        x: Unit of x: ``bytes``, ``ns``, ``bit/s`` or another word.
        y: Unit of y.
        x_label: Quantity on the x axis.
        y_label: Quantity on the y axis.
        x_log: Whether x is logarithmic; zeros are drawn at 1.
        y_log: Whether y is logarithmic; zeros are drawn at 1.
        steps: Draw steps without points, e.g. for distributions and time series.
        levels: Horizontal lines, by label.
        bands: Ranges of x in which something is in progress, by name; drawn as bars at
            the top.
        x_range: Range of x, shared with other figures.
        width: Width in pixels.
        height: Height in pixels.
    """
    levels, bands = levels or {}, bands or {}
    highest = [max(curve.y, default=0) for curve in lines.values()]
    highest += [max(curve.high, default=0) for curve in lines.values() if curve.high]
    top = max([*highest, *levels.values()], default=0) or 1
    plot = new_figure(
        name=name,
        title=title,
        width=width,
        height=height,
        tools=TOOLS,
        x_axis_type="log" if x_log else "linear",
        y_axis_type="log" if y_log else "linear",
        x_axis_label=_label(x_label, x),
        y_axis_label=_label(y_label, y),
        **({} if x_range is None else {"x_range": x_range}),
    )
    if not y_log:
        plot.y_range = models.Range1d(0, top * (1.12 + 0.06 * len(bands)))
    set_ticks(plot.xaxis, x, log=x_log)
    if x == "bytes":
        sizes = sorted(
            {max(1, int(size)) for line in lines.values() for size in line.x}
        )
        plot.xaxis.ticker = models.FixedTicker(ticks=_apart(sizes))
    set_ticks(plot.yaxis, y, log=y_log)
    if y_log:
        plot.yaxis.ticker = models.FixedTicker(ticks=_one_two_five(top))
        if y not in TICKS:
            plot.yaxis.formatter = models.BasicTickFormatter()
    for number, (line, curve) in enumerate(lines.items()):
        _curve(plot, line, curve, COLOURS[number % 10], (x, y), (x_log, y_log), steps)
    for number, (level, at) in enumerate(levels.items()):
        # Put labels above the highest line, side by side; curves approach it from
        # below.
        plot.add_layout(
            models.Span(
                location=at,
                dimension="width",
                line_dash=("dashed", "dotted")[number % 2],
                line_color="#555",
            )
        )
        plot.add_layout(
            models.Label(
                x=8 + 160 * number,
                x_units="screen",
                y=max(levels.values()),
                text=level,
                text_font_size="11px",
                text_color="#555",
                text_baseline="bottom",
            )
        )
    _bands(plot, bands, top)
    if len(lines) + len(bands) > 1:
        _legend_below(plot)
    elif plot.legend:
        plot.legend.visible = False
    return plot


def _apart(sizes: Sequence[int]) -> list[int]:
    """Return sizes whose ticks do not overlap on a logarithmic axis."""
    least = (sizes[-1] / sizes[0]) ** (1 / 9) if sizes else 1.0
    kept: list[int] = []
    for size in sizes:
        if not kept or size >= kept[-1] * max(least, 1.01):
            kept.append(size)
    return kept


def _one_two_five(top: float) -> list[int]:
    """Return ticks up to *top*: 1, 2, 5, 10 ...; fewer per decade for many decades."""
    decades = len(str(int(top)))
    steps = (1, 2, 5) if decades <= 2 else (1, 3) if decades == 3 else (1,)
    return [step * 10**decade for decade in range(decades + 1) for step in steps]


def _curve(
    plot: figure,
    line: str,
    curve: Curve,
    colour: str,
    units: tuple[str, str],
    logs: tuple[bool, bool],
    steps: bool,
) -> None:
    xs = [max(value, 1) if logs[0] else value for value in map(float, curve.x)]
    ys = [max(value, 1) if logs[1] else value for value in map(float, curve.y)]
    data: dict[str, Any] = {"x": xs, "y": ys}
    # For time series with many points, the hover tool builds the text from numbers.
    if curve.text is not None:
        data["text"] = curve.text
    if curve.low is not None and curve.high is not None:
        data |= {"low": curve.low, "high": curve.high}
        bars = models.Segment(x0="x", x1="x", y0="low", y1="high", line_color=colour)
    source = models.ColumnDataSource(data)
    if "low" in data:
        plot.add_glyph(source, bars)
    look = {"color": colour, "legend_label": line, "source": source}
    if steps:
        drawn = plot.step(x="x", y="y", mode="after", line_width=1.5, **look)
    else:
        plot.line(x="x", y="y", line_width=2, **look)
        drawn = plot.scatter(x="x", y="y", size=6, **look)
    hover(plot, drawn, [(line, "@y" if curve.text is None else "@text")])


def _bands(
    plot: figure, bands: Mapping[str, Sequence[tuple[float, float]]], top: float
) -> None:
    for number, (name, stretches) in enumerate(bands.items()):
        high = top * (1.10 + 0.06 * (len(bands) - number))
        plot.quad(
            left=[start for start, _ in stretches],
            right=[end for _, end in stretches],
            top=high,
            bottom=high - 0.045 * top,
            color=COLOURS[9 - number],
            line_color=None,
            legend_label=f"{name} in progress",
        )


def shade(plot: figure, stretches: Sequence[tuple[float, float]], colour: str) -> None:
    """Shade time spans over the whole height of a figure."""
    for start, end in stretches:
        box = models.BoxAnnotation(
            left=start, right=end, fill_color=colour, fill_alpha=0.15
        )
        box.line_color = None
        plot.add_layout(box)


def heat_map(
    cells: NDArray[Any],
    *,
    name: str,
    title: str,
    end_ns: float,
    y_label: str,
    y_names: Sequence[str] = (),
    y_end: float | None = None,
    legend: str,
    high: float,
    x_range: models.Range1d | None = None,
    height: int = 260,
) -> figure:
    """Return a heat map of percentages over time; zeros stay white.

    Args:
        cells: Percentages by row and time bin.
        name: Name of the figure.
        title: Title above the figure.
        end_ns: Time at the end of the last bin.
        y_label: Meaning of the rows.
        y_names: Names of the rows, first one at the top. Without names, y is a number
            from 0.
        y_end: Value of that number at the end of the last row.
        legend: Meaning of the colors.
        high: Percentage of the darkest color.
        x_range: Range of x, shared with other figures.
        height: Height in pixels.
    """
    rows = cells.shape[0]
    top = rows - 0.5 if y_names else float(rows if y_end is None else y_end)
    plot = new_figure(
        name=name,
        title=title,
        width=WHOLE,
        height=height,
        tools=TOOLS,
        x_axis_label="time since the first rank began",
        y_axis_label=y_label,
        x_range=x_range or models.Range1d(0, end_ns),
        y_range=models.Range1d(top, -0.5) if y_names else models.Range1d(0, top),
    )
    plot.grid.visible = False
    set_ticks(plot.xaxis, "ns")
    colours = models.LinearColorMapper(
        palette=tuple(reversed(Viridis256)), low=0.5, high=high, low_color="white"
    )
    drawn = plot.image(
        image=[np.clip(np.rint(cells), 0, 255).astype(np.uint8)],
        x=0,
        y=-0.5 if y_names else 0,
        dw=end_ns,
        dh=rows if y_names else top,
        color_mapper=colours,
    )
    if y_names:
        every = -(-rows // 16)
        plot.yaxis.ticker = list(range(0, rows, every))
        plot.yaxis.major_label_overrides = {
            row: y_names[row] for row in range(0, rows, every)
        }
    hover(plot, drawn, [(legend, "@image %")])
    plot.add_layout(
        models.ColorBar(color_mapper=colours, width=12, title=legend), "right"
    )
    return plot


def spans(
    kinds: Mapping[str, Spans],
    *,
    rows: Sequence[str],
    name: str,
    title: str,
    y_label: str,
    x_range: models.Range1d,
    path: Sequence[tuple[str, float, float, str]] = (),
) -> figure:
    """Return time spans as bars in rows, with a separate lane for each kind.

    *path* is a line through the rows: time spans, each with its row and text.
    """
    plot = new_figure(
        name=name,
        title=title,
        width=WHOLE,
        height=min(1400, 130 + max(14, 9 * len(kinds)) * len(rows)),
        tools="xpan,xwheel_zoom,box_zoom,reset,save",
        x_axis_label="time since the first rank began",
        y_axis_label=y_label,
        x_range=x_range,
        y_range=models.FactorRange(*reversed(rows)),
    )
    set_ticks(plot.xaxis, "ns")
    plot.ygrid.visible = False
    lane = 0.9 / max(1, len(kinds))
    for number, (kind, found) in enumerate(kinds.items()):
        offset = 0.45 - lane * (number + 0.5)
        source = {
            "y": [(row, offset) for row in found.rows],
            "left": found.starts,
            "right": found.ends,
            "text": found.texts,
        }
        colour = "#c9c9c9" if kind == "compute" else COLOURS[number % 10]
        drawn = plot.hbar(
            y="y",
            left="left",
            right="right",
            height=lane * 0.95,
            source=source,
            fill_color=colour,
            # The outline separates neighbors and keeps bars visible below one pixel.
            line_color="#333333",
            line_width=0.4,
            legend_label=kind,
        )
        hover(plot, drawn, [(kind, "@text")])
    if path:
        _path(plot, path)
    _legend_below(plot)
    return plot


def _path(plot: figure, path: Sequence[tuple[str, float, float, str]]) -> None:
    rows, starts, ends, texts = zip(*path, strict=True)
    look = {"line_color": "#d00000", "line_width": 2.5}
    drawn = plot.segment(
        x0="start",
        x1="end",
        y0="row",
        y1="row",
        source={"row": rows, "start": starts, "end": ends, "text": texts},
        legend_label="critical path",
        **look,
    )
    hover(plot, drawn, [("path", "@text")])
    steps = [
        (before, row, start)
        for before, row, start in zip(rows, rows[1:], starts[1:], strict=False)
        if before != row
    ]
    plot.segment(
        x0=[at for _, _, at in steps],
        x1=[at for _, _, at in steps],
        y0=[before for before, _, _ in steps],
        y1=[row for _, row, _ in steps],
        **{**look, "line_width": 1.2},
    )


def parts(
    shares: Mapping[str, Sequence[float]],
    *,
    names: Sequence[str],
    texts: Mapping[str, Sequence[str]],
    name: str,
    title: str,
    x_label: str,
    colours: Sequence[str],
) -> figure:
    """Return parts of a whole as stacked bars, one bar per name, left to right."""
    plot = new_figure(
        name=name,
        title=title,
        width=WHOLE if len(names) > 16 else HALF,
        height=340,
        tools=TOOLS,
        x_range=models.FactorRange(*names),
        y_range=models.Range1d(0, 100),
        x_axis_label=x_label,
        y_axis_label="share of the iteration (%)",
    )
    plot.xgrid.visible = False
    if len(names) > 40:
        plot.xaxis.major_label_text_font_size = "0px"
        plot.xaxis.major_tick_line_color = None
        plot.xaxis.axis_label = f"{x_label}: {names[0]} to {names[-1]}"
    below = np.zeros(len(names))
    for (kind, values), colour in zip(shares.items(), colours, strict=True):
        above = below + np.asarray(values)
        source = {
            "x": list(names),
            "bottom": below.tolist(),
            "top": above.tolist(),
            "text": list(texts[kind]),
        }
        drawn = plot.vbar(
            x="x",
            bottom="bottom",
            top="top",
            width=0.9,
            source=source,
            color=colour,
            line_color=None,
            legend_label=kind,
        )
        hover(plot, drawn, [("rank", "@x"), (kind, "@text")])
        below = above
    _legend_below(plot)
    return plot


def _label(what: str, unit: str) -> str:
    if not what:
        return unit
    return what if unit in (*TICKS, "") else f"{what} ({unit})"


def _legend_below(plot: figure) -> None:
    """Move the legend below the plot, where it covers nothing."""
    if not plot.legend:
        return
    legend = plot.legend[0]
    plot.add_layout(legend, "below")
    legend.orientation = "horizontal"
    legend.click_policy = "hide"
    legend.label_text_font_size = "11px"
    legend.border_line_color = None
    legend.margin, legend.padding, legend.spacing = 0, 4, 12
    longest = max(len(item.label.value) for item in legend.items)
    legend.ncols = max(1, int((plot.width - 80) // (60 + 6 * longest)))
