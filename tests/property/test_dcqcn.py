"""DCQCN's closed forms equal a model that polls its timers every microsecond."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chakram.roce.congestion.dcqcn import Dcqcn
from chakram.roce.congestion.parameters import SHARE_UNIT
from chakram.roce.constants import NEVER

LINE = 10**10
US = 1_000
SENT_BYTES = {"send": 40_000, "flood": 8_000_000}
"""A flood is enough for the byte counter to bring the rate back to the line's."""


class Stepwise:
    """DCQCN written down plainly; `tick` is to be called every microsecond."""

    def __init__(self, knobs: dict[str, int]) -> None:
        self.knobs = knobs
        self.g = knobs["gain_q20"] / SHARE_UNIT
        self.rate = self.target = float(LINE)
        self.alpha = knobs["alpha_initial_q20"] / SHARE_UNIT
        self.started = self.limited = False
        self.alpha_heard = self.decrease_heard = False
        self.alpha_at = self.decrease_at = self.increase_at = 0
        self.time_stage = self.byte_stage = self.bytes = 0

    @property
    def per_notification(self) -> bool:
        return self.knobs["decrease_period_ns"] == 0

    def tick(self, now: int) -> None:
        knobs = self.knobs
        if self.started and now == self.alpha_at:
            self.alpha = (1 - self.g) * self.alpha + self.g * self.alpha_heard
            self.alpha_heard = False
            self.alpha_at += knobs["alpha_period_ns"] // US
        if self.started and not self.per_notification and now == self.decrease_at:
            self.decrease_at += knobs["decrease_period_ns"] // US
            if self.decrease_heard:
                self.decrease_heard = False
                self.cut(now)
        if self.limited and now == self.increase_at:
            self.increase_at += knobs["increase_period_ns"] // US
            self.increase()
            self.time_stage += 1

    def notify(self, now: int) -> None:
        first = not self.started
        if first:
            self.started = True
            self.alpha = self.knobs["alpha_initial_q20"] / SHARE_UNIT
            self.alpha_at = now + self.knobs["alpha_period_ns"] // US
            self.decrease_at = now + self.knobs["decrease_period_ns"] // US
            if 0 < self.knobs["first_cnp_rate_bps"] < self.rate:
                self.rate = self.target = float(self.knobs["first_cnp_rate_bps"])
                self.limit(now)
        if self.per_notification:
            self.cut(now)
            self.alpha = (1 - self.g) * self.alpha + self.g
            self.alpha_at = now + self.knobs["alpha_period_ns"] // US
        else:
            self.decrease_heard = True
            self.alpha_heard = not first

    def send(self, size: int) -> None:
        if not self.limited:
            return
        self.bytes += size
        while 0 < self.knobs["byte_counter_bytes"] <= self.bytes:
            self.bytes -= self.knobs["byte_counter_bytes"]
            self.increase()
            self.byte_stage += 1

    def cut(self, now: int) -> None:
        after_timer = self.knobs["clamps_target_after_increase"] and self.time_stage > 0
        if self.knobs["clamps_target"] or self.byte_stage > 0 or after_timer:
            self.target = self.rate
        share = min(
            self.alpha / 2 ** self.knobs["cut_shift"],
            self.knobs["max_cut_q20"] / SHARE_UNIT,
        )
        self.rate = max(self.rate * (1 - share), float(self.knobs["min_rate_bps"]))
        self.target = max(self.target, self.rate)
        self.limit(now)

    def limit(self, now: int) -> None:
        self.time_stage = self.byte_stage = self.bytes = 0
        self.limited = True
        self.increase_at = now + self.knobs["increase_period_ns"] // US

    def increase(self) -> None:
        last = self.knobs["recovery_stages"]
        stages = [self.time_stage]
        if self.knobs["byte_counter_bytes"]:
            stages.append(self.byte_stage)
        if min(stages) > last:
            times = min(stages) - last if self.knobs["is_hyper_scaled"] else 1
            self.target += times * self.knobs["hyper_increase_bps"]
        elif max(stages) >= last:
            self.target += self.knobs["additive_increase_bps"]
        self.target = min(self.target, LINE)
        self.rate = (self.rate + self.target) / 2
        if LINE - self.rate <= LINE / 2**20:
            self.rate = self.target = LINE
            self.limited = False
            # What has been heard is still to be answered.
            if self.knobs["is_released_at_line"] and not self.decrease_heard:
                self.started = False


