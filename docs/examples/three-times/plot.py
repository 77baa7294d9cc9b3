"""Plot measured, simulated and least possible times of the collectives of a run.

This drew the picture of the README, from the run of the tutorial::

    python docs/examples/three-times/plot.py first-measured/* three-times.html
"""

import sys

from bokeh.models import FactorRange
from bokeh.plotting import figure, output_file, save

import chakram

COLORS = {"measured": "#0b3954", "simulated": "#3a9ad9", "bound": "#c9d6df"}


def plot(run: str, page: str) -> None:
    """Write a page with three bars for each row of the run's table.

    Raises:
        ChakramError: If *run* is not a complete run directory.
    """
    factors, times_ms = [], []
    for row in chakram.open_run(run).summary().rows:
        if row.bound_ns is None or "simulate" not in row.predictions:
            continue
        size = f"{row.size_bytes // 1024} KiB"
        label = f"{row.op.value}\n{size}, {row.nranks} ranks"
        times_ns = (
            row.time_ns,
            row.predictions["simulate"].time_ns,
            row.bound_ns,
        )
        for name, time_ns in zip(COLORS, times_ns, strict=True):
            factors.append((label, name))
            times_ms.append(time_ns / 1e6)
    plotted = figure(
        x_range=FactorRange(*factors, group_padding=0.6),
        y_range=(0, 1.12 * max(times_ms)),
        y_axis_label="time in ms",
        width=900,
        height=380,
        toolbar_location=None,
    )
    for name, color in COLORS.items():
        chosen = [i for i, factor in enumerate(factors) if factor[1] == name]
        x, top = [factors[i] for i in chosen], [times_ms[i] for i in chosen]
        plotted.vbar(x=x, top=top, width=0.9, color=color, legend_label=name)
        texts = [f"{each:.0f}" for each in top]
        plotted.text(
            x=x,
            y=top,
            text=texts,
            text_align="center",
            y_offset=-4,
            text_font_size="13px",
        )
    plotted.xaxis.major_label_text_font_size = "0px"
    plotted.xaxis.major_tick_line_color = None
    plotted.xaxis.group_text_font_size = "14px"
    plotted.yaxis.axis_label_text_font_size = "14px"
    plotted.xgrid.grid_line_color = None
    plotted.legend.orientation = "horizontal"
    plotted.legend.location = "top_right"
    output_file(
        page, mode="inline", title="Measured, simulated and least possible times"
    )
    save(plotted)


if __name__ == "__main__":
    plot(sys.argv[1], sys.argv[2])
