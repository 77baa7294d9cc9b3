"""How long traffic goes on without a sign of life of the agent. Pure.

An agent that hangs cannot end its traffic: it may be stopped (SIGSTOP), or its event
loop may be held up.  So the event loop writes the time into memory that it shares with
its data-plane processes, and these fall silent by themselves where it ceases to.

Both sides decide by the same rule, from the last stamp and the time, and neither takes
it back.  So an agent that goes on, or an agent and its processes that were stopped
together, never resumes such a run: whoever looks first sees how old the stamp is.
"""

from __future__ import annotations

LEASE_NS = 1_500_000_000
"""From the last stamp: what remains to 2 s is for noticing it.  An agent stamps every
50 ms, so 30 of them may be late."""

LAPSED = -1
"""A stamp that says that the lease is over, whatever the time."""

LEASE_SENTENCE = (
    f"the agent stalled for more than {LEASE_NS / 1e9:g} s, so its traffic has "
    "ended: was it suspended, or is its host overloaded?"
)


class Lease:
    """Whether traffic may go on; it counts only once it is armed.

    Attributes:
        lapsed: It may not, for ever.
    """

    __slots__ = ("_armed", "lapsed")

    def __init__(self) -> None:
        self._armed = False
        self.lapsed = False

    def arm(self) -> None:
        """Let it count from now on."""
        self._armed = True

    def holds(self, *, stamp_ns: int, now_ns: int) -> bool:
        """Tell whether it still holds.

        Args:
            stamp_ns: When the agent lived last.
            now_ns: By the same clock.
        """
        if self._armed and (stamp_ns == LAPSED or now_ns - stamp_ns >= LEASE_NS):
            self.lapsed = True
        return not self.lapsed
