# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""A hash table from integers to integers, usually with one memory access per lookup."""

from __future__ import annotations

from array import array

__all__ = ["NumberTable"]

# Fibonacci hashing (D. Knuth, The Art of Computer Programming 3, 6.4). It spreads
# sequences of numbers with gaps evenly. The keys usually form sequences of that kind.
_FACTOR = 0x9E37_79B9_7F4A_7C15
_WORD = 0xFFFF_FFFF_FFFF_FFFF
_FIRST_BITS = 3
# The bytes of -1. An array is created faster from bytes than from a list, whose
# elements must be converted.
_EMPTY = b"\xff" * 8


class NumberTable:
    """A map from nonnegative integers to integers. Values are stored next to keys."""

    __slots__ = ("_cells", "_count", "_shift")

    def __init__(self) -> None:
        # Pairs of key and value. At least half of the pairs are empty, with key -1.
        self._cells = array("q", _EMPTY * (2 << _FIRST_BITS))
        self._shift = 64 - _FIRST_BITS
        self._count = 0

    def put(self, key: int, value: int) -> None:
        """Add a key that is not in the table yet."""
        if 4 * (self._count + 1) > len(self._cells):
            self._grow()
        self._count += 1
        at = self._place(key)
        self._cells[at] = key
        self._cells[at + 1] = value

    def find(self, key: int) -> int:
        """Return the value of a key, or -1 if it is absent."""
        at = self._place(key)
        return self._cells[at + 1]

    def _place(self, key: int) -> int:
        """Return the index of the cell for a key. An empty cell has the value -1."""
        at = 2 * (((key * _FACTOR) & _WORD) >> self._shift)
        while self._cells[at] >= 0 and self._cells[at] != key:
            at += 2
            if at == len(self._cells):
                at = 0
        return at

    def _grow(self) -> None:
        old = self._cells
        self._cells = array("q", _EMPTY * (2 * len(old)))
        self._shift -= 1
        for at in range(0, len(old), 2):
            if old[at] >= 0:
                place = self._place(old[at])
                self._cells[place] = old[at]
                self._cells[place + 1] = old[at + 1]
