"""What profiles do to one queue pair, against closed forms.

After the last cut the rate is R0, the target R1, and both counters are at 0. Let b be
the bits per count of the byte counter (infinite if it is off), T the increase period.
Each count of either counter causes an increase.

1. Fast recovery. After n increases the rate is R1 - (R1 - R0) / 2^n. If the timer
   leads, the n-th increase comes at n T. If the byte counter leads, it comes at the sum
   of b / (R1 - (R1 - R0) / 2^j) for j < n. The phase ends with the F-th increase of
   either counter. If the target is at the line rate, the phase never ends.
2. Additive increase. Each increase adds a to the target, and the rate follows one step
   behind: R = Rt - a. There are 1/T + R/b increases per second. With c = b/T,
   R(t) = (R(0) + c) e^(a t / b) - c, and the time to a rate R is
   (b/a) ln((R + c) / (R(0) + c)). The bits sent by time t are
   (b/a) (R(0) + c) (e^(a t / b) - 1) - c t. The phase ends when the slower counter has
   counted F + 1.
3. Hyper increase. The same formulas apply with R_HAI in place of a. The rate starts at
   the final target of the additive increase, minus R_HAI. If the increment is scaled,
   it is i x R_HAI until the next count of the slower counter.
"""

from __future__ import annotations

from math import ceil, exp, inf, log, log2
from typing import TYPE_CHECKING, NamedTuple

import pytest

from chakram.roce.congestion import make
from chakram.roce.congestion.parameters import SHARE_UNIT
from tests.unit.config.test_dcqcn import GIGABIT, PROFILES, parameters_of

if TYPE_CHECKING:
    from collections.abc import Callable

SHARES = (0.5, 0.9)


