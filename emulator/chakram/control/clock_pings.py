"""Pings between the clocks of controller and agents.

Pings measure the offset between the controller's clock and an agent's clock. The ping
with the shortest round trip gives the best estimate. The true offset differs from this
estimate by at most half the round trip, even if the delays of the two directions
differ. This is the clock filter of NTP (RFC 5905, section 10). The module does no I/O
and reads no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PingTimes:
    """Timestamps of one ping: two from the local and two from the remote clock."""

    sent_ns: int
    remote_received_ns: int
    remote_sent_ns: int
    answered_ns: int

    @property
    def round_trip_ns(self) -> int:
        """Round-trip time without the processing time of the remote side."""
        return (self.answered_ns - self.sent_ns) - (
            self.remote_sent_ns - self.remote_received_ns
        )

    @property
    def offset_ns(self) -> int:
        """How far the remote clock is ahead, if both directions took equal time."""
        doubled_ns = (self.remote_received_ns - self.sent_ns) + (
            self.remote_sent_ns - self.answered_ns
        )
        return doubled_ns // 2


def best_ping(pings: Iterable[PingTimes]) -> PingTimes:
    """Return the ping with the shortest round trip.

    Raises:
        ValueError: If there are no pings, or if a round trip is negative.
    """
    best = min(pings, key=lambda ping: ping.round_trip_ns, default=None)
    if best is None:
        raise ValueError("no pings to estimate an offset from")
    if best.round_trip_ns < 0:
        raise ValueError(f"a ping took {best.round_trip_ns} ns")
    return best
