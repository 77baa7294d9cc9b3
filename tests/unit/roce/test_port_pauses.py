"""A paused port: which packets stop, for how long, and no charge for the delay."""

from __future__ import annotations

from chakram.roce.constants import NEVER, BurstKind
from chakram.roce.port import PortEngine
from tests.unit.roce.ports import MTU
from tests.virtual_wire import make_queue_pair

RATE_BPS = 8 * 10**9
"""A byte a nanosecond."""
LONG_NS = 10_000_000


def make_port() -> PortEngine:
    port = PortEngine(rate_bps=RATE_BPS, burst_bound_ns=1000, max_burst_packets=1)
    port.add_queue_pair(make_queue_pair(1, 2, path_mtu=MTU, window_bytes=64 * MTU))
    return port


def test_data_stops_until_the_pause_ends() -> None:
    port = make_port()
    port.post_send(1, 0, 4 * MTU, 0)
    assert port.next_burst(0) is not None
    port.pause(True, True, LONG_NS, 100)

    assert port.next_burst(LONG_NS // 2) is None
    assert port.next_wakeup_ns() == LONG_NS
    assert port.next_burst(LONG_NS - 1) is None
    assert port.next_burst(LONG_NS) is not None
    assert port.statistics().paused_ns == LONG_NS - 100
    # The data plane was on time: it offered what was due as soon as that might leave.
    assert port.statistics().generator_wait_ns == 0


def test_a_pause_can_be_ended_and_be_made_longer() -> None:
    port = make_port()
    port.post_send(1, 0, 4 * MTU, 0)
    port.pause(True, True, LONG_NS, 0)
    port.pause(True, True, 2 * LONG_NS, LONG_NS // 2)
    assert port.next_burst(LONG_NS + 1) is None
    assert port.statistics().paused_ns == 0
    port.pause(True, True, LONG_NS + 2, LONG_NS + 2)
    assert port.next_burst(LONG_NS + 2) is not None
    assert port.statistics().paused_ns == LONG_NS + 2
    assert port.statistics().generator_wait_ns == 0


def test_delay_after_a_pause_excludes_the_pause() -> None:
    port = make_port()
    port.post_send(1, 0, 4 * MTU, 0)
    port.pause(True, True, LONG_NS, 0)
    assert port.next_burst(LONG_NS + 5000) is not None
    assert port.statistics().generator_wait_ns == 4000


def test_pause_accumulates_no_credit() -> None:
    port = make_port()
    port.post_send(1, 0, 64 * MTU, 0)
    port.pause(True, True, LONG_NS, 0)
    sent = 0
    while port.next_burst(LONG_NS) is not None:
        sent += 1
    # The burst bound of the port, and one packet.
    assert sent <= 2 + 1000 // MTU


def test_answers_of_another_class_continue() -> None:
    port, peer = (
        make_port(),
        PortEngine(rate_bps=None, burst_bound_ns=0, max_burst_packets=1),
    )
    peer.add_queue_pair(make_queue_pair(2, 1, path_mtu=MTU, window_bytes=64 * MTU))
    peer.post_send(2, 0, MTU, 0)
    burst = peer.next_burst(0)
    assert burst is not None
    port.post_send(1, 0, MTU, 0)
    port.pause(True, False, LONG_NS, 0)
    port.receive_burst(burst, 10)
    answer = port.next_burst(10)
    assert answer is not None
    assert answer.kind == BurstKind.ACK
    assert port.next_burst(11) is None
    assert port.next_wakeup_ns() == LONG_NS


def test_answers_of_the_same_class_stop() -> None:
    port, peer = (
        make_port(),
        PortEngine(rate_bps=None, burst_bound_ns=0, max_burst_packets=1),
    )
    peer.add_queue_pair(make_queue_pair(2, 1, path_mtu=MTU, window_bytes=64 * MTU))
    peer.post_send(2, 0, MTU, 0)
    burst = peer.next_burst(0)
    assert burst is not None
    port.pause(True, True, LONG_NS, 0)
    port.receive_burst(burst, 10)
    assert port.next_burst(10) is None
    assert port.next_wakeup_ns() == LONG_NS
    assert port.next_burst(LONG_NS) is not None
    assert port.next_wakeup_ns() == NEVER
    # Data had nothing to wait for, and is not said to have waited less than it rested.
    assert port.statistics().paused_ns == LONG_NS


def test_a_pause_of_answers_alone_is_no_pause_of_data() -> None:
    port = make_port()
    port.post_send(1, 0, 4 * MTU, 0)
    port.pause(True, False, 1000, 0)
    assert port.next_burst(1000) is not None
    port.pause(False, True, LONG_NS, 5000)

    assert port.next_burst(LONG_NS // 2) is not None
    assert port.next_burst(2 * LONG_NS) is not None
    assert port.statistics().paused_ns == 1000
