# cython: annotation_typing=False, language_level=3, boundscheck=False
# cython: wraparound=False, initializedcheck=False
"""Events of a simulation, by time: a binary heap of integers.

Events of one time happen in the order in which they were made.
"""

from __future__ import annotations

from array import array

__all__ = ["NO_EVENT", "Events"]

NO_EVENT = (1 << 63) - 1
"""The time of the next event, where there is none."""

_NO_EVENT = NO_EVENT
_FIELDS = 3  # of an entry: time, number, what happens; literal where it is hot


class Events:
    """What happens, and when.

    Attributes:
        count: How many events there are.
    """

    __slots__ = ("_heap", "_number", "count")

    def __init__(self) -> None:
        self._heap = array("q", bytes(8 * _FIELDS * 64))
        self._number = 0
        self.count = 0

    def first_ns(self) -> int:
        """Return the time of the next event; ``NO_EVENT``: there is none."""
        return self._heap[0] if self.count > 0 else _NO_EVENT

    def add(self, time_ns: int, what: int) -> None:
        """Let something happen; *what* says what, to whoever takes it."""
        if (self.count + 1) * _FIELDS > len(self._heap):
            self._grow()
        heap = self._heap
        place = self.count
        self.count += 1
        self._number += 1
        # Later than all that have its time: it rises past later ones only.
        while place > 0:
            parent = (place - 1) >> 1
            if heap[3 * parent] <= time_ns:
                break
            heap[3 * place] = heap[3 * parent]
            heap[3 * place + 1] = heap[3 * parent + 1]
            heap[3 * place + 2] = heap[3 * parent + 2]
            place = parent
        heap[3 * place] = time_ns
        heap[3 * place + 1] = self._number
        heap[3 * place + 2] = what

    def take(self) -> int:
        """Take out the next event, which there must be; return what happens."""
        heap = self._heap
        what = heap[2]
        self.count -= 1
        end = self.count * _FIELDS
        time_ns = heap[end]
        number = heap[end + 1]
        at = 0
        child = _FIELDS
        while child < end:
            other = child + _FIELDS
            if other < end and (
                heap[other] < heap[child]
                or (heap[other] == heap[child] and heap[other + 1] < heap[child + 1])
            ):
                child = other
            if time_ns < heap[child] or (
                time_ns == heap[child] and number < heap[child + 1]
            ):
                break
            heap[at] = heap[child]
            heap[at + 1] = heap[child + 1]
            heap[at + 2] = heap[child + 2]
            at = child
            child = 2 * at + _FIELDS
        heap[at] = time_ns
        heap[at + 1] = number
        heap[at + 2] = heap[end + 2]
        return what

    def _grow(self) -> None:
        old = self._heap
        count = len(old)
        heap = array("q", bytes(16 * count))
        for at in range(count):
            heap[at] = old[at]
        self._heap = heap
