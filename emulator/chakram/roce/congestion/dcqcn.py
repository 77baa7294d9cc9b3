# cython: annotation_typing=False, language_level=3, cdivision=True
"""DCQCN, the rate control of RoCE NICs: the reaction point of one queue pair.

The state is a current rate Rc, a target rate Rt, and an estimate alpha of the share of
marked traffic on the path. It belongs to the queue pair and persists across messages::

    cut       Rt <- Rc, if the target is clamped
              Rc <- Rc (1 - min(alpha / 2**cut_shift, max_cut))
    alpha     on a notification  alpha <- (1-g) alpha + g
              else, each period  alpha <- (1-g) alpha
    increase  each T, and each B bytes sent; stages count both since the last cut:
              recovery    while both stages < F     Rc <- (Rc + Rt) / 2
              additive    when one has reached F    Rt <- Rt + R_AI, Rc as above
              hyper       when both are beyond F    Rt <- Rt + R_HAI, Rc as above

Either every cut clamps the target, or only a cut that follows an increase does. In the
latter case, only the first of several cuts in a row sets the target.

Notifications (CNPs) are processed in one of two ways:

* In the paper, every CNP causes a cut and restarts the alpha timer. Select this with a
  `decrease_period_ns` of 0.
* A NIC checks once per *decrease period* whether a CNP has arrived since the last
  check, and cuts then. It updates alpha the same way, once per *alpha period*.

No timer runs. Each event first applies the timer steps that were due, in closed form.
*n* decays multiply alpha by (1-g)**n. If the target rises by *a* per period, the gap
between target and rate converges to *a* as 2**-n. A catch-up thus costs the same after
10 us and after an hour, and a queue pair with nothing to send costs nothing.

At line rate there is no pacing: as with NICs, only the port spaces packets.

If several periods end at the same time, the order is: alpha, cut, increase.

Sources: Zhu et al., Congestion Control for Large-Scale RDMA Deployments (SIGCOMM 2015),
section 5. The NIC variant follows the ns-3 model of HPCC (rdma-hw.cc). Clamping follows
NVIDIA's firmware configuration and the ns-3 model of the DCQCN authors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.roce.congestion.base import CongestionControl
from chakram.roce.congestion.parameters import (
    SHARE_UNIT,
    check_arguments,
    count,
    flag,
    rate,
    share,
    size,
    time,
)
from chakram.roce.congestion.profiles.dcqcn_vendors import DCQCN_VENDORS
from chakram.roce.congestion.profiles.vendors import Profiles
from chakram.roce.constants import NEVER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["CONTROL", "Dcqcn"]

_NEVER = NEVER
_NEAR = 1.0 / (1 << 20)
_SMALLEST_BYTE_COUNTER = 512


def _check(given: Mapping[str, Any]) -> None:
    """Raise ValueError if constructor arguments are out of range or contradictory."""
    check_arguments("dcqcn", Dcqcn.parameters, given)
    line_rate_bps = given["line_rate_bps"]
    highest_bps = max(given["min_rate_bps"], given["first_cnp_rate_bps"])
    if highest_bps > line_rate_bps:
        raise ValueError(
            f"dcqcn: a rate of {highest_bps} bit/s exceeds the line rate, "
            f"{line_rate_bps}"
        )
    for found, _ in Dcqcn.contradictions(given).values():
        raise ValueError(f"dcqcn: {found}")


class Dcqcn(CongestionControl):
    """The reaction point of one queue pair.

    Attributes:
        alpha: Congestion estimate at the last catch-up.
        target_bps: Target rate at the last catch-up.
        cuts: Number of rate cuts.
    """

    __slots__ = (
        "_additive_increase",
        "_alpha_decay",
        "_alpha_heard",
        "_alpha_initial",
        "_alpha_ns",
        "_alpha_period_ns",
        "_byte_counter_bytes",
        "_byte_stage",
        "_bytes",
        "_clamps_target",
        "_clamps_target_after_increase",
        "_cut_scale",
        "_decrease_heard",
        "_decrease_ns",
        "_decrease_period_ns",
        "_first_cnp_rate",
        "_gain",
        "_hyper_increase",
        "_increase_ns",
        "_increase_period_ns",
        "_is_hyper_scaled",
        "_is_limited",
        "_is_released_at_line",
        "_is_started",
        "_line_rate",
        "_max_cut",
        "_min_rate",
        "_rate",
        "_recovery_stages",
        "_scaled_window",
        "_target",
        "_time_stage",
        "alpha",
        "cuts",
    )

    text = "DCQCN, as in RoCE adapters: reacts to ECN marks of switches."
    starts_at_line = True
    wants_cnps = True
    profiles = Profiles(
        package="chakram.roce.congestion.profiles",
        names=("dcqcn-paper", "dcqcn-nvidia", "dcqcn-intel", "dcqcn-hpcc-ns3"),
        default="dcqcn-nvidia",
        vendors=DCQCN_VENDORS,
    )
    parameters = (
        share(
            "alpha_gain",
            "g: weight of a notification, or of its absence, in the update of alpha.",
            argument="gain_q20",
        ),
        share("alpha_initial", "Alpha at the first notification."),
        time("alpha_period", "Time between updates of alpha.", lowest=1),
        time(
            "decrease_period",
            "Time between decisions about a cut; 0us: every notification cuts.",
        ),
        count(
            "cut_shift",
            "A cut reduces the rate by the fraction alpha / 2**cut_shift.",
            lowest=1,
            highest=20,
        ),
        share("max_cut", "Maximum fraction of the rate that one cut removes."),
        time("increase_period", "T: time between two rate increases.", lowest=1),
        size(
            "byte_counter",
            "B: bytes after which the rate also increases; 0B: never.",
        ),
        count(
            "recovery_stages",
            "F: number of increases in fast recovery.",
            lowest=1,
            highest=1_000,
        ),
        rate(
            "additive_increase",
            "R_AI: added to the target by each increase after fast recovery.",
        ),
        rate("hyper_increase", "R_HAI: added to the target by each hyper increase."),
        flag(
            "hyper_scaled",
            "Whether the i-th hyper increase adds i x R_HAI.",
            argument="is_hyper_scaled",
        ),
        # At a rate of 0, the queue pair would never send again.
        rate("min_rate", "Minimum rate.", floor=1, below_line=True),
        rate(
            "first_cnp_rate",
            "Rate and target after the first notification, if lower than the current "
            "rate; 0%: no change.",
            below_line=True,
        ),
        flag(
            "clamp_target",
            "Whether every cut sets the target to the rate before it, not only a cut "
            "after an increase by the byte counter.",
            argument="clamps_target",
        ),
        flag(
            "clamp_target_after_increase",
            "Whether a cut after an increase by the timer also sets the target.",
            argument="clamps_target_after_increase",
        ),
        flag(
            "release_at_line",
            "Whether a queue pair discards alpha when it is back at line rate.",
            argument="is_released_at_line",
        ),
        size(
            "scaled_window",
            "Maximum unacknowledged bytes at line rate, and in proportion below; "
            "0B: no limit.",
        ),
    )

    @staticmethod
    def contradictions(arguments: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
        """Reject a byte counter that is smaller than a packet."""
        if 0 < arguments["byte_counter_bytes"] < _SMALLEST_BYTE_COUNTER:
            found = f"byte_counter is less than {_SMALLEST_BYTE_COUNTER} bytes"
            return {"byte_counter": (found, "use 0B to turn the byte counter off")}
        return {}

    def __init__(
        self,
        *,
        line_rate_bps: int,
        gain_q20: int = SHARE_UNIT // 256,
        alpha_initial_q20: int = SHARE_UNIT,
        alpha_period_ns: int = 55_000,
        decrease_period_ns: int = 0,
        cut_shift: int = 1,
        max_cut_q20: int = SHARE_UNIT,
        increase_period_ns: int = 55_000,
        byte_counter_bytes: int = 10_000_000,
        recovery_stages: int = 5,
        additive_increase_bps: int = 40_000_000,
        hyper_increase_bps: int = 200_000_000,
        is_hyper_scaled: int = 1,
        min_rate_bps: int = 40_000_000,
        first_cnp_rate_bps: int = 0,
        clamps_target: int = 1,
        clamps_target_after_increase: int = 0,
        is_released_at_line: int = 0,
        scaled_window_bytes: int = 0,
    ) -> None:
        """Start at line rate, by default with the parameters of the paper.

        Args:
            line_rate_bps: Rate of the port, and the highest rate.
            gain_q20: g, in parts of `SHARE_UNIT`.
            alpha_initial_q20: Alpha at the first notification, in parts of
                `SHARE_UNIT`.
            alpha_period_ns: Time between updates of alpha.
            decrease_period_ns: Time between decisions about a cut; 0: each notification
                cuts.
            cut_shift: A cut reduces the rate by the fraction alpha / 2**cut_shift.
            max_cut_q20: Maximum fraction of the rate that one cut removes, in parts of
                `SHARE_UNIT`.
            increase_period_ns: T, the time between increases by the timer.
            byte_counter_bytes: B, the number of wire bytes between increases by the
                byte counter; 0: bytes are not counted.
            recovery_stages: F, the number of stages of recovery.
            additive_increase_bps: R_AI, the additive increase of the target.
            hyper_increase_bps: R_HAI, the hyper increase of the target.
            is_hyper_scaled: 1: the i-th hyper increase adds i x R_HAI.
            min_rate_bps: The lowest rate.
            first_cnp_rate_bps: Rate and target after the first notification, if lower
                than the current rate; 0: no change.
            clamps_target: 1: every cut sets the target to the rate before the cut; 0:
                only a cut that follows an increase by the byte counter does.
            clamps_target_after_increase: 1: a cut that follows an increase by the timer
                also sets the target.
            is_released_at_line: 1: a queue pair that is back at line rate discards
                alpha. The next notification then counts as the first.
            scaled_window_bytes: Maximum unacknowledged bytes at line rate. The maximum
                is proportional to the rate. 0: no window.

        Raises:
            ValueError: If a value is out of range, or a rate is above the line rate.
        """
        super().__init__()
        _check(locals())
        self._line_rate = float(line_rate_bps)
        self._gain = gain_q20 / SHARE_UNIT
        self._alpha_decay = 1.0 - gain_q20 / SHARE_UNIT
        self._alpha_initial = alpha_initial_q20 / SHARE_UNIT
        self._alpha_period_ns = alpha_period_ns
        self._decrease_period_ns = decrease_period_ns
        self._cut_scale = 0.5**cut_shift
        self._max_cut = max_cut_q20 / SHARE_UNIT
        self._increase_period_ns = increase_period_ns
        self._byte_counter_bytes = byte_counter_bytes
        self._recovery_stages = recovery_stages
        self._additive_increase = float(additive_increase_bps)
        self._hyper_increase = float(hyper_increase_bps)
        self._is_hyper_scaled = is_hyper_scaled != 0
        self._min_rate = float(min_rate_bps)
        self._first_cnp_rate = float(first_cnp_rate_bps)
        self._clamps_target = clamps_target != 0
        self._clamps_target_after_increase = clamps_target_after_increase != 0
        self._is_released_at_line = is_released_at_line != 0
        self._scaled_window = float(scaled_window_bytes)
        self._rate = self._line_rate
        self._target = self._line_rate
        self.alpha = self._alpha_initial
        # Whether alpha is updated, and whether the rate is below the line rate.
        self._is_started = False
        self._is_limited = False
        # Next expiry of the three timers. For the first two timers, whether a CNP has
        # arrived since their last expiry.
        self._alpha_ns = _NEVER
        self._alpha_heard = False
        self._decrease_ns = _NEVER
        self._decrease_heard = False
        self._increase_ns = _NEVER
        # Increase stages and bytes since the last cut.
        self._time_stage = self._byte_stage = self._bytes = 0
        self.cuts = 0
        self.rate_bps = line_rate_bps
        self.is_pacing = False
        self.window_bytes = scaled_window_bytes

    @property
    def target_bps(self) -> int:
        """Target rate at the last catch-up."""
        return int(self._target)

    def on_sent(self, wire_bytes: int, now_ns: int) -> None:
        """Count sent bytes, and increase the rate for every full byte counter."""
        if not self._is_limited and not self._decrease_heard:
            return
        self._catch_up(now_ns)
        if self._is_limited and self._byte_counter_bytes > 0:
            self._bytes += wire_bytes
            while self._bytes >= self._byte_counter_bytes:
                self._bytes -= self._byte_counter_bytes
                self._increase(1)
                self._byte_stage += 1
        self._publish()

    def on_ack(self, acked_bytes: int, round_trip_ns: int, now_ns: int) -> None:
        """Apply the timer steps that are due. DCQCN does not use the ACK itself."""
        if self.next_timer_ns <= now_ns:
            self.on_timer(now_ns)

    def on_cnp(self, now_ns: int) -> None:
        """Handle a notification: see the module docstring."""
        self._catch_up(now_ns)
        if not self._is_started:
            self._start(now_ns)
        elif self._decrease_period_ns > 0:
            self._alpha_heard = True
        if self._decrease_period_ns > 0:
            self._decrease_heard = True
        else:
            self._cut(now_ns)
            self.alpha = self._alpha_decay * self.alpha + self._gain
            self._alpha_ns = now_ns + self._alpha_period_ns
        self._publish()

    def on_timer(self, now_ns: int) -> None:
        """Apply the timer steps that are due."""
        self._catch_up(now_ns)
        self._publish()

    def _start(self, now_ns: int) -> None:
        """Handle the first notification."""
        self._is_started = True
        self.alpha = self._alpha_initial
        self._alpha_heard = False
        self._alpha_ns = now_ns + self._alpha_period_ns
        if self._decrease_period_ns > 0:
            self._decrease_ns = now_ns + self._decrease_period_ns
        if 0.0 < self._first_cnp_rate < self._rate:
            self._rate = self._first_cnp_rate
            self._target = self._rate
            self._limit(now_ns)

    def _cut(self, now_ns: int) -> None:
        """Cut the rate now, and restart the stages."""
        if (
            self._clamps_target
            or self._byte_stage > 0
            or (self._clamps_target_after_increase and self._time_stage > 0)
        ):
            self._target = self._rate
        share = self.alpha * self._cut_scale
        if share > self._max_cut:
            share = self._max_cut
        self._rate *= 1.0 - share
        if self._rate < self._min_rate:
            self._rate = self._min_rate
        if self._target < self._rate:
            self._target = self._rate
        self.cuts += 1
        self._limit(now_ns)

    def _limit(self, now_ns: int) -> None:
        """Start recovery at *now_ns*."""
        self._is_limited = True
        self._time_stage = 0
        self._byte_stage = 0
        self._bytes = 0
        self._increase_ns = now_ns + self._increase_period_ns

    def _catch_up(self, now_ns: int) -> None:
        """Apply all timer steps due up to *now_ns*."""
        if not self._is_started:
            return
        if self._decrease_heard and self._decrease_ns <= now_ns:
            cut_ns = self._decrease_ns
            self._catch_up_alpha(cut_ns)
            # The state is not released before the cut: `_reach_line` keeps it while a
            # cut is pending.
            self._catch_up_rate(cut_ns - 1)
            self._decrease_heard = False
            self._cut(cut_ns)
        self._catch_up_alpha(now_ns)
        self._catch_up_rate(now_ns)
        if self._decrease_ns <= now_ns:
            periods = (now_ns - self._decrease_ns) // self._decrease_period_ns + 1
            self._decrease_ns += periods * self._decrease_period_ns

    def _catch_up_alpha(self, now_ns: int) -> None:
        """Apply the updates of alpha due up to *now_ns*."""
        if self._alpha_ns > now_ns:
            return
        periods = (now_ns - self._alpha_ns) // self._alpha_period_ns + 1
        self._alpha_ns += periods * self._alpha_period_ns
        if self._alpha_heard:
            self._alpha_heard = False
            periods -= 1
            self.alpha = self._alpha_decay * self.alpha + self._gain
        if periods > 0:
            self.alpha *= self._alpha_decay**periods

    def _catch_up_rate(self, now_ns: int) -> None:
        """Apply the increases of the rate due up to *now_ns*."""
        while self._is_limited and self._increase_ns <= now_ns:
            periods = (now_ns - self._increase_ns) // self._increase_period_ns + 1
            alike = self._alike_increases()
            if periods > alike:
                periods = alike
            self._increase_ns += periods * self._increase_period_ns
            self._increase(periods)
            self._time_stage += periods

    def _alike_increases(self) -> int:
        """Return how many of the next timer increases are of the same type."""
        last = self._recovery_stages
        time_stage = self._time_stage
        byte_stage = self._byte_stage if self._byte_counter_bytes > 0 else time_stage
        if time_stage < last and byte_stage < last:
            return last - time_stage
        if self._byte_counter_bytes == 0:
            # Without a byte counter, the timer stage serves as both stages.
            if time_stage <= last:
                return last + 1 - time_stage
            return 1 if self._is_hyper_scaled else _NEVER
        if byte_stage <= last or time_stage > byte_stage:
            return _NEVER
        if time_stage <= last:
            return last + 1 - time_stage
        return 1 if self._is_hyper_scaled else _NEVER

    def _increase(self, times: int) -> None:
        """Apply *times* increases of the type that the stages select."""
        last = self._recovery_stages
        lower = self._time_stage
        upper = self._time_stage
        if self._byte_counter_bytes > 0:
            if self._byte_stage < lower:
                lower = self._byte_stage
            if self._byte_stage > upper:
                upper = self._byte_stage
        if upper < last:
            self._climb(times, 0.0)
        elif lower <= last:
            self._climb(times, self._additive_increase)
        elif self._is_hyper_scaled:
            self._climb(times, (lower - last) * self._hyper_increase)
        else:
            self._climb(times, self._hyper_increase)

    def _climb(self, times: int, increment: float) -> None:
        """Raise the target and halve the rate's gap to it, *times* times.

        Each step raises the target by *increment* and changes the gap d to (d +
        increment) / 2. After n steps, the gap is increment + (d - increment) / 2**n.
        The target stops at the line rate.
        """
        gap = self._target - self._rate
        if increment > 0.0 and self._target < self._line_rate:
            room = (self._line_rate - self._target) / increment
            whole = times if room >= times else int(room)
            if whole > 0:
                self._target += whole * increment
                gap = increment + (gap - increment) * 0.5**whole
                times -= whole
            if times > 0:
                gap += self._line_rate - self._target
                self._target = self._line_rate
        if times > 0:
            gap *= 0.5**times
        self._rate = self._target - gap
        if self._line_rate - self._rate <= self._line_rate * _NEAR:
            self._reach_line()

    def _reach_line(self) -> None:
        """End recovery at line rate."""
        self._rate = self._line_rate
        self._target = self._line_rate
        self._is_limited = False
        self._increase_ns = _NEVER
        if self._is_released_at_line and not self._decrease_heard:
            self._is_started = False
            self._alpha_ns = _NEVER
            self._decrease_ns = _NEVER

    def _publish(self) -> None:
        """Set the attributes that the queue pair reads."""
        self.rate_bps = int(self._rate)
        self.is_pacing = self._is_limited
        if self._scaled_window > 0.0:
            window_bytes = int(self._scaled_window * (self._rate / self._line_rate))
            self.window_bytes = window_bytes if window_bytes > 1 else 1
        timer_ns = self._increase_ns
        if self._decrease_heard and self._decrease_ns < timer_ns:
            timer_ns = self._decrease_ns
        self.next_timer_ns = timer_ns


CONTROL = Dcqcn
