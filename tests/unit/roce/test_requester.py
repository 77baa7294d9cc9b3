"""The requester of a queue pair: sent packets and effects of ACKs."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.roce.burst import Burst
from chakram.roce.congestion import CongestionControl
from chakram.roce.constants import NEVER, Verb
from chakram.roce.events import SendCompleted
from tests.unit.roce.requesters import (
    MTU,
    TIMEOUT_NS,
    ack,
    events,
    nak,
    requester,
    sent,
)


def shapes(bursts: list[Burst]) -> list[tuple[int, int]]:
    return [(burst.packet_index, burst.count) for burst in bursts]


# What fits one send.


@pytest.mark.parametrize(
    ("verb", "size", "expected"),
    [
        (Verb.WRITE, 0, [(0, 1)]),
        (Verb.WRITE, MTU, [(0, 1)]),
        # FIRST is longer than what follows: exactly one may join it.
        (Verb.WRITE, MTU + 1, [(0, 2)]),
        (Verb.WRITE, 2 * MTU, [(0, 2)]),
        (Verb.WRITE, 7 * MTU, [(0, 2), (2, 4), (6, 1)]),
        # LAST with immediate fits behind MIDDLEs if it is not longer than they are.
        (Verb.WRITE, 7 * MTU - 4, [(0, 2), (2, 5)]),
        (Verb.WRITE, 7 * MTU - 3, [(0, 2), (2, 4), (6, 1)]),
        (Verb.WRITE, 20 * MTU, [(0, 2), (2, 15), (17, 2), (19, 1)]),
        (Verb.SEND, 7 * MTU - 4, [(0, 7)]),
        (Verb.SEND, 7 * MTU, [(0, 6), (6, 1)]),
        (Verb.SEND, 2 * MTU, [(0, 1), (1, 1)]),
        (Verb.SEND, MTU, [(0, 1)]),
    ],
)
def test_bursts_fit_one_send(
    verb: Verb, size: int, expected: list[tuple[int, int]]
) -> None:
    qp = requester(verb=verb, window_bytes=10**6)
    qp.post_send(1, size, 0)

    assert shapes(sent(qp)) == expected


def test_max_packets_bounds_bursts() -> None:
    qp = requester(window_bytes=10**6)
    qp.post_send(1, 5 * MTU, 0)

    assert shapes(sent(qp, max_packets=1)) == [(index, 1) for index in range(5)]


def test_wire_bytes_count_headers_and_pad() -> None:
    qp = requester(window_bytes=10**6)
    qp.post_send(1, MTU + 1, 0)
    (burst,) = sent(qp)

    # FIRST has a RETH, LAST an immediate and three bytes of pad.
    assert burst.wire_bytes == (MTU + 58 + 16) + (1 + 3 + 58 + 4)
    assert [burst.packet_wire_bytes(i) for i in (0, 1)] == [MTU + 74, 66]
    assert [burst.packet_payload_bytes(i) for i in (0, 1)] == [MTU, 1]
    assert burst.payload_bytes == MTU + 1


# Asking for ACKs.


def test_ack_is_requested_at_the_end_of_a_message() -> None:
    qp = requester(window_bytes=10**6, ack_interval_packets=100)
    qp.post_send(1, 3 * MTU, 0)
    qp.post_send(2, 1, 0)

    assert [each.ack_request for each in sent(qp)] == [False, True, True]


def test_ack_is_requested_after_the_interval_in_whole_bursts() -> None:
    qp = requester(window_bytes=10**6, ack_interval_packets=8)
    qp.post_send(1, 30 * MTU, 0)

    bursts = sent(qp, max_packets=4)
    asking = [each.packet_index + each.count for each in bursts if each.ack_request]
    assert asking == [10, 18, 26, 30]


def test_ack_is_requested_when_the_window_is_full() -> None:
    qp = requester(window_bytes=5 * MTU, ack_interval_packets=100)
    qp.post_send(1, 30 * MTU, 0)

    bursts = sent(qp)
    assert shapes(bursts) == [(0, 2), (2, 3)]
    assert [each.ack_request for each in bursts] == [False, True]
    ack(qp, 1)
    assert shapes(sent(qp)) == [(5, 2)]


def test_one_packet_may_exceed_the_window() -> None:
    qp = requester(window_bytes=1)
    qp.post_send(1, 3 * MTU, 0)

    for index in range(3):
        (burst,) = sent(qp)
        assert (burst.packet_index, burst.count, burst.ack_request) == (index, 1, True)
        ack(qp, index)


def test_reduced_window_requests_an_ack_before_stopping() -> None:
    control = CongestionControl()
    qp = requester(
        window_bytes=10**6, ack_interval_packets=100, congestion_control=control
    )
    qp.post_send(1, 30 * MTU, 0)
    qp.next_burst(0, 2)
    qp.next_burst(0, 8)
    control.window_bytes = 3 * MTU

    (burst,) = sent(qp)
    assert (burst.packet_index, burst.count, burst.ack_request) == (10, 1, True)
    assert qp.next_timeout_ns() == TIMEOUT_NS


def test_never_more_than_half_the_psns_are_outstanding() -> None:
    qp = requester(path_mtu=256, window_bytes=2**40, ack_interval_packets=2**24)
    for number in range(3):
        qp.post_send(number, 2**30, 0)
    bursts = sent(qp, max_packets=2**24)

    assert sum(each.count for each in bursts) == 2**23
    assert bursts[-1].ack_request
    assert not qp.next_burst(0, 2**24)
    assert not qp.make_burst(1)
    assert qp.next_timeout_ns() == TIMEOUT_NS
    ack(qp, 2**23 - 1)
    assert qp.next_burst(0, 1) is not None


def test_no_burst_is_built_when_sending_is_not_allowed() -> None:
    qp = requester(window_bytes=MTU)
    assert qp.make_burst(1) is None
    qp.requester.add_generator_wait(5)  # no message waits
    qp.post_send(1, 3 * MTU, 0)
    sent(qp)

    assert qp.make_burst(1) is None


# ACKs.


def test_completions_contain_times_and_counts() -> None:
    qp = requester(window_bytes=10**6)
    qp.post_send(7, 3 * MTU, 100)
    qp.post_send(8, 0, 150)
    sent(qp, now_ns=200)
    ack(qp, 2, now_ns=900)
    (first,) = events(qp)
    ack(qp, 3, now_ns=950)
    (second,) = events(qp)

    assert isinstance(first, SendCompleted)
    assert (first.message_id, first.size_bytes, first.packets) == (7, 3 * MTU, 3)
    assert (first.posted_ns, first.first_sent_ns, first.last_acked_ns) == (
        100,
        200,
        900,
    )
    assert (first.retransmitted, first.cnps, first.generator_wait_ns) == (0, 0, 0)
    assert first.rate_at_start_bps is None
    assert (second.message_id, second.packets) == (8, 1)
    assert "message_id=7" in repr(first)
    assert qp.unfinished_messages() == 0


def test_an_ack_covers_all_before_it() -> None:
    qp = requester(window_bytes=10**6)
    for number in range(200):
        qp.post_send(number, 10, 0)
    sent(qp)
    ack(qp, 149)

    assert [event.message_id for event in events(qp)] == list(range(150))
    assert qp.unfinished_messages() == 50
    assert qp.unacknowledged_bytes() == 500
    ack(qp, 199)
    assert [event.message_id for event in events(qp)] == list(range(150, 200))


def test_old_acks_are_ignored() -> None:
    qp = requester()
    qp.post_send(1, 10, 0)
    qp.post_send(2, 10, 0)
    sent(qp)
    ack(qp, 0)
    events(qp)
    ack(qp, 0)
    ack(qp, -5)

    assert events(qp) == []
    assert qp.statistics().acks_received == 3
    assert qp.statistics().acks_invalid == 0


def test_ack_beyond_highest_sent_psn_is_invalid() -> None:
    qp = requester()
    qp.post_send(1, 10 * MTU, 0)
    qp.next_burst(0, 2)
    ack(qp, 2)
    nak(qp, 2)

    assert events(qp) == []
    assert qp.statistics().acks_invalid == 2
    ack(qp, 1)
    assert qp.unacknowledged_bytes() == 0


def test_round_trips_are_measured_on_packets_sent_once() -> None:
    samples = []

    class Recorder(CongestionControl):
        __slots__ = ()

        def on_ack(self, acked_bytes: int, round_trip_ns: int, now_ns: int) -> None:
            samples.append((acked_bytes, round_trip_ns))

    qp = requester(congestion_control=Recorder())
    qp.post_send(1, 10, 0)
    sent(qp, now_ns=1_000)
    ack(qp, 0, now_ns=4_500)
    qp.post_send(2, 20, 0)
    sent(qp, now_ns=5_000)
    qp.handle_timeout(5_000 + TIMEOUT_NS)
    sent(qp, now_ns=2_000_000)
    ack(qp, 1, now_ns=2_000_100)

    assert samples == [(10, 3_500), (20, 0)]


# Congestion control.


class Scripted(CongestionControl):
    """Records its calls, and sets the values of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def on_sent(self, wire_bytes: int, now_ns: int) -> None:
        self.told.append(("sent", wire_bytes, now_ns))

    def on_nak(self, now_ns: int) -> None:
        self.told.append(("nak", now_ns))

    def on_cnp(self, now_ns: int) -> None:
        self.told.append(("cnp", now_ns))

    def on_timeout(self, now_ns: int) -> None:
        self.told.append(("timeout", now_ns))

    def on_timer(self, now_ns: int) -> None:
        self.told.append(("timer", now_ns))
        self.next_timer_ns = now_ns + 100


