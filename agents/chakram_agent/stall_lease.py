"""The lease that ends traffic if the agent hangs.

A hung agent cannot end its traffic: it may be stopped (SIGSTOP), or its event loop may
be blocked. The event loop therefore writes the time into memory shared with its
data-plane processes. They stop sending when the time is no longer updated.

Both sides apply the same rule to the last stamp and the current time, and the decision
is final. An agent that resumes, alone or together with its processes, therefore never
continues such a run: the first side to check finds the old stamp.

This module is pure: it does no I/O and reads no clock.
"""

from __future__ import annotations

LEASE_NS = 1_500_000_000
"""Duration of the lease from the last stamp.

Traffic must end within 2 s; the rest of that time is for detecting the lapse. An agent
stamps every 50 ms, so it can miss up to 30 stamps.
"""

LAPSED = -1
"""A stamp that ends the lease, whatever the current time."""

LEASE_SENTENCE = (
    f"the agent stalled for more than {LEASE_NS / 1e9:g} s, so its traffic has "
    "ended: was it suspended, or is its host overloaded?"
)


class Lease:
    """The lease that permits traffic; it takes effect once armed.

    Attributes:
        lapsed: Whether the lease has ended; it cannot be renewed then.
    """

    __slots__ = ("_armed", "lapsed")

    def __init__(self) -> None:
        self._armed = False
        self.lapsed = False

    def arm(self) -> None:
        """Put the lease into effect."""
        self._armed = True

    def holds(self, *, stamp_ns: int, now_ns: int) -> bool:
        """Return whether the lease still holds.

        Args:
            stamp_ns: Last stamp of the agent.
            now_ns: Current time by the same clock.
        """
        if self._armed and (stamp_ns == LAPSED or now_ns - stamp_ns >= LEASE_NS):
            self.lapsed = True
        return not self.lapsed
