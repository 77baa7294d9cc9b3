"""Append of rows to arrays.

A compiled module uses the function of the same name in ``append_rows_direct.pxd``,
which copies the numbers without a call to the interpreter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from array import array

__all__ = ["append_row"]


def append_row(rows: array[int], row: array[int]) -> None:
    """Append the numbers of *row* to *rows*, an array of the same type."""
    rows.extend(row)