def test_congestion_control_receives_events() -> None:
    control = Scripted()
    qp = requester(congestion_control=control, window_bytes=10**6)
    qp.post_send(1, 10, 0)
    sent(qp, now_ns=5)
    qp.arrivals.receive_cnp(6)
    nak(qp, 0, now_ns=7)
    sent(qp, now_ns=8)
    qp.handle_timeout(8 + TIMEOUT_NS)

    assert control.told == [
        ("sent", 10 + 2 + 58 + 20, 5),
        ("cnp", 6),
        ("nak", 7),
        ("sent", 10 + 2 + 58 + 20, 8),
        ("timeout", 8 + TIMEOUT_NS),
    ]


def test_congestion_control_has_a_timer() -> None:
    control = Scripted()
    qp = requester(congestion_control=control, window_bytes=MTU)
    qp.post_send(1, 2 * MTU, 0)
    sent(qp)
    control.told.clear()
    control.next_timer_ns = 40

    assert qp.next_timeout_ns() == 40
    qp.handle_timeout(39)
    assert control.told == []
    qp.handle_timeout(45)
    assert control.told == [("timer", 45)]
    assert qp.next_timeout_ns() == 145


def test_a_queue_pair_with_nothing_to_send_is_not_woken_by_its_timer() -> None:
    control = Scripted()
    qp = requester(congestion_control=control)
    control.next_timer_ns = 40

    assert qp.next_timeout_ns() == NEVER
    # What the timer does to the rate counts for the next message all the same.
    qp.post_send(1, 10, 50)
    qp.post_send(2, 10, 60)
    assert control.told == [("timer", 50)]


