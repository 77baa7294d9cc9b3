"""Plots of all pages: what an axis, a mark and a tooltip say."""

from __future__ import annotations

from typing import Any

import pytest
from bokeh.models import (
    AdaptiveTicker,
    CustomJSTickFormatter,
    HBar,
    LogTicker,
    Rect,
    Step,
)

from chakram.chakra.summary.distribution import Distribution, distribution
from chakram.report import figure_elements, plots
from tests.drawn_plots import data_of, legend_of, renderers, tips_of


def spread(*numbers: int) -> Distribution:
    found = distribution(numbers)
    assert found is not None
    return found


def test_cells_of_a_matrix_stand_at_their_ranks() -> None:
    plot = plots.matrix([[0, 3], [5, 0]], title="t")
    ((data,), (drawn,)) = data_of(plot), renderers(plot, Rect)
    assert (data["src"], data["dst"], data["value"]) == ([0, 1], [1, 0], [3, 5])
    assert data["names"] == ["0 to 1", "1 to 0"]
    assert data["text"] == ["3B", "5B"]
    assert (drawn.glyph.width, drawn.glyph.height) == (1, 1)
    assert (drawn.glyph.x, drawn.glyph.y) == ("dst", "src")
    assert tips_of(plot) == [[("ranks", "@names"), ("bytes", "@text")]]
    # Colors go from nothing to the largest cell.
    colors = drawn.glyph.fill_color["transform"]
    assert (colors.low, colors.high) == (0, 5)


def test_a_matrix_shows_each_rank_whole_with_the_first_on_top() -> None:
    plot = plots.matrix([[0, 3, 0], [5, 0, 0], [0, 0, 0]], title="t")
    assert (plot.x_range.start, plot.x_range.end) == (-0.5, 2.5)
    assert (plot.y_range.start, plot.y_range.end) == (2.5, -0.5)
    assert not any(each.visible for each in plot.grid)
    for axis in (*plot.xaxis, *plot.yaxis):
        # A rank is a whole number: no tick stands between two of them.
        assert axis.ticker.min_interval == 1
        assert axis.ticker.num_minor_ticks == 0


def test_an_empty_matrix_is_drawn_all_the_same() -> None:
    plot = plots.matrix([[0, 0], [0, 0]], title="t")
    (drawn,) = renderers(plot, Rect)
    assert drawn.data_source.data["value"] == []
    assert drawn.glyph.fill_color["transform"].high == 1


def test_blocks_of_ranks_stand_at_their_middle() -> None:
    nranks = 2 * plots.MATRIX_CELLS
    rows = [[0] * nranks for _ in range(nranks)]
    rows[2][5] = rows[3][4] = 7
    plot = plots.matrix(rows, title="t")
    ((data,), (drawn,)) = data_of(plot), renderers(plot, Rect)
    assert (data["src"], data["dst"], data["value"]) == ([2.5], [4.5], [14])
    assert data["names"] == ["2-3 to 4-5"]
    assert (drawn.glyph.width, drawn.glyph.height) == (2, 2)


def test_the_last_block_of_ranks_ends_with_the_last_rank() -> None:
    nranks = plots.MATRIX_CELLS + 1
    rows = [[0] * nranks for _ in range(nranks)]
    rows[-1][0] = 9
    (data,) = data_of(plots.matrix(rows, title="t"))
    assert data["names"] == [f"{nranks - 1} to 0-1"]


@pytest.mark.parametrize(
    ("unit", "values", "texts", "label"),
    [
        ("bytes", [1024, 3 * 2**20], ["1KiB", "3MiB"], "bytes"),
        ("ns", [1500.0, 2e6], ["1.5us", "2ms"], ""),
        ("bit/s", [1e9, 25e6], ["1Gbit/s", "25Mbit/s"], ""),
        ("apples", [0.5, 12], ["0.5", "12"], "apples"),
    ],
)
def test_bars_say_their_numbers_in_their_unit(
    unit: str, values: list[float], texts: list[str], label: str
) -> None:
    plot = plots.bars(
        {"sent": values}, names=["one", "two"], title="t", unit=unit, name="n"
    )
    (data,) = data_of(plot, HBar)
    assert (data["name"], data["value"], data["text"]) == (
        ["one", "two"],
        values,
        texts,
    )
    assert (plot.xaxis[0].axis_label or "") == label
    is_written = isinstance(plot.xaxis[0].formatter, CustomJSTickFormatter)
    assert is_written == (unit in figure_elements.TICKS)
    assert plot.x_range.start == 0
    # The first name stands on top; a category axis counts from below.
    assert plot.y_range.factors == ["two", "one"]
    # There is nothing that a legend would tell apart.
    assert legend_of(plot) == []