def recovery(
    parameters: dict[str, int], *, marked_us: int
) -> tuple[float, float, float]:
    """Return the rate after *marked_us* of marks in bit/s, and when half and nine
    tenths of the line rate were reached after that, in ms.

    One queue pair always has something to send, and all its packets are marked.
    """
    arguments = dict(parameters)
    gap_us = max(1, arguments.pop("cnp_interval_ns") // 1_000)
    del arguments["cnp_scope"]
    control = make("dcqcn", **arguments)
    line_bps = arguments["line_rate_bps"]
    unsent = 0.0
    floor_bps = 0.0
    reached: list[float] = []
    for now_us in range(1, 100_000):
        unsent += control.rate_bps / 8e6
        control.on_sent(int(unsent), now_us * 1_000)
        control.on_timer(now_us * 1_000)
        unsent -= int(unsent)
        if now_us < marked_us and now_us % gap_us == 0:
            control.on_cnp(now_us * 1_000)
        elif now_us == marked_us:
            floor_bps = control.rate_bps
        share = SHARES[len(reached)]
        if now_us > marked_us and control.rate_bps >= share * line_bps:
            reached.append((now_us - marked_us) / 1_000)
            if len(reached) == len(SHARES):
                break
    return floor_bps, reached[0], reached[1]


# The times are those of an independent model with steps of 1 us.
@pytest.mark.parametrize(
    ("profile", "gigabits", "floor_bps", "half_ms", "nine_tenths_ms"),
    [
        ("dcqcn-nvidia", 10, 1e6, 0.30, 0.41),
        ("dcqcn-paper", 10, 40e6, 7.0, 12.5),
        ("dcqcn-intel", 10, 20e6, 12, 15),
        ("dcqcn-hpcc-ns3", 10, 1e9, 0.30, 1.2),
        ("dcqcn-paper", 100, 195e6, 39, 44),
        ("dcqcn-intel", 100, 1.3e9, 4.1, 5.2),
    ],
)
def test_recovery_takes_as_long_as_is_known_of_the_profile(
    profile: str,
    gigabits: int,
    floor_bps: float,
    half_ms: float,
    nine_tenths_ms: float,
) -> None:
    parameters = parameters_of(profile, gigabits)
    outcome = recovery(parameters, marked_us=500)

    assert outcome == pytest.approx((floor_bps, half_ms, nine_tenths_ms), rel=0.05)


class Cuts(NamedTuple):
    """How 500 us of marks cut, as soon as the first period is over."""

    count: int
    apart_s: float
    last_s: float
    """Before the marks ended."""


CUTS: dict[str, Cuts] = {
    # At each notification; the last but 50 us.
    "dcqcn-paper": Cuts(9, 50e-6, 50e-6),
    # At the look 50 us after each notification.
    "dcqcn-intel": Cuts(9, 50e-6, 0.0),
    "dcqcn-nvidia": Cuts(124, 4e-6, 0.0),
    "dcqcn-hpcc-ns3": Cuts(124, 4e-6, 0.0),
}


class Halvings:
    """Increases that halve the gap to a target that stays where it is.

    After n of them the rate is target - gap / 2**n. One comes each T, and one each time
    that what was sent, a sum of rates by times, has grown by B.
    """

    def __init__(
        self, parameters: dict[str, int], *, rate_bps: float, target_bps: float
    ) -> None:
        self.period_s = parameters["increase_period_ns"] / 1e9
        self.counter_bits = 8 * parameters["byte_counter_bytes"] or inf
        self.target_bps = target_bps
        self.gap_bps = target_bps - rate_bps
        self.time_s = self.sent_bits = 0.0
        self.periods = self.counts = 0

    @property
    def rate_bps(self) -> float:
        return self.target_bps - self.gap_bps

    def next_s(self) -> float:
        left_bits = (self.counts + 1) * self.counter_bits - self.sent_bits
        counted_s = self.time_s + left_bits / self.rate_bps
        return min((self.periods + 1) * self.period_s, counted_s)

    def take(self) -> None:
        then_s = self.next_s()
        self.sent_bits += self.rate_bps * (then_s - self.time_s)
        self.time_s = then_s
        if then_s == (self.periods + 1) * self.period_s:
            self.periods += 1
        else:
            self.counts += 1
        self.gap_bps /= 2


def after_cuts(parameters: dict[str, int], cuts: Cuts) -> tuple[float, float]:
    """Return rate and target after *cuts*, alpha being 1."""
    rate_bps = target_bps = float(parameters["line_rate_bps"])
    for number in range(cuts.count):
        if number:
            between = Halvings(parameters, rate_bps=rate_bps, target_bps=target_bps)
            while between.next_s() < cuts.apart_s:
                between.take()
            rate_bps = between.rate_bps
        if parameters["clamps_target"]:
            target_bps = rate_bps
        rate_bps = max(rate_bps / 2, parameters["min_rate_bps"])
        target_bps = max(rate_bps, target_bps)
    return rate_bps, target_bps


class Climb:
    """Increases by *step_bps* each T and each B, with the rate one step behind.

    There are 1 / T + rate / B of them in a second, so what grows exponentially, by
    step / B, is rate + B / T.
    """

    def __init__(
        self, parameters: dict[str, int], *, target_bps: float, step_bps: float
    ) -> None:
        counter_bits = 8 * parameters["byte_counter_bytes"]
        self.step_bps = step_bps
        self.growth = step_bps / counter_bits
        self.shift_bps = 1e9 * counter_bits / parameters["increase_period_ns"]
        self.start_bps = target_bps - step_bps + self.shift_bps

    def time_to_s(self, rate_bps: float) -> float:
        return log((rate_bps + self.shift_bps) / self.start_bps) / self.growth

    def target_bps(self, time_s: float) -> float:
        grown_bps = self.start_bps * exp(self.growth * time_s)
        return grown_bps - self.shift_bps + self.step_bps

    def sent_bits(self, time_s: float) -> float:
        grown_bits = self.start_bps * (exp(self.growth * time_s) - 1) / self.growth
        return grown_bits - self.shift_bps * time_s

    def time_to_send_s(self, bits: float, at_most_s: float) -> float:
        low_s, high_s = 0.0, at_most_s
        for _ in range(50):
            middle_s = (low_s + high_s) / 2
            if self.sent_bits(middle_s) < bits:
                low_s = middle_s
            else:
                high_s = middle_s
        return high_s


def recovery_s(
    parameters: dict[str, int], share: float, *, rate_bps: float, target_bps: float
) -> float:
    """Return the time from the last cut until the rate is *share* of the line's."""
    goal_bps = share * parameters["line_rate_bps"]
    last = parameters["recovery_stages"]
    fast = Halvings(parameters, rate_bps=rate_bps, target_bps=target_bps)
    # A target at the line's rate stays there.
    while max(fast.periods, fast.counts) < last or target_bps >= goal_bps:
        if fast.rate_bps >= goal_bps:
            return fast.time_s
        fast.take()
    time_s, sent_bits = fast.time_s, fast.sent_bits
    step_bps = float(parameters["additive_increase_bps"])
    # The step changes with the lower of both stages, once that is beyond F.
    lower = last + 1
    while True:
        climb = Climb(parameters, target_bps=target_bps, step_bps=step_bps)
        goal_s = climb.time_to_s(goal_bps)
        left_bits = lower * fast.counter_bits - sent_bits
        span_s = max(
            climb.time_to_send_s(left_bits, goal_s), lower * fast.period_s - time_s
        )
        if span_s >= goal_s:
            return time_s + goal_s
        time_s += span_s
        sent_bits += climb.sent_bits(span_s)
        target_bps = climb.target_bps(span_s)
        times = lower - last if parameters["is_hyper_scaled"] else 1
        step_bps = float(times * parameters["hyper_increase_bps"])
        lower += 1


@pytest.mark.parametrize(
    ("profile", "gigabits"),
    [
        *(("dcqcn-paper", gigabits) for gigabits in (10, 25, 40, 100, 400)),
        *(("dcqcn-intel", gigabits) for gigabits in (1, 10, 25, 40, 100)),
        # Beyond that, 32 KB take less time than the looks at 1 and 4 us.
        *(("dcqcn-nvidia", gigabits) for gigabits in (10, 25, 40, 100)),
        *(("dcqcn-hpcc-ns3", gigabits) for gigabits in (10, 25, 40, 100, 400)),
    ],
)
def test_recovery_takes_as_long_as_its_closed_form(profile: str, gigabits: int) -> None:
    parameters = parameters_of(profile, gigabits)
    cuts = CUTS[profile]
    rate_bps, target_bps = after_cuts(parameters, cuts)
    expected_ms = [
        1e3
        * (
            recovery_s(parameters, share, rate_bps=rate_bps, target_bps=target_bps)
            - cuts.last_s
        )
        for share in SHARES
    ]

    assert recovery(parameters, marked_us=500) == pytest.approx(
        (rate_bps, *expected_ms), rel=0.02
    )


def nvidia_ms(parameters: dict[str, int], share: float) -> float:
    """One increase by the timer; then the byte counter is the faster of the two."""
    line = parameters["line_rate_bps"]
    rate = (parameters["min_rate_bps"] + line) / 2
    time_s = parameters["increase_period_ns"] / 1e9
    while rate < share * line:
        time_s += 8 * parameters["byte_counter_bytes"] / rate
        rate = (rate + line) / 2
    return 1e3 * time_s


def hpcc_ms(parameters: dict[str, int], share: float) -> float:
    """The gap to the line, which the target never left, is halved each T."""
    line = parameters["line_rate_bps"]
    gap = line - parameters["min_rate_bps"]
    periods = ceil(log2(gap / ((1 - share) * line)))
    return periods * parameters["increase_period_ns"] / 1e6


def paper_ms(parameters: dict[str, int], share: float) -> float:
    """F times nothing, for rate and target are at the lowest; then R_AI each T, with
    the rate one step behind."""
    climb = share * parameters["line_rate_bps"] - parameters["min_rate_bps"]
    steps = 1 + climb / parameters["additive_increase_bps"]
    periods = parameters["recovery_stages"] + steps
    return periods * parameters["increase_period_ns"] / 1e6


@pytest.mark.parametrize(
    ("profile", "gigabits", "simple_ms"),
    [
        ("dcqcn-nvidia", 10, nvidia_ms),
        ("dcqcn-nvidia", 100, nvidia_ms),
        ("dcqcn-hpcc-ns3", 10, hpcc_ms),
        ("dcqcn-hpcc-ns3", 400, hpcc_ms),
        # Below 15 ms the byte counter has not counted its 10 MB.
        ("dcqcn-paper", 10, paper_ms),
    ],
)
def test_the_closed_form_is_simple_where_one_counter_does_all(
    profile: str,
    gigabits: int,
    simple_ms: Callable[[dict[str, int], float], float],
) -> None:
    parameters = parameters_of(profile, gigabits)
    rate_bps, target_bps = after_cuts(parameters, CUTS[profile])
    for share in SHARES:
        found_s = recovery_s(
            parameters, share, rate_bps=rate_bps, target_bps=target_bps
        )
        assert 1e3 * found_s == pytest.approx(simple_ms(parameters, share), rel=0.01)


@pytest.mark.parametrize("count", [1, 2, 5, 20])
@pytest.mark.parametrize("profile", PROFILES)
def test_the_rate_after_n_notifications_has_a_closed_form(
    profile: str, count: int
) -> None:
    parameters = parameters_of(profile, 100, min_rate="1bit")
    arguments = dict(parameters)
    del arguments["cnp_interval_ns"], arguments["cnp_scope"]
    control = make("dcqcn", **arguments)
    look_ns = parameters["decrease_period_ns"]
    every_ns = look_ns or parameters["cnp_interval_ns"]
    for number in range(count):
        control.on_cnp(number * every_ns + (number > 0))
    control.on_timer(count * every_ns)

    # Alpha decays by q at each look without a notification; of the looks between two
    # cuts the first hears one. Where an alpha period is longer than that, all do.
    q = 1 - parameters["gain_q20"] / SHARE_UNIT
    looks = look_ns // parameters["alpha_period_ns"]
    alpha = parameters["alpha_initial_q20"] / SHARE_UNIT
    rate = 100.0 * GIGABIT
    for number in range(count):
        at_cut = alpha
        if looks:
            at_cut = alpha * q ** (looks * (number + 1)) + (1 - q) * q ** (
                looks - 1
            ) * (1 - q ** (looks * number)) / (1 - q**looks)
        rate *= 1 - min(at_cut / 2, parameters["max_cut_q20"] / SHARE_UNIT)
    assert control.rate_bps == pytest.approx(rate, rel=1e-5, abs=1)


def test_two_marks_halve_the_paper_and_break_down_the_nic() -> None:
    floor_bps, _, nine_tenths_ms = recovery(
        parameters_of("dcqcn-paper", 10), marked_us=60
    )
    assert floor_bps == 5e9
    assert nine_tenths_ms == pytest.approx(0.15, rel=0.05)

    floor_bps, _, _ = recovery(parameters_of("dcqcn-nvidia", 10), marked_us=60)
    assert floor_bps < 3e6
