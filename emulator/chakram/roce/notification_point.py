# cython: annotation_typing=False, language_level=3, cdivision=True
"""When a receiver of marked packets says so: DCQCN's notification point.

NICs send at most one congestion notification (CNP) in an interval, and differ in what
that is counted for: for each queue pair, for each peer, or for the whole port. Queue
pairs that share a limiter share the interval; the CNP itself always goes to the queue
pair whose packet was marked.
"""

from __future__ import annotations

__all__ = ["CnpLimiter"]


class CnpLimiter:
    """Lets one CNP pass in an interval."""

    __slots__ = ("_after_ns", "_interval_ns")

    def __init__(self, interval_ns: int) -> None:
        """Let the first one pass; an *interval_ns* of 0 lets all pass.

        Raises:
            ValueError: If *interval_ns* is negative.
        """
        if interval_ns < 0:
            raise ValueError(f"a CNP interval of {interval_ns} ns is negative")
        self._interval_ns = interval_ns
        self._after_ns = 0

    def admits(self, now_ns: int) -> bool:
        """Tell whether a CNP may be sent now; if so, the interval begins."""
        if now_ns < self._after_ns:
            return False
        self._after_ns = now_ns + self._interval_ns
        return True
