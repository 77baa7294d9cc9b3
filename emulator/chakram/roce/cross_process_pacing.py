# cython: annotation_typing=False, language_level=3, cdivision=True
"""The link of a port whose queue pairs run in several processes.

Each process has one part: a row of integers in shared memory. All processes read a row,
but only the process of that part writes to it. No process waits for another. The words
of a row are:

====  ==================================================================================
word  meaning
====  ==================================================================================
0     total link time, in ns at the port's rate, that bursts of this part have taken
1     total time that the link has been idle, as far as this part has recorded
2     since when this part has always had something to send; 0: nothing to send
3     *turn* of this part: the approximate link time that each of its queue pairs had
4     until when no part sends a CNP, if the CNP limit applies per port
====  ==================================================================================

The link is free at the sum of all words 0 and the largest word 1. Each part thus takes
the traffic of the other parts into account immediately. Together, the parts keep to the
rate of the port. In any interval T, they send at most rate x (T + burst bound), plus
one burst per part.

A part yields to another part that has something to send and a lower turn. It yields
only if the difference of the turns, summed over its own queue pairs, exceeds half a
burst bound. It waits for at most half a burst bound, because the other part may be too
busy to send. The port catches up on such a delay, so no rate is lost.

A part that resumes moves its turn up to the lowest turn of the busy parts, or to the
highest turn if all were idle. Queue pairs thus share the port as in a single process,
to within a burst bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.roce.notification_point import CnpLimiter
from chakram.roce.pacing import Line

if TYPE_CHECKING:
    from collections.abc import MutableSequence

__all__ = ["PART_WORDS", "SharedCnpLimiter", "SharedLine"]

PART_WORDS = 8
"""Number of integers per part. They fill one cache line to avoid false sharing."""

_WORDS = PART_WORDS
_BIT_NS = 8_000_000_000  # bits in a byte x nanoseconds in a second
# How often a part that yields checks whether others have sent.
_RETRY_NS = 10_000


class SharedLine(Line):
    """The part of a port's link that one process uses.

    Args:
        rate_bps: Rate of the whole port, which must be positive.
        burst_bound_ns: See `Line`.
        saves_up: See `Line`.
        words: Rows of all parts, 64-bit integers, initially all 0.
        index: Index of this part.

    Raises:
        ValueError: If there is no such part, or no rate.
    """

    __slots__ = (
        "_end",
        "_first",
        "_grace_ns",
        "_held_ns",
        "_line_ns",
        "_slack_ns",
        "_words",
    )

    def __init__(
        self,
        *,
        rate_bps: int,
        burst_bound_ns: int,
        saves_up: bool = False,
        words: MutableSequence[int] | memoryview[int],
        index: int,
    ) -> None:
        super().__init__(
            rate_bps=rate_bps, burst_bound_ns=burst_bound_ns, saves_up=saves_up
        )
        if rate_bps <= 0:
            raise ValueError("a line without a rate cannot be shared")
        if not 0 <= index < len(words) // _WORDS:
            raise ValueError(f"there is no part {index}")
        self._words = words
        self._first = index * _WORDS
        self._end = len(words) // _WORDS * _WORDS
        self._grace_ns = burst_bound_ns // 2
        # How far the turn of this part may be ahead of the turns of other parts. Like
        # turns, this limit is per queue pair.
        self._slack_ns = self._grace_ns
        # When the whole link is free, and when this part last yielded.
        self._line_ns = 0
        self._held_ns = 0

    def cnp_limiter(self, interval_ns: int) -> CnpLimiter:
        """Return the CNP limiter that all parts of the port share."""
        return SharedCnpLimiter(interval_ns, self._words, self._first)

    def demand(self, since_ns: int) -> None:
        """Record that there is something to send again, starting at *since_ns*."""
        self._busy_since_ns = since_ns
        begin = self._hindmost()
        if begin < 0:
            # All parts were idle. The first part that resumes must not get precedence
            # merely because the other parts used the link more in the past.
            begin = self._foremost()
        if begin > self._words[self._first + 3]:
            self._words[self._first + 3] = begin
        self._words[self._first + 2] = since_ns if since_ns > 1 else 1

    def rest(self) -> None:
        """Record that there is nothing to send."""
        # Write only if the value changes, because all other parts read this memory.
        if self._words[self._first + 2] != 0:
            self._words[self._first + 2] = 0

    def ready_ns(self, now_ns: int) -> int:
        """Return the earliest time for the next burst, as known now."""
        line_ns = self._still_ns() + self._taken_ns()
        self._line_ns = self.free_ns = line_ns
        if now_ns < line_ns or now_ns >= line_ns + self._grace_ns:
            return line_ns
        hindmost = self._hindmost()
        turn = self._words[self._first + 3]
        if hindmost < 0 or turn <= hindmost + self._slack_ns:
            return line_ns
        self._held_ns = now_ns
        ready_ns = line_ns + self._grace_ns
        if ready_ns > now_ns + _RETRY_NS:
            ready_ns = now_ns + _RETRY_NS
        self.free_ns = ready_ns
        return ready_ns

    def lost_ns(self, now_ns: int) -> int:
        """Return the link time lost since a burst was due and none was offered."""
        if self._is_offered:
            return 0
        lost_ns = now_ns - self._burst_bound_ns - self.due_ns()
        return lost_ns if lost_ns > 0 else 0

    def due_ns(self) -> int:
        """Return the earliest time at which this part could have sent a burst."""
        due_ns = self._line_ns
        if due_ns < self._busy_since_ns:
            due_ns = self._busy_since_ns
        return due_ns if due_ns > self._held_ns else self._held_ns

    def occupy(self, wire_bytes: int, now_ns: int, queue_pairs: int = 1) -> None:
        """Occupy the link for a burst that leaves now.

        *queue_pairs* is the number of queue pairs of this part that share the link.
        """
        self._is_offered = False
        # Read this word once. If another part records the same idle time meanwhile, the
        # idle time must not count twice.
        still_ns = self._still_ns()
        free_ns = still_ns + self._taken_ns()
        start_ns = free_ns if self._saves_up else self._busy_since()
        if start_ns < now_ns - self._burst_bound_ns:
            start_ns = now_ns - self._burst_bound_ns
        if start_ns > free_ns:
            # The link was idle.
            self._words[self._first + 1] = still_ns + start_ns - free_ns
        else:
            start_ns = free_ns
        work = wire_bytes * _BIT_NS + self._remainder
        work_ns = work // self._rate_bps
        self._remainder = work % self._rate_bps
        before = self._words[self._first]
        self._words[self._first] = before + work_ns
        self._line_ns = self.free_ns = start_ns + work_ns
        if queue_pairs > 1:
            work_ns = work_ns // queue_pairs
            self._slack_ns = self._grace_ns // queue_pairs
        else:
            self._slack_ns = self._grace_ns
        before = self._words[self._first + 3]
        self._words[self._first + 3] = before + work_ns

    # Internal.

    def _taken_ns(self) -> int:
        words = self._words
        taken_ns = 0
        for at in range(0, self._end, _WORDS):
            taken_ns += words[at]
        return taken_ns

    def _still_ns(self) -> int:
        words = self._words
        still_ns = 0
        for at in range(1, self._end, _WORDS):
            its_ns = words[at]
            if its_ns > still_ns:
                still_ns = its_ns
        return still_ns

    def _busy_since(self) -> int:
        """Return the time since which any part has had something to send."""
        words = self._words
        since_ns = self._busy_since_ns
        for at in range(2, self._end, _WORDS):
            its_ns = words[at]
            if 0 < its_ns < since_ns:
                since_ns = its_ns
        return since_ns

    def _hindmost(self) -> int:
        """Return the lowest turn of the other busy parts, or -1 if all are idle."""
        words = self._words
        hindmost = -1
        for at in range(0, self._end, _WORDS):
            its_ns = words[at + 2]
            if at != self._first and its_ns > 0:
                turn = words[at + 3]
                if hindmost < 0 or turn < hindmost:
                    hindmost = turn
        return hindmost

    def _foremost(self) -> int:
        """Return the highest turn of all parts."""
        words = self._words
        foremost = 0
        for at in range(3, self._end, _WORDS):
            turn = words[at]
            if turn > foremost:
                foremost = turn
        return foremost


class SharedCnpLimiter(CnpLimiter):
    """Limiter that admits one CNP per interval for all parts of a port.

    Parts that ask at exactly the same time may each send a CNP.
    """

    __slots__ = ("_end", "_first", "_words")

    def __init__(
        self,
        interval_ns: int,
        words: MutableSequence[int] | memoryview[int],
        first: int,
    ) -> None:
        """Use the rows of a `SharedLine`. This part's row starts at *first*."""
        super().__init__(interval_ns)
        self._words = words
        self._first = first
        self._end = len(words) // _WORDS * _WORDS

    def admits(self, now_ns: int) -> bool:
        """Return whether a CNP may be sent now, and if so, start the interval."""
        words = self._words
        for at in range(4, self._end, _WORDS):
            after_ns = words[at]
            if now_ns < after_ns:
                return False
        after_ns = now_ns + self._interval_ns
        self._words[self._first + 4] = after_ns
        return True
