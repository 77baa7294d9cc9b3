# cython: annotation_typing=False, language_level=3
"""When queue pairs of a port are to be looked at: the earliest first.

Ten thousand paced queue pairs have as many entries, and every packet takes one out and
puts one in. So an entry is one integer, the time above the 24 bits of a QPN: comparing
two of them costs a fifth of comparing pairs.
"""

from __future__ import annotations

from heapq import heappop, heappush

from chakram.roce.constants import NEVER

__all__ = ["Timers"]

_NEVER = NEVER
# An object also where times are C integers: the product does not fit in 64 bits.
_QPNS = 1 << 24


class Timers:
    """Times with the queue pair that each is for, earliest first, then by QPN.

    Attributes:
        first_ns: The earliest time; `NEVER`: there is none.
        first_qpn: Whose that is, if there is one.
    """

    __slots__ = ("_heap", "first_ns", "first_qpn")

    def __init__(self) -> None:
        self._heap: list[int] = []
        self.first_ns = _NEVER
        self.first_qpn = 0

    def add(self, time_ns: int, qpn: int) -> None:
        """Add an entry; there may be others of that queue pair."""
        heappush(self._heap, time_ns * _QPNS + qpn)
        if time_ns <= self.first_ns:
            self._look()

    def drop_first(self) -> None:
        """Take the earliest entry out; there must be one."""
        heappop(self._heap)
        self._look()

    def _look(self) -> None:
        """Note what is the earliest."""
        if self._heap:
            first = self._heap[0]
            self.first_ns = first >> 24
            self.first_qpn = first & 0xFFFFFF
        else:
            self.first_ns = _NEVER
