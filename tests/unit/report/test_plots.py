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
    Scatter,
    Step,
    VBar,
)

from chakram.chakra.summary.distribution import Distribution, distribution
from chakram.report import plots
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
    # Colours go from nothing to the largest cell.
    colours = drawn.glyph.fill_color["transform"]
    assert (colours.low, colours.high) == (0, 5)


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
    assert is_written == (unit in plots.TICKS)
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
    assert step["part"] == [0, 0.5, 0.75, 1]
    assert step["text"] == ["4B", "4B", "16B", "64B"]
    assert data_of(plot, Scatter) == [step]
    assert tips_of(plot) == [[("m", "@text"), ("cumulative share", "@part{0.0 %}")]]
    assert (plot.y_range.start, plot.y_range.end) == (0, 1.02)
    assert legend_of(plot) == ["m"]
    assert isinstance(plot.xaxis[0].ticker, LogTicker)


@pytest.mark.parametrize(("log", "first"), [(True, 1), (False, 0)])
def test_a_zero_stands_at_one_where_the_axis_is_logarithmic(
    log: bool, first: int
) -> None:
    plot = plots.cdf({"m": spread(0, 8)}, title="t", unit="ns", log=log)
    (step,) = data_of(plot, Step)
    assert step["x"] == [first, first, 8]
    # What is told is what it was.
    assert step["text"][0] == "0ns"


def test_counts_stand_beside_one_another_around_their_number() -> None:
    plot = plots.counts(
        {"waits": spread(1, 1, 2), "is waited for": spread(1, 3, 3, 3)},
        title="t",
        unit="nodes",
    )
    first, second = renderers(plot, VBar)
    one, other = first.data_source.data, second.data_source.data
    assert (one["value"], one["number"]) == ([1, 2], [2, 1])
    assert (other["value"], other["number"]) == ([1, 3], [1, 3])
    assert one["x"] == pytest.approx([0.8, 1.8])
    assert other["x"] == pytest.approx([1.2, 3.2])
    assert first.glyph.width == second.glyph.width == pytest.approx(0.4)
    # A logarithmic bar of one node is seen, too.
    assert 0 < first.glyph.bottom < 1
    assert tips_of(plot) == [
        [("waits", "@value"), ("nodes", "@number{0,0}")],
        [("is waited for", "@value"), ("nodes", "@number{0,0}")],
    ]
    assert legend_of(plot) == ["waits", "is waited for"]


@pytest.mark.parametrize("log", [False, True])
def test_ticks_of_sizes_are_at_powers_of_two(log: bool) -> None:
    plot = plots.cdf({"m": spread(1)}, title="t", unit="bytes", log=log)
    ticker: Any = plot.xaxis[0].ticker
    if log:
        assert (ticker.base, ticker.mantissas) == (2, [1])
    else:
        assert isinstance(ticker, AdaptiveTicker)
        assert ticker.base == 1024
        assert ticker.mantissas == [2**power for power in range(10)]
        assert ticker.num_minor_ticks == 0
