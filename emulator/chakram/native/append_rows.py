"""Functions that append rows to arrays.

A compiled module uses the functions of the same names in ``append_rows_direct.pxd``,
which copy the numbers without a call to the interpreter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from array import array

__all__ = ["append_row", "append_values"]


def append_row(rows: array[int], row: array[int]) -> None:
    """Append the numbers of *row* to *rows*, an array of the same type."""
    rows.extend(row)


def append_values(rows: array[int], values: list[int]) -> None:
    """Append *values* to *rows*, an array of 64-bit integers."""
    rows.fromlist(values)
