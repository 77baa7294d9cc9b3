"""Prefetch hints for memory that is needed soon.

A simulation of many hosts has more state than the caches hold. Handling one packet
reads two dozen cache lines that have not been used for a long time. If they are loaded
one after another, the processor waits for each. If they are prefetched once their
addresses are known, they all arrive in about the time of one.

The functions here do nothing. A compiled module uses the functions of the same names in
``prefetch_lines.pxd``, which are one instruction per line of 64 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from array import array

__all__ = [
    "prefetch",
    "prefetch_cell",
    "prefetch_item",
    "prefetch_part",
    "prefetch_place",
]


def prefetch(thing: object, lines: int) -> None:
    """Prefetch the first *lines* of an object, which may be None."""


def prefetch_item(things: list[Any], at: int, lines: int) -> None:
    """Prefetch the first *lines* of a list item without stalling; *at* is in bounds."""


def prefetch_part(things: list[Any], at: int, first: int, lines: int) -> None:
    """Prefetch *lines* of a list item, starting at its line *first*."""


def prefetch_place(things: list[Any], at: int) -> None:
    """Prefetch the line of a list that holds the pointer to an item."""


def prefetch_cell(cells: array[int], at: int) -> None:
    """Prefetch the line of one of the 64-bit *cells*; *at* may be out of bounds."""