def test_current_rate_is_used() -> None:
    control = CongestionControl()
    control.rate_bps = 8_000_000  # one byte per microsecond
    qp = requester(congestion_control=control, burst_bound_ns=0, window_bytes=10**6)
    qp.post_send(1, 10 * MTU, 0)

    burst = qp.next_burst(0, 15)
    assert burst is not None
    assert burst.count == 1
    assert qp.next_timeout_ns() == burst.wire_bytes * 1_000
    control.rate_bps *= 2
    assert qp.next_timeout_ns() == burst.wire_bytes * 500
    assert qp.next_burst(burst.wire_bytes * 500 - 1, 15) is None
    assert qp.next_burst(burst.wire_bytes * 500, 15) is not None


def test_completions_contain_rate_and_cnps() -> None:
    control = CongestionControl()
    control.rate_bps = 10**9
    qp = requester(congestion_control=control)
    qp.arrivals.receive_cnp(0)
    qp.post_send(1, 10, 0)
    sent(qp)
    qp.arrivals.receive_cnp(1)
    qp.arrivals.receive_cnp(2)
    control.rate_bps = 10**8
    ack(qp, 0)

    (event,) = events(qp)
    assert event.rate_at_start_bps == 10**9
    assert event.cnps == 2
    assert qp.statistics().rate_bps == 10**8


# What is refused.


@pytest.mark.parametrize("size_bytes", [-1, 2**31 + 1])
def test_sizes_out_of_range_are_refused(size_bytes: int) -> None:
    qp = requester()
    with pytest.raises(ValueError, match="bytes are not in"):
        qp.post_send(1, size_bytes, 0)
    assert qp.statistics().messages_posted == 0


@pytest.mark.parametrize("message_id", [-2, 2**32])
def test_message_ids_have_32_bits(message_id: int) -> None:
    qp = requester()
    with pytest.raises(ValueError, match="does not fit in 32 bits"):
        qp.post_send(message_id, 1, 0)


def test_only_the_next_burst_can_be_sent() -> None:
    qp = requester(window_bytes=10**6)
    qp.post_send(1, 10 * MTU, 0)
    burst = qp.make_burst(2)
    assert burst is not None
    qp.commit(burst, 0)
    with pytest.raises(ValueError, match="is not the next burst of qpn 17"):
        qp.commit(burst, 0)
