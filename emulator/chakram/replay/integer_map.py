# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""A table from numbers to numbers that takes one look at memory."""

from __future__ import annotations

from array import array

__all__ = ["NumberTable"]

# Fibonacci hashing (D. Knuth, The Art of Computer Programming 3, 6.4): numbers in rows
# with gaps, as these are, are spread evenly.
_FACTOR = 0x9E37_79B9_7F4A_7C15
_WORD = 0xFFFF_FFFF_FFFF_FFFF
_FIRST_BITS = 3


class NumberTable:
    """What a dictionary of numbers not below 0 does, key beside value in memory."""

    __slots__ = ("_cells", "_count", "_shift")

    def __init__(self) -> None:
        # Places of a key and a value each; at least half of them are empty: key -1.
        self._cells = array("q", [-1] * (2 << _FIRST_BITS))
        self._shift = 64 - _FIRST_BITS
        self._count = 0

    def put(self, key: int, value: int) -> None:
        """Remember the value of a key that has none."""
        if 4 * (self._count + 1) > len(self._cells):
            self._grow()
        self._count += 1
        at = self._place(key)
        self._cells[at] = key
        self._cells[at + 1] = value

    def find(self, key: int) -> int:
        """Return the value of a key, or -1."""
        at = self._place(key)
        return self._cells[at + 1]

    def _place(self, key: int) -> int:
        """Return where a key stands, or is to stand: what is empty has the value -1."""
        at = 2 * (((key * _FACTOR) & _WORD) >> self._shift)
        while self._cells[at] >= 0 and self._cells[at] != key:
            at += 2
            if at == len(self._cells):
                at = 0
        return at

    def _grow(self) -> None:
        old = self._cells
        self._cells = array("q", [-1] * (2 * len(old)))
        self._shift -= 1
        for at in range(0, len(old), 2):
            if old[at] >= 0:
                place = self._place(old[at])
                self._cells[place] = old[at]
                self._cells[place + 1] = old[at + 1]
