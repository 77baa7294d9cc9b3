"""The offset between the controller's clock and an agent's, from pings. Pure.

Of n pings the fastest says most: whatever the network did on the two ways, the offset
lies within half of its round trip of the middle.  (That is the clock filter of NTP,
RFC 5905, section 10.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PingTimes:
    """One ping: sent and answered here, received and replied there."""

    sent_ns: int
    remote_received_ns: int
    remote_sent_ns: int
    answered_ns: int

    @property
    def round_trip_ns(self) -> int:
        """Time on the way, without what the other side needed to answer."""
        return (self.answered_ns - self.sent_ns) - (
            self.remote_sent_ns - self.remote_received_ns
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockOffset:
    """The remote clock shows ``offset_ns`` more than ours.

    It is certain to ``uncertainty_ns`` up and down, whatever the ways were.
    """

    offset_ns: int
    uncertainty_ns: int

    def to_remote(self, local_ns: int) -> int:
        """Return what the remote clock shows when ours shows *local_ns*."""
        return local_ns + self.offset_ns


def estimate_offset(pings: Iterable[PingTimes]) -> ClockOffset:
    """Return the offset that the ping with the shortest round trip gives.

    Raises:
        ValueError: If there are no pings, or one that ended before it began.
    """
    best = min(pings, key=lambda ping: ping.round_trip_ns, default=None)
    if best is None:
        raise ValueError("no pings to estimate an offset from")
    if best.round_trip_ns < 0:
        raise ValueError(f"a ping took {best.round_trip_ns} ns")
    doubled = (best.remote_received_ns - best.sent_ns) + (
        best.remote_sent_ns - best.answered_ns
    )
    return ClockOffset(
        offset_ns=doubled // 2,
        # Rounded up, so that the true offset stays inside.
        uncertainty_ns=(best.round_trip_ns + 1) // 2 + 1,
    )
