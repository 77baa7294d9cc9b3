# cython: annotation_typing=False, language_level=3, cdivision=True
"""When the next burst may leave: the line of a port, the pace of a queue pair.

A port with a rate is a line: a burst occupies it for its wire bytes at that rate. If
the shell comes late, the line catches up on at most *burst_bound_ns* of what it missed;
an idle line saves nothing up. So in any time T no more leaves than
rate x (T + burst bound), and one burst.

A line that *saves up* begins with that much ahead after it was idle, too. It is for
ports with a queue behind them that keeps the rate to the packet, as a NIC has in front
of its wire: such a wire cannot make up for a burst that comes late, but none is late
as long as something waits there.

The generator's honesty. When a burst is offered at *now*, one was due at the later of
two times: when the line became free, and since when there has always been something to
send. Of the lag the port makes up the burst bound; the rest,
``now - burst_bound_ns - due`` where that is positive, is time of the line that is lost
for ever because the data plane was late, not because of window, rate or port. It is
added to ``generator_wait_ns`` of the port, and of each message that was ready to send
meanwhile (`SendCompleted.generator_wait_ns`), as far as it was: it lost that time too.
Time after the first offer is not counted: there the socket or the kernel's shaper
pushes back. A port without rate has no line; there the time of the last burst stands
for "free", so gaps between two sends longer than the burst bound count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram.roce.congestion.base import CongestionControl

__all__ = ["MADE_UP_NS", "Line", "Pace"]

_BITS_PER_BYTE_NS = 8_000_000_000  # bits in a byte x nanoseconds in a second
_LONG_AGO_NS = -(1 << 62)
_NOT_PAUSED = -(1 << 62)
_NO_LIMIT = 1 << 23
_MADE_UP_NS = 50_000

MADE_UP_NS = _MADE_UP_NS
"""Time that the data plane was late and that a slowed queue pair makes up, at most."""


class Line:
    """The line of one port.

    Attributes:
        free_ns: When the line is free.
        generator_waits: Times that it stood still for the data plane.
        generator_wait_ns: How long, in all.
    """

    __slots__ = (
        "_burst_bound_ns",
        "_busy_since_ns",
        "_is_offered",
        "_paused_ns",
        "_paused_since_ns",
        "_rate_bps",
        "_remainder",
        "_saves_up",
        "free_ns",
        "generator_wait_ns",
        "generator_waits",
    )

    def __init__(
        self, *, rate_bps: int, burst_bound_ns: int, saves_up: bool = False
    ) -> None:
        """Make a line that is free; a *rate_bps* of 0 is no limit."""
        self._rate_bps = rate_bps
        self._burst_bound_ns = burst_bound_ns
        self._saves_up = saves_up
        self._busy_since_ns = _LONG_AGO_NS
        self._is_offered = False
        # What division left over of the last bit.
        self._remainder = 0
        self._paused_since_ns = _NOT_PAUSED
        self._paused_ns = 0
        self.free_ns = _LONG_AGO_NS
        self.generator_waits = 0
        self.generator_wait_ns = 0

    def demand(self, since_ns: int) -> None:
        """Note that there is something to send since *since_ns*, after a pause."""
        self._busy_since_ns = since_ns

    def pause(self, now_ns: int) -> None:
        """Note that the network has paused the port."""
        self._paused_since_ns = now_ns

    def resume(self, now_ns: int) -> None:
        """Note that the network lets the port go on; there is something to send."""
        self._paused_ns = self.paused_ns(now_ns)
        self._paused_since_ns = _NOT_PAUSED
        self.demand(now_ns)

    def paused_ns(self, now_ns: int) -> int:
        """Return how long the port has been paused, in all."""
        if self._paused_since_ns == _NOT_PAUSED:
            return self._paused_ns
        return self._paused_ns + now_ns - self._paused_since_ns

    def rest(self) -> None:
        """Note that there is nothing to send."""

    def ready_ns(self, now_ns: int) -> int:
        """Return when the next burst may leave, as it looks now."""
        return self.free_ns

    def offer(self, now_ns: int) -> None:
        """Account for how late a burst is offered, unless one already was."""
        lost_ns = self.lost_ns(now_ns)
        if lost_ns > 0:
            self.generator_waits += 1
            self.generator_wait_ns += lost_ns
        self._is_offered = True

    def lost_ns(self, now_ns: int) -> int:
        """Return what is lost since a burst was due and none was offered."""
        if self._is_offered:
            return 0
        due_ns = self.free_ns
        if due_ns < self._busy_since_ns:
            due_ns = self._busy_since_ns
        lost_ns = now_ns - self._burst_bound_ns - due_ns
        return lost_ns if lost_ns > 0 else 0

    def due_ns(self) -> int:
        """Return since when a burst could have left, as far as the rate is concerned.

        Without a rate that is since when there is something to send.
        """
        if self._rate_bps > 0 and self.free_ns > self._busy_since_ns:
            return self.free_ns
        return self._busy_since_ns

    def is_first_offer(self) -> bool:
        """Tell whether nothing has been offered since the line was last taken."""
        return not self._is_offered

    def has_rate(self) -> bool:
        """Tell whether the line is limited."""
        return self._rate_bps > 0

    def occupy(self, wire_bytes: int, now_ns: int, queue_pairs: int = 1) -> None:
        """Take the line for a burst that leaves now; *queue_pairs* take turns on it."""
        self._is_offered = False
        if self._rate_bps == 0:
            self.free_ns = now_ns
            return
        start_ns = self.free_ns
        if start_ns < self._busy_since_ns and not self._saves_up:
            start_ns = self._busy_since_ns
        if start_ns < now_ns - self._burst_bound_ns:
            start_ns = now_ns - self._burst_bound_ns
        work = wire_bytes * _BITS_PER_BYTE_NS + self._remainder
        self.free_ns = start_ns + work // self._rate_bps
        self._remainder = work % self._rate_bps


class Pace:
    """The pace that congestion control sets for one queue pair.

    A burst takes at most *burst_ns* of the rate's time, but one packet always may go.
    While there is nothing to send, or the window is full, nothing is saved up: a
    message that comes after a pause finds the rate that the flow was cut to.  A control
    that `keeps_rate` makes up for *burst_bound_ns* of being late, whatever made it so,
    as a port does, and saves up where its port does.  Of any other only what the data
    plane was late is made up, and no more than `MADE_UP_NS` of that: a queue pair that
    is slowed down does not catch up at the port's rate for the time that it has waited
    for its own port.  So in any time T no more leaves than rate x (T + what the data
    plane was late) and one burst.
    """

    __slots__ = (
        "_burst_bound_ns",
        "_burst_ns",
        "_bytes",
        "_congestion_control",
        "_from_ns",
        "_keeps_rate",
        "_packet_bytes",
        "_saves_up",
        "_since_ns",
    )

    def __init__(
        self,
        *,
        congestion_control: CongestionControl,
        burst_ns: int,
        burst_bound_ns: int,
        packet_bytes: int,
        saves_up: bool = False,
    ) -> None:
        """Make a pace for packets of *packet_bytes* on the wire."""
        self._congestion_control = congestion_control
        self._keeps_rate = congestion_control.keeps_rate
        self._saves_up = saves_up and self._keeps_rate
        self._burst_ns = burst_ns
        self._burst_bound_ns = burst_bound_ns
        self._packet_bytes = packet_bytes
        # The last burst: when it began, as far as the rate is concerned, and its size.
        self._from_ns = 0
        self._bytes = 0
        # Since when only the rate, or the port, holds back what there is to send.
        self._since_ns = 0

    def demand(self, since_ns: int) -> None:
        """Note that there is something to send since *since_ns*, after a pause."""
        self._since_ns = since_ns

    def ready_ns(self) -> int:
        """Return when the next burst may leave; a time in the past means now.

        The rate that holds now counts, not the one at the time of the last burst: after
        a recovery nobody waits for a slow past.
        """
        rate_bps = self._congestion_control.rate_bps
        if rate_bps <= 0 or not self._congestion_control.is_pacing:
            return 0
        work = self._bytes * _BITS_PER_BYTE_NS
        return self._from_ns + (work + rate_bps - 1) // rate_bps

    def packets(self) -> int:
        """Return how many packets the rate allows in one burst."""
        rate_bps = self._congestion_control.rate_bps
        if rate_bps <= 0 or not self._congestion_control.is_pacing:
            return _NO_LIMIT
        bound_bytes = rate_bps * self._burst_ns // _BITS_PER_BYTE_NS
        packets = bound_bytes // self._packet_bytes
        return packets if packets > 1 else 1

    def advance(self, wire_bytes: int, now_ns: int, due_ns: int) -> None:
        """Note that a burst has left; its port could have sent it since *due_ns*."""
        from_ns = self.ready_ns()
        if from_ns < self._since_ns and not self._saves_up:
            from_ns = self._since_ns
        made_up_ns = self._burst_bound_ns
        if not self._keeps_rate:
            if made_up_ns > _MADE_UP_NS:
                made_up_ns = _MADE_UP_NS
            if from_ns < due_ns:
                from_ns = due_ns
        if from_ns < now_ns - made_up_ns:
            from_ns = now_ns - made_up_ns
        self._from_ns = from_ns
        self._bytes = wire_bytes
