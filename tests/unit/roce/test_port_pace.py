"""A port: times of bursts and wake-ups, and delays of the generator."""

from __future__ import annotations

import tracemalloc

import pytest

from chakram.records.counter_slots import fct_bucket
from chakram.roce.congestion.fixed_rate import FixedRate
from chakram.roce.constants import NEVER
from chakram.roce.pacing import Line
from tests.unit.roce.ports import GIGABIT, MIDDLE_NS, MTU, ack_of, drained, make_port
from tests.virtual_wire import make_queue_pair


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


def test_late_data_plane_catches_up_within_the_bound() -> None:
    port = make_port(rate_bps=GIGABIT, burst_bound_ns=2 * MIDDLE_NS)
    port.post_send(1, 0, 100 * MTU, 0)
    drained(port, 0)
    # Two packets late: both leave at once, and nothing is lost.
    late_ns = port.next_wakeup_ns() + 2 * MIDDLE_NS
    assert len(drained(port, late_ns)) == 3
    assert port.statistics().generator_wait_ns == 0
    assert port.next_wakeup_ns() == late_ns + MIDDLE_NS


@pytest.mark.parametrize("paced", [False, True])
def test_a_port_that_saves_up_begins_ahead_after_each_pause(paced: bool) -> None:
    line = Line(rate_bps=GIGABIT, burst_bound_ns=2 * MIDDLE_NS, saves_up=True)
    settings = {
        "congestion_control": FixedRate(rate_bps=GIGABIT) if paced else None,
        "burst_bound_ns": 2 * MIDDLE_NS,
        "saves_up": True,
    }
    port = make_port(rate_bps=GIGABIT, line=line, settings=settings)
    for start_ns in (1000 * MIDDLE_NS, 2000 * MIDDLE_NS):
        port.post_send(1, 0, 5 * MTU, start_ns)
        # As if it had begun earlier by the bound.
        sent = drained(port, start_ns)
        assert len(sent) == 2
        wire_ns = 8 * sum(burst.wire_bytes for burst in sent)
        assert port.next_wakeup_ns() == start_ns - 2 * MIDDLE_NS + wire_ns
        # A shell that is two packets late finds two more due.
        assert len(drained(port, port.next_wakeup_ns() + 2 * MIDDLE_NS)) == 3
    assert port.statistics().generator_wait_ns == 0


class Forced(FixedRate):
    """A rate that the network forces on a queue pair."""

    keeps_rate = False


@pytest.mark.parametrize(("control", "packets"), [(FixedRate, 2), (Forced, 1)])
def test_only_sustained_rates_accumulate_credit(
    control: type[FixedRate], packets: int
) -> None:
    settings = {
        "congestion_control": control(rate_bps=GIGABIT),
        "burst_bound_ns": 2 * MIDDLE_NS,
        "saves_up": True,
    }
    port = make_port(settings=settings)
    port.post_send(1, 0, 6 * MTU, 1000 * MIDDLE_NS)
    assert len(drained(port, 1000 * MIDDLE_NS)) == packets


def test_delay_that_cannot_be_made_up_is_counted() -> None:
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
    port.receive_burst(ack_of(19), late_ns)
    _, event = port.next_event()
    assert event.generator_wait_ns == 8 * MIDDLE_NS


def test_delay_counts_from_the_first_packet_to_send() -> None:
    port = make_port(rate_bps=GIGABIT)
    port.post_send(1, 0, 10, 5_000)
    drained(port, 5_300)
    assert port.statistics().generator_wait_ns == 300
    # A long pause is not charged to the data plane.
    port.post_send(1, 1, 10, 900_000)
    drained(port, 900_000)
    assert port.statistics().generator_wait_ns == 300


def test_all_delayed_messages_are_reported() -> None:
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
        port.receive_burst(ack_of(0, qpn), 30_000)
        _, event = port.next_event()
        waits[qpn] = event.generator_wait_ns

    # The second was there for 400 ns of the lost microsecond, until the line was free.
    assert waits == {1: 1_000, 2: 400, 3: 0}


def test_full_socket_buffer_is_not_charged_to_the_generator() -> None:
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


def test_message_posted_during_an_offered_burst_did_not_wait() -> None:
    port = make_port(qpns=(1, 2), rate_bps=GIGABIT)
    port.post_send(1, 0, 10, 0)
    offered = port.peek_burst(700)
    port.post_send(2, 0, 10, 900)
    port.commit_burst(offered, 900)
    drained(port, 10_000)
    port.receive_burst(ack_of(0, 1), 10_000)
    port.receive_burst(ack_of(0, 2), 10_000)
    waits = [event.generator_wait_ns for _, event in iter(port.next_event, None)]

    # The line was free from the end of the first burst, 90 bytes on the wire, on.
    assert waits == [700, 10_000 - 900 - 90 * 8]


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


def test_pacing_errors_are_the_delay_of_the_data_plane() -> None:
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


def test_retransmission_timers_wake_the_port() -> None:
    port = make_port(qpns=(1, 2))
    port.post_send(1, 0, 10, 0)
    drained(port, 0)
    port.post_send(2, 0, 10, 400_000)
    drained(port, 400_000)
    assert port.next_wakeup_ns() == 1_000_000
    # An ACK moves nothing in the port until the old deadline is looked at.
    port.receive_burst(ack_of(0, 1), 500_000)
    assert port.next_wakeup_ns() == 1_400_000
    port.handle_timers(1_399_999)
    assert drained(port, 1_399_999) == []
    (again,) = drained(port, 1_400_000)
    assert again.resent_packets
    assert port.queue_pair(2).statistics().timeouts == 1


def test_deadlines_can_move_in_both_directions() -> None:
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
    port.receive_burst(ack_of(0), 400)
    assert len(drained(port, 400)) == 1
    assert port.next_wakeup_ns() == 1_000_400
    # All is acknowledged; entries of old deadlines have no effect.
    port.receive_burst(ack_of(1), 500)
    port.handle_timers(2_000_000)
    assert port.next_wakeup_ns() == NEVER
    assert port.queue_pair(1).statistics().timeouts == 0


def test_state_of_a_port_does_not_grow_with_sent_data() -> None:
    """A timeout comes in seconds, the pace allows a packet every 9 us."""
    port = make_port(
        settings={
            "congestion_control": FixedRate(rate_bps=GIGABIT),
            "retransmit_timeout_ns": 4 * 10**9,
            "ack_interval_packets": 1,
        }
    )
    port.post_send(1, 0, 2_000 * MTU, 0)

    def send(packets: int) -> int:
        """Send, acknowledging but the last ones; return the memory that is in use."""
        end = port.statistics().packets_sent + packets
        while (sent := port.statistics().packets_sent) < end:
            drained(port, max(0, port.next_wakeup_ns()))
            if sent > 4:
                port.queue_pair(1).arrivals.receive_ack(0x1F, sent - 4, 0)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = send(100)
        assert send(500) - before < 500 * 10
    finally:
        tracemalloc.stop()
