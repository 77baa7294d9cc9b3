"""Plots of runs: curves, heat maps, spans of time, parts of a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bokeh.models import (
    AdaptiveTicker,
    BasicTickFormatter,
    BoxAnnotation,
    HBar,
    Image,
    Label,
    Line,
    Quad,
    Range1d,
    Scatter,
    Segment,
    Span,
    Step,
    VBar,
)

from chakram.report.figure_elements import HALF, WHOLE
from chakram.report.palette import GRAY
from chakram.report.plots import (
    Curve,
    curves,
    heat_map,
    parts,
    shade,
    spans,
)
from tests.drawn_plots import data_of, laid_over, legend_of, renderers, tips_of


def drawn(lines: dict[str, Curve], **options: Any) -> Any:
    fixed: dict[str, Any] = {"name": "n", "title": "t", "x": "ns", "y": "ns"}
    return curves(lines, **{**fixed, **options})


def ticks_of(axis: Any) -> Any:
    return axis[0].ticker.ticks


def test_ticks_of_sizes_are_at_powers_of_two() -> None:
    plot = drawn({"sent": Curve(x=[0, 1], y=[0, 2**28])}, y="bytes")
    (ticker,) = plot.select({"type": AdaptiveTicker, "base": 1024})
    assert ticker.mantissas == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]


def test_the_pointer_shows_the_text_of_a_point_or_its_value() -> None:
    plot = drawn(
        {
            "told": Curve(x=[1, 2], y=[3, 4], text=["three", "four"]),
            "plain": Curve(x=[1, 2], y=[3, 4]),
        }
    )
    assert tips_of(plot) == [[("told", "@text")], [("plain", "@y")]]
    by_text = [each for each in data_of(plot) if "text" in each]
    assert by_text
    assert all(each["text"] == ["three", "four"] for each in by_text)


def test_a_curve_is_a_line_with_points_or_steps_without() -> None:
    lines = {"a": Curve(x=[1, 2], y=[3, 4])}
    plain, stepped = drawn(lines), drawn(lines, steps=True)
    assert len(renderers(plain, Line)) == len(renderers(plain, Scatter)) == 1
    assert not renderers(plain, Step)
    assert not renderers(stepped, Line)
    assert not renderers(stepped, Scatter)
    (step,) = renderers(stepped, Step)
    # A value holds from its x on.
    assert step.glyph.mode == "after"
    assert step.data_source.data["x"] == [1, 2]
    assert step.data_source.data["y"] == [3, 4]


def test_whiskers_go_from_low_to_high_at_their_point() -> None:
    plot = drawn({"a": Curve(x=[1, 2], y=[3, 4], low=[2, 1], high=[5, 9])})
    (whiskers,) = renderers(plot, Segment)
    glyph = whiskers.glyph
    assert (glyph.x0, glyph.x1, glyph.y0, glyph.y1) == ("x", "x", "low", "high")
    data = whiskers.data_source.data
    assert (data["low"], data["high"]) == ([2, 1], [5, 9])
    # The highest whisker fits below the top.
    assert plot.y_range.end == pytest.approx(1.12 * 9)
    # One end alone is no whisker.
    assert not renderers(drawn({"a": Curve(x=[1], y=[1], low=[1])}), Segment)


@pytest.mark.parametrize(
    ("lines", "options", "top"),
    [
        ({"a": [3, 8], "b": [5]}, {}, 8 * 1.12),
        ({"a": [3, 8]}, {"levels": {"line rate": 10}}, 10 * 1.12),
        ({"a": [8]}, {"bands": {"x": [(0, 1)], "y": [(0, 1)]}}, 8 * 1.24),
        ({"a": [0, 0]}, {}, 1.12),
        ({"a": []}, {}, 1.12),
    ],
)
def test_an_axis_begins_at_nothing_and_has_room_above_the_highest(
    lines: dict[str, list[float]], options: dict[str, Any], top: float
) -> None:
    made = {name: Curve(x=list(range(len(y))), y=y) for name, y in lines.items()}
    plot = drawn(made, **options)
    assert plot.y_range.start == 0
    assert plot.y_range.end == pytest.approx(top)


@pytest.mark.parametrize(
    ("log", "x", "y"),
    [
        ({}, [0, 5], [0, 7]),
        ({"x_log": True}, [1, 5], [0, 7]),
        ({"y_log": True}, [0, 5], [1, 7]),
    ],
)
def test_zeros_stand_at_one_on_a_logarithmic_axis(
    log: dict[str, bool], x: list[int], y: list[int]
) -> None:
    plot = drawn({"a": Curve(x=[0, 5], y=[0, 7])}, **log)
    (data,) = data_of(plot, Line)
    assert (data["x"], data["y"]) == (x, y)


def test_values_below_one_stand_where_they_are_on_a_logarithmic_axis() -> None:
    # A message can be faster than its bound, after a pause in which a shaper filled.
    plot = drawn({"a": Curve(x=[1, 5], y=[0.5, 7])}, y_log=True)
    (data,) = data_of(plot, Line)
    assert data["y"] == [0.5, 7]


@pytest.mark.parametrize(
    ("least", "top", "ticks"),
    [
        (1, 9, [1, 2, 5, 10, 20, 50]),
        (1, 99, [1, 2, 5, 10, 20, 50, 100, 200, 500]),
        (1, 101, [1, 3, 10, 30, 100, 300, 1000, 3000]),
        (1, 1001, [1, 10, 100, 1000, 10_000]),
        # Times of a run: a decade far from 1, and a part of it.
        (150e6, 780e6, [1e8, 2e8, 5e8, 1e9, 2e9, 5e9]),
        (420e6, 780e6, [4e8, 5e8, 6e8, 7e8, 8e8]),
        (7.8e8, 7.8e8, [7.8e8]),
    ],
)
def test_logarithmic_ticks_are_fewer_where_there_are_more_decades(
    least: float, top: float, ticks: list[float]
) -> None:
    curve = Curve(x=[1, 2], y=[least, top])
    plot = drawn({"a": curve}, y_log=True, y="times")
    assert ticks_of(plot.yaxis) == ticks
    assert isinstance(plot.yaxis[0].formatter, BasicTickFormatter)


def test_a_logarithmic_axis_of_times_writes_them_as_times() -> None:
    plot = drawn({"a": Curve(x=[1], y=[5])}, y_log=True)
    assert not isinstance(plot.yaxis[0].formatter, BasicTickFormatter)


@pytest.mark.parametrize(
    ("sizes", "ticks"),
    [
        ([0, 1024, 4096], [1, 1024, 4096]),
        # Nine steps of 2 from the first to the last: 1.5 and 3 stand too near.
        ([1024, 1536, 2048, 3072, 524_288], [1024, 2048, 524_288]),
        ([1000, 1009, 1010, 1020], [1000, 1010]),
        ([], []),
    ],
)
def test_sizes_that_occur_are_ticks_unless_they_run_into_each_other(
    sizes: list[int], ticks: list[int]
) -> None:
    plot = drawn({"a": Curve(x=sizes, y=sizes)}, x="bytes", x_log=True)
    assert ticks_of(plot.xaxis) == ticks


def test_sizes_of_all_lines_are_ticks() -> None:
    lines = {"a": Curve(x=[4096], y=[1]), "b": Curve(x=[1024, 4096], y=[1, 1])}
    assert ticks_of(drawn(lines, x="bytes", x_log=True).xaxis) == [1024, 4096]


def test_levels_are_dashed_and_named_side_by_side_above_the_highest() -> None:
    plot = drawn({"a": Curve(x=[1], y=[1])}, levels={"rate": 10.0, "payload": 9.0})
    rate, payload = laid_over(plot, Span)
    assert (rate.location, payload.location) == (10, 9)
    assert {rate.dimension, payload.dimension} == {"width"}
    assert rate.line_dash != payload.line_dash
    first, second = laid_over(plot, Label)
    assert (first.text, second.text) == ("rate", "payload")
    assert first.y == second.y == 10
    assert (first.x, second.x - first.x) == (8, 160)


def test_bands_lie_above_the_curves_and_do_not_overlap() -> None:
    plot = drawn(
        {"a": Curve(x=[0, 9], y=[100, 50])},
        bands={"all_reduce": [(0, 2), (4, 5)], "all_to_all": [(2, 4)]},
    )
    first, second = renderers(plot, Quad)
    assert first.data_source.data == {"left": [0, 4], "right": [2, 5]}
    assert second.data_source.data == {"left": [2], "right": [4]}
    bands = [(each.glyph.bottom, each.glyph.top) for each in (second, first)]
    edges = [100.0, *(edge for band in bands for edge in band), plot.y_range.end]
    assert edges == sorted(edges)
    assert edges[1:5] == pytest.approx([111.5, 116, 117.5, 122])
    assert legend_of(plot) == ["a", "all_reduce in progress", "all_to_all in progress"]


@pytest.mark.parametrize(
    ("count", "bands", "shown"), [(1, 0, False), (2, 0, True), (1, 1, True)]
)
def test_a_legend_is_there_where_there_is_something_to_tell_apart(
    count: int, bands: int, shown: bool
) -> None:
    lines = {str(each): Curve(x=[1], y=[1]) for each in range(count)}
    plot = drawn(lines, bands={"b": [(0, 1)]} if bands else {})
    assert bool(legend_of(plot)) == shown
    if shown:
        # Below, where it hides nothing, and a click takes a line away.
        assert plot.below[-1] is plot.legend[0]
        assert plot.legend[0].click_policy == "hide"


@pytest.mark.parametrize(
    ("longest", "width", "columns"),
    [(4, HALF, 5), (40, HALF, 1), (100, HALF, 1), (4, WHOLE, 9)],
)
def test_a_legend_has_as_many_columns_as_fit(
    longest: int, width: int, columns: int
) -> None:
    lines = {"x" * each: Curve(x=[1], y=[1]) for each in (1, longest)}
    assert drawn(lines, width=width).legend[0].ncols == columns


@pytest.mark.parametrize(
    ("unit", "label", "text"),
    [
        ("ns", "", "ns"),
        ("ns", "time", "time"),
        ("apples", "fruit", "fruit (apples)"),
        ("", "fruit", "fruit"),
    ],
)
def test_an_axis_says_its_unit_unless_its_ticks_do(
    unit: str, label: str, text: str
) -> None:
    plot = drawn({}, x=unit, x_label=label, y=unit, y_label=label)
    assert (plot.xaxis[0].axis_label, plot.yaxis[0].axis_label) == (text, text)


def test_figures_that_share_an_axis_move_together() -> None:
    axis = Range1d(0, 100)
    plots = [
        drawn({}, x_range=axis),
        heat_map(
            np.zeros((1, 2)), name="n", title="t", end_ns=100, y_label="y",
            legend="l", high=1, x_range=axis,
        ),
        spans({}, rows=["0"], name="n", title="t", y_label="y", x_range=axis),
    ]  # fmt: skip
    assert all(each.x_range is axis for each in plots)


def test_what_is_shaded_goes_over_the_whole_height() -> None:
    plot = drawn({})
    shade(plot, [(1, 2), (5, 9)], "#d62728")
    boxes = laid_over(plot, BoxAnnotation)
    assert [(box.left, box.right) for box in boxes] == [(1, 2), (5, 9)]
    assert {(box.fill_color, box.fill_alpha) for box in boxes} == {("#d62728", 0.15)}


def test_a_heat_map_covers_its_time_and_its_rows() -> None:
    plot = heat_map(
        np.array([[0.0, 50.0], [400.0, 0.4]]),
        name="n", title="t", end_ns=2000, y_label="y", legend="busy", high=100,
    )  # fmt: skip
    (one,) = renderers(plot)
    glyph = one.glyph
    assert isinstance(glyph, Image)
    assert (glyph.x, glyph.y, glyph.dw, glyph.dh) == (0, 0, 2000, 2)
    assert (plot.x_range.start, plot.x_range.end) == (0, 2000)
    assert (plot.y_range.start, plot.y_range.end) == (0, 2)
    assert one.data_source.data["image"][0].tolist() == [[0, 50], [255, 0]]
    colors = glyph.color_mapper
    # What rounds to nothing is empty.
    assert (colors.low, colors.high, colors.low_color) == (
        *(0.5, 100, "rgba(0, 0, 0, 0)"),
    )
    assert tips_of(plot) == [[("busy", "@image %")]]


def test_rows_of_a_heat_map_are_named_from_the_top_or_numbered_up_to_an_end() -> None:
    fixed: dict[str, Any] = {
        "name": "n", "title": "t", "end_ns": 10, "y_label": "y", "legend": "l",
        "high": 9,
    }  # fmt: skip
    named = heat_map(np.ones((2, 3)), y_names=["h0", "h1"], **fixed)
    (glyph,) = [each.glyph for each in renderers(named)]
    # A row lies around its number.
    assert (named.y_range.start, named.y_range.end) == (1.5, -0.5)
    assert (glyph.y, glyph.dh) == (-0.5, 2)
    assert named.yaxis[0].major_label_overrides == {0: "h0", 1: "h1"}
    numbered = heat_map(np.ones((20, 3)), y_end=100, **fixed)
    (glyph,) = [each.glyph for each in renderers(numbered)]
    assert (numbered.y_range.start, numbered.y_range.end) == (0, 100)
    assert (glyph.y, glyph.dh) == (0, 100)
    assert not any(each.visible for each in numbered.grid)


@pytest.mark.parametrize(("rows", "every"), [(16, 1), (17, 2), (33, 3)])
def test_of_many_rows_sixteen_have_their_names(rows: int, every: int) -> None:
    plot = heat_map(
        np.ones((rows, 1)), y_names=[f"h{row}" for row in range(rows)],
        name="n", title="t", end_ns=10, y_label="y", legend="l", high=9,
    )  # fmt: skip
    assert ticks_of(plot.yaxis) == list(range(0, rows, every))
    assert plot.yaxis[0].major_label_overrides == {
        row: f"h{row}" for row in range(0, rows, every)
    }


KINDS = {
    "all_reduce": {
        "row": ["0", "1"],
        "left": [1, 2],
        "right": [3, 4],
        "text": ["a", "b"],
    },
    "compute": {"row": ["1"], "left": [5], "right": [6], "text": ["c"]},
}


def test_spans_of_a_kind_have_a_lane_of_their_row() -> None:
    plot = spans(
        KINDS, rows=["0", "1"], name="n", title="t", y_label="rank", x_range=Range1d()
    )
    assert plot.y_range.factors == ["1", "0"]
    reduce, compute = renderers(plot, HBar)
    data = reduce.data_source.data
    assert (data["left"], data["right"], data["text"]) == ([1, 2], [3, 4], ["a", "b"])
    # Lanes of 0.45 around +-0.225, the first kind above.
    assert data["y"] == [("0", pytest.approx(0.225)), ("1", pytest.approx(0.225))]
    assert compute.data_source.data["y"] == [("1", pytest.approx(-0.225))]
    assert [each.glyph.height for each in (reduce, compute)] == [
        pytest.approx(0.45 * 0.95)
    ] * 2
    # Computation is gray: communication is what is looked for.
    assert compute.glyph.fill_color == GRAY
    assert reduce.glyph.fill_color != GRAY
    assert legend_of(plot) == ["all_reduce", "compute"]
    assert tips_of(plot) == [[("all_reduce", "@text")], [("compute", "@text")]]
    assert not renderers(plot, Segment)


@pytest.mark.parametrize(
    ("rows", "kinds", "height"),
    [(1, 0, 144), (2, 0, 158), (2, 1, 158), (2, 3, 184), (1000, 0, 1400)],
)
def test_figures_of_spans_grow_with_their_rows_up_to_a_limit(
    rows: int, kinds: int, height: int
) -> None:
    empty: dict[str, list[Any]] = {"row": [], "left": [], "right": [], "text": []}
    plot = spans(
        {str(each): empty for each in range(kinds)},
        rows=[str(each) for each in range(rows)],
        name="n", title="t", y_label="y", x_range=Range1d(),
    )  # fmt: skip
    assert plot.height == height


def test_a_path_goes_along_rows_and_from_row_to_row() -> None:
    plot = spans(
        KINDS, rows=["0", "1"], name="n", title="t", y_label="rank", x_range=Range1d(),
        path=[("0", 0, 2, "wait"), ("0", 2, 3, "send"), ("1", 3, 7, "compute")],
    )  # fmt: skip
    along, across = data_of(plot, Segment)
    assert list(along["row"]) == ["0", "0", "1"]
    assert (list(along["start"]), list(along["end"])) == ([0, 2, 3], [2, 3, 7])
    assert list(along["text"]) == ["wait", "send", "compute"]
    # Where it stays in its row there is no line across.
    assert across["x"] == [3]
    assert (across["y0"], across["y1"]) == (["0"], ["1"])
    assert ("path", "@text") in [tip for (tip,) in tips_of(plot)]
    assert legend_of(plot)[-1] == "critical path"


def stacked(count: int) -> Any:
    return parts(
        {"compute": [60] * count, "idle": [40] * count},
        names=[str(each) for each in range(count)],
        texts={"compute": ["6ms"] * count, "idle": ["4ms"] * count},
        name="n",
        title="t",
        x_label="rank",
        colors=("red", "blue"),
    )


def test_parts_stand_on_one_another() -> None:
    plot = stacked(2)
    assert data_of(plot, VBar) == [
        {"x": ["0", "1"], "bottom": [0, 0], "top": [60, 60], "text": ["6ms"] * 2},
        {"x": ["0", "1"], "bottom": [60, 60], "top": [100, 100], "text": ["4ms"] * 2},
    ]
    assert [each.glyph.fill_color for each in renderers(plot, VBar)] == ["red", "blue"]
    assert (plot.y_range.start, plot.y_range.end) == (0, 100)
    assert tips_of(plot) == [
        [("rank", "@x"), ("compute", "@text")],
        [("rank", "@x"), ("idle", "@text")],
    ]
    assert legend_of(plot) == ["compute", "idle"]


@pytest.mark.parametrize(
    ("count", "width", "label"),
    [
        (16, HALF, "rank"),
        (17, WHOLE, "rank"),
        (40, WHOLE, "rank"),
        (41, WHOLE, "rank: 0 to 40"),
    ],
)
def test_names_that_would_run_into_each_other_are_the_first_and_the_last(
    count: int, width: int, label: str
) -> None:
    plot = stacked(count)
    assert (plot.width, plot.xaxis[0].axis_label) == (width, label)
    hidden = plot.xaxis[0].major_label_text_font_size == "0px"
    assert hidden == (count > 40)
