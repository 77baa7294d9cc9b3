"""What an empty hook of a congestion control in plain Python adds.

The limits are generous: docs/howto/congestion-control.md has what was measured.
"""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING

import pytest

from chakram.roce.congestion import CongestionControl
from chakram.roce.port import PortEngine
from tests.bench.extent import at_most, sized
from tests.virtual_wire import make_queue_pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from chakram.roce.requester import Requester

CALLS = 2_900
TRIES = sized(7, 1)
MOST_NS = 1_000


class Sent(CongestionControl):
    def on_sent(self, wire_bytes: int, now_ns: int) -> None:
        pass


class Ack(CongestionControl):
    def on_ack(self, acked_bytes: int, round_trip_ns: int, now_ns: int) -> None:
        pass


class Cnp(CongestionControl):
    def on_cnp(self, now_ns: int) -> None:
        pass


class Timer(CongestionControl):
    def __init__(self) -> None:
        super().__init__()
        self.next_timer_ns = 1

    def on_timer(self, now_ns: int) -> None:
        self.next_timer_ns = now_ns + 1


def sender(control: CongestionControl) -> PortEngine:
    port = PortEngine(rate_bps=None, burst_bound_ns=0, max_burst_packets=15)
    port.add_queue_pair(
        make_queue_pair(path_mtu=4096, window_bytes=1 << 40, congestion_control=control)
    )
    port.post_send(0x11, 0, 1 << 31, 0)
    return port


def bursts(control: CongestionControl) -> Callable[[], object]:
    port = sender(control)
    return lambda: port.next_burst(0)


def requester(control: CongestionControl) -> Requester:
    return make_queue_pair(congestion_control=control).requester


def acks(control: CongestionControl) -> Callable[[], object]:
    port = sender(control)
    for _ in range(CALLS + 2):
        port.next_burst(0)
    (pair,) = port.queue_pairs()
    psns = count(20, 15)
    return lambda: pair.requester.handle_ack(next(psns), 0)


def cnps(control: CongestionControl) -> Callable[[], object]:
    ours = requester(control)
    return lambda: ours.handle_cnp(0)


def timers(control: CongestionControl) -> Callable[[], object]:
    ours, times = requester(control), count(1)
    return lambda: ours.handle_timeout(next(times))


def least_ns(
    kind: type[CongestionControl],
    way: Callable[[CongestionControl], Callable[[], object]],
) -> float:
    found = []
    for _ in range(TRIES):
        work = way(kind())
        before_ns = time.perf_counter_ns()
        for _ in range(CALLS):
            work()
        found.append((time.perf_counter_ns() - before_ns) / CALLS)
    return min(found)


@pytest.mark.parametrize(
    ("kind", "way"), [(Sent, bursts), (Ack, acks), (Cnp, cnps), (Timer, timers)]
)
def test_empty_hook_costs_little(
    kind: type[CongestionControl],
    way: Callable[[CongestionControl], Callable[[], object]],
) -> None:
    added_ns = least_ns(kind, way) - least_ns(CongestionControl, way)
    assert added_ns < at_most(MOST_NS), f"{kind.__name__}: {added_ns:.0f} ns"
