"""The matrix on a console."""

from __future__ import annotations

from chakram.cli.trace.summary_tables import heat_map


def lines(rows: list[list[int]], width: int = 80) -> list[str]:
    return heat_map(rows, width=width).plain.splitlines()


def test_shades_are_equal_parts_of_the_largest() -> None:
    _, _, first, *_, legend = lines([[0, 1, 21, 41, 61, 100]] + [[0] * 6] * 5)
    assert first == "0   ··░░▒▒▓▓██"
    assert legend.startswith("  ·· up to 20B  ░░ up to 40B")
    assert "██ up to 100B" in legend


def test_a_value_at_a_limit_has_the_shade_of_that_limit() -> None:
    _, _, first, *_ = lines([[0, 20, 40, 60, 80, 100]] + [[0] * 6] * 5)
    assert first == "0   ··░░▒▒▓▓██"


def test_cells_are_narrow_where_wide_ones_do_not_fit() -> None:
    size = 60
    rows = [[1] * size for _ in range(size)]
    assert max(map(len, lines(rows, width=200)[:-1])) == 3 + 2 * size
    assert max(map(len, lines(rows, width=80)[:-1])) == 3 + size


def test_columns_are_numbered() -> None:
    header = lines([[1] * 17 for _ in range(17)], width=80)[1]
    assert header.split() == ["0", "8", "16"]
    assert header.index("8") == 3 + 2 * 8


def test_nothing_is_a_picture_too() -> None:
    assert lines([[0]])[2] == "0   "
