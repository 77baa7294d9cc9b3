"""Stalls of event loops, which explain why the controller loses a session.

A process that is suspended or gets no CPU time can detect such a stall only afterward.
Its event loop therefore records the time at short intervals. The longest recent
interval is the stall. The controller and each agent measure their own stalls.
"""

from __future__ import annotations

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
