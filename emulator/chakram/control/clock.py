"""Pings between the clocks of controller and agents, and stalls of event loops.

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


# A process that is suspended or gets no CPU time can detect such a stall only
# afterward. Its event loop therefore records the time at short intervals. The longest
# recent interval is the stall. The controller and each agent measure their own stalls.

STALL_NS = 1_000_000_000
"""Shortest stall that explains a lost session.

Heartbeats are due every 0.3 s, and a lease lasts for at least 1.5 s.
"""

_RECENT_NS = 10 * 10**9
"""Time for which a process remembers its longest stall. After losing a session, the
controller asks the agent for this stall."""

_SUSPENDED = "was it suspended, or is its host overloaded?"


class StallMeter:
    """Measurement of the longest recent stall of an event loop."""

    def __init__(self, now_ns: int) -> None:
        self._alive_ns = now_ns
        self._longest_ns = 0
        self._longest_end_ns = now_ns

    def alive(self, now_ns: int) -> None:
        """Record that the event loop is running."""
        elapsed_ns = now_ns - self._alive_ns
        self._alive_ns = now_ns
        is_old = now_ns - self._longest_end_ns > _RECENT_NS
        if is_old or elapsed_ns >= self._longest_ns:
            self._longest_ns = elapsed_ns
            self._longest_end_ns = now_ns

    def longest_ns(self, now_ns: int) -> int:
        """Return the longest recent interval, including the current one."""
        self.alive(now_ns)
        return self._longest_ns


def explain_loss(
    *,
    agent: str,
    controller_stalled_ns: int,
    agent_stalled_ns: int,
    reason: str,
    heartbeat_ns: int,
) -> tuple[str, str | None, bool] | None:
    """Return why a session was lost, a hint, and whether the controller stalled.

    Return None if neither side is known to have stalled and no heartbeat was missed.

    Args:
        agent: Name of the agent.
        controller_stalled_ns: Longest recent stall of the controller.
        agent_stalled_ns: Longest recent stall of the agent. 0 if it does not answer.
        reason: Why the agent ended the session. Empty if the agent reports no reason.
        heartbeat_ns: Interval between heartbeats of the controller.
    """
    ended = f": agent {agent} ended the session ({reason})" if reason else ""
    if min(controller_stalled_ns, agent_stalled_ns) >= STALL_NS:
        return (
            f"the controller stalled for {_seconds(controller_stalled_ns)}, and agent "
            f"{agent} for {_seconds(agent_stalled_ns)}{ended}",
            "were they suspended, or is the host that they share overloaded?",
            True,
        )
    if controller_stalled_ns >= STALL_NS:
        found = f"the controller stalled for {_seconds(controller_stalled_ns)}{ended}"
        return found, _SUSPENDED, True
    if agent_stalled_ns >= STALL_NS:
        return f"it stalled for {_seconds(agent_stalled_ns)}", _SUSPENDED, False
    if "no heartbeat" in reason:
        return (
            f"{reason}, but the controller did not stall: it sent a heartbeat every "
            f"{_seconds(heartbeat_ns)}",
            "the network between them lost or delayed the heartbeats",
            False,
        )
    return None


def _seconds(duration_ns: int) -> str:
    return f"{duration_ns / 1e9:.1f} s"
