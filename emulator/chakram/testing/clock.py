"""A clock that stands still until somebody moves it."""

from __future__ import annotations


class VirtualClock:
    """Time in ns that only `advance_to` moves, and never back."""

    def __init__(self, now_ns: int = 0) -> None:
        """Start at *now_ns*."""
        self.now_ns = now_ns

    def advance_to(self, time_ns: int) -> None:
        """Jump to *time_ns*; a time in the past changes nothing."""
        if time_ns > self.now_ns:
            self.now_ns = time_ns
