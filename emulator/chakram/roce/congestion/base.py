# cython: annotation_typing=False, language_level=3
"""The interface of congestion control, and the control that does nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from chakram.roce.constants import NEVER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from chakram.roce.congestion.parameters import Parameter
    from chakram.roce.congestion.profiles.vendors import Profiles

__all__ = ["CongestionControl"]


class CongestionControl:
    """Decides the rate and the window of one queue pair, from message to message.

    The base class limits nothing: it is the control named ``none``. Others override
    hooks and set the attributes; the queue pair reads them before each burst. State
    belongs to the queue pair and outlives its messages. One object serves one queue
    pair; it is made with the arguments that follow from `parameters`, by keyword, and
    calls ``super().__init__()`` before anything else.

    What the class says of itself:

    * ``text``: what it does, the help of its key in the experiment file;
    * ``parameters``: what can be set of it;
    * ``starts_at_line``: it gets the rate of the port as well, ``line_rate_bps``;
    * ``keeps_rate``: its rate is one to be kept, not one that the network forces on it:
      what waits for its port catches up;
    * ``wants_cnps``: receivers answer marked packets with CNPs, at most one in an
      interval that can be set, and `on_cnp` is called for each of them;
    * ``wants_round_trips``: an ACK is asked for with each burst, where the experiment
      says nothing else, so that `on_ack` gets as many samples as there can be;
    * ``profiles``: named sets of its parameters, where it has some;
    * ``contradictions``: returns by parameter what does not fit together, and a hint.

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

    # Casts, since Cython takes annotations in a class for attributes of objects.
    text = "No congestion control: the window and the port's rate are the only limits."
    parameters = cast("tuple[Parameter, ...]", ())
    starts_at_line = False
    keeps_rate = False
    wants_cnps = False
    wants_round_trips = False
    profiles = cast("Profiles | None", None)

    @staticmethod
    def contradictions(arguments: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
        """Return by parameter what is wrong with *arguments* together, and a hint.

        Each by itself is in its bounds by then. Arguments are those of the control,
        not dilated.
        """
        return {}

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
