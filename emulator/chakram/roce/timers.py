# cython: annotation_typing=False, language_level=3, initializedcheck=False
# cython: boundscheck=False, wraparound=False
"""Timers of the queue pairs of a port, earliest first.

Ten thousand paced queue pairs have ten thousand entries, and every packet removes one
and adds another. The heap is a single array of integer pairs for speed.
"""

from __future__ import annotations

from array import array

from chakram.roce.constants import NEVER

__all__ = ["Timers"]

_NEVER = NEVER
_FIRST_ROOM = 16


class Timers:
    """Times and their queue pairs, earliest first, then by QPN.

    Attributes:
        first_ns: The earliest time; `NEVER`: there is none.
        first_qpn: The QPN of the entry with the earliest time, if there is one.
    """

    __slots__ = ("_count", "_heap", "first_ns", "first_qpn")

    def __init__(self) -> None:
        # Time and QPN of each entry, alternating.
        self._heap = array("q", bytes(2 * 8 * _FIRST_ROOM))
        self._count = 0
        self.first_ns = _NEVER
        self.first_qpn = 0

    def add(self, time_ns: int, qpn: int) -> None:
        """Add an entry for a queue pair, which may have other entries."""
        place = self._count
        if 2 * place == len(self._heap):
            self._grow()
        self._count += 1
        while place > 0:
            above = (place - 1) >> 1
            above_ns = self._heap[2 * above]
            if above_ns < time_ns or (
                above_ns == time_ns and self._heap[2 * above + 1] <= qpn
            ):
                break
            self._heap[2 * place] = above_ns
            self._heap[2 * place + 1] = self._heap[2 * above + 1]
            place = above
        self._heap[2 * place] = time_ns
        self._heap[2 * place + 1] = qpn
        self.first_ns = self._heap[0]
        self.first_qpn = self._heap[1]

    def drop_first(self) -> None:
        """Remove the earliest entry, which must exist."""
        self._count -= 1
        end = self._count
        time_ns = self._heap[2 * end]
        qpn = self._heap[2 * end + 1]
        place = 0
        below = 1
        while below < end:
            other = below + 1
            if other < end and (
                self._heap[2 * other] < self._heap[2 * below]
                or (
                    self._heap[2 * other] == self._heap[2 * below]
                    and self._heap[2 * other + 1] < self._heap[2 * below + 1]
                )
            ):
                below = other
            below_ns = self._heap[2 * below]
            if time_ns < below_ns or (
                time_ns == below_ns and qpn <= self._heap[2 * below + 1]
            ):
                break
            self._heap[2 * place] = below_ns
            self._heap[2 * place + 1] = self._heap[2 * below + 1]
            place = below
            below = 2 * place + 1
        self._heap[2 * place] = time_ns
        self._heap[2 * place + 1] = qpn
        self.first_ns = self._heap[0] if end > 0 else _NEVER
        self.first_qpn = self._heap[1]

    def _grow(self) -> None:
        old = self._heap
        self._heap = array("q", bytes(2 * 8 * len(old)))
        for at in range(len(old)):
            self._heap[at] = old[at]
