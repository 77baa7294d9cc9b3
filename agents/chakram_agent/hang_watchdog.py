"""Watchdog that ends traffic if the agent hangs: a lease that the agent renews.

A hung agent cannot end its traffic. For example, it may be stopped (SIGSTOP), or its
event loop may be blocked. The event loop therefore writes the time, as a stamp, into
memory that it shares with its data-plane processes. These processes stop sending if the
agent no longer updates the stamp.

Both sides apply the same rule to the last stamp and the current time, and the decision
is final. If the agent resumes, alone or together with its processes, the first side to
check finds the old stamp. An agent therefore never continues a run after a hang.

This module does no I/O and reads no clock.
"""

from __future__ import annotations

LEASE_NS = 1_500_000_000
"""Duration of the lease from the last stamp.

Traffic must end within 2 s of a hang, which leaves 0.5 s to detect the lapse. An agent
writes a stamp every 50 ms, so it can miss up to 30 stamps.
"""

LAPSED = -1
"""A stamp that ends the lease immediately."""

LEASE_SENTENCE = (
    f"the agent stalled for more than {LEASE_NS / 1e9:g} s, so its traffic has "
    "ended: was it suspended, or is its host overloaded?"
)


class Lease:
    """The lease that permits traffic, in effect as soon as it is armed.

    Attributes:
        lapsed: Whether the lease has ended. A lapsed lease cannot be renewed.
    """

    __slots__ = ("_armed", "lapsed")

    def __init__(self) -> None:
        self._armed = False
        self.lapsed = False

    def arm(self) -> None:
        """Put the lease into effect."""
        self._armed = True

    def holds(self, *, stamp_ns: int, now_ns: int) -> bool:
        """Return whether the lease still permits traffic.

        Args:
            stamp_ns: Last stamp of the agent.
            now_ns: Current time by the same clock.
        """
        if self._armed and (stamp_ns == LAPSED or now_ns - stamp_ns >= LEASE_NS):
            self.lapsed = True
        return not self.lapsed
