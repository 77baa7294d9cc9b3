"""The timer of a requested ACK."""

from __future__ import annotations

from tests.unit.roce.requesters import MTU, TIMEOUT_NS, ack, requester, sent

LATER_NS = TIMEOUT_NS // 2


def test_the_first_unanswered_request_starts_the_timer() -> None:
    qp = requester(window_bytes=10**6, ack_interval_packets=1)
    qp.post_send(1, MTU, 0)
    assert len(sent(qp)) == 1
    qp.post_send(2, MTU, LATER_NS)
    assert len(sent(qp, LATER_NS)) == 1

    assert qp.next_timeout_ns() == TIMEOUT_NS
    # What is answered is no longer waited for: the second one has all its time.
    ack(qp, 0, LATER_NS + 100)
    assert qp.next_timeout_ns() == LATER_NS + 100 + TIMEOUT_NS


def test_new_requests_do_not_delay_a_timeout() -> None:
    qp = requester(window_bytes=10**6, ack_interval_packets=1)
    for number in range(4):
        now_ns = number * LATER_NS // 2
        qp.post_send(number, MTU, now_ns)
        sent(qp, now_ns)
    qp.handle_timeout(TIMEOUT_NS)

    assert qp.statistics().timeouts == 1
    assert [each.resent_packets for each in sent(qp, TIMEOUT_NS)] == [4]
