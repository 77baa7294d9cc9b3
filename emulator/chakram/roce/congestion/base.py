# cython: annotation_typing=False, language_level=3
"""The interface of congestion control, and the control that does nothing."""

from __future__ import annotations

from chakram.roce.constants import NEVER

__all__ = ["CongestionControl"]


class CongestionControl:
    """Decides the rate and the window of one queue pair, from message to message.

    The base class limits nothing: it is the control named ``none``. Others override
    hooks and set the attributes; the queue pair reads them before each burst. State
    belongs to the queue pair and outlives its messages.

    Attributes:
        rate_bps: What the queue pair may send now, in wire bits per second; 0: no
            limit.
        is_pacing: Whether packets are spaced at that rate. If not, the port's line
            alone spaces them: so a NIC treats a queue pair at line rate, for which it
            has no rate limiter.
        window_bytes: Payload that may be unacknowledged, in addition to the queue
            pair's static window; 0: no limit.
        next_timer_ns: When `on_timer` is due; `NEVER`: not at all. While the queue
            pair has nothing to send it is not called; it is, late, before the next
            packet.
    """

    __slots__ = ("is_pacing", "next_timer_ns", "rate_bps", "window_bytes")

    def __init__(self) -> None:
        self.rate_bps = 0
        self.is_pacing = True
        self.window_bytes = 0
        self.next_timer_ns = NEVER

    def on_sent(self, wire_bytes: int, now_ns: int) -> None:
        """A burst of *wire_bytes* left, new or again."""

    def on_ack(self, acked_bytes: int, round_trip_ns: int, now_ns: int) -> None:
        """*acked_bytes* of payload were acknowledged for the first time.

        Args:
            acked_bytes: May be 0: empty messages are acknowledged too.
            round_trip_ns: From sending a packet that asked for an ACK to that ACK; 0:
                no sample (only packets that were sent once give one).
            now_ns: When the ACK came.
        """

    def on_nak(self, now_ns: int) -> None:
        """The peer lost a packet: the queue pair goes back."""

    def on_cnp(self, now_ns: int) -> None:
        """The peer saw a mark: a congestion notification packet came."""

    def on_timeout(self, now_ns: int) -> None:
        """No ACK came in time: the queue pair goes back."""

    def on_timer(self, now_ns: int) -> None:
        """It is `next_timer_ns` or later."""
