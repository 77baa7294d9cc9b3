# cython: annotation_typing=False, language_level=3, cdivision=True
"""How long a requester waits for an ACK, retry by retry.

Either always the same time; or, as NICs' adaptive retransmission does it, times from
ranges: a range begins at its low value and ends at twice that, each is tried some
times, then comes the next, which is twice as high.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.roce.constants import NEVER

if TYPE_CHECKING:
    from chakram.plan.transport import TransportPlan

__all__ = ["Backoff"]

_RANGES = 4


class Backoff:
    """The timeouts of one queue pair."""

    __slots__ = (
        "_jitter",
        "_low_ns",
        "_timeout_ns",
        "_tries",
    )

    def __init__(self, settings: TransportPlan, *, seed: int) -> None:
        """Begin with no retry.

        The *seed* spreads the timeouts of those who lose packets at the same time.
        """
        self._timeout_ns = settings.retransmit_timeout_ns or NEVER
        self._low_ns = settings.adaptive_low_ns
        self._tries = settings.adaptive_tries
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
        return self._timeout_ns
