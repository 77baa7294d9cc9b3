"""Queue pairs that keep out-of-order packets."""

from __future__ import annotations

import pytest

from chakram.roce.burst import Burst
from chakram.roce.constants import BurstKind
from chakram.roce.queue_pair import QueuePair
from tests.unit.roce.requesters import (
    FIRST_PSN,
    MTU,
    TIMEOUT_NS,
    ack,
    psn,
    requester,
    sent,
)
from tests.unit.roce.requesters import events as events_of
from tests.unit.roce.test_responder import answers, events, receive
from tests.virtual_wire import Pair, make_queue_pair

WINDOW = 8


def responder(window: int = WINDOW) -> QueuePair:
    return make_queue_pair(receive_psn=FIRST_PSN, reordering_packets=window)


def one(qp: QueuePair, sequence: int, **values: int) -> None:
    """Deliver a message of one packet; its number is its immediate."""
    receive(qp, psn(sequence), immediate=sequence, **values)  # type: ignore[arg-type]


def kinds(bursts: list[Burst]) -> list[tuple[int, int]]:
    return [(burst.kind, burst.psn) for burst in bursts]


def sequences(bursts: list[Burst]) -> list[int]:
    return [
        (burst.psn + i - FIRST_PSN) % 2**24
        for burst in bursts
        for i in range(burst.count)
    ]


def test_out_of_order_packets_are_kept_and_delivered_in_order() -> None:
    qp = responder()
    one(qp, 3, now_ns=1)
    one(qp, 1, ce=1, now_ns=2)
    one(qp, 1, now_ns=3)
    assert answers(qp) == []
    assert events(qp) == []
    one(qp, 0, now_ns=4)
    assert kinds(answers(qp)) == [(BurstKind.ACK, psn(1))]
    one(qp, 2, now_ns=5)
    assert kinds(answers(qp)) == [(BurstKind.ACK, psn(3))]
    told = events(qp)
    assert [event.message_id for event in told] == [0, 1, 2, 3]
    assert [event.ce for event in told] == [0, 1, 0, 0]
    assert [event.received_ns for event in told] == [4, 4, 5, 5]
    statistics = qp.statistics()
    assert (statistics.packets_received, statistics.duplicates) == (5, 1)
    assert (statistics.out_of_sequence, statistics.kept_out_of_order) == (3, 2)
    assert (statistics.ce, statistics.beyond_window, statistics.naks_sent) == (1, 0, 0)


def test_packet_beyond_the_window_proves_a_loss_and_the_nak_states_it() -> None:
    qp = responder()
    # Two are missing; of a run of four that begins in the window one is in it.
    one(qp, 2)
    receive(qp, psn(WINDOW - 1), 4, last=False, payload=4 * MTU, length=5 * MTU)
    (nak,) = answers(qp)
    assert (nak.kind, nak.psn, nak.msn) == (BurstKind.NAK, psn(0), 2)
    one(qp, WINDOW + 7)
    assert answers(qp) == []  # once for a gap
    assert qp.statistics().beyond_window == 4
    one(qp, 0)
    one(qp, 1)
    assert kinds(answers(qp)) == [(BurstKind.ACK, psn(2))]
    assert len(events(qp)) == 3


def test_early_packets_are_dropped_without_a_reordering_window() -> None:
    for window in (0, 1):
        qp = responder(window)
        one(qp, 1)
        assert kinds(answers(qp)) == [(BurstKind.NAK, psn(0))]
        one(qp, 0)
        assert kinds(answers(qp)) == [(BurstKind.ACK, psn(0))]
        assert len(events(qp)) == 1
        assert qp.statistics().kept_out_of_order == 0


