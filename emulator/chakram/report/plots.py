"""Plots of pages: curves, bars, distributions, heat maps, time spans.

Every plot shows exact numbers under the pointer. A plot has at most a few thousand
points, so pages stay small and open quickly. Plots with names can be exported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from bokeh import models

from chakram.foundation.units import about_size, format_rate, format_time
from chakram.report.figure_elements import (
    HALF,
    TICKS,
    WHOLE,
    add_color_bar,
    axis_label,
    draw,
    hover,
    legend_below,
    load_colors,
    log_ticks,
    new_figure,
    set_ticks,
)
from chakram.report.palette import BLUE, GRAY, GREEN, RED, SERIES

if TYPE_CHECKING:
    from bokeh.plotting import figure
    from numpy.typing import NDArray

    from chakram.chakra.summary.distribution import Distribution


MATRIX_CELLS: Final = 256
"""Limit on rows and columns of a drawn matrix. The plot of a larger matrix combines
several ranks in each row and column."""


SINCE: Final = "time since the first rank began"


_TEXTS: Final[Mapping[str, Callable[[float], str]]] = {
    "bytes": lambda value: about_size(int(value)),
    "ns": format_time,
    "bit/s": format_rate,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points of a line.

    ``low`` and ``high`` are the ends of whiskers. ``text`` appears when the pointer is
    over a point.
    """

    x: Sequence[float] | NDArray[Any]
    y: Sequence[float] | NDArray[Any]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    text: Sequence[str] | None = None


