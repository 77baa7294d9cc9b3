"""Plots of sweeps: heat maps over two axes, changes, the spread of repetitions."""

from __future__ import annotations

from typing import Any

import pytest
from bokeh.models import (
    ColorBar,
    CustomJSTickFormatter,
    Rect,
    Scatter,
    Segment,
    Span,
    Text,
)

from chakram.report.figure_elements import HALF, WHOLE
from chakram.report.palette import GRAY
from chakram.report.sweep.figures import (
    CellValue,
    Change,
    changes,
    grid,
    spread_plot,
)
from tests.drawn_plots import (
    data_of,
    laid_over,
    legend_of,
    renderers,
    tips_of,
)

DARK, WHITE = "#1c2430", "white"


def made(
    values: dict[tuple[str, str], float],
    *,
    columns: list[str] | None = None,
    rows: list[str] | None = None,
    unit: str = "ratio",
    **options: Any,
) -> Any:
    cells = {
        at: CellValue(value=value, text=f"{value:g}", tip=f"cell {value:g}")
        for at, value in values.items()
    }
    return grid(
        cells,
        columns=columns or ["a", "b"],
        rows=rows or ["x", "y"],
        name="n",
        title="t",
        x_label="X",
        y_label="Y",
        unit=unit,
        span=options.pop("span", (min(values.values()), max(values.values()))),
        **options,
    )


def colors_of(plot: Any) -> Any:
    (drawn,) = renderers(plot, Rect)
    return drawn.glyph.fill_color["transform"]


def test_a_grid_has_its_cells_at_their_column_and_row() -> None:
    plot = made({("a", "x"): 1, ("b", "x"): 2, ("a", "y"): 3})
    (data,) = data_of(plot, Rect)
    assert (data["x"], data["y"]) == (["a", "b", "a"], ["x", "x", "y"])
    assert data["value"] == [1, 2, 3]
    assert data["text"] == ["1", "2", "3"]
    assert tips_of(plot) == ["@tip"]
    assert data["tip"] == ["cell 1", "cell 2", "cell 3"]
    assert plot.x_range.factors == ["a", "b"]
    # The first row stands on top.
    assert plot.y_range.factors == ["y", "x"]
    assert data_of(plot, Text) == [data]
    assert not any(each.visible for each in plot.grid)


@pytest.mark.parametrize(
    ("span", "middle", "low", "high"),
    [
        # Amounts are compared with nothing, whatever the least of them is.
        ((4, 9), None, 0, 9),
        ((-2, 9), None, -2, 9),
        ((0, 0), None, 0, 1),
        # Ratios reach as far to both sides as the farthest one.
        ((0.8, 1.5), 1, 0.5, 1.5),
        ((0.4, 1.1), 1, 0.4, 1.6),
        ((1, 1), 1, 0.99, 1.01),
    ],
)
def test_colors_of_grids_have_their_middle_where_nothing_differs(
    span: tuple[float, float], middle: float | None, low: float, high: float
) -> None:
    colors = colors_of(made({("a", "x"): span[0]}, span=span, middle=middle))
    assert (colors.low, colors.high) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("middle", "inks"),
    [
        # Of 0 to 100 what is above 55 is dark.
        (None, {0: DARK, 55: DARK, 56: WHITE, 100: WHITE}),
        # To both sides of 50, what is farther off than 28.
        (50, {0: WHITE, 21: WHITE, 23: DARK, 50: DARK, 77: DARK, 79: WHITE}),
    ],
)
def test_what_is_written_can_be_read_on_its_color(
    middle: float | None, inks: dict[float, str]
) -> None:
    cells = {(str(value), "x"): value for value in inks}
    plot = made(cells, columns=[str(value) for value in inks], span=(0, 100),
                middle=middle)  # fmt: skip
    (data,) = data_of(plot, Rect)
    assert dict(zip(data["value"], data["ink"], strict=True)) == inks


@pytest.mark.parametrize(
    ("count", "width", "size"),
    [
        (6, HALF, "12px"),
        (7, HALF, "10px"),
        (8, HALF, "10px"),
        (9, WHOLE, "10px"),
        (16, WHOLE, "10px"),
        (17, WHOLE, None),
    ],
)
def test_numbers_stand_in_cells_as_long_as_there_is_room(
    count: int, width: int, size: str | None
) -> None:
    plot = made({("0", "x"): 1}, columns=[str(each) for each in range(count)])
    assert plot.width == width
    sizes = [each.glyph.text_font_size for each in renderers(plot, Text)]
    assert sizes == ([] if size is None else [size])


