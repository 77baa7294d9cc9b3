from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.models import AdaptiveTicker, GlyphRenderer, HoverTool, Image

from chakram.observe.report import plots
from chakram.observe.report.run_plots import Curve, curves, heat_map


def data_of(plot: Any) -> list[dict[str, Any]]:
    return [each.data_source.data for each in plot.select(GlyphRenderer)]


def test_ticks_of_sizes_are_at_powers_of_two() -> None:
    plot = curves(
        {"sent": Curve(x=[0, 1], y=[0, 2**28])}, name="n", title="t", x="ns", y="bytes"
    )
    (ticker,) = plot.select({"type": AdaptiveTicker, "base": 1024})
    assert ticker.mantissas == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]


def test_cells_of_a_matrix_stand_at_their_ranks() -> None:
    (data,) = data_of(plots.matrix([[0, 3], [5, 0]], title="t"))
    assert (data["src"], data["dst"], data["value"]) == ([0, 1], [1, 0], [3, 5])


def test_blocks_of_ranks_stand_at_their_middle() -> None:
    nranks = 2 * plots.MATRIX_CELLS
    rows = [[0] * nranks for _ in range(nranks)]
    rows[2][5] = rows[3][4] = 7
    (data,) = data_of(plots.matrix(rows, title="t"))
    assert (data["src"], data["dst"], data["value"]) == ([2.5], [4.5], [14])


def test_the_pointer_shows_the_text_of_a_point_or_its_value() -> None:
    plot = curves(
        {
            "told": Curve(x=[1, 2], y=[3, 4], text=["three", "four"]),
            "plain": Curve(x=[1, 2], y=[3, 4]),
        },
        name="n",
        title="t",
        x="ns",
        y="ns",
    )
    tips = [each.tooltips for each in plot.select(HoverTool)]
    assert sorted(tips) == [[("plain", "@y")], [("told", "@text")]]
    by_text = [each for each in data_of(plot) if "text" in each]
    assert by_text
    assert all(each["text"] == ["three", "four"] for each in by_text)


def test_a_heat_map_covers_its_time_and_its_rows() -> None:
    plot = heat_map(
        np.array([[0.0, 50.0], [400.0, 0.4]]),
        name="n", title="t", end_ns=2000, y_label="y", legend="busy", high=100,
    )  # fmt: skip
    (glyph,) = [each.glyph for each in plot.select(GlyphRenderer)]
    assert isinstance(glyph, Image)
    assert (glyph.x, glyph.y, glyph.dw, glyph.dh) == (0, 0, 2000, 2)
    (data,) = data_of(plot)
    assert data["image"][0].tolist() == [[0, 50], [255, 0]]
