# cython: annotation_typing=False, language_level=3, cdivision=True
"""How long a requester waits for an ACK, retry by retry.

Either a timeout that doubles with each retry, up to a limit; or, as NICs' adaptive
retransmission does it, timeouts from ranges: a range begins at its low value and ends
at twice that, each is tried some times, then comes the next, which is twice as high.
"""

from __future__ import annotations

from chakram.roce.constants import NEVER

__all__ = ["Backoff"]

_NEVER = NEVER
_RANGES = 4


class Backoff:
    """The timeouts of one queue pair."""

    __slots__ = (
        "_doublings",
        "_jitter",
        "_low_ns",
        "_timeout_ns",
        "_tries",
    )

    def __init__(
        self, *, timeout_ns: int, doublings: int, low_ns: int, tries: int, seed: int
    ) -> None:
        """Begin with no retry.

        Args:
            timeout_ns: Of the first try; `NEVER`: one waits for ever.
            doublings: How often it doubles at most.
            low_ns: Where the first range begins, in place of these two; 0: no ranges.
            tries: How often each range is tried.
            seed: Spreads the timeouts of those who lose packets at the same time.
        """
        self._timeout_ns = timeout_ns
        self._doublings = doublings
        self._low_ns = low_ns
        self._tries = tries
        self._jitter = (seed * 2_654_435_761 + 12_345) & 0x7FFFFFFF

    def timeout_ns(self, retries: int) -> int:
        """Return how long to wait after so many retries; `NEVER`: for ever."""
        if self._low_ns > 0:
            number = retries // self._tries
            if number > _RANGES - 1:
                number = _RANGES - 1
            low_ns = self._low_ns << number
            # The generator of ANSI C's example; its upper bits are good enough here.
            self._jitter = (self._jitter * 1_103_515_245 + 12_345) & 0x7FFFFFFF
            return low_ns + (low_ns * (self._jitter >> 11) >> 20)
        if self._timeout_ns == _NEVER:
            return _NEVER
        doublings = retries if retries < self._doublings else self._doublings
        return self._timeout_ns << doublings
