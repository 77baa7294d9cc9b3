"""Prefetch hints for memory that is needed soon.

A simulation of many hosts has more state than fits into the caches. Handling one packet
reads two dozen cache lines that have not been used for a long time. If these lines are
loaded one after another, the processor waits for each. If they are prefetched as soon
as their addresses are known, all arrive in about the time that one line takes.

The functions here do nothing. A compiled module uses the functions of the same names in
``prefetch_lines.pxd``, which execute one instruction per line of 64 bytes.
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
    """Prefetch the first *lines* cache lines of an object, which may be None."""


def prefetch_item(things: list[Any], at: int, lines: int) -> None:
    """Prefetch the first *lines* cache lines of a list item without stalling.

    *at* must be in bounds.
    """


def prefetch_part(things: list[Any], at: int, first: int, lines: int) -> None:
    """Prefetch *lines* cache lines of a list item, starting at its line *first*."""


def prefetch_place(things: list[Any], at: int) -> None:
    """Prefetch the cache line of a list that contains the pointer to an item."""


def prefetch_cell(cells: array[int], at: int) -> None:
    """Prefetch the line of one of the 64-bit *cells*, even if *at* is out of bounds."""
