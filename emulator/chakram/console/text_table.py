"""Text tables that fit a width by omitting the least important columns first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from chakram.foundation.text_escaping import one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table.

    Attributes:
        heading: Name of the column.
        unit: Text below the heading.
        block: Text above the heading, shared with adjacent columns of the same block.
        order: Priority. Columns with larger numbers are omitted first. Columns with the
            same number are omitted together. Columns with 0 are always shown.
        width: Minimum width in characters, without the preceding blank.
    """

    heading: str
    unit: str = ""
    block: str = ""
    order: int = 0
    width: int = 0


def fitted(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None,
    indent: int = 0,
) -> tuple[list[str], list[str]]:
    """Return the heading lines and the rows of a table, all with the same width.

    A column is as wide as its longest cell, and texts are right-aligned. All rows show
    the same columns, so that lines stay aligned.

    Args:
        columns: Columns of the table.
        rows: Rows, with a cell per column.
        width: Maximum width of a line in characters. None means no limit.
        indent: Number of blanks that the caller puts before every line.
    """
    rows = [tuple(map(one_line, row)) for row in rows]
    widths = [
        1
        + max(
            column.width,
            len(column.heading),
            len(column.unit),
            *(len(row[index]) for row in rows),
        )
        for index, column in enumerate(columns)
    ]
    places = _shown(columns, widths, None if width is None else width - indent)

    def line(cells: Sequence[str]) -> str:
        return "".join(f"{cells[index]:>{widths[index]}}" for index in places)

    head = [line([column.heading for column in columns])]
    if any(columns[index].unit for index in places):
        head.append(line([column.unit for column in columns]))
    if any(columns[index].block for index in places):
        head.insert(0, _over([(columns[at].block, widths[at]) for at in places]))
    return head, [line(cells) for cells in rows]


def _shown(
    columns: Sequence[Column], widths: Sequence[int], left: int | None
) -> list[int]:
    """Return the indexes of the columns that fit, with all or none of each order."""
    shown: list[int] = []
    for order in sorted({column.order for column in columns}):
        alike = [at for at, column in enumerate(columns) if column.order == order]
        needed = sum(widths[at] for at in alike)
        if left is None:
            shown += alike
        elif not order or needed <= left:
            shown += alike
            left -= needed
    return sorted(shown)


def _over(columns: Sequence[tuple[str, int]]) -> str:
    """Return the line with the titles of column blocks."""
    line = ""
    for block, alike in groupby(columns, key=itemgetter(0)):
        width = sum(width for _, width in alike)
        title = f" {block} "[: width - 1]
        line += title.center(width - 1, "-").rjust(width) if block else " " * width
    return line
