"""Columns that may end early: behind its end, a column has no value."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

NO_VALUE = -(2**63)
"""What a 64-bit column holds where the file has no value; no tag or time is that."""


def optional(column: Sequence[int], position: int) -> int | None:
    """Return the value at a position, None if there is none."""
    value = column[position] if position < len(column) else NO_VALUE
    return None if value == NO_VALUE else value


def filled(column: array[int], rows: int) -> array[int]:
    """Return a copy of a column with a value, or none, in every row."""
    return column + array("q", [NO_VALUE]) * (rows - len(column))


def put(column: array[int], position: int, value: int | None) -> None:
    """Put a value at the end of a column that may be short."""
    if value is not None:
        fill(column, position)
        column.append(value)


def fill(column: array[int], length: int) -> None:
    """Make a short column as long as it has to be, with values that are absent."""
    column.extend(array("q", [NO_VALUE]) * (length - len(column)))
