"""AIMD: the rate grows by a step in each period, and a notification takes a share.

Source: Chiu and Jain, Analysis of the increase and decrease algorithms for congestion
avoidance in computer networks (1989); here with rates, and CNPs for feedback.
"""

from __future__ import annotations

from chakram.roce.congestion.base import CongestionControl
from chakram.roce.congestion.parameters import SHARE_UNIT, rate, share, time
from chakram.roce.constants import NEVER


class Aimd(CongestionControl):
    """One queue pair's rate."""

    __slots__ = (
        "_increase_bps",
        "_kept",
        "_line_rate_bps",
        "_min_rate_bps",
        "_next_cut_ns",
        "_period_ns",
    )

    text = "AIMD: the rate grows in equal steps, and a CNP takes a share of it."
    starts_at_line = True
    wants_cnps = True
    parameters = (
        rate("increase", "What each period adds to the rate.", default="0.5%"),
        time(
            "period",
            "How often the rate grows; it is cut at most once in this time.",
            default="50us",
            lowest=1_000,
        ),
        share("decrease", "The share of the rate that a cut takes.", default="1/2"),
        rate(
            "min_rate",
            "The lowest rate.",
            default="0.1%",
            floor=1,
            below_line=True,
        ),
    )

    def __init__(
        self,
        *,
        line_rate_bps: int,
        increase_bps: int,
        period_ns: int,
        decrease_q20: int,
        min_rate_bps: int,
    ) -> None:
        """Begin at the rate of the line, where the port alone spaces packets."""
        super().__init__()
        self._line_rate_bps = line_rate_bps
        self._increase_bps = increase_bps
        self._period_ns = period_ns
        self._kept = 1.0 - decrease_q20 / SHARE_UNIT
        self._min_rate_bps = min_rate_bps
        self._next_cut_ns = 0
        self.rate_bps = line_rate_bps
        self.is_pacing = False

    def on_cnp(self, now_ns: int) -> None:
        """Cut the rate, and begin a period."""
        if now_ns < self._next_cut_ns:
            return
        self._next_cut_ns = now_ns + self._period_ns
        self.rate_bps = max(self._min_rate_bps, int(self.rate_bps * self._kept))
        self.is_pacing = True
        self.next_timer_ns = self._next_cut_ns

    def on_timer(self, now_ns: int) -> None:
        """Make up for all periods that have ended: who does not send is not woken."""
        periods = (now_ns - self.next_timer_ns) // self._period_ns + 1
        self.rate_bps += periods * self._increase_bps
        self.next_timer_ns += periods * self._period_ns
        if self.rate_bps >= self._line_rate_bps:
            self.rate_bps = self._line_rate_bps
            self.is_pacing = False
            self.next_timer_ns = NEVER