def test_bars_of_a_name_stand_below_one_another_in_the_order_of_the_legend() -> None:
    plot = plots.bars(
        {"sent": [1, 2], "got": [3, 4]}, names=["one", "two"], title="t", unit="bytes"
    )
    sent, got = renderers(plot, HBar)
    at = [each.data_source.data["y"] for each in (sent, got)]
    assert at == [
        [("one", pytest.approx(0.2)), ("two", pytest.approx(0.2))],
        [("one", pytest.approx(-0.2)), ("two", pytest.approx(-0.2))],
    ]
    # They do not overlap: each takes less than the 0.4 between their middles.
    assert [each.glyph.height for each in (sent, got)] == [pytest.approx(0.36)] * 2
    assert legend_of(plot) == ["sent", "got"]
    assert tips_of(plot) == [
        [("", "@name"), ("sent", "@text")],
        [("", "@name"), ("got", "@text")],
    ]
    assert sent.glyph.fill_color != got.glyph.fill_color


@pytest.mark.parametrize(
    ("totals", "names", "height"), [(1, 0, 144), (1, 1, 144), (1, 5, 240), (3, 5, 480)]
)
def test_a_figure_of_bars_grows_with_the_bars(
    totals: int, names: int, height: int
) -> None:
    values = {str(each): [1] * names for each in range(totals)}
    named = [str(each) for each in range(names)]
    plot = plots.bars(values, names=named, title="", unit="bytes")
    assert plot.height == height


def test_a_distribution_begins_at_its_smallest_with_nothing() -> None:
    plot = plots.cdf({"m": spread(4, 4, 16, 64)}, title="t", unit="bytes")
    (step,) = data_of(plot, Step)
    assert step["x"] == [4, 4, 16, 64]
    assert step["y"] == [0, 50, 75, 100]
    assert step["text"] == [
        "4B: 0 % of 4", "4B: 50 % of 4", "16B: 75 % of 4", "64B: 100 % of 4",
    ]  # fmt: skip
    assert tips_of(plot) == [[("m", "@text")]]
    assert plot.y_range.start == 0
    # A single line needs no legend.
    assert legend_of(plot) == []
    assert isinstance(plot.xaxis[0].ticker, LogTicker)


@pytest.mark.parametrize(("unit", "first"), [("ns", 1), ("nodes", 0)])
def test_a_zero_stands_at_one_where_the_axis_is_logarithmic(
    unit: str, first: int
) -> None:
    plot = plots.cdf({"m": spread(0, 8)}, title="t", unit=unit)
    (step,) = data_of(plot, Step)
    assert step["x"] == [first, first, 8]
    # What is told is what it was.
    assert step["text"][0] == f"0{'ns' if unit == 'ns' else ''}: 0 % of 2"


def test_counts_have_a_linear_axis() -> None:
    plot = plots.cdf({"waits": spread(0, 1, 1, 2)}, title="t", unit="nodes")
    (step,) = data_of(plot, Step)
    assert (step["x"], step["y"]) == ([0, 0, 1, 2], [0, 25, 75, 100])
    assert step["text"][2] == "1: 75 % of 4"
    assert plot.xaxis[0].axis_label == "nodes"


def test_ticks_of_sizes_are_at_powers_of_two() -> None:
    ticker: Any = plots.cdf({"m": spread(1)}, title="t", unit="bytes").xaxis[0].ticker
    assert (ticker.base, ticker.mantissas) == (2, [1])
    ticker = plots.bars({"m": [1]}, names=["a"], title="", unit="bytes").xaxis[0].ticker
    assert isinstance(ticker, AdaptiveTicker)
    assert ticker.base == 1024
    assert ticker.mantissas == [2**power for power in range(10)]
    assert ticker.num_minor_ticks == 0
