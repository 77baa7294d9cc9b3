# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Simulate rings that share no links, one step of all positions at a time.

Every position sends all its messages to one other position, and sends the next message
when the previous message from its predecessor has arrived.  If no link carries messages
of two pairs of hosts, the times of a position depend on its own messages and on the
messages of its predecessor, in a known order.  A step of all positions is then an exact
pass over arrays without events.

All messages of a ring have the same size. After a link that a message occupies for some
time, messages are at least this time apart. They therefore wait only at the first link
and at slower links. All other links are constant delays.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from chakram.predict.levels.row_offsets import grown

__all__ = ["RingSteps"]

_POSITION = 0
_FREE = 1
_HOLD = 2
_REACH = 3
_SLOWER = 4
"""Row length of a slower link."""


class RingSteps:
    """The messages of one ring.

    Args:
        nranks: Number of positions.
        messages: Number of messages that each position sends.
        distance: Distance from each position to the position to which it sends.

    Attributes:
        waiting: Number of positions that have not begun.
        left: Number of steps that remain.
    """

    def __init__(self, nranks: int, messages: int, distance: int) -> None:
        self.waiting = nranks
        self.left = messages
        self._nranks = nranks
        self._distance = distance
        # Distance that the message of position 0 has covered.
        self._covered = 0
        # Each message is part of a chain around the ring.  This is the time at which
        # the next message of a chain may be posted, indexed by the position that began
        # the chain.
        self._at_ns = array("q", bytes(8 * nranks))
        # For each position, the end and duration of the occupation of its first link,
        # and the time from that link to the next position or slower link.
        self._free_ns = array("q", bytes(8 * nranks))
        self._hold_ns = array("q", bytes(8 * nranks))
        self._reach_ns = array("q", bytes(8 * nranks))
        self._slower = array("q", (0,))
        self._slower_count = 0

    def set_path(self, position: int, path: Sequence[tuple[int, int]]) -> None:
        """Set the times of the links from *position* to its receiver.

        Args:
            position: The position, in ascending order.
            path: For each link, how long a message occupies it, and the time from the
                departure of its first bit to its arrival.
        """
        slowest_ns, self._reach_ns[position] = path[0]
        self._hold_ns[position], self._reach_ns[position] = path[0]
        rows: list[int] = []
        for hold_ns, reach_ns in path[1:]:
            if hold_ns > slowest_ns:
                slowest_ns = hold_ns
                rows += (position, 0, hold_ns, reach_ns)
            elif rows:
                rows[len(rows) - 1] += reach_ns
            else:
                self._reach_ns[position] += reach_ns
        place = self._slower_count * _SLOWER
        self._slower_count += len(rows) // _SLOWER
        if place + len(rows) > len(self._slower):
            self._slower = grown(self._slower, place + len(rows))
        for offset, each in enumerate(rows):
            self._slower[place + offset] = each

    def begin(self, position: int, now_ns: int) -> None:
        """Begin to send and receive at a position."""
        self.waiting -= 1
        self._at_ns[position] = now_ns

    def advance(self, steps: int) -> int:
        """Take at most *steps* steps, and return the number of steps taken.

        All positions must have begun.
        """
        if steps > self.left:
            steps = self.left
        for _ in range(steps):
            covered = self._covered
            self._send(covered, self._nranks, -covered)
            self._send(0, covered, self._nranks - covered)
            for number in range(self._slower_count):
                self._pass_slower(number * _SLOWER)
            covered += self._distance
            self._covered = covered - self._nranks * (covered >= self._nranks)
        self.left -= steps
        return steps

    def _send(self, first: int, last: int, offset: int) -> None:
        """Send a message from each position in the range *first* to *last*.

        A position plus *offset* is the position that began the message's chain.
        """
        for position in range(first, last):
            at_ns = self._at_ns[position + offset]
            if self._free_ns[position] > at_ns:
                at_ns = self._free_ns[position]
            self._free_ns[position] = at_ns + self._hold_ns[position]
            self._at_ns[position + offset] = at_ns + self._reach_ns[position]

    def _pass_slower(self, row: int) -> None:
        """Let a message pass a slower link."""
        place = self._slower[row + _POSITION] - self._covered
        if place < 0:
            place += self._nranks
        at_ns = self._at_ns[place]
        if self._slower[row + _FREE] > at_ns:
            at_ns = self._slower[row + _FREE]
        self._slower[row + _FREE] = at_ns + self._slower[row + _HOLD]
        self._at_ns[place] = at_ns + self._slower[row + _REACH]

    def end_ns(self, position: int) -> int:
        """Return the time at which a position's sends and receives are complete."""
        received = (position - self._covered) % self._nranks
        sent = (position - self._covered + self._distance) % self._nranks
        return max(self._at_ns[received], self._at_ns[sent])