def matrix(rows: Sequence[Sequence[int]], *, title: str) -> figure:
    """Return a heat map of bytes, with a row per sender and a column per receiver.

    Cells without traffic are empty. With more than ``MATRIX_CELLS`` ranks, each cell
    shows the sum over blocks of neighboring ranks.
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
    colors = load_colors(max(cells.values(), default=1))
    plot = new_figure(
        title=title,
        width=HALF,
        height=500,
        x_range=(-0.5, nranks - 0.5),
        # Rank 0 is at the top, as in a written matrix.
        y_range=(nranks - 0.5, -0.5),
        x_label="to rank",
        y_label="from rank",
        match_aspect=True,
    )
    plot.grid.visible = False
    for axis in (plot.xaxis, plot.yaxis):
        axis.ticker = models.BasicTicker(
            desired_num_ticks=8, min_interval=1, num_minor_ticks=0
        )
        axis.formatter = models.NumeralTickFormatter(format="0")
    look: dict[str, Any] = {"width": block, "height": block, "line_color": None}
    fill = {"field": "value", "transform": colors}
    drawn = draw(plot, "Rect", source, x="dst", y="src", fill_color=fill, **look)
    hover(plot, drawn, [("ranks", "@names"), ("bytes", "@text")])
    add_color_bar(plot, colors, "bytes")
    return plot


def bars(
    totals: Mapping[str, Sequence[float]],
    *,
    names: Sequence[str],
    unit: str,
    **look: Any,
) -> figure:
    """Return a bar chart of totals, with bars side by side for every name.

    Args:
        totals: Series by legend name, each with one number for each of *names*.
        names: Unique names of the bar groups, top to bottom.
        unit: Unit of the numbers, for the axis: a key of ``TICKS`` or another word.
        look: Other properties of the figure, such as ``name`` and ``title``.
    """
    label = unit if unit == "bytes" or unit not in TICKS else ""
    height = 120 + 24 * len(totals) * max(1, len(names))
    rows = list(reversed(names))
    plot = new_figure(height=height, y_range=rows, x_label=label, **look)
    set_ticks(plot.xaxis, unit)
    plot.x_range.start = 0
    thick = 0.8 / max(1, len(totals))
    for number, (what, values) in enumerate(totals.items()):
        offset = 0.4 - thick * (number + 0.5)
        source = {
            "y": [(name, offset) for name in names],
            "name": list(names),
            "value": list(values),
            "text": [_text(value, unit) for value in values],
        }
        bar: dict[str, Any] = {"color": SERIES[number % 10], "legend_label": what}
        bar |= {"y": "y", "right": "value", "height": thick * 0.9}
        drawn = draw(plot, "HBar", source, **bar)
        hover(plot, drawn, [("", "@name"), (what, "@text")])
    legend_below(plot)
    plot.ygrid.visible = False
    return plot


def cdf(spreads: Mapping[str, Distribution], *, title: str, unit: str) -> figure:
    """Return cumulative distributions: the percentage of values not above x.

    Args:
        spreads: The distributions, by legend name.
        title: Title of the plot.
        unit: Unit of the numbers: a key of ``TICKS`` or another word. For the keys of
            ``TICKS``, the axis is logarithmic.
    """
    lines = {}
    for name, spread in spreads.items():
        # A distribution with one value is a step from 0 to 1 at that value.
        points = [(spread.cdf[0][0], 0), *spread.cdf]
        shares = [100 * up_to / spread.count for _, up_to in points]
        texts = [
            f"{_text(value, unit)}: {share:.4g} % of {spread.count}"
            for (value, _), share in zip(points, shares, strict=True)
        ]
        lines[name] = Curve(x=[value for value, _ in points], y=shares, text=texts)
    look: dict[str, Any] = {"x": unit, "y": "%", "x_log": unit in TICKS, "steps": True}
    return curves(lines, title=title, y_label="cumulative share", **look)


def curves(
    lines: Mapping[str, Curve],
    *,
    x: str,
    y: str,
    x_label: str = "",
    y_label: str = "",
    x_log: bool = False,
    y_log: bool = False,
    steps: bool = False,
    levels: Mapping[str, float] | None = None,
    bands: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    **look: Any,
) -> figure:
    """Return a figure with lines and their legend.

    Args:
        lines: Curves by legend name.
        x: Unit of x: ``bytes``, ``ns``, ``bit/s`` or another word.
        y: Unit of y.
        x_label: Quantity on the x axis.
        y_label: Quantity on the y axis.
        x_log: Whether the x axis is logarithmic. Zeros are drawn at 1.
        y_log: Whether the y axis is logarithmic. Zeros are drawn at 1.
        steps: Draw steps without points, e.g. for distributions and time series.
        levels: Horizontal lines, by label.
        bands: Ranges of x in which an activity is in progress, by name of the activity.
            Each range is a bar at the top.
        look: Other properties of the figure.
    """
    levels, bands = levels or {}, bands or {}
    highest = [max(curve.y, default=0) for curve in lines.values()]
    highest += [max(curve.high, default=0) for curve in lines.values() if curve.high]
    top = max([*highest, *levels.values()], default=0) or 1
    for axis, is_log in (("x", x_log), ("y", y_log)):
        look[f"{axis}_axis_type"] = "log" if is_log else "linear"
    look |= {"x_label": axis_label(x_label, x), "y_label": axis_label(y_label, y)}
    plot = new_figure(**{"width": HALF, "height": 340, **look})
    if not y_log:
        plot.y_range = models.Range1d(0, top * (1.12 + 0.06 * len(bands)))
    set_ticks(plot.xaxis, x, log=x_log)
    if x == "bytes" and not steps:
        sizes = {max(1, int(size)) for line in lines.values() for size in line.x}
        plot.xaxis.ticker = models.FixedTicker(ticks=_apart(sorted(sizes)))
    set_ticks(plot.yaxis, y, log=y_log)
    if y_log:
        drawn_at = [y if y > 0 else 1.0 for line in lines.values() for y in line.y]
        ticks = log_ticks(min(*drawn_at, top), max(*drawn_at, top))
        plot.yaxis.ticker = models.FixedTicker(ticks=ticks)
        if y not in TICKS:
            plot.yaxis.formatter = models.BasicTickFormatter()
    for number, (line, curve) in enumerate(lines.items()):
        _curve(plot, line, curve, SERIES[number % 10], (x_log, y_log), steps)
    for number, (level, at) in enumerate(levels.items()):
        # Put labels above the highest level, side by side. Curves approach that level
        # from below.
        dash = ("dashed", "dotted")[number % 2]
        drawn: dict[str, Any] = {"line_dash": dash, "line_color": GRAY}
        plot.add_layout(models.Span(location=at, dimension="width", **drawn))
        place = {
            "x": 8 + 160 * number,
            "x_units": "screen",
            "y": max(levels.values()),
        }
        text = {"text_baseline": "bottom", "text_color": GRAY, **place}
        plot.add_layout(models.Label(text=level, text_font_size="11px", **text))
    _bands(plot, bands, top)
    legend_below(plot)
    return plot


def over_time(
    series: Mapping[str, NDArray[Any]], *, x_range: models.Range1d, **look: Any
) -> figure:
    """Return a figure of time series, each over *x_range* in bins of equal length."""
    lines = {
        name: Curve(x=np.arange(len(y)) * (x_range.end / len(y)), y=y.round(3))
        for name, y in series.items()
    }
    fixed: dict[str, Any] = {"x": "ns", "x_label": SINCE, "width": WHOLE, "height": 300}
    return curves(lines, steps=True, x_range=x_range, **fixed, **look)


def _apart(sizes: Sequence[int]) -> list[int]:
    """Return the sizes that can have ticks without overlap on a logarithmic axis."""
    least = (sizes[-1] / sizes[0]) ** (1 / 9) if sizes else 1.0
    kept: list[int] = []
    for size in sizes:
        if not kept or size >= kept[-1] * max(least, 1.01):
            kept.append(size)
    return kept


def _curve(
    plot: figure,
    line: str,
    curve: Curve,
    color: str,
    logs: tuple[bool, bool],
    steps: bool,
) -> None:
    xs, ys = (
        [1.0 if is_log and value <= 0 else value for value in map(float, values)]
        for values, is_log in zip((curve.x, curve.y), logs, strict=True)
    )
    data: dict[str, Any] = {"x": xs, "y": ys}
    # Time series have many points, so the hover tool builds their text from numbers.
    if curve.text is not None:
        data["text"] = curve.text
    if has_whiskers := curve.low is not None and curve.high is not None:
        data |= {"low": curve.low, "high": curve.high}
    source = models.ColumnDataSource(data)
    if has_whiskers:
        ends = {"x0": "x", "x1": "x", "y0": "low", "y1": "high"}
        draw(plot, "Segment", source, **ends, line_color=color)
    look: dict[str, Any] = {"x": "x", "y": "y", "color": color, "legend_label": line}
    if steps:
        drawn = draw(plot, "Step", source, mode="after", line_width=1.5, **look)
    else:
        draw(plot, "Line", source, line_width=2, **look)
        drawn = draw(plot, "Scatter", source, size=6, **look)
    hover(plot, drawn, [(line, "@y" if curve.text is None else "@text")])


def _bands(
    plot: figure, bands: Mapping[str, Sequence[tuple[float, float]]], top: float
) -> None:
    for number, (name, stretches) in enumerate(bands.items()):
        high = top * (1.10 + 0.06 * (len(bands) - number))
        ends = {
            "left": [start for start, _ in stretches],
            "right": [end for _, end in stretches],
        }
        draw(
            plot,
            "Quad",
            ends,
            left="left",
            right="right",
            top=high,
            bottom=high - 0.045 * top,
            color=SERIES[9 - number],
            line_color=None,
            legend_label=f"{name} in progress",
        )


def shade(plot: figure, stretches: Sequence[tuple[float, float]], color: str) -> None:
    """Shade time spans over the whole height of a figure."""
    for left, right in stretches:
        look: dict[str, Any] = {"fill_color": color, "fill_alpha": 0.15}
        box = models.BoxAnnotation(left=left, right=right, line_color=None, **look)
        plot.add_layout(box)


def heat_map(
    cells: NDArray[Any],
    *,
    end_ns: float,
    y_names: Sequence[str] = (),
    y_end: float | None = None,
    legend: str,
    high: float,
    **look: Any,
) -> figure:
    """Return a heat map of percentages over time. Cells with zero are empty.

    Args:
        cells: Percentages by row and time bin.
        end_ns: Time at the end of the last bin.
        y_names: Names of the rows, with the first row at the top. Without names, the y
            axis is numeric and starts at 0.
        y_end: End of the numeric y axis.
        legend: Meaning of the colors.
        high: Percentage of the darkest color.
        look: Other properties of the figure.
    """
    rows = cells.shape[0]
    top = rows - 0.5 if y_names else float(rows if y_end is None else y_end)
    y_range = models.Range1d(top, -0.5) if y_names else models.Range1d(0, top)
    look = {"height": 260, "x_range": models.Range1d(0, end_ns), **look}
    plot = new_figure(x_label=SINCE, y_range=y_range, **look)
    plot.grid.visible = False
    set_ticks(plot.xaxis, "ns")
    colors = load_colors(high, low=0.5, low_color="rgba(0, 0, 0, 0)")
    drawn = draw(
        plot,
        "Image",
        {"image": [np.clip(np.rint(cells), 0, 255).astype(np.uint8)]},
        image="image",
        x=0,
        y=-0.5 if y_names else 0,
        dw=end_ns,
        dh=rows if y_names else top,
        color_mapper=colors,
    )
    if y_names:
        every = range(0, rows, -(-rows // 16))
        plot.yaxis.ticker = list(every)
        plot.yaxis.major_label_overrides = {row: y_names[row] for row in every}
    hover(plot, drawn, [(legend, "@image %")])
    add_color_bar(plot, colors, "%", legend)
    return plot


def spans(
    kinds: Mapping[str, Mapping[str, Sequence[Any]]],
    *,
    rows: Sequence[str],
    path: Sequence[tuple[str, float, float, str]] = (),
    **look: Any,
) -> figure:
    """Return time spans as bars in rows, with a separate lane for each kind.

    Args:
        kinds: By kind, the columns ``row``, ``left``, ``right`` and ``text``.
        rows: Names of the rows, top to bottom.
        path: Critical path, drawn as a line through the rows. Each part has a row, a
            start, an end and a text.
        look: Other properties of the figure, such as ``x_range``.
    """
    plot = new_figure(
        height=min(1400, 130 + max(14, 9 * len(kinds)) * len(rows)),
        tools="xpan,xwheel_zoom,box_zoom,reset,save",
        x_label=SINCE,
        y_range=models.FactorRange(*reversed(rows)),
        **look,
    )
    set_ticks(plot.xaxis, "ns")
    plot.ygrid.visible = False
    lane = 0.9 / max(1, len(kinds))
    for number, (kind, found) in enumerate(kinds.items()):
        offset = 0.45 - lane * (number + 0.5)
        source = {**found, "y": [(row, offset) for row in found["row"]]}
        color = GRAY if kind == "compute" else _OF_SPANS[number % len(_OF_SPANS)]
        # The outline keeps bars visible that are narrower than a pixel.
        bar = {"fill_color": color, "line_color": color, "legend_label": kind}
        ends: dict[str, Any] = {"y": "y", "left": "left", "right": "right"}
        drawn = draw(plot, "HBar", source, **ends, height=lane * 0.95, **bar)
        hover(plot, drawn, [(kind, "@text")])
    if path:
        _path(plot, path)
    legend_below(plot)
    return plot


_OF_SPANS = tuple(each for each in SERIES if each not in (RED, GRAY))
"""Colors of time spans, except the critical path (red) and computation (gray)."""


def _path(plot: figure, path: Sequence[tuple[str, float, float, str]]) -> None:
    rows, starts, ends, texts = zip(*path, strict=True)
    source = {"row": rows, "start": starts, "end": ends, "text": texts}
    along = {"x0": "start", "x1": "end", "y0": "row", "y1": "row"}
    look: dict[str, Any] = {"line_color": RED, "legend_label": "critical path"}
    drawn = draw(plot, "Segment", source, **along, line_width=2.5, **look)
    hover(plot, drawn, [("path", "@text")])
    steps = [
        (before, row, start)
        for before, row, start in zip(rows, rows[1:], starts[1:], strict=False)
        if before != row
    ]
    at = {name: [each[n] for each in steps] for n, name in enumerate(("y0", "y1", "x"))}
    across = {"x0": "x", "x1": "x", "y0": "y0", "y1": "y1"}
    draw(plot, "Segment", at, **across, line_color=RED, line_width=1.2)


def parts(
    shares: Mapping[str, Sequence[float]],
    *,
    names: Sequence[str],
    texts: Mapping[str, Sequence[str]],
    x_label: str,
    colors: Sequence[str] = (GREEN, BLUE, GRAY),
    **look: Any,
) -> figure:
    """Return stacked bars of *shares* in percent, one bar per name, left to right."""
    plot = new_figure(
        width=WHOLE if len(names) > 16 else HALF,
        height=340,
        x_range=models.FactorRange(*names),
        y_range=models.Range1d(0, 100),
        x_label=x_label,
        y_label="share of the iteration (%)",
        **look,
    )
    plot.xgrid.visible = False
    if len(names) > 40:
        plot.xaxis.major_label_text_font_size = "0px"
        plot.xaxis.major_tick_line_color = None
        plot.xaxis.axis_label = f"{x_label}: {names[0]} to {names[-1]}"
    below = np.zeros(len(names))
    for (kind, values), color in zip(shares.items(), colors, strict=True):
        above = below + np.asarray(values)
        source = {
            "x": list(names),
            "bottom": below.tolist(),
            "top": above.tolist(),
            "text": list(texts[kind]),
        }
        bar: dict[str, Any] = {"color": color, "legend_label": kind}
        ends: dict[str, Any] = {"x": "x", "bottom": "bottom", "top": "top"}
        drawn = draw(plot, "VBar", source, **ends, width=0.9, line_color=None, **bar)
        hover(plot, drawn, [("rank", "@x"), (kind, "@text")])
        below = above
    legend_below(plot)
    return plot


def _text(value: float, unit: str) -> str:
    return _TEXTS.get(unit, "{:g}".format)(value)


def _block(index: int, block: int, nranks: int) -> str:
    first = index * block
    last = min(first + block, nranks) - 1
    return str(first) if first == last else f"{first}-{last}"
