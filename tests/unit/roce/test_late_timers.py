"""Accounting of a late data-plane loop."""

from __future__ import annotations

import pytest

from chakram.roce.congestion.dcqcn import Dcqcn
from chakram.roce.port import PortEngine
from tests.virtual_wire import make_queue_pair

GIGABIT = 10**9
BOUND_NS = 15_000
LATE_NS = 100_000
NO_INCREASE = dict.fromkeys(
    ("byte_counter_bytes", "additive_increase_bps", "hyper_increase_bps"), 0
)


@pytest.mark.parametrize("increase_period_ns", [200_000, 10**9])
def test_a_pace_is_not_due_before_a_timer_of_its_queue_pair(
    increase_period_ns: int,
) -> None:
    port = PortEngine(rate_bps=GIGABIT, burst_bound_ns=BOUND_NS, max_burst_packets=4)
    control = Dcqcn(
        line_rate_bps=GIGABIT,
        min_rate_bps=10**6,
        alpha_period_ns=10**9,
        increase_period_ns=increase_period_ns,
        recovery_stages=1000,
        max_cut_q20=1 << 12,
        **NO_INCREASE,
    )
    queue_pair = make_queue_pair(
        0x11, 0x12, window_bytes=10**6, congestion_control=control
    )
    port.add_queue_pair(queue_pair)
    port.post_send(0x11, 1, 1 << 19, 0)
    while port.next_burst(0) is not None:
        pass
    for _ in range(1000):
        queue_pair.requester.handle_cnp(0)
    while port.next_burst(50_000) is not None:
        pass
    waited_ns = port.statistics().generator_wait_ns

    late_ns = queue_pair.requester.ready_ns() + LATE_NS
    assert port.peek_burst(late_ns) is not None

    # By then its rate may have risen, but not before its control was due.
    wait_ns = port.statistics().generator_wait_ns - waited_ns
    assert 0 < wait_ns <= late_ns - queue_pair.requester.ready_ns() - BOUND_NS
