"""Congestion control with one constant rate."""

from __future__ import annotations

from chakram.roce.congestion.base import CongestionControl
from chakram.roce.congestion.parameters import rate


class FixedRate(CongestionControl):
    """Constant rate of a queue pair, regardless of congestion."""

    __slots__ = ()

    text = "Every queue pair sends at a constant rate, regardless of congestion."
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
