# cython: annotation_typing=False, language_level=3
# cython: wraparound=False, boundscheck=False
"""A queue of objects that compiled code accesses without calls to the interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chakram.native.prefetch import prefetch_item

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Fifo"]

_FIRST_ROOM = 16


class Fifo:
    """First-in, first-out queue of objects.

    Attributes:
        count: Number of objects in the queue.
    """

    __slots__ = ("_first", "_items", "_mask", "count")

    def __init__(self) -> None:
        # Ring buffer with a length that is a power of two.
        self._items: list[Any] = [None] * _FIRST_ROOM
        self._mask = _FIRST_ROOM - 1
        self._first = 0
        self.count = 0

    def append(self, item: Any) -> None:
        """Add an object at the end."""
        if self.count > self._mask:
            self._grow()
        self._items[(self._first + self.count) & self._mask] = item
        self.count += 1

    def first(self) -> Any:
        """Return the first object, which must exist."""
        return self._items[self._first]

    def fetch_first(self, lines: int) -> None:
        """Prefetch *lines* cache lines of the first object."""
        prefetch_item(self._items, self._first, lines)

    def fetch_second(self, lines: int) -> None:
        """Prefetch *lines* cache lines of the second object."""
        prefetch_item(self._items, (self._first + 1) & self._mask, lines)

    def take(self) -> Any:
        """Remove the first object, which must exist, and return it."""
        item = self._items[self._first]
        self._items[self._first] = None
        self._first = (self._first + 1) & self._mask
        self.count -= 1
        return item

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the current objects."""
        return iter(
            [self._items[(self._first + i) & self._mask] for i in range(self.count)]
        )

    def _grow(self) -> None:
        self._items = [*self, *([None] * self.count)]
        self._mask = len(self._items) - 1
        self._first = 0
