# cython: annotation_typing=False, language_level=3
"""The interface of congestion controls, and the control that limits nothing."""

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
    """Control of the rate and the window of one queue pair.

    The base class is the control named ``none``, which limits nothing. Subclasses
    override hooks and set the attributes. The queue pair reads the attributes before
    each burst.

    One object serves one queue pair and keeps its state from message to message. Its
    constructor receives the arguments that `parameters` declares, by keyword, and calls
    ``super().__init__()`` first.

    The class declares:

    * ``text``: description, shown as help of the key in the experiment file
    * ``parameters``: the parameters that users can set
    * ``starts_at_line``: whether the constructor also receives the rate of the port, as
      ``line_rate_bps``
    * ``keeps_rate``: whether the rate is a target, not a limit that the network
      imposes. If so, a queue pair that had to wait for its port catches up.
    * ``wants_cnps``: whether receivers answer marked packets with CNPs, at most one per
      configurable interval. Each CNP calls `on_cnp`.
    * ``wants_round_trips``: whether each burst requests an ACK, unless the experiment
      sets an interval. `on_ack` then receives as many samples as possible.
    * ``profiles``: named sets of parameters, or None
    * ``contradictions``: returns conflicts between arguments, each with a hint

    Attributes:
        rate_bps: Rate at which the queue pair may send, in wire bits per second; 0: no
            limit.
        is_pacing: Whether packets are spaced at that rate. If not, only the line rate
            of the port spaces them. NICs treat a queue pair at line rate this way,
            because no rate limiter is in use for it.
        window_bytes: Maximum unacknowledged payload, in bytes; 0: no limit. The static
            window of the queue pair also applies.
        next_timer_ns: When `on_timer` is due; `NEVER`: no timer is set. `on_timer` is
            not called while the queue pair has nothing to send. In that case it is
            called later, before the next packet.
    """

    __slots__ = ("is_pacing", "next_timer_ns", "rate_bps", "window_bytes")

    # Use casts, because Cython treats annotations in a class as instance attributes.
    text = (
        "No congestion control: only the window and the port rate limit a queue pair."
    )
    parameters = cast("tuple[Parameter, ...]", ())
    starts_at_line = False
    keeps_rate = False
    wants_cnps = False
    wants_round_trips = False
    profiles = cast("Profiles | None", None)

    @staticmethod
    def contradictions(arguments: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
        """Return the problem and a hint for each parameter that conflicts with others.

        Each argument is already within its own bounds. Time dilation has not been
        applied to *arguments*.
        """
        return {}

    def __init__(self) -> None:
        self.rate_bps = 0
        self.is_pacing = True
        self.window_bytes = 0
        self.next_timer_ns = NEVER

    def on_sent(self, wire_bytes: int, now_ns: int) -> None:
        """Handle a burst of *wire_bytes* that left, new or retransmitted."""

    def on_ack(self, acked_bytes: int, round_trip_ns: int, now_ns: int) -> None:
        """Handle the first acknowledgment of *acked_bytes* of payload.

        Args:
            acked_bytes: Size of the acknowledged payload. It may be 0, because empty
                messages are acknowledged, too.
            round_trip_ns: Time from sending a packet that requested an ACK to the
                arrival of that ACK; 0: no sample. Only packets that were sent once give
                a sample.
            now_ns: When the ACK arrived.
        """

    def on_nak(self, now_ns: int) -> None:
        """Handle a NAK for a lost packet, which the queue pair will retransmit."""

    def on_cnp(self, now_ns: int) -> None:
        """Handle a congestion notification packet (CNP) from the peer."""

    def on_timeout(self, now_ns: int) -> None:
        """Handle a timeout, after which the queue pair retransmits."""

    def on_timer(self, now_ns: int) -> None:
        """Handle the timer, which is due at `next_timer_ns` and may be late."""
