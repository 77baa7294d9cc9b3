# cython: annotation_typing=False, language_level=3, cdivision=True
"""Pacing of ports and queue pairs, and accounting for data plane delays.

`Line` models the link of a port. A burst occupies the link for the time that its wire
bytes take at the rate of the port. If the data plane is late, the port catches up on at
most *burst_bound_ns* of the lost time. An idle link accumulates no credit. In any
interval T, the port thus sends at most rate x (T + burst bound), plus one burst.

If *saves_up* is true, the link also has a credit of *burst_bound_ns* after an idle
time. Use this for a port followed by a queue that enforces the rate per packet, like
the send queue of a NIC. The wire behind the queue cannot catch up on a late burst, but
no burst is late while the queue is not empty.

If the data plane is too slow, link time is lost. A burst that is offered at *now* was
due at the later of two times:

* when the link became free
* the time from which there has always been something to send

The port catches up on delays up to the burst bound. The remaining delay, ``now -
burst_bound_ns - due`` if positive, is lost because of the data plane, not because of
the window, rate or port.

The lost time is added to ``generator_wait_ns`` of the port. It is also added to each
message that was ready to send, for the part of the time that it was ready
(`SendCompleted.generator_wait_ns`). Time after the first offer does not count, because
then the socket or the kernel's shaper is the limit.

Without a rate, the link is free again at the time of each burst. Gaps between two sends
thus count as lost if they are longer than the burst bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.roce.congestion import negative_limit

if TYPE_CHECKING:
    from chakram.roce.congestion.base import CongestionControl

__all__ = ["MADE_UP_NS", "Line", "Pace"]

_BITS_PER_BYTE_NS = 8_000_000_000  # bits in a byte x nanoseconds in a second
_LONG_AGO_NS = -(1 << 62)
_NOT_PAUSED = -(1 << 62)
_NO_LIMIT = 1 << 23
_MADE_UP_NS = 50_000

MADE_UP_NS = _MADE_UP_NS
"""Maximum data plane delay, in ns, that a throttled queue pair catches up on."""


class Line:
    """Model of the link of one port, which decides when the next burst may leave.

    Attributes:
        free_ns: When the link is free.
        generator_waits: Number of times that the link was idle because of the data
            plane.
        generator_wait_ns: Total link time lost because of the data plane.
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
        """Create a link that is free. A *rate_bps* of 0 means no limit."""
        self._rate_bps = rate_bps
        self._burst_bound_ns = burst_bound_ns
        self._saves_up = saves_up
        self._busy_since_ns = _LONG_AGO_NS
        self._is_offered = False
        # Remainder of the division by the rate, carried to the next burst.
        self._remainder = 0
        self._paused_since_ns = _NOT_PAUSED
        self._paused_ns = 0
        self.free_ns = _LONG_AGO_NS
        self.generator_waits = 0
        self.generator_wait_ns = 0

    def demand(self, since_ns: int) -> None:
        """Record that there is something to send again, starting at *since_ns*."""
        self._busy_since_ns = since_ns

    def pause(self, now_ns: int) -> None:
        """Record that the network has paused the port."""
        self._paused_since_ns = now_ns

    def resume(self, now_ns: int) -> None:
        """Record the end of a pause by the network, with something to send."""
        self._paused_ns = self.paused_ns(now_ns)
        self._paused_since_ns = _NOT_PAUSED
        self.demand(now_ns)

    def paused_ns(self, now_ns: int) -> int:
        """Return how long the port has been paused in total."""
        if self._paused_since_ns == _NOT_PAUSED:
            return self._paused_ns
        return self._paused_ns + now_ns - self._paused_since_ns

    def rest(self) -> None:
        """Record that there is nothing to send."""

    def ready_ns(self, now_ns: int) -> int:
        """Return the earliest time for the next burst, as known now."""
        return self.free_ns

    def offer(self, now_ns: int) -> None:
        """Account for the delay of an offered burst, at the first offer only."""
        lost_ns = self.lost_ns(now_ns)
        if lost_ns > 0:
            self.generator_waits += 1
            self.generator_wait_ns += lost_ns
        self._is_offered = True

    def lost_ns(self, now_ns: int) -> int:
        """Return the link time lost since a burst was due and none was offered."""
        if self._is_offered:
            return 0
        due_ns = self.free_ns
        if due_ns < self._busy_since_ns:
            due_ns = self._busy_since_ns
        lost_ns = now_ns - self._burst_bound_ns - due_ns
        return lost_ns if lost_ns > 0 else 0

    def due_ns(self) -> int:
        """Return the time from which the rate has allowed a burst to leave.

        Without a rate, this is the time from which there has been something to send.
        """
        if self._rate_bps > 0 and self.free_ns > self._busy_since_ns:
            return self.free_ns
        return self._busy_since_ns

    def is_first_offer(self) -> bool:
        """Return whether nothing has been offered since the last burst left."""
        return not self._is_offered

    def has_rate(self) -> bool:
        """Return whether the link has a rate limit."""
        return self._rate_bps > 0

    def occupy(self, wire_bytes: int, now_ns: int, queue_pairs: int = 1) -> None:
        """Occupy the link for a burst that leaves now.

        *queue_pairs* is the number of queue pairs that share the link. Only
        `SharedLine` uses it.
        """
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
    """Pacing of one queue pair at the rate that congestion control sets.

    A burst takes at most *burst_ns* of time at the rate, but one packet may always
    leave. No credit accumulates while there is nothing to send or the window is full. A
    message after a pause starts at the current, possibly reduced, rate of the flow.

    If the congestion control `keeps_rate`, the queue pair catches up on at most
    *burst_bound_ns* of delay from any cause, as a port does. It has credit after an
    idle time if the port does.

    With any other congestion control, the queue pair catches up only on data plane
    delays, by at most `MADE_UP_NS`. It does not catch up on time that it waited for its
    own port. In any interval T, it thus sends at most rate x (T + data plane delay),
    plus one burst.
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
        """Create a pacer for packets of *packet_bytes* on the wire."""
        self._congestion_control = congestion_control
        self._keeps_rate = congestion_control.keeps_rate
        self._saves_up = saves_up and self._keeps_rate
        self._burst_ns = burst_ns
        self._burst_bound_ns = burst_bound_ns
        self._packet_bytes = packet_bytes
        # Start time of the last burst according to the rate, and size of that burst.
        self._from_ns = 0
        self._bytes = 0
        # The time since which only the rate or the port has delayed packets.
        self._since_ns = 0

    def demand(self, since_ns: int) -> None:
        """Record that there is something to send again, starting at *since_ns*."""
        self._since_ns = since_ns

    def ready_ns(self) -> int:
        """Return when the next burst may leave. A time in the past means now.

        The current rate applies, not the rate at the time of the last burst. After
        recovery, packets thus do not wait as long as the old, lower rate required.
        """
        rate_bps = self._congestion_control.rate_bps
        if rate_bps <= 0 or not self._congestion_control.is_pacing:
            if rate_bps < 0:
                raise negative_limit(self._congestion_control, "rate_bps", rate_bps)
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
        """Record that a burst has left that the port could have sent at *due_ns*."""
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
