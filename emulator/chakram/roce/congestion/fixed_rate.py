"""Congestion control that is none: one rate for ever."""

from __future__ import annotations

from chakram.roce.congestion.base import CongestionControl
from chakram.roce.congestion.parameters import rate


class FixedRate(CongestionControl):
    """Paces a queue pair at a constant rate, whatever the network says."""

    __slots__ = ()

    text = "Every queue pair sends at one rate, whatever the network does."
    keeps_rate = True
    parameters = (
        rate("rate", "Rate of each queue pair.", default="100%", lowest=1_000),
    )

    def __init__(self, *, rate_bps: int) -> None:
        """Set the rate, in wire bits per second.

        Raises:
            ValueError: If *rate_bps* is not positive.
        """
        super().__init__()
        if rate_bps <= 0:
            raise ValueError(f"a rate of {rate_bps} bit/s is not positive")
        self.rate_bps = rate_bps


CONTROL = FixedRate