def test_long_names_of_columns_are_turned_and_get_room() -> None:
    short, long = (
        made({("a", "x"): 1}, columns=["x" * length], rows=["x"]) for length in (8, 9)
    )
    assert short.xaxis[0].major_label_orientation == "horizontal"
    assert long.xaxis[0].major_label_orientation == 0.6
    assert (short.height, long.height) == (194, 239)
    higher = made({("a", "x"): 1}, columns=["x"], rows=["x", "y", "z"])
    assert higher.height == 262


@pytest.mark.parametrize(("unit", "is_title"), [("bit/s", False), ("ratio", True)])
def test_the_bar_of_colors_says_its_unit(unit: str, is_title: bool) -> None:
    (bar,) = [
        each for each in made({("a", "x"): 1}, unit=unit).right
        if isinstance(each, ColorBar)
    ]  # fmt: skip
    assert (bar.title == unit) == is_title
    assert isinstance(bar.formatter, CustomJSTickFormatter) != is_title


def change(name: str, percent: float, *, significant: bool) -> Change:
    return Change(
        name=name, percent=percent, low=percent - 1, high=percent + 2,
        significant=significant, tip=f"tip {name}",
    )  # fmt: skip


def test_changes_stand_with_where_they_may_be() -> None:
    plot = changes(
        [
            change("a", 5, significant=True),
            change("b", 0.5, significant=False),
            change("c", -9, significant=True),
        ],
        name="n",
        title="t",
    )
    assert plot.y_range.factors == ["c", "b", "a"]
    assert plot.height == 186
    significant, other = data_of(plot, Scatter)
    assert (significant["y"], significant["percent"]) == (["a", "c"], [5, -9])
    assert (other["y"], other["percent"]) == (["b"], [0.5])
    bars, _ = renderers(plot, Segment)
    assert (bars.glyph.x0, bars.glyph.x1) == ("low", "high")
    assert bars.data_source.data["low"] == [4, -10]
    assert bars.data_source.data["high"] == [7, -7]
    (zero,) = laid_over(plot, Span)
    assert (zero.location, zero.dimension) == (0, "height")
    assert legend_of(plot) == ["significant", "not significant"]
    assert tips_of(plot) == ["@tip", "@tip"]
    # What does not tell apart is gray.
    colors = [each.glyph.line_color for each in renderers(plot, Segment)]
    assert colors[1] == GRAY
    assert colors[0] != GRAY


@pytest.mark.parametrize(
    ("significant", "name"), [(True, "significant"), (False, "not significant")]
)
def test_a_kind_of_changes_that_there_is_none_of_is_not_in_the_legend(
    significant: bool, name: str
) -> None:
    plot = changes([change("a", 5, significant=significant)], name="n", title="t")
    assert legend_of(plot) == [name]


@pytest.mark.parametrize(
    ("percents", "end"), [([-2, 1], 2.2), ([0.5, 3], 3.3), ([0, 0], 1.1), ([], 1.1)]
)
def test_repetitions_stand_to_both_sides_of_their_mean(
    percents: list[float], end: float
) -> None:
    own = [(percent, f"tip {percent}") for percent in percents]
    plot = spread_plot({"0: a": own, "1: b": own[:1]}, name="n", title="t")
    assert plot.x_range.end == pytest.approx(end)
    assert plot.x_range.start == pytest.approx(-end)
    (data,) = data_of(plot, Scatter)
    assert data["percent"] == [*percents, *percents[:1]]
    assert data["y"] == ["0: a"] * len(percents) + ["1: b"] * len(percents[:1])
    assert data["tip"] == [tip for _, tip in [*own, *own[:1]]]
    assert plot.y_range.factors == ["1: b", "0: a"]
    assert plot.height == 150
    (zero,) = laid_over(plot, Span)
    assert (zero.location, zero.dimension) == (0, "height")


def test_a_spread_of_nothing_is_drawn_all_the_same() -> None:
    plot = spread_plot({}, name="n", title="t")
    assert (plot.x_range.start, plot.x_range.end) == pytest.approx((-1.1, 1.1))