knobs = st.fixed_dictionaries(
    {
        "gain_q20": st.sampled_from([SHARE_UNIT // 256, 5 * SHARE_UNIT // 1024]),
        "alpha_initial_q20": st.sampled_from([SHARE_UNIT, 7 * SHARE_UNIT // 16]),
        "alpha_period_ns": st.sampled_from([US, 7 * US, 55 * US]),
        "decrease_period_ns": st.sampled_from([0, US, 4 * US, 50 * US]),
        "cut_shift": st.sampled_from([1, 3]),
        "max_cut_q20": st.sampled_from([SHARE_UNIT, SHARE_UNIT // 5]),
        "increase_period_ns": st.sampled_from([5 * US, 55 * US, 300 * US]),
        "byte_counter_bytes": st.sampled_from([0, 32_767, 150_000]),
        "recovery_stages": st.integers(1, 5),
        "additive_increase_bps": st.sampled_from([0, 5 * 10**6, 4 * 10**8]),
        "hyper_increase_bps": st.sampled_from([0, 5 * 10**7, 10**9]),
        "is_hyper_scaled": st.integers(0, 1),
        "min_rate_bps": st.sampled_from([10**6, 10**9]),
        "first_cnp_rate_bps": st.sampled_from([0, 5 * 10**5, 4 * 10**9]),
        "clamps_target": st.integers(0, 1),
        "clamps_target_after_increase": st.integers(0, 1),
        "is_released_at_line": st.integers(0, 1),
        "scaled_window_bytes": st.sampled_from([0, 102_000]),
    }
)
RELEASED = {
    "gain_q20": SHARE_UNIT // 256,
    "alpha_initial_q20": SHARE_UNIT,
    "alpha_period_ns": US,
    "decrease_period_ns": 50 * US,
    "cut_shift": 1,
    "max_cut_q20": SHARE_UNIT,
    "increase_period_ns": 300 * US,
    "byte_counter_bytes": 150_000,
    "recovery_stages": 1,
    "additive_increase_bps": 5 * 10**6,
    "hyper_increase_bps": 5 * 10**7,
    "is_hyper_scaled": 0,
    "min_rate_bps": 10**6,
    "first_cnp_rate_bps": 0,
    "clamps_target": 0,
    "clamps_target_after_increase": 1,
    "is_released_at_line": 1,
    "scaled_window_bytes": 0,
}
"""A NIC that forgets alpha at line rate, and is brought there by bytes."""

happenings = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 5), st.integers(0, 60), st.integers(0, 900)),
        st.sampled_from(["notify", "notify", "send", "flood", "look"]),
    ),
    max_size=25,
)


@given(knobs=knobs, happenings=happenings)
# A cut is pending when the rate is back at the line's.
@example(
    knobs=RELEASED,
    happenings=[(0, "notify"), (55, "notify"), (5, "flood"), (60, "look")],
)
# Alpha has decayed, and begins again.
@example(
    knobs=RELEASED,
    happenings=[(0, "notify"), (60, "flood"), (60, "notify"), (60, "look")],
)
def test_catching_up_equals_processing_every_microsecond(
    knobs: dict[str, int], happenings: list[tuple[int, str]]
) -> None:
    lazy = Dcqcn(line_rate_bps=LINE, **knobs)
    plain = Stepwise(knobs)
    now = 0
    for wait, what in happenings:
        for _ in range(wait):
            now += 1
            plain.tick(now)
        if what == "notify":
            lazy.on_cnp(now * US)
            plain.notify(now)
        elif what in SENT_BYTES:
            lazy.on_sent(SENT_BYTES[what], now * US)
            plain.send(SENT_BYTES[what])
        else:
            lazy.on_timer(now * US)
        if what in SENT_BYTES and not plain.limited:
            lazy.on_timer(now * US)
        assert lazy.rate_bps == pytest.approx(plain.rate, rel=3e-6)
        assert lazy.target_bps == pytest.approx(plain.target, rel=3e-6)
        assert lazy.is_pacing == plain.limited
        # Alpha means nothing once it is forgotten.
        if what not in SENT_BYTES and plain.started:
            assert lazy.alpha == pytest.approx(plain.alpha, rel=1e-9)


@given(
    knobs=knobs,
    notifications=st.lists(st.integers(0, 200_000), max_size=30),
    looks=st.lists(st.integers(0, 10**9), max_size=10),
)
def test_polling_frequency_changes_nothing(
    knobs: dict[str, int], notifications: list[int], looks: list[int]
) -> None:
    def outcome(times: list[tuple[int, bool]]) -> Any:
        control = Dcqcn(line_rate_bps=LINE, **knobs)
        for time_ns, notifies in sorted(times):
            if notifies:
                control.on_cnp(time_ns)
            else:
                control.on_timer(time_ns)
        control.on_timer(10**9)
        return control.rate_bps, control.target_bps

    heard = [(time_ns, True) for time_ns in notifications]
    with_looks = outcome(heard + [(time_ns, False) for time_ns in looks])
    assert with_looks == pytest.approx(outcome(heard), rel=3e-6)


@given(
    knobs=knobs,
    happenings=st.lists(
        st.tuples(st.integers(0, 900_000), st.sampled_from(["notify", "send", "look"])),
        max_size=25,
    ),
    dilation=st.sampled_from([2, 10, 1_000]),
)
def test_stretched_time_stretches_times_and_divides_rates(
    knobs: dict[str, int], happenings: list[tuple[int, str]], dilation: int
) -> None:
    line_bps = LINE * 1_000
    rates = [name for name in knobs if name.endswith("_bps")]
    knobs = knobs | {name: 1_000 * knobs[name] for name in rates}
    slow_knobs = {
        name: value * dilation
        if name.endswith("_ns")
        else value // dilation
        if name in rates
        else value
        for name, value in knobs.items()
    }
    fast = Dcqcn(line_rate_bps=line_bps, **knobs)
    slow = Dcqcn(line_rate_bps=line_bps // dilation, **slow_knobs)
    now_ns = 0
    for wait_ns, what in happenings:
        now_ns += wait_ns
        for control, time_ns in ((fast, now_ns), (slow, now_ns * dilation)):
            if what == "notify":
                control.on_cnp(time_ns)
            elif what == "send":
                control.on_sent(40_000, time_ns)
            else:
                control.on_timer(time_ns)
        assert slow.rate_bps * dilation == pytest.approx(fast.rate_bps, rel=1e-6)
        assert slow.alpha == fast.alpha
        assert slow.cuts == fast.cuts
        assert slow.is_pacing == fast.is_pacing
        assert slow.next_timer_ns == min(NEVER, fast.next_timer_ns * dilation)
