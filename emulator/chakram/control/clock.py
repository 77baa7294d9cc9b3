"""The clocks of controller and agents: their offset, and stalls. Pure.

The offset between the controller's clock and an agent's comes from pings.

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


# A process that is suspended, or whose host is overloaded, cannot notice this while it
# lasts. So its event loop notes the time at short intervals, and the longest interval
# of the last seconds is the stall. Controller and agent each measure their own.

STALL_NS = 1_000_000_000
"""The shortest stall that explains a lost session: heartbeats are due every 0.3 s, and
a lease ends after 1.5 s at the earliest."""

_RECENT_NS = 10 * 10**9
"""How long a stall is remembered: agents are asked for theirs after the loss."""

_SUSPENDED = "was it suspended, or is its host overloaded?"


class StallMeter:
    """The longest recent interval between two signs of life of an event loop."""

    def __init__(self, now_ns: int) -> None:
        self._alive_ns = now_ns
        self._longest_ns = 0
        self._longest_end_ns = now_ns

    def alive(self, now_ns: int) -> None:
        """Note that the event loop runs."""
        elapsed_ns = now_ns - self._alive_ns
        self._alive_ns = now_ns
        is_old = now_ns - self._longest_end_ns > _RECENT_NS
        if is_old or elapsed_ns >= self._longest_ns:
            self._longest_ns = elapsed_ns
            self._longest_end_ns = now_ns

    def longest_ns(self, now_ns: int) -> int:
        """Return the longest interval that ended in the last seconds, or goes on."""
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
    """Return which side stalled, a hint, and whether it is the controller.

    None: neither side is known to have stalled, and the agent heard the controller.

    Args:
        agent: Name of the agent.
        controller_stalled_ns: Longest recent stall of the controller.
        agent_stalled_ns: Of the agent; 0 if it does not answer.
        reason: Why the agent ended the session; empty: it knows of no such session.
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
            f"{reason}, but the controller did not stall: it sent one every "
            f"{_seconds(heartbeat_ns)}",
            "the network between them lost or delayed the heartbeats",
            False,
        )
    return None


def _seconds(duration_ns: int) -> str:
    return f"{duration_ns / 1e9:.1f} s"
