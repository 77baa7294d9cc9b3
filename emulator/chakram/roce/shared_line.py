# cython: annotation_typing=False, language_level=3, cdivision=True
"""The line of a port whose queue pairs live in several processes.

Each process has a part of the line: a row of integers in memory that all of them see,
and that it alone writes.  None waits for another.  A row holds

====  ==================================================================================
word  meaning
====  ==================================================================================
0     time of the line, in ns at its rate, that bursts of this part have taken, in all
1     time that the line has stood still, as far as this part knows
2     since when this part has always had something to send; 0: it has nothing
3     its *turn*: the line time that each of its queue pairs has had, about
4     until when no part sends a CNP, where the port has one limit for all
====  ==================================================================================

The line is free at the sum of all words 0 and the largest word 1.  So whatever one part
sends the others see at once, and all of them together keep the port's rate: in any time
T no more leaves than rate x (T + burst bound), and one burst of each part.

Among parts that have something to send, one that is ahead of another by more than half
a burst bound (of line time, over all of its queue pairs) lets it go first; but only for
half a burst bound, for the other one may be too busy to take what it is due.  Since a
line makes up so much lag, nothing is lost by that.  A part that comes back begins where
the hindmost of the others is, or, if all have rested, where the foremost is.  So queue
pairs share the port as if they all lived in one process, up to a burst bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.roce.notification_point import CnpLimiter
from chakram.roce.pacing import Line

if TYPE_CHECKING:
    from collections.abc import MutableSequence

__all__ = ["PART_WORDS", "SharedCnpLimiter", "SharedLine"]

PART_WORDS = 8
"""Integers of one part: a cache line, so that two writers never meet in one."""

_WORDS = PART_WORDS
_BIT_NS = 8_000_000_000  # bits in a byte x nanoseconds in a second
# How often a part that lets others go first looks whether they have.
_RETRY_NS = 10_000


class SharedLine(Line):
    """One part of a line.

    Args:
        rate_bps: Of the whole port; positive.
        burst_bound_ns: See `Line`.
        saves_up: See `Line`.
        words: The rows of all parts, 64-bit integers, at first all 0.
        index: Which part this is.

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
            raise ValueError("a line without a rate is not shared")
        if not 0 <= index < len(words) // _WORDS:
            raise ValueError(f"there is no part {index}")
        self._words = words
        self._first = index * _WORDS
        self._end = len(words) // _WORDS * _WORDS
        self._grace_ns = burst_bound_ns // 2
        # How far its turn may be ahead, by queue pair as turns are.
        self._slack_ns = self._grace_ns
        # When the whole line is free, and when this part last let others go first.
        self._line_ns = 0
        self._held_ns = 0

    def cnp_limiter(self, interval_ns: int) -> CnpLimiter:
        """Return the limiter of CNPs that all parts of the port have in common."""
        return SharedCnpLimiter(interval_ns, self._words, self._first)

    def demand(self, since_ns: int) -> None:
        """Note that there is something to send since *since_ns*, after a pause."""
        self._busy_since_ns = since_ns
        begin = self._hindmost()
        if begin < 0:
            # All have rested: whoever is first must not be let go before the others
            # for what these have had until then.
            begin = self._foremost()
        if begin > self._words[self._first + 3]:
            self._words[self._first + 3] = begin
        self._words[self._first + 2] = since_ns if since_ns > 1 else 1

    def rest(self) -> None:
        """Note that there is nothing to send."""
        # Not written for nothing: all other parts read this memory.
        if self._words[self._first + 2] != 0:
            self._words[self._first + 2] = 0

    def ready_ns(self, now_ns: int) -> int:
        """Return when the next burst may leave, as it looks now."""
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
        """Return what is lost since a burst was due and none was offered."""
        if self._is_offered:
            return 0
        lost_ns = now_ns - self._burst_bound_ns - self.due_ns()
        return lost_ns if lost_ns > 0 else 0

    def due_ns(self) -> int:
        """Return since when a burst of this part could have left."""
        due_ns = self._line_ns
        if due_ns < self._busy_since_ns:
            due_ns = self._busy_since_ns
        return due_ns if due_ns > self._held_ns else self._held_ns

    def occupy(self, wire_bytes: int, now_ns: int, queue_pairs: int = 1) -> None:
        """Take the line for a burst that leaves now; *queue_pairs* take turns on it."""
        self._is_offered = False
        # Read once: if another part notes the same pause meanwhile, it must not count
        # twice.
        still_ns = self._still_ns()
        free_ns = still_ns + self._taken_ns()
        start_ns = free_ns if self._saves_up else self._busy_since()
        if start_ns < now_ns - self._burst_bound_ns:
            start_ns = now_ns - self._burst_bound_ns
        if start_ns > free_ns:
            # It has stood still.
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

    # Inside.

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
        """Return since when some part has had something to send."""
        words = self._words
        since_ns = self._busy_since_ns
        for at in range(2, self._end, _WORDS):
            its_ns = words[at]
            if 0 < its_ns < since_ns:
                since_ns = its_ns
        return since_ns

    def _hindmost(self) -> int:
        """Return the least turn of the other parts with something to send, or -1."""
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
        """Return the greatest turn of all parts."""
        words = self._words
        foremost = 0
        for at in range(3, self._end, _WORDS):
            turn = words[at]
            if turn > foremost:
                foremost = turn
        return foremost


class SharedCnpLimiter(CnpLimiter):
    """Lets one CNP pass in an interval, whichever part of the port sends it.

    Parts that ask at the very same time may send one each.
    """

    __slots__ = ("_end", "_first", "_words")

    def __init__(
        self,
        interval_ns: int,
        words: MutableSequence[int] | memoryview[int],
        first: int,
    ) -> None:
        """Take the rows of a line, and where the own one begins."""
        super().__init__(interval_ns)
        self._words = words
        self._first = first
        self._end = len(words) // _WORDS * _WORDS

    def admits(self, now_ns: int) -> bool:
        """Tell whether a CNP may be sent now; if so, the interval begins."""
        words = self._words
        for at in range(4, self._end, _WORDS):
            after_ns = words[at]
            if now_ns < after_ns:
                return False
        after_ns = now_ns + self._interval_ns
        self._words[self._first + 4] = after_ns
        return True
