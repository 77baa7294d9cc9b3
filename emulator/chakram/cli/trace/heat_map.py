"""A matrix of numbers as a picture of characters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text

from chakram.units import about_size

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HEAT_MAP_RANKS", "heat_map"]

HEAT_MAP_RANKS: Final = 64
"""Ranks of the largest matrix that is legible on a console."""

_SHADES: Final = "·░▒▓█"
_COLOURS: Final = ("bright_black", "blue", "cyan", "yellow", "red")
_EVERY: Final = 8
"""Columns between numbers above a matrix."""


def heat_map(rows: Sequence[Sequence[int]], *, width: int) -> Text:
    """Return a square matrix of bytes as text: a row a sender, a column a receiver.

    Shades are equal parts of the largest number, so that a difference of two shades
    means the same everywhere; the darkest is the largest fifth.  A console without
    colours shows as much.

    Args:
        rows: The matrix.
        width: Characters of a line; cells are two characters wide if they fit.
    """
    size = len(rows)
    largest = max(map(max, rows), default=0)
    margin = len(str(size - 1)) + 1
    cell = 2 if margin + 2 * size <= width else 1
    text = Text(no_wrap=True)
    text.append("Bytes from rank (row) to rank (column), one iteration\n", "italic")
    text.append(" " * margin + _header(size, cell) + "\n", "bright_black")
    for number, row in enumerate(rows):
        text.append(f"{number:>{margin - 1}} ", "bright_black")
        for value in row:
            if value:
                shade = _shade(value, largest)
                text.append(_SHADES[shade] * cell, _COLOURS[shade])
            else:
                text.append(" " * cell)
        text.append("\n")
    text.append(" " * margin)
    for shade, character in enumerate(_SHADES):
        limit = about_size(largest * (shade + 1) // len(_SHADES))
        text.append(character * 2, _COLOURS[shade])
        text.append(f" up to {limit}  ")
    text.append("blank: nothing\n")
    return text


def _shade(value: int, largest: int) -> int:
    return min(value * len(_SHADES) // largest, len(_SHADES) - 1)


def _header(size: int, cell: int) -> str:
    labels = [" "] * (size * cell + 4)
    for column in range(0, size, 1 if cell == 2 and size <= _EVERY else _EVERY):
        for offset, digit in enumerate(str(column)):
            labels[column * cell + offset] = digit
    return "".join(labels).rstrip()
