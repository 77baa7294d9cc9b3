# cython: annotation_typing=False, language_level=3, cdivision=True
"""Timeouts of a requester that waits for an ACK, by number of retries.

The timeout is either constant or adaptive, like the adaptive retransmission of NICs. An
adaptive timeout is a random time between a low value and twice that value. The low
value doubles after a configured number of tries. It doubles at most three times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.roce.constants import NEVER

if TYPE_CHECKING:
    from chakram.plan.transport import TransportPlan

__all__ = ["Backoff"]

_RANGES = 4


class Backoff:
    """Timeouts of one queue pair."""

    __slots__ = (
        "_jitter",
        "_low_ns",
        "_timeout_ns",
        "_tries",
    )

    def __init__(self, settings: TransportPlan, *, seed: int) -> None:
        """Create the timeouts of one queue pair.

        The *seed* spreads the timeouts of queue pairs that lose packets at the same
        time.
        """
        self._timeout_ns = settings.retransmit_timeout_ns or NEVER
        self._low_ns = settings.adaptive_low_ns
        self._tries = settings.adaptive_tries
        self._jitter = (seed * 2_654_435_761 + 12_345) & 0x7FFFFFFF

    def timeout_ns(self, retries: int) -> int:
        """Return the timeout after *retries* retries, or `NEVER` if there is none."""
        if self._low_ns > 0:
            number = retries // self._tries
            if number > _RANGES - 1:
                number = _RANGES - 1
            low_ns = self._low_ns << number
            # Use the example random number generator from the ANSI C standard. Its
            # upper bits are random enough for this purpose.
            self._jitter = (self._jitter * 1_103_515_245 + 12_345) & 0x7FFFFFFF
            return low_ns + (low_ns * (self._jitter >> 11) >> 20)
        return self._timeout_ns
