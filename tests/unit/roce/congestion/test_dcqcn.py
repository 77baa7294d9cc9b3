"""DCQCN compared with closed forms: cuts, recovery, clamps, notifications."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.roce.congestion.dcqcn import Dcqcn
from chakram.roce.congestion.parameters import SHARE_UNIT
from chakram.roce.constants import NEVER
from chakram.roce.notification_point import CnpLimiter
from tests.virtual_wire import Pair, make_queue_pair

LINE = 10_000_000_000
US = 1_000


def paper(**changes: Any) -> Dcqcn:
    return Dcqcn(**{"line_rate_bps": LINE, "min_rate_bps": 1_000, **changes})


def sampled(**changes: Any) -> Dcqcn:
    """A NIC that looks every 4 us, without byte counter."""
    return paper(
        **{
            "alpha_period_ns": US,
            "decrease_period_ns": 4 * US,
            "increase_period_ns": 300 * US,
            "byte_counter_bytes": 0,
            "recovery_stages": 1,
            "is_hyper_scaled": 0,
            "clamps_target": 0,
            "clamps_target_after_increase": 1,
            **changes,
        }
    )


def test_a_flow_begins_at_line_rate_and_without_a_timer() -> None:
    control = Dcqcn(line_rate_bps=LINE)

    control.on_sent(1_500, 10)
    control.on_ack(1_500, 5, 10)
    assert control.rate_bps == LINE
    assert control.window_bytes == 0
    assert control.next_timer_ns == NEVER
    # The port spaces its packets, not the control.
    assert not control.is_pacing
    control.on_cnp(10)
    assert control.is_pacing
    control.on_timer(10**9)
    assert not control.is_pacing


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_n_notifications_halve_the_rate_n_times(count: int) -> None:
    control = paper()
    for number in range(count):
        control.on_cnp(number * 50 * US)

    # Alpha is 1 and stays there: no alpha period passes between notifications.
    assert control.alpha == 1.0
    assert control.rate_bps == int(LINE / 2**count)
    assert control.target_bps == int(LINE / 2 ** (count - 1))
    assert control.cuts == count


def test_alpha_decays_by_g_each_period_without_notification() -> None:
    control = paper(gain_q20=SHARE_UNIT // 16)
    control.on_cnp(0)
    control.on_timer(55 * US * 10)
    assert control.alpha == pytest.approx((15 / 16) ** 10)

    rate_bps = control.rate_bps
    alpha = control.alpha
    control.on_cnp(55 * US * 10)
    assert control.rate_bps == pytest.approx(rate_bps * (1 - alpha / 2), rel=1e-6)
    assert control.alpha == pytest.approx(alpha * 15 / 16 + 1 / 16)


def test_fast_recovery_halves_the_gap_and_then_the_target_rises() -> None:
    control = paper()
    for number in range(3):
        control.on_cnp(number)
    low, target = LINE / 8, LINE / 4
    for stage in range(1, 6):
        control.on_timer(2 + 55 * US * stage)
        assert control.rate_bps == int(target - (target - low) / 2**stage)
        assert control.target_bps == int(target)

    rate = control.rate_bps
    control.on_timer(2 + 55 * US * 6)
    assert control.target_bps == int(target + 40e6)
    assert control.rate_bps == pytest.approx((rate + target + 40e6) / 2)


def test_hyper_increase_begins_when_both_counters_are_beyond_the_threshold() -> None:
    control = paper(recovery_stages=2, byte_counter_bytes=1_000_000)
    for number in range(6):
        control.on_cnp(number)
    time_ns = 5
    for _ in range(3):
        time_ns += 55 * US
        control.on_sent(1_000_000, time_ns)
    # Three recoveries, then three additive increases, alternating timer and bytes.
    start = LINE / 32
    assert control.target_bps == pytest.approx(start + 3 * 40e6, rel=1e-3)
    control.on_timer(time_ns + 55 * US)
    assert control.target_bps == pytest.approx(start + 3 * 40e6 + 200e6, rel=1e-3)
    # Now bytes are behind: their stage, 3, still decides which increase it is.
    control.on_timer(time_ns + 55 * US * 3)
    assert control.target_bps == pytest.approx(start + 3 * 40e6 + 600e6, rel=1e-3)


def test_scaled_hyper_increase_grows_with_the_stage() -> None:
    control = paper(byte_counter_bytes=0, recovery_stages=1)
    for number in range(6):
        control.on_cnp(number)
    start = LINE / 32
    control.on_timer(5 + 55 * US * 5)

    # Recovery, additive, then 1 + 2 + 3 times R_HAI.
    assert control.target_bps == int(start + 40e6 + 6 * 200e6)


def test_no_timer_remains_at_line_rate() -> None:
    control = paper()
    control.on_cnp(0)
    control.on_timer(10**9)

    assert control.rate_bps == LINE
    assert control.target_bps == LINE
    assert control.next_timer_ns == NEVER


def test_the_rate_has_a_floor_and_one_cut_has_a_limit() -> None:
    control = paper(min_rate_bps=LINE // 100, max_cut_q20=SHARE_UNIT // 10)
    control.on_cnp(0)
    assert control.rate_bps == pytest.approx(0.9 * LINE, rel=1e-5)
    for _ in range(100):
        control.on_cnp(0)
    assert control.rate_bps == LINE // 100


def test_a_gentler_cut_takes_alpha_over_four() -> None:
    control = paper(cut_shift=2)
    control.on_cnp(0)
    assert control.rate_bps == LINE * 3 // 4


def test_nic_reduces_the_rate_only_at_its_interval() -> None:
    control = sampled()
    control.on_cnp(100)
    assert control.rate_bps == LINE
    assert control.next_timer_ns == 100 + 4 * US
    control.on_cnp(2 * US)
    control.on_timer(100 + 4 * US - 1)
    assert control.rate_bps == LINE
    control.on_timer(100 + 4 * US)
    # One cut for two notifications. Alpha began at 1, heard the second notification at
    # one of its looks, and decayed at the other three.
    g = 1 / 256
    alpha = 1.0
    for heard in (False, True, False, False):
        alpha = (1 - g) * alpha + g * heard
    assert control.cuts == 1
    assert control.rate_bps == int(LINE * (1 - alpha / 2))


def test_late_timer_counts_at_its_due_time() -> None:
    late, punctual = sampled(), sampled()
    for control in (late, punctual):
        control.on_cnp(0)
    punctual.on_timer(4 * US)
    for control in (late, punctual):
        control.on_timer(904 * US)
    assert late.rate_bps == punctual.rate_bps > LINE // 2
    assert late.alpha == pytest.approx(punctual.alpha)


@pytest.mark.parametrize(
    ("clamp", "after_increase", "increased_by", "target"),
    [
        (1, 0, None, LINE / 2),
        (0, 0, None, LINE),
        (0, 1, None, LINE),
        # After an increase to 3/4 the next cut takes that as target: always if bytes
        # caused it, if the timer did only where that counts, too.
        (0, 0, "bytes", LINE * 3 / 4),
        (0, 1, "bytes", LINE * 3 / 4),
        (0, 0, "timer", LINE),
        (0, 1, "timer", LINE * 3 / 4),
    ],
)
def test_target_is_clamped_by_the_rules(
    clamp: int, after_increase: int, increased_by: str | None, target: float
) -> None:
    control = paper(
        clamps_target=clamp,
        clamps_target_after_increase=after_increase,
        byte_counter_bytes=10_000,
    )
    control.on_cnp(0)
    if increased_by == "bytes":
        control.on_sent(10_000, 1)
    second_ns = 55 * US if increased_by == "timer" else 2
    control.on_cnp(second_ns)
    # What was increased before that cut is not what a third one follows.
    control.on_cnp(second_ns + 1)

    if clamp:
        target /= 2
    assert control.target_bps == int(target)


def test_the_first_notification_can_set_the_rate() -> None:
    control = sampled(first_cnp_rate_bps=LINE // 50)
    control.on_cnp(0)
    assert control.rate_bps == control.target_bps == LINE // 50
    control.on_timer(4 * US)
    assert control.cuts == 1


def test_state_outlives_recovery_unless_it_is_released() -> None:
    kept = sampled(first_cnp_rate_bps=LINE // 50)
    released = sampled(first_cnp_rate_bps=LINE // 50, is_released_at_line=1)
    for control in (kept, released):
        control.on_cnp(0)
        control.on_timer(10**9)
        assert control.rate_bps == LINE
        control.on_cnp(2 * 10**9)
    assert kept.alpha < 1e-6
    assert kept.rate_bps == LINE
    assert released.alpha == 1.0
    assert released.rate_bps == LINE // 50


def test_bytes_at_line_rate_do_not_count() -> None:
    control = paper(byte_counter_bytes=1_000)
    control.on_sent(900, 0)
    control.on_cnp(0)
    control.on_sent(900, 1)
    assert control.rate_bps == LINE // 2
    control.on_sent(100, 2)
    assert control.rate_bps == LINE * 3 // 4


def test_an_ack_lets_the_timers_catch_up() -> None:
    control = paper()
    control.on_cnp(0)
    control.on_ack(1_000, 0, 55 * US - 1)
    assert control.rate_bps == LINE // 2
    control.on_ack(1_000, 0, 55 * US)
    assert control.rate_bps == LINE * 3 // 4


@pytest.mark.parametrize(
    "changes",
    [
        {"line_rate_bps": 0},
        {"gain_q20": 0},
        {"gain_q20": SHARE_UNIT + 1},
        {"min_rate_bps": LINE + 1},
        {"first_cnp_rate_bps": LINE + 1},
        {"byte_counter_bytes": 1},
        {"alpha_period_ns": 0},
        {"recovery_stages": 0},
        {"clamps_target": 2},
    ],
)
def test_values_out_of_range_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="dcqcn: "):
        paper(**changes)


def test_limiter_passes_one_notification_per_interval() -> None:
    limiter = CnpLimiter(50)
    assert [limiter.admits(time_ns) for time_ns in (0, 1, 49, 50, 99, 101)] == [
        True,
        False,
        False,
        True,
        False,
        True,
    ]
    with pytest.raises(ValueError, match="negative"):
        CnpLimiter(-1)


def test_idle_queue_pair_recovers_without_timers() -> None:
    control = sampled()
    pair = Pair(
        make_queue_pair(0x11, 0x12, congestion_control=control),
        make_queue_pair(0x12, 0x11, cnp_interval_ns=0),
        ce=lambda: pair.now_ns < 100 * US,
    )
    pair.post(1, 1_000_000)
    pair.run()
    # The message is complete. The rest of the recovery causes no wake-up.
    port = pair.left.port
    assert control.cuts > 1
    assert control.rate_bps < LINE
    assert port.next_wakeup_ns() == NEVER
    port.handle_timers(10**10)
    assert control.rate_bps < LINE

    pair.clock.advance_to(10**10)
    pair.post(2, 100)
    pair.run()
    assert pair.left.events_of(0x11)[-1].rate_at_start_bps == LINE


def test_a_queue_pair_that_waits_for_its_pace_is_woken_by_the_increase() -> None:
    # At 8 kbit/s a packet takes a second; at line rate, the time is up at once.
    control = paper(min_rate_bps=8_000, increase_period_ns=300 * US)
    pair = Pair(
        make_queue_pair(0x11, 0x12, congestion_control=control),
        make_queue_pair(0x12, 0x11),
    )
    for _ in range(30):
        control.on_cnp(0)
    pair.post(1, 3_000)
    pair.run(limit_ns=10**9)
    last = pair.left.events_of(0x11)[-1]
    assert last.rate_at_start_bps == 8_000
    assert last.last_acked_ns < 10 * 10**6


def test_late_data_plane_loses_nothing_at_line_rate() -> None:
    control = paper()
    qp = make_queue_pair(
        congestion_control=control, window_bytes=10**6, burst_bound_ns=0
    )
    qp.post_send(1, 20 * 1024, 0)
    assert sum(each.count for each in iter(lambda: qp.next_burst(0, 15), None)) == 20

    control.on_cnp(0)
    qp.post_send(2, 20 * 1024, 0)
    assert qp.next_burst(0, 15) is None


def test_a_first_rate_below_the_floor_is_lifted_by_the_first_cut() -> None:
    control = sampled(first_cnp_rate_bps=1_000_000, min_rate_bps=5_000_000)
    control.on_cnp(0)
    assert control.rate_bps == 1_000_000
    control.on_timer(4 * US)
    assert control.rate_bps == control.target_bps == 5_000_000


def test_a_pending_cut_outlives_the_return_to_line_rate() -> None:
    control = sampled(is_released_at_line=1, increase_period_ns=US)
    control.on_cnp(0)
    control.on_timer(4 * US)
    # Up again within 30 looks; the notification in between is not forgotten.
    control.on_cnp(5 * US)
    control.on_timer(200 * US)
    assert control.cuts == 2
    assert control.rate_bps == LINE


def test_a_pending_cut_outlives_a_return_to_line_rate_by_bytes() -> None:
    control = sampled(
        is_released_at_line=1, increase_period_ns=10**9, byte_counter_bytes=512
    )
    control.on_cnp(0)
    control.on_timer(4 * US)
    assert control.cuts == 1
    control.on_cnp(5 * US)
    control.on_sent(50_000, 6 * US)
    assert control.rate_bps == LINE
    control.on_timer(8 * US)
    assert control.cuts == 2
    assert control.rate_bps < LINE


def test_a_scaled_window_follows_the_rate() -> None:
    control = sampled(scaled_window_bytes=100_000)
    seen = [control.window_bytes]
    control.on_cnp(0)
    for now_ns in (4 * US, 304 * US, 10**10):
        control.on_timer(now_ns)
        assert control.window_bytes == 100_000 * control.rate_bps // LINE
        seen.append(control.window_bytes)
    # A cut, a first increase, and back at line rate.
    assert seen[0] == seen[3] == 100_000
    assert 50_000 < seen[1] < 51_000 < seen[2] < 100_000
    # However slow, one packet may go.
    least = sampled(scaled_window_bytes=2, min_rate_bps=1_000)
    for number in range(64):
        least.on_cnp(4 * number * US)
    assert least.window_bytes == 1
