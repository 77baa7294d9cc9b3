# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""The events of a simulation: a heap of integers, and arrays that grow.

An event is a time, a number that breaks ties, and what happens.
"""

from __future__ import annotations

from array import array

__all__ = ["Events", "grown"]

_FIRST_ROOM = 1024


def grown(old: array[int], needed: int) -> array[int]:
    """Return *old* if it has *needed* numbers, else a larger copy."""
    if needed <= len(old):
        return old
    new = array("q", bytes(8 * max(2 * len(old), needed)))
    memoryview(new)[: len(old)] = memoryview(old)
    return new


class Events:
    """What is going to happen, and when.

    Attributes:
        now_ns: Time of the last event.
        events: How many there were.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self.events = 0
        self._heap_ns = array("q", bytes(8 * _FIRST_ROOM))
        self._heap_order = array("q", bytes(8 * _FIRST_ROOM))
        self._heap_what = array("q", bytes(8 * _FIRST_ROOM))
        self._heap_used = 0
        self._number = 0

    def advance(self, now_ns: int) -> None:
        """Let it be *now_ns*, where nothing happens before that."""
        self.now_ns = now_ns

    def _push(self, at_ns: int, what: int) -> None:
        """Add an event, after those that were added before it."""
        self._number += 1
        self._push_numbered(at_ns, self._number, what)

    def _push_numbered(self, at_ns: int, order: int, what: int) -> None:
        place = self._heap_used
        self._heap_used += 1
        if self._heap_used > len(self._heap_ns):
            self._heap_ns = grown(self._heap_ns, self._heap_used)
            self._heap_order = grown(self._heap_order, self._heap_used)
            self._heap_what = grown(self._heap_what, self._heap_used)
        while place:
            above = (place - 1) >> 1
            above_ns = self._heap_ns[above]
            if above_ns < at_ns or (
                above_ns == at_ns and self._heap_order[above] < order
            ):
                break
            self._heap_ns[place] = above_ns
            self._heap_order[place] = self._heap_order[above]
            self._heap_what[place] = self._heap_what[above]
            place = above
        self._heap_ns[place] = at_ns
        self._heap_order[place] = order
        self._heap_what[place] = what

    def _pop(self) -> None:
        """Remove the first event."""
        self._heap_used -= 1
        last = self._heap_used
        if last:
            self._replace(
                self._heap_ns[last], self._heap_order[last], self._heap_what[last]
            )

    def _replace(self, at_ns: int, order: int, what: int) -> None:
        """Put another event in the place of the first one."""
        used = self._heap_used
        place = 0
        below = 1
        while below < used:
            other = below + 1
            below_ns = self._heap_ns[below]
            if other < used and (
                self._heap_ns[other] < below_ns
                or (
                    self._heap_ns[other] == below_ns
                    and self._heap_order[other] < self._heap_order[below]
                )
            ):
                below = other
                below_ns = self._heap_ns[below]
            if at_ns < below_ns or (
                at_ns == below_ns and order < self._heap_order[below]
            ):
                break
            self._heap_ns[place] = below_ns
            self._heap_order[place] = self._heap_order[below]
            self._heap_what[place] = self._heap_what[below]
            place = below
            below = 2 * place + 1
        self._heap_ns[place] = at_ns
        self._heap_order[place] = order
        self._heap_what[place] = what
