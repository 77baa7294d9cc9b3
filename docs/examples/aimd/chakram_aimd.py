"""AIMD: the rate grows in equal steps, and a CNP reduces it by a share.

Source: Chiu and Jain, Analysis of the increase and decrease algorithms for congestion
avoidance in computer networks (1989). This version uses rates, and CNPs as feedback.
"""

from __future__ import annotations

from chakram.roce.congestion.base import CongestionControl
from chakram.roce.congestion.parameters import SHARE_UNIT, rate, share, time
from chakram.roce.constants import NEVER


class Aimd(CongestionControl):
    """The rate of one queue pair."""

    __slots__ = (
        "_increase_bps",
        "_kept",
        "_line_rate_bps",
        "_min_rate_bps",
        "_next_cut_ns",
        "_period_ns",
    )

    text = "AIMD: the rate grows in equal steps, and a CNP reduces it by a share."
    starts_at_line = True
    wants_cnps = True
    parameters = (
        rate("increase", "Increase of the rate in each period.", default="0.5%"),
        time(
            "period",
            "Time between increases. The rate is cut at most once per period.",
            default="50us",
            lowest=1_000,
        ),
        share("decrease", "Share by which a cut reduces the rate.", default="1/2"),
        rate(
            "min_rate",
            "Lowest rate.",
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
        """Start at the line rate, at which only the port spaces packets."""
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
        """Cut the rate, and start a period."""
        if now_ns < self._next_cut_ns:
            return
        self._next_cut_ns = now_ns + self._period_ns
        self.rate_bps = max(self._min_rate_bps, int(self.rate_bps * self._kept))
        self.is_pacing = True
        self.next_timer_ns = self._next_cut_ns

    def on_timer(self, now_ns: int) -> None:
        """Apply all past periods, because an idle queue pair gets no timer calls."""
        periods = (now_ns - self.next_timer_ns) // self._period_ns + 1
        self.rate_bps += periods * self._increase_bps
        self.next_timer_ns += periods * self._period_ns
        if self.rate_bps >= self._line_rate_bps:
            self.rate_bps = self._line_rate_bps
            self.is_pacing = False
            self.next_timer_ns = NEVER
