"""A port: whose turn it is, when, and how late the generator was."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.core.counters import fct_bucket
from chakram.roce.burst import Burst
from chakram.roce.congestion import FixedRate
from chakram.roce.constants import NEVER, BurstKind
from chakram.roce.headers import Bth, Packet, encode_packet
from chakram.roce.opcodes import Opcode
from chakram.roce.port import PortEngine
from chakram.roce.turns import SendOrder
from chakram.roce.verify import IcrcVerifier
from chakram.roce.wire import WireEncoder
from chakram.testing.pair import Pair, make_queue_pair

MTU = 1024
# A MIDDLE of 1024 bytes has 1082 on the wire: 8656 ns at 1 Gbit/s.
MIDDLE_NS = (MTU + 58) * 8
GIGABIT = 10**9


def make_port(
    *, qpns: tuple[int, ...] = (1,), settings: dict[str, Any] | None = None, **port: Any
) -> PortEngine:
    defaults: dict[str, Any] = {
        "rate_bps": None,
        "burst_bound_ns": 0,
        "max_burst_packets": 1,
    }
    engine = PortEngine(**(defaults | port))
    for qpn in qpns:
        engine.add_queue_pair(
            make_queue_pair(
                qpn,
                100 + qpn,
                **(
                    {"window_bytes": 10**9, "ack_interval_packets": 99}
                    | (settings or {})
                ),
            )
        )
    return engine


def drained(port: PortEngine, now_ns: int = 0) -> list[Burst]:
    return list(iter(lambda: port.next_burst(now_ns), None))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate_bps": 0}, "rate of 0 bit/s is not positive"),
        ({"burst_bound_ns": -1}, "burst bound of -1 ns is negative"),
        ({"max_burst_packets": 0}, "0 packets in a burst"),
        ({"max_burst_packets": 129}, "129 packets in a burst"),
    ],
)
def test_settings_out_of_range_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_port(**settings)


def test_queue_pairs_are_found_by_number() -> None:
    port = make_port(qpns=(3, 1))

    assert port.queue_pair(3).qpn == 3
    assert [each.qpn for each in port.queue_pairs()] == [3, 1]
    with pytest.raises(KeyError):
        port.queue_pair(2)
    with pytest.raises(KeyError):
        port.post_send(2, 0, 0, 0)
    with pytest.raises(ValueError, match="there is a queue pair 3 already"):
        port.add_queue_pair(make_queue_pair(3))


def test_events_from_before_move_to_the_port() -> None:
    port = make_port(qpns=())
    queue_pair = make_queue_pair(5)
    queue_pair.arrivals.receive_run(0, 1, 0, True, True, 3, 3, 8, False, 0, 0)
    port.add_queue_pair(queue_pair)

    qpn, event = port.next_event()
    assert (qpn, event.message_id) == (5, 8)
    assert port.next_event() is None


def test_turns_go_round() -> None:
    port = make_port(qpns=(1, 2, 3))
    for qpn in (1, 2, 3):
        port.post_send(qpn, 0, 4 * MTU, 0)
    order = [port.next_burst(0).source_qpn for _ in range(9)]

    # The RETH of the first packets is paid back: their queue pairs are in debt.
    assert sorted(order[:3]) == sorted(order[3:6]) == [1, 2, 3]


def in_one_order(**port: Any) -> PortEngine:
    """Return a port with queue pairs 1 and 2 in one order, and 3 by itself."""
    engine = make_port(qpns=(), **port)
    shared = SendOrder()
    for qpn in (1, 2, 3):
        engine.add_queue_pair(
            make_queue_pair(qpn, 100 + qpn, window_bytes=8 * MTU),
            shared if qpn < 3 else None,
        )
    return engine


def test_of_a_common_order_the_earlier_message_goes_first() -> None:
    port = in_one_order()
    port.post_send(2, 0, 3 * MTU, 0, 7)
    port.post_send(1, 0, 2 * MTU, 0, 6)
    port.post_send(1, 1, 2 * MTU, 0, 8)
    port.post_send(2, 1, 1 * MTU, 0, 8)

    left = [(burst.source_qpn, burst.message_id) for burst in drained(port)]
    assert left[:5] == [(1, 0)] * 2 + [(2, 0)] * 3
    assert sorted(left[5:]) == [(1, 1), (1, 1), (2, 1)]


def test_the_later_message_goes_while_the_earlier_one_is_stopped() -> None:
    port = in_one_order()
    port.post_send(1, 0, 12 * MTU, 0, 1)
    port.post_send(2, 0, 12 * MTU, 0, 2)

    left = [burst.source_qpn for burst in drained(port)]
    assert left == [1] * 8 + [2] * 8  # a window each


def test_towards_others_a_common_order_counts_as_those_it_lets_send() -> None:
    port = in_one_order()
    for qpn, order in ((1, 1), (2, 2), (3, 0)):
        port.post_send(qpn, 0, 8 * MTU, 0, order)

    left = [port.next_burst(0).source_qpn for _ in range(14)]
    assert abs(left.count(1) - left.count(3)) <= 1
    assert not left.count(2)


def test_an_idle_queue_pair_is_not_owed_anything() -> None:
    port = make_port(qpns=(1, 2))
    port.post_send(1, 0, 40 * MTU, 0)
    for _ in range(20):
        port.next_burst(0)
    port.post_send(2, 0, 40 * MTU, 0)
    order = [port.next_burst(0).source_qpn for _ in range(20)]

    assert 9 <= order.count(1) <= 11


def test_a_large_quantum_gives_whole_bursts() -> None:
    port = make_port(qpns=(1, 2), max_burst_packets=4)
    for qpn in (1, 2):
        port.post_send(qpn, 0, 100 * MTU, 0)
    bursts = [port.next_burst(0) for _ in range(10)]

    assert [each.count for each in bursts[4:]] == [4] * 6


def test_a_rate_spaces_bursts() -> None:
    port = make_port(rate_bps=GIGABIT)
    port.post_send(1, 0, 4 * MTU, 100)
    assert port.next_wakeup_ns() <= 100
    (first,) = drained(port, 100)
    free_ns = 100 + first.wire_bytes * 8
    assert port.next_wakeup_ns() == free_ns
    assert drained(port, free_ns - 1) == []
    assert len(drained(port, free_ns)) == 1
    assert port.next_wakeup_ns() == free_ns + MIDDLE_NS


def test_fractions_of_a_nanosecond_add_up() -> None:
    port = make_port(rate_bps=7 * GIGABIT)
    port.post_send(1, 0, 1_000 * MTU, 0)
    for _ in range(701):
        drained(port, port.next_wakeup_ns() if port.statistics().bytes_sent else 0)
    # All but the last packet have passed, to the bit.
    statistics = port.statistics()
    assert statistics.packets_sent == 701
    assert port.next_wakeup_ns() == statistics.bytes_sent * 8 // 7


def test_a_late_shell_catches_up_within_the_bound() -> None:
    port = make_port(rate_bps=GIGABIT, burst_bound_ns=2 * MIDDLE_NS)
    port.post_send(1, 0, 100 * MTU, 0)
    drained(port, 0)
    # Two packets late: both leave at once, and nothing is lost.
    late_ns = port.next_wakeup_ns() + 2 * MIDDLE_NS
    assert len(drained(port, late_ns)) == 3
    assert port.statistics().generator_wait_ns == 0
    assert port.next_wakeup_ns() == late_ns + MIDDLE_NS


def test_what_cannot_be_made_up_is_accounted_for() -> None:
    port = make_port(rate_bps=GIGABIT, burst_bound_ns=2 * MIDDLE_NS)
    port.post_send(1, 7, 20 * MTU, 0)
    drained(port, 0)
    late_ns = port.next_wakeup_ns() + 10 * MIDDLE_NS
    drained(port, late_ns)

    statistics = port.statistics()
    assert statistics.generator_wait_ns == 8 * MIDDLE_NS
    assert statistics.generator_waits == 1
    while port.statistics().packets_sent < 20:
        drained(port, port.next_wakeup_ns())
    port.receive_burst(ack_of(port, 19), late_ns)
    _, event = port.next_event()
    assert event.generator_wait_ns == 8 * MIDDLE_NS


def ack_of(port: PortEngine, psn: int, qpn: int = 1) -> Burst:
    """An ACK from the peer of a queue pair of *port*."""
    peer = make_queue_pair(100 + qpn, qpn, receive_psn=psn)
    peer.arrivals.receive_run(psn, 1, 0, True, True, 1, 1, 1, True, 0, 0)
    burst = peer.next_burst(0, 1)
    assert burst is not None
    return burst


def test_lateness_counts_from_when_there_was_something_to_send() -> None:
    port = make_port(rate_bps=GIGABIT)
    port.post_send(1, 0, 10, 5_000)
    drained(port, 5_300)
    assert port.statistics().generator_wait_ns == 300
    # A long pause is nobody's fault.
    port.post_send(1, 1, 10, 900_000)
    drained(port, 900_000)
    assert port.statistics().generator_wait_ns == 300


def test_all_messages_that_waited_are_told() -> None:
    port = make_port(qpns=(1, 2, 3), rate_bps=GIGABIT)
    port.post_send(1, 0, 10, 0)
    port.post_send(2, 0, 10, 600)
    drained(port, 1_000)
    while port.next_wakeup_ns() < 10_000:
        drained(port, port.next_wakeup_ns())
    port.post_send(3, 0, 10, 20_000)
    drained(port, 20_000)
    waits = {}
    for qpn in (1, 2, 3):
        port.receive_burst(ack_of(port, 0, qpn), 30_000)
        _, event = port.next_event()
        waits[qpn] = event.generator_wait_ns

    # The second was there for 400 ns of the lost microsecond, until the line was free.
    assert waits == {1: 1_000, 2: 400, 3: 0}


def test_a_refusing_socket_is_not_the_generator() -> None:
    port = make_port(rate_bps=GIGABIT)
    port.post_send(1, 0, 10, 0)
    offered = port.peek_burst(0)
    again = port.peek_burst(70_000)
    assert again is not None
    assert (again.psn, again.count) == (offered.psn, offered.count)
    port.commit_burst(again, 70_000)

    statistics = port.statistics()
    assert (statistics.packets_sent, statistics.generator_wait_ns) == (1, 0)
    assert port.queue_pair(1).statistics().packets_sent == 1


def test_a_port_without_rate_counts_gaps_beyond_the_bound() -> None:
    port = make_port(burst_bound_ns=1_000)
    port.post_send(1, 0, 3 * MTU, 0)
    port.next_burst(0)
    port.next_burst(900)
    assert port.statistics().generator_wait_ns == 0
    port.next_burst(4_000)
    assert port.statistics().generator_wait_ns == 2_100


def test_only_what_was_offered_can_be_committed() -> None:
    port = make_port()
    port.post_send(1, 0, 3 * MTU, 0)
    offered = port.peek_burst(0)
    assert offered is not None
    with pytest.raises(ValueError, match="is not the burst that was offered last"):
        port.commit_burst(Burst(), 0)
    port.commit_burst(offered, 0)
    with pytest.raises(ValueError, match="is not the burst that was offered last"):
        port.commit_burst(offered, 0)


def test_answers_leave_before_data() -> None:
    port = make_port(rate_bps=GIGABIT, settings={"cnp_interval_ns": 0})
    peer = make_port(qpns=())
    peer.add_queue_pair(make_queue_pair(101, 1))
    port.post_send(1, 0, 3 * MTU, 0)
    peer.post_send(101, 0, 10, 0)
    port.receive_burst(peer.next_burst(0), 0, ce=1)
    kinds = []
    while port.next_wakeup_ns() < 100_000:
        kinds += [each.kind for each in drained(port, max(0, port.next_wakeup_ns()))]

    assert kinds[:3] == [BurstKind.CNP, BurstKind.ACK, BurstKind.DATA]
    assert port.statistics().control_sent == 2


def test_an_answer_that_is_no_longer_due_is_dropped() -> None:
    port, peer = make_port(), make_port(qpns=())
    peer.add_queue_pair(make_queue_pair(101, 1, ack_interval_packets=99))
    peer.post_send(101, 0, 3 * MTU, 0)
    bursts = [peer.next_burst(0) for _ in range(3)]
    port.receive_burst(bursts[1], 0)  # a gap, so a NAK is due
    port.receive_burst(bursts[0], 0)  # it closes

    assert port.next_burst(0) is None
    assert port.next_wakeup_ns() == NEVER


def test_pacing_of_a_queue_pair_wakes_the_port() -> None:
    port = make_port(qpns=())
    port.add_queue_pair(
        make_queue_pair(
            1,
            101,
            congestion_control=FixedRate(rate_bps=GIGABIT),
            burst_bound_ns=0,
            window_bytes=10**9,
        )
    )
    port.post_send(1, 0, 3 * MTU, 0)
    (first,) = drained(port)
    assert port.next_wakeup_ns() == first.wire_bytes * 8
    # Late by 500 ns: the queue pair, not the port, sets when it was due.
    drained(port, first.wire_bytes * 8 + 500)
    assert port.statistics().generator_wait_ns == 500


def test_retransmission_timers_wake_the_port() -> None:
    port = make_port(qpns=(1, 2))
    port.post_send(1, 0, 10, 0)
    drained(port, 0)
    port.post_send(2, 0, 10, 400_000)
    drained(port, 400_000)
    assert port.next_wakeup_ns() == 1_000_000
    # An ACK moves nothing in the port until the old deadline is looked at.
    port.receive_burst(ack_of(port, 0, 1), 500_000)
    assert port.next_wakeup_ns() == 1_400_000
    port.handle_timers(1_399_999)
    assert drained(port, 1_399_999) == []
    (again,) = drained(port, 1_400_000)
    assert again.is_retransmission
    assert port.queue_pair(2).statistics().timeouts == 1


def test_deadlines_move_both_ways() -> None:
    control = FixedRate(rate_bps=100 * GIGABIT)
    port = make_port(qpns=())
    # A window of one message: the second one waits, so the control's timer counts.
    port.add_queue_pair(
        make_queue_pair(1, 101, congestion_control=control, window_bytes=10)
    )
    port.post_send(1, 0, 10, 0)
    drained(port)
    assert port.next_wakeup_ns() == 1_000_000  # retransmission
    control.next_timer_ns = 300
    port.post_send(1, 1, 10, 100)
    assert drained(port, 100) == []
    assert port.next_wakeup_ns() == 300
    control.next_timer_ns = 2_000
    assert port.next_wakeup_ns() == 2_000
    # The second one leaves too: of the deadlines its retransmission alone is left.
    port.receive_burst(ack_of(port, 0), 400)
    assert len(drained(port, 400)) == 1
    assert port.next_wakeup_ns() == 1_000_400
    # All is acknowledged; what stands for the old deadlines does nothing.
    port.receive_burst(ack_of(port, 1), 500)
    port.handle_timers(2_000_000)
    assert port.next_wakeup_ns() == NEVER
    assert port.queue_pair(1).statistics().timeouts == 0


def test_a_queue_pair_deep_in_debt_misses_a_turn() -> None:
    port = make_port(qpns=(1, 2), max_burst_packets=2)
    # Two messages leave 8 bytes of the quantum of 2164; the next burst takes 2180.
    for size in (1_004, 996, 2 * MTU):
        port.post_send(1, 0, size, 0)
    port.post_send(1, 0, 99 * MTU, 0)
    port.post_send(2, 0, 99 * MTU, 0)
    order = [port.next_burst(0).source_qpn for _ in range(6)]

    assert order == [1, 1, 1, 2, 2, 1]


def test_what_comes_while_a_burst_is_on_offer_did_not_wait() -> None:
    port = make_port(qpns=(1, 2), rate_bps=GIGABIT)
    port.post_send(1, 0, 10, 0)
    offered = port.peek_burst(700)
    port.post_send(2, 0, 10, 900)
    port.commit_burst(offered, 900)
    drained(port, 10_000)
    port.receive_burst(ack_of(port, 0, 1), 10_000)
    port.receive_burst(ack_of(port, 0, 2), 10_000)
    waits = [event.generator_wait_ns for _, event in iter(port.next_event, None)]

    # The line was free from the end of the first burst, 90 bytes on the wire, on.
    assert waits == [700, 10_000 - 900 - 90 * 8]


def test_a_queue_pair_that_fails_in_the_ring_is_skipped() -> None:
    port = make_port(qpns=(1, 2))
    for qpn in (1, 2):
        port.post_send(qpn, 0, 10 * MTU, 0)
        port.next_burst(0)
    port.receive_burst(nak_of(port, 0, code=0x61), 0)

    assert {each.source_qpn for each in drained(port)} == {2}


def nak_of(port: PortEngine, psn: int, code: int) -> Burst:
    """A NAK from the peer of queue pair 1 of *port*."""
    peer = make_queue_pair(101, 1, receive_psn=psn)
    peer.arrivals.receive_run(psn, 1, 0, False, True, 1, 1, 1, True, 0, 0)
    burst = peer.next_burst(0, 1)
    assert burst is not None
    assert burst.syndrome == code
    return burst


def test_packets_for_nobody_are_counted() -> None:
    port, peer = make_port(), make_port(qpns=(1,))
    peer.post_send(1, 0, 10, 0)
    burst = peer.next_burst(0)
    port.receive_burst(burst, 0)
    encoder = WireEncoder(local_address="198.18.0.1", path_mtu=MTU, max_burst_packets=2)
    encoder.set_destination(0, "198.18.0.2")
    data = bytes(encoder.encode(burst)[0])
    port.receive_datagrams(data * 2, 2 * len(data), len(data), 0)

    assert port.statistics().unknown_queue_pair == 3
    assert port.statistics().packets_received == 3


def test_segments_of_several_queue_pairs_are_told_apart() -> None:
    peer = make_port(qpns=(), max_burst_packets=15)
    for number in (1, 2):
        peer.add_queue_pair(make_queue_pair(100 + number, number))
    port = make_port(qpns=(1, 2), settings={"cnp_interval_ns": 0})
    encoder = WireEncoder(
        local_address="198.18.0.1", path_mtu=MTU, max_burst_packets=15
    )
    encoder.set_destination(0, "198.18.0.2")
    joined = b""
    for number in (1, 2):
        for message in range(2):
            peer.post_send(100 + number, message, 32, 0)
    bursts = drained(peer)
    for burst in bursts:
        joined += bytes(encoder.encode(burst)[0])
    size = len(joined) // 4
    port.receive_datagrams(joined, len(joined), size, 0, ce=True)

    messages = [(qpn, event.message_id) for qpn, event in iter(port.next_event, None)]
    assert sorted(messages) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert port.queue_pair(1).statistics().ce == 2
    kinds = [each.kind for each in drained(port)]
    assert kinds == [BurstKind.CNP, BurstKind.ACK] * 2


def test_bytes_that_are_not_served_are_counted() -> None:
    port = make_port()
    read = bytes.fromhex("0c00ffff0000000180000000") + bytes(20)
    response = bytes.fromhex("0e00ffff0000000100000000") + bytes(8)
    port.receive_datagrams(b"", 0, 0, 0)
    port.receive_datagrams(b"short", 99, 0, 0)
    port.receive_datagrams(response, len(response), 0, 0)
    assert port.queue_pair(1).statistics().failure is None
    port.receive_datagrams(read, len(read), 0, 0)

    statistics = port.statistics()
    assert (statistics.malformed, statistics.unsupported) == (2, 2)
    assert "opcode 0x0c" in (port.queue_pair(1).statistics().failure or "")
    assert port.next_burst(0).syndrome == 0x61


@pytest.mark.parametrize("opcode", [0x0C, 0x13, 0x14, 0x16, 0x17, 0x1C, 0x1D])
def test_requests_that_are_not_served_are_refused(opcode: int) -> None:
    port = make_port()
    request = bytes((opcode,)) + bytes.fromhex("00ffff0000000180000000") + bytes(32)
    port.receive_datagrams(request, len(request), 0, 0)

    assert port.next_burst(0).syndrome == 0x61
    failure = port.queue_pair(1).statistics().failure or ""
    assert failure.endswith(f"opcode {opcode:#04x} is not supported")


def test_wrong_icrcs_are_dropped_in_a_sample() -> None:
    verifier = IcrcVerifier(local_address="198.18.0.2", every=2)
    verifier.set_destination(0, "198.18.0.1")
    port = make_port(qpns=(), verifier=verifier)
    port.add_queue_pair(make_queue_pair(1, 101))
    peer = make_port(qpns=())
    peer.add_queue_pair(make_queue_pair(101, 1))
    encoder = WireEncoder(local_address="198.18.0.1", path_mtu=MTU, max_burst_packets=1)
    encoder.set_destination(0, "198.18.0.2")
    for number in range(4):
        peer.post_send(101, number, 10, 0)
        data = bytearray(encoder.encode(peer.next_burst(0))[0])
        data[-5] ^= number == 3
        port.receive_datagrams(data, len(data), 0, 0, False, 0xC000)
    # Without the sender's port nothing can be checked, nor for a stranger.
    port.receive_datagrams(data, len(data), 0, 0)
    data[7] = 99
    port.receive_datagrams(data, len(data), 0, 0, False, 0xC000)

    statistics = port.statistics()
    assert (statistics.icrc_checked, statistics.icrc_errors) == (2, 1)
    assert port.queue_pair(1).statistics().messages_received == 4


# What is measured on the way.


def test_packets_of_other_partitions_are_dropped() -> None:
    port = make_port()
    # A full member, a limited one of the same partition, and two others.
    for psn, key in ((0, 0xFFFF), (1, 0x7FFF), (2, 0x8001), (2, 0xFFFE)):
        bth = Bth(
            opcode=Opcode.SEND_ONLY, destination_qpn=1, psn=psn, partition_key=key
        )
        data = encode_packet(Packet(bth=bth))
        port.receive_datagrams(data, len(data), 0, 0)

    assert port.statistics().partition_key_errors == 2
    assert port.queue_pair(1).statistics().messages_received == 2


def test_round_trips_fall_into_buckets() -> None:
    pair = Pair(make_queue_pair(), make_queue_pair(0x12, 0x11), delay_ns=10_000)
    pair.post(1, 100)
    pair.run()

    statistics = pair.left.port.statistics()
    assert statistics.round_trips.sum_ns == 20_000
    assert statistics.round_trips.counts[fct_bucket(20_000)] == 1
    assert sum(statistics.round_trips.counts) == 1
    assert sum(statistics.pacing_errors.counts) == 0  # there is no rate


def test_pacing_errors_are_how_late_the_shell_came() -> None:
    port = make_port(rate_bps=GIGABIT)
    port.post_send(1, 1, 3 * MTU, 0)
    assert port.next_burst(3_000) is not None
    due_ns = port.next_wakeup_ns()
    assert port.next_burst(due_ns - 1) is None
    assert port.peek_burst(due_ns + 50_000) is not None
    # The socket was full; that it is offered again is not the shell's fault.
    assert port.next_burst(due_ns + 90_000) is not None

    errors = port.statistics().pacing_errors
    assert errors.sum_ns == 53_000
    assert errors.counts[fct_bucket(3_000)] == errors.counts[fct_bucket(50_000)] == 1


def test_a_queue_pair_is_not_late_before_it_is_ready() -> None:
    port = make_port()
    port.add_queue_pair(
        make_queue_pair(2, 102, congestion_control=FixedRate(rate_bps=GIGABIT))
    )
    port.post_send(2, 1, 100, 0)
    drained(port, 0)
    port.queue_pair(2).arrivals.receive_ack(0x1F, 0, 100)
    # Its pace would have allowed a burst long ago, but there was none to send.
    port.post_send(1, 1, MTU, 8_000_000)
    port.post_send(2, 2, 100, 9_000_000)
    drained(port, 9_000_007)

    assert port.statistics().pacing_errors.sum_ns == 7