def test_repeated_kept_packets_count_once() -> None:
    qp = responder()
    receive(qp, psn(1), 2, first=False, last=False, payload=2 * MTU, length=0)
    receive(qp, psn(0), 4, payload=4 * MTU, length=4 * MTU, immediate=7)
    (event,) = events(qp)
    assert (event.message_id, event.size_bytes, event.packets) == (7, 4 * MTU, 4)
    statistics = qp.statistics()
    assert (statistics.duplicates, statistics.bytes_received) == (2, 4 * MTU)
    one(qp, 4)
    assert len(events(qp)) == 1


def test_invalid_kept_request_fails_the_queue_pair_in_order() -> None:
    qp = responder()
    receive(qp, psn(1), first=False)
    assert qp.statistics().failure is None
    one(qp, 0)
    assert "continues a message that has not begun" in (qp.statistics().failure or "")
    assert answers(qp)[-1].syndrome == 0x61
    one(qp, 2)
    assert len(events(qp)) == 2  # the message and the failure


def test_requester_retransmits_the_gap_and_skips_the_kept_window() -> None:
    qp = requester(reordering_packets=WINDOW, window_bytes=20 * MTU)
    qp.post_send(1, 12 * MTU, 0)
    qp.post_send(2, 30 * MTU, 0)
    assert sum(burst.count for burst in sent(qp)) == 20
    qp.arrivals.receive_ack(0x60, psn(3), 5, 2)

    again = sent(qp, 5)
    # Two that are missing, then from the first one beyond 3 + 8 on.
    assert sequences(again) == [3, 4, *range(11, 23)]
    assert again[0].resent_packets
    assert (again[0].count, again[0].ack_request) == (2, True)
    assert qp.statistics().packets_retransmitted == 2 + 9
    ack(qp, 22)
    assert [event.message_id for event in events_of(qp)] == [1]


def test_late_gap_is_not_retransmitted() -> None:
    qp = requester(reordering_packets=WINDOW, window_bytes=20 * MTU)
    qp.post_send(1, 20 * MTU, 0)
    sent(qp)
    qp.arrivals.receive_ack(0x60, psn(0), 5, 2)
    ack(qp, 7, 6)
    assert sequences(sent(qp, 6)) == list(range(8, 20))


def test_timeout_finds_a_second_gap_at_the_end() -> None:
    qp = requester(reordering_packets=WINDOW)
    qp.post_send(1, 10 * MTU, 0)
    sent(qp)
    qp.arrivals.receive_ack(0x60, psn(0), 5, 1)
    assert sequences(sent(qp, 5)) == [0, 8, 9]
    ack(qp, 3, 6)
    assert qp.next_timeout_ns() == 6 + TIMEOUT_NS
    qp.handle_timeout(6 + TIMEOUT_NS)
    assert sequences(sent(qp, 6 + TIMEOUT_NS)) == list(range(4, 10))


@pytest.mark.parametrize("missing", [0, WINDOW, WINDOW + 1, 2**24 - 1])
def test_gap_of_unknown_size_retransmits_everything(missing: int) -> None:
    qp = requester(reordering_packets=WINDOW)
    qp.post_send(1, 10 * MTU, 0)
    sent(qp)
    qp.arrivals.receive_ack(0x60, psn(0), 5, missing)
    assert sum(burst.count for burst in sent(qp, 5)) == 10


def test_one_loss_costs_one_retransmission_with_reordering() -> None:
    resent = {}
    for window in (0, 32):
        numbers = iter(range(10**6))
        settings = {"window_bytes": 64 * MTU, "reordering_packets": window}
        pair = Pair(
            make_queue_pair(0x11, 0x12, **settings),
            make_queue_pair(0x12, 0x11, **settings),
            delay_ns=50_000,
            drop=lambda numbers=numbers: next(numbers) == 10,  # type: ignore[misc]
        )
        pair.post(1, 60 * MTU)
        pair.run()
        assert len(pair.right.events) == 1
        resent[window] = (
            pair.left.port.queue_pair(0x11).statistics().packets_retransmitted
        )
    # Without a window all that followed; with it, what was beyond 10 + 32, too.
    assert resent == {0: 50, 32: 1 + 60 - 42}
