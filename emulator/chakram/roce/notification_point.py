# cython: annotation_typing=False, language_level=3, cdivision=True
"""Rate limit for congestion notifications: DCQCN's notification point.

NICs send at most one congestion notification packet (CNP) per interval. The interval
applies per queue pair, per peer or per port, depending on the NIC. Queue pairs that
share a limiter share the interval. Each CNP is sent by the queue pair that received the
marked packet.
"""

from __future__ import annotations

__all__ = ["CnpLimiter"]


class CnpLimiter:
    """Limiter that admits one CNP per interval."""

    __slots__ = ("_after_ns", "_interval_ns")

    def __init__(self, interval_ns: int) -> None:
        """Create a limiter. An *interval_ns* of 0 admits all CNPs.

        Raises:
            ValueError: If *interval_ns* is negative.
        """
        if interval_ns < 0:
            raise ValueError(f"a CNP interval of {interval_ns} ns is negative")
        self._interval_ns = interval_ns
        self._after_ns = 0

    def admits(self, now_ns: int) -> bool:
        """Return whether a CNP may be sent now, and if so, start the interval."""
        if now_ns < self._after_ns:
            return False
        self._after_ns = now_ns + self._interval_ns
        return True
