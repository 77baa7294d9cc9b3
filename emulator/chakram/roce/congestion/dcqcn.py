# cython: annotation_typing=False, language_level=3, cdivision=True
"""DCQCN, the rate control of RoCE NICs: the reaction point of one queue pair.

State is a current rate Rc, a target rate Rt and an estimate alpha of how much of the
path's traffic is marked. It belongs to the queue pair and outlives its messages::

    cut       Rt <- Rc, if the target is clamped;  Rc <- Rc (1 - min(alpha/2, max cut))
    alpha     on a notification  alpha <- (1-g) alpha + g
              else, each period  alpha <- (1-g) alpha
    increase  each T, and each B bytes sent; stages count both since the last cut:
              recovery    while both stages < F             Rc <- (Rc + Rt) / 2
              additive    when one has reached F            Rt <- Rt + R_AI, likewise
              hyper       when both are beyond F            Rt <- Rt + R_HAI, likewise

The target is clamped by every cut, or only by one that follows an increase: the first
of a row of cuts decides what the target remembers.

There are two ways to take a notification (CNP). The paper cuts at every CNP, and its
alpha timer starts again there. NICs look each *decrease period* whether a CNP has come
since the last look, and cut then; alpha likewise, each *alpha period*. A
`decrease_period_ns` of 0 chooses the first.

No timer runs. What the timers would have done is made up when something happens, in
closed form: n decays of alpha are a power, and a target that rises by *a* per period
draws the rate behind it at a gap that goes to *a* like 2**-n. So a catch-up costs the
same after 10 us and after an hour, and a queue pair with nothing to send costs nothing.

At line rate nothing is paced: there the port alone spaces packets, as NICs do it.

Where periods end at the same time, alpha comes first, then the cut, then the increase.

Sources: Zhu et al., Congestion Control for Large-Scale RDMA Deployments (SIGCOMM 2015),
section 5; the NIC's way as in the ns-3 model of HPCC (rdma-hw.cc); when a target is
clamped as in NVIDIA's firmware configuration and the DCQCN authors' ns-3 model.
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


class Dcqcn(CongestionControl):
    """The reaction point of one queue pair.

    Attributes:
        alpha: The estimate, as of the last catch-up.
        target_bps: The target rate, likewise.
        cuts: How often the rate was cut.
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

    text = "DCQCN, as RoCE adapters have it: reacts to marks of switches."
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
            "g: how far one notification, or its absence, moves alpha.",
            argument="gain_q20",
        ),
        share("alpha_initial", "Alpha at the first notification."),
        time("alpha_period", "How often alpha is looked at.", lowest=1),
        time(
            "decrease_period",
            "How often a cut is decided; 0us: at every notification.",
        ),
        count(
            "cut_shift",
            "A cut takes alpha / 2**this of the rate.",
            lowest=1,
            highest=20,
        ),
        share("max_cut", "The largest share of the rate that one cut takes."),
        time("increase_period", "T: how often the rate is increased.", lowest=1),
        size(
            "byte_counter",
            "B: bytes after which it is increased as well; 0B: never.",
        ),
        count(
            "recovery_stages",
            "F: increases of fast recovery.",
            lowest=1,
            highest=1_000,
        ),
        rate(
            "additive_increase",
            "R_AI: what an increase adds to the target after fast recovery.",
        ),
        rate("hyper_increase", "R_HAI: what a hyper increase adds to the target."),
        flag(
            "hyper_scaled",
            "Whether the i-th hyper increase adds i x R_HAI.",
            argument="is_hyper_scaled",
        ),
        # A rate of nothing would never send again.
        rate("min_rate", "The lowest rate.", floor=1, below_line=True),
        rate(
            "first_cnp_rate",
            "What the first notification sets the rate to; 0%: nothing.",
            below_line=True,
        ),
        flag(
            "clamp_target",
            "Whether each cut sets the target to the rate before it; else only one "
            "that follows an increase by the byte counter does.",
            argument="clamps_target",
        ),
        flag(
            "clamp_target_after_increase",
            "Whether one that follows an increase by the timer does so, too.",
            argument="clamps_target_after_increase",
        ),
        flag(
            "release_at_line",
            "Whether a queue pair that is back at line rate forgets alpha.",
            argument="is_released_at_line",
        ),
        size(
            "scaled_window",
            "Bytes that may be unacknowledged at line rate, and fewer by as much as "
            "the rate is lower; 0B: any.",
        ),
    )

    @staticmethod
    def contradictions(arguments: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
        """Refuse a byte counter of less than a packet."""
        if 0 < arguments["byte_counter_bytes"] < _SMALLEST_BYTE_COUNTER:
            found = f"byte_counter is less than {_SMALLEST_BYTE_COUNTER} bytes"
            return {"byte_counter": (found, "0B counts no bytes")}
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
        """Begin at line rate; the defaults are those of the paper.

        Args:
            line_rate_bps: Rate of the port, and the highest rate.
            gain_q20: g, in parts of `SHARE_UNIT`.
            alpha_initial_q20: Alpha at the first notification, likewise.
            alpha_period_ns: How often alpha is looked at.
            decrease_period_ns: How often a cut is decided; 0: at every notification.
            cut_shift: The rate is cut by alpha / 2**this.
            max_cut_q20: The largest share of the rate that one cut takes.
            increase_period_ns: T.
            byte_counter_bytes: B, in wire bytes; 0: bytes are not counted.
            recovery_stages: F.
            additive_increase_bps: R_AI.
            hyper_increase_bps: R_HAI.
            is_hyper_scaled: 1: the i-th hyper increase adds i x R_HAI.
            min_rate_bps: The lowest rate.
            first_cnp_rate_bps: The rate and target that the first notification sets;
                0: it leaves them.
            clamps_target: 1: every cut sets the target to the rate before it; 0: only
                one that follows an increase by the byte counter.
            clamps_target_after_increase: 1: or one that follows an increase by the
                timer.
            is_released_at_line: 1: a queue pair that is back at line rate forgets
                alpha, and its next notification counts as the first.
            scaled_window_bytes: What may be unacknowledged, times the rate over the
                line's; 0: no window.

        Raises:
            ValueError: If a value is out of range, or the lowest rate is above the
                highest.
        """
        super().__init__()
        given = locals()
        check_arguments("dcqcn", Dcqcn.parameters, given)
        if min_rate_bps > line_rate_bps or first_cnp_rate_bps > line_rate_bps:
            raise ValueError(
                f"dcqcn: a rate of {max(min_rate_bps, first_cnp_rate_bps)} bit/s is "
                f"above the line's {line_rate_bps}"
            )
        for found, _ in Dcqcn.contradictions(given).values():
            raise ValueError(f"dcqcn: {found}")
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
        # Whether alpha is kept, and whether the rate is below the line's.
        self._is_started = False
        self._is_limited = False
        # The next looks of the three timers; and what the first two will see.
        self._alpha_ns = _NEVER
        self._alpha_heard = False
        self._decrease_ns = _NEVER
        self._decrease_heard = False
        self._increase_ns = _NEVER
        # Since the last cut.
        self._time_stage = 0
        self._byte_stage = 0
        self._bytes = 0
        self.cuts = 0
        self.rate_bps = line_rate_bps
        self.is_pacing = False
        self.window_bytes = scaled_window_bytes

    @property
    def target_bps(self) -> int:
        """The target rate, as of the last catch-up."""
        return int(self._target)

    def on_sent(self, wire_bytes: int, now_ns: int) -> None:
        """Count bytes; see the base class."""
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
        """Let the timers catch up; ACKs themselves say nothing to DCQCN."""
        if self.next_timer_ns <= now_ns:
            self.on_timer(now_ns)

    def on_cnp(self, now_ns: int) -> None:
        """React to a notification; see the module."""
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
        """Let the timers catch up."""
        self._catch_up(now_ns)
        self._publish()

    def _start(self, now_ns: int) -> None:
        """Take the first notification."""
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
        """Cut the rate now, and begin to count stages anew."""
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
        """Begin to recover at *now_ns*."""
        self._is_limited = True
        self._time_stage = 0
        self._byte_stage = 0
        self._bytes = 0
        self._increase_ns = now_ns + self._increase_period_ns

    def _catch_up(self, now_ns: int) -> None:
        """Do what the timers would have done up to *now_ns*."""
        if not self._is_started:
            return
        if self._decrease_heard and self._decrease_ns <= now_ns:
            cut_ns = self._decrease_ns
            self._catch_up_alpha(cut_ns)
            # Nothing is released before that: a pending cut keeps what it needs.
            self._catch_up_rate(cut_ns - 1)
            self._decrease_heard = False
            self._cut(cut_ns)
        self._catch_up_alpha(now_ns)
        self._catch_up_rate(now_ns)
        if self._decrease_ns <= now_ns:
            periods = (now_ns - self._decrease_ns) // self._decrease_period_ns + 1
            self._decrease_ns += periods * self._decrease_period_ns

    def _catch_up_alpha(self, now_ns: int) -> None:
        """Look at alpha as often as was due up to *now_ns*."""
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
        """Increase the rate as often as was due up to *now_ns*."""
        while self._is_limited and self._increase_ns <= now_ns:
            periods = (now_ns - self._increase_ns) // self._increase_period_ns + 1
            alike = self._alike_increases()
            if periods > alike:
                periods = alike
            self._increase_ns += periods * self._increase_period_ns
            self._increase(periods)
            self._time_stage += periods

    def _alike_increases(self) -> int:
        """Return how many of the timer's next increases are of one kind."""
        last = self._recovery_stages
        time_stage = self._time_stage
        byte_stage = self._byte_stage if self._byte_counter_bytes > 0 else time_stage
        if time_stage < last and byte_stage < last:
            return last - time_stage
        if self._byte_counter_bytes == 0:
            # There is one counter, so it is both stages.
            if time_stage <= last:
                return last + 1 - time_stage
            return 1 if self._is_hyper_scaled else _NEVER
        if byte_stage <= last or time_stage > byte_stage:
            return _NEVER
        if time_stage <= last:
            return last + 1 - time_stage
        return 1 if self._is_hyper_scaled else _NEVER

    def _increase(self, times: int) -> None:
        """Increase the rate *times*, all in the way that the stages ask for."""
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
        """Raise the target by *increment* and halve the rate's gap to it, *times*.

        The gap d goes to (d + increment) / 2 each time, so after n times it is
        increment + (d - increment) / 2**n. The target stops at the line's rate.
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
        """Note that nothing limits the rate any more."""
        self._rate = self._line_rate
        self._target = self._line_rate
        self._is_limited = False
        self._increase_ns = _NEVER
        if self._is_released_at_line and not self._decrease_heard:
            self._is_started = False
            self._alpha_ns = _NEVER
            self._decrease_ns = _NEVER

    def _publish(self) -> None:
        """Say what may be sent, and when that changes by itself."""
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
