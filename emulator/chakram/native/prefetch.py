"""Tells the processor which memory is needed soon.

Simulations of many hosts have more state than caches hold, and what happens to a packet
looks at two dozen lines of it that have not been touched for a long time.  Found one
after the other, each of them is waited for; fetched as soon as it is known where they
are, all of them come in the time of one.

The functions here do nothing.  A compiled module gets those of the same names in
``prefetch_lines.pxd``, which are an instruction for each line of 64 bytes.
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
    """Fetch the first *lines* of an object; None is an object like any other."""


def prefetch_item(things: list[Any], at: int, lines: int) -> None:
    """Fetch the first *lines* of an item without waiting for any; *at* is in bounds."""


def prefetch_part(things: list[Any], at: int, first: int, lines: int) -> None:
    """Fetch *lines* of an item of a list, from its line *first* on."""


def prefetch_place(things: list[Any], at: int) -> None:
    """Fetch the line of a list that says where its item of an index is."""


def prefetch_cell(cells: array[int], at: int) -> None:
    """Fetch the line that *cells* of 64 bits have at an index, in bounds or not."""
