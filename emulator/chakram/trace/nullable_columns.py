"""Columns that may be shorter than the table: rows past the end have no value."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

NO_VALUE = -(2**63)
"""Marker for a missing value in a 64-bit column. No tag or time equals it."""


def optional(column: Sequence[int], position: int) -> int | None:
    """Return the value at a position, or None if there is none."""
    value = column[position] if position < len(column) else NO_VALUE
    return None if value == NO_VALUE else value


def filled(column: array[int], rows: int) -> array[int]:
    """Return a copy of a column, padded with ``NO_VALUE`` to *rows* rows."""
    return column + array("q", [NO_VALUE]) * (rows - len(column))


def put(column: array[int], position: int, value: int | None) -> None:
    """Append a value for row *position* to a column that may be short."""
    if value is not None:
        fill(column, position)
        column.append(value)


def fill(column: array[int], length: int) -> None:
    """Pad a short column with ``NO_VALUE`` to the given length."""
    column.extend(array("q", [NO_VALUE]) * (length - len(column)))
