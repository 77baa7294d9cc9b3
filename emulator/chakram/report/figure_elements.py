"""Figures of plots, with their axes, ticks, legends and color bars."""

from __future__ import annotations

import json
from math import ceil, floor, log10
from typing import Any, Final

from bokeh import models
from bokeh.core import properties
from bokeh.plotting import figure

from chakram.report.palette import GRAY, LOADS

TOOLS: Final = "pan,wheel_zoom,box_zoom,reset,save"

WHOLE, HALF = 1100, 540
"""Widths of figures in pixels: the width of the whole page, and half of it."""

_LEAST_WIDTHS = {WHOLE: 640, HALF: 440}
"""Minimum width of each figure, in pixels. In a narrower box, the figure scrolls."""

_NARROW = 4
"""Ratio of two numbers below which a logarithmic axis has ticks at equal distances."""


def _ticks(base: int, *units: str) -> str:
    """Return JavaScript that formats a tick's number with the unit of its magnitude."""
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
"""JavaScript that formats ticks, by unit. Ticks of other units are plain numbers."""


def new_figure(
    *,
    width: int = WHOLE,
    least: int | None = None,
    x_label: str = "",
    y_label: str = "",
    **look: Any,
) -> figure:
    """Return an empty figure that is as wide as its box, with its tools at the top.

    Args:
        width: Width at which the figure is laid out.
        least: Minimum width. In a narrower box, the figure scrolls.
        x_label: Quantity on the x axis.
        y_label: Quantity on the y axis.
        look: Other properties, such as ``name`` and ``title``.
    """
    look = {"tools": TOOLS, "toolbar_location": "above", **look}
    look |= {"x_axis_label": x_label, "y_axis_label": y_label}
    look |= {"sizing_mode": "stretch_width", "min_width": least or _LEAST_WIDTHS[width]}
    plot = figure(width=width, **look)
    plot.toolbar.autohide, plot.toolbar.logo = True, None
    # These colors fit both backgrounds. The page's style sheet refines them.
    plot.background_fill_color = plot.border_fill_color = None
    plot.title.text_color = plot.axis.axis_label_text_color = GRAY
    plot.axis.major_label_text_color = GRAY
    return plot


def draw(
    plot: figure,
    kind: str,
    source: Any,
    *,
    legend_label: str = "",
    color: str | None = None,
    **look: Any,
) -> models.GlyphRenderer:
    """Draw data as a Bokeh glyph, and return the renderer of the glyph.

    Bokeh's own methods also make two glyphs for selections, which these plots do not
    have.

    Args:
        plot: The figure.
        kind: Class of the glyph, e.g. ``HBar``.
        source: Columns by name, or a ``ColumnDataSource``.
        legend_label: Entry of the legend, or empty for none. Glyphs can share an entry.
        color: Color of lines and areas for which *look* sets no color.
        look: Properties of the glyph.
    """
    glyph = getattr(models, kind)
    if color is not None:
        own = {"line_color", "fill_color"} & glyph.properties()
        look = dict.fromkeys(own, color) | look
    if not isinstance(source, models.ColumnDataSource):
        source = models.ColumnDataSource(source)
    drawn = plot.add_glyph(source, glyph(**look))
    if legend_label:
        if not plot.legend:
            plot.add_layout(models.Legend())
        items = plot.legend[0].items
        if items and items[-1].label.value == legend_label:
            items[-1].renderers.append(drawn)
        else:
            label = properties.value(legend_label)
            items.append(models.LegendItem(label=label, renderers=[drawn]))
    return drawn


def hover(plot: figure, drawn: Any, tips: list[tuple[str, str]] | str = "@tip") -> None:
    """Show *tips* when the pointer is over *drawn*."""
    plot.add_tools(models.HoverTool(renderers=[drawn], tooltips=tips))


def set_ticks(axes: Any, unit: str, *, log: bool = False) -> None:
    """Format the numbers of an axis or a color bar in their unit."""
    if unit in TICKS:
        axes.formatter = models.CustomJSTickFormatter(code=TICKS[unit])
    if unit == "bytes":
        axes.ticker = models.LogTicker(base=2, mantissas=[1]) if log else _size_ticker()


def legend_below(plot: figure) -> None:
    """Move the legend below the plot. A click on an entry hides the entry's line."""
    if not plot.legend:
        return
    legend = plot.legend[0]
    plot.add_layout(legend, "below")
    legend.orientation, legend.click_policy = "horizontal", "hide"
    legend.label_text_font_size, legend.label_text_color = "11px", GRAY
    legend.border_line_color = legend.background_fill_color = None
    legend.margin, legend.padding, legend.spacing = 0, 4, 12
    legend.visible = len(legend.items) > 1
    longest = max(len(item.label.value) for item in legend.items)
    legend.ncols = max(1, (plot.min_width - 60) // (40 + 6 * longest))
    legend.location = "bottom_left"
    plot.height += 20 * ((len(legend.items) - 1) // legend.ncols)


def add_color_bar(plot: figure, colors: Any, unit: str, title: str = "") -> None:
    """Add the scale of *colors* to the right of a plot."""
    look: dict[str, Any] = {"title_text_color": GRAY, "major_label_text_color": GRAY}
    look |= {"color_mapper": colors, "background_fill_color": None, "width": 12}
    bar = models.ColorBar(title=title or None, **look)
    set_ticks(bar, unit)
    plot.add_layout(bar, "right")


def load_colors(high: float, **look: Any) -> models.LinearColorMapper:
    """Return a map from loads between 0 and *high* to colors."""
    return models.LinearColorMapper(palette=LOADS, high=high, **{"low": 0, **look})


def log_ticks(least: float, top: float) -> list[float]:
    """Return ticks of a logarithmic axis from *least* to *top*, both above 0.

    There are up to three ticks per decade.  If the ends of the range differ by a small
    factor, ticks have equal distances.
    """
    if top < _NARROW * least:
        apart = max(top - least, top / 10) / 4
        unit = 10.0 ** floor(log10(apart))
        step = next(each * unit for each in (1, 2, 5, 10) if each * unit >= apart)
        first, last = floor(least / step), ceil(top / step)
        return [each * step for each in range(max(1, first), last + 1)]
    low, high = floor(log10(least)), ceil(log10(top))
    decades = high - low
    steps = (1, 2, 5) if decades <= 2 else (1, 3) if decades == 3 else (1,)
    return [step * 10.0**decade for decade in range(low, high + 1) for step in steps]


def axis_label(what: str, unit: str) -> str:
    """Return the label of an axis, with its unit unless the ticks show it."""
    if not what:
        return unit
    return what if unit in (*TICKS, "") else f"{what} ({unit})"


def _size_ticker() -> models.AdaptiveTicker:
    """Return a ticker with ticks at 256 MiB and 512 MiB, not at 238.4 and 476.8."""
    return models.AdaptiveTicker(
        base=1024,
        mantissas=[2**power for power in range(10)],
        desired_num_ticks=6,
        num_minor_ticks=0,
    )
