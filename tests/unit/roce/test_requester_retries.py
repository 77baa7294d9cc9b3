"""The requester: reasons and times of retransmissions."""

from __future__ import annotations

import pytest

from chakram.roce.constants import NEVER, Verb
from chakram.roce.events import QueuePairFailed
from chakram.roce.opcodes import NakCode
from chakram.roce.retries import FOR_NAK, FOR_RNR, FOR_TIMEOUT
from tests.unit.roce.requesters import (
    MTU,
    TIMEOUT_NS,
    ack,
    events,
    nak,
    psn,
    requester,
    sent,
)
from tests.virtual_wire import make_queue_pair

# Going back.


def test_a_nak_acknowledges_and_goes_back() -> None:
    qp = requester(window_bytes=10**6)
    qp.post_send(1, 2 * MTU, 0)
    qp.post_send(2, 4 * MTU, 0)
    sent(qp)
    nak(qp, 3)

    (event,) = events(qp)
    assert event.message_id == 1
    bursts = sent(qp)
    assert [each.psn for each in bursts] == [psn(3), psn(5)]
    assert all(each.resent_packets for each in bursts)
    ack(qp, 5)
    (event,) = events(qp)
    assert event.retransmitted == 3
    statistics = qp.statistics()
    assert statistics.naks_received == 1
    assert statistics.packets_retransmitted == 3
    assert statistics.bytes_retransmitted == 3 * MTU


def test_ack_during_go_back_skips_acknowledged_packets() -> None:
    qp = requester(window_bytes=10**6)
    qp.post_send(1, 10 * MTU, 0)
    sent(qp)
    nak(qp, 2)
    ack(qp, 7)

    assert [each.psn for each in sent(qp)] == [psn(8), psn(9)]


def test_a_burst_may_hold_old_and_new_packets() -> None:
    qp = requester(window_bytes=10**6, verb=Verb.SEND)
    qp.post_send(1, 10 * MTU, 0)
    qp.next_burst(0, 4)
    nak(qp, 2)
    burst = qp.next_burst(0, 6)

    assert burst is not None
    assert burst.count == 6
    assert qp.statistics().packets_retransmitted == 2
    assert qp.statistics().bytes_retransmitted == 2 * MTU


def test_stale_naks_change_nothing() -> None:
    qp = requester(window_bytes=10**6)
    qp.post_send(1, 10 * MTU, 0)
    sent(qp)
    nak(qp, 4)
    nak(qp, 2)  # overtaken
    nak(qp, 4)  # said twice before anything was sent again

    assert [each.psn for each in sent(qp)] == [psn(4), psn(9)]
    assert qp.statistics().naks_stale == 2


def test_number_of_naks_is_limited() -> None:
    qp = requester(window_bytes=10**6, retry_limit=2)
    qp.post_send(1, 4 * MTU, 0)
    for _ in range(3):
        sent(qp)
        nak(qp, 0, now_ns=50)

    (failure,) = events(qp)
    assert isinstance(failure, QueuePairFailed)
    assert "repeatedly requests PSN 16777214" in failure.reason
    assert (failure.flushed, failure.failed_ns) == (1, 50)
    assert failure.retried_for == FOR_NAK
    assert repr(failure).startswith("QueuePairFailed(reason='gave up after 2 retries")


def test_requester_waits_for_a_receiver_that_is_not_ready() -> None:
    qp = requester(window_bytes=10**6)
    qp.post_send(1, 2 * MTU, 0)
    sent(qp)
    nak(qp, 1, code=0x20 | 12, now_ns=1_000)  # code 12: 0.64 ms

    assert sent(qp, now_ns=640_999) == []
    assert qp.next_timeout_ns() == 641_000
    (burst,) = sent(qp, now_ns=641_000)
    assert burst.psn == psn(1)
    assert qp.statistics().receiver_not_ready == 1


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (NakCode.INVALID_REQUEST, "refused a packet as an invalid request"),
        (NakCode.REMOTE_ACCESS_ERROR, "refused access to its memory"),
        (NakCode.REMOTE_OPERATIONAL_ERROR, "could not carry out a request"),
        (0x7F, "sent NAK 0x7f"),
    ],
)
def test_other_naks_are_fatal(code: int, reason: str) -> None:
    qp = requester(window_bytes=10**6)
    qp.post_send(1, 10, 0)
    qp.post_send(2, 10, 0)
    sent(qp)
    nak(qp, 1, code=code)

    completed, failure = events(qp)
    assert completed.message_id == 1
    assert reason in failure.reason
    assert failure.flushed == 1
    assert qp.statistics().failure == failure.reason


def test_a_failed_queue_pair_is_silent() -> None:
    qp = requester()
    qp.post_send(1, 10, 0)
    sent(qp)
    nak(qp, 0, code=NakCode.INVALID_REQUEST)
    events(qp)
    before = qp.statistics()
    qp.post_send(2, 10, 0)
    ack(qp, 0)
    nak(qp, 0)
    qp.arrivals.receive_cnp(0)
    qp.handle_timeout(10**15)
    qp.arrivals.receive_run(0, 1, 0, True, True, 5, 5, 1, True, 0, 0)

    assert sent(qp) == []
    assert events(qp) == []
    assert qp.next_timeout_ns() == NEVER
    after = qp.statistics()
    assert after.messages_flushed == before.messages_flushed + 1
    assert after.acks_received == before.acks_received
    assert after.packets_received == 0


# The timer.


def test_the_timer_runs_while_an_ack_is_awaited() -> None:
    qp = requester(window_bytes=10**6, ack_interval_packets=100)
    qp.post_send(1, 5 * MTU, 0)
    qp.next_burst(0, 2)
    assert qp.next_timeout_ns() == 0  # more may leave now; no ACK was asked for
    sent(qp, now_ns=500)
    assert qp.next_timeout_ns() == 500 + TIMEOUT_NS
    ack(qp, 1, now_ns=800)
    assert qp.next_timeout_ns() == 800 + TIMEOUT_NS
    ack(qp, 4, now_ns=900)
    assert qp.next_timeout_ns() == NEVER


def test_a_timeout_goes_back_to_the_first_unacknowledged_packet() -> None:
    qp = requester(window_bytes=10**6)
    qp.post_send(1, 5 * MTU, 0)
    sent(qp)
    ack(qp, 1)
    qp.handle_timeout(TIMEOUT_NS - 1)
    assert sent(qp, now_ns=TIMEOUT_NS - 1) == []
    qp.handle_timeout(TIMEOUT_NS)

    assert [each.psn for each in sent(qp, now_ns=TIMEOUT_NS)] == [psn(2), psn(4)]
    assert qp.statistics().timeouts == 1


def test_timeouts_stay_as_long_as_the_first() -> None:
    qp = requester(retry_limit=5)
    qp.post_send(1, 1, 0)
    waits, now_ns = [], 0
    for _ in range(5):
        sent(qp, now_ns=now_ns)
        waits.append((qp.next_timeout_ns() - now_ns) // TIMEOUT_NS)
        now_ns = qp.next_timeout_ns()
        qp.handle_timeout(now_ns)
    assert waits == [1, 1, 1, 1, 1]


def test_progress_resets_the_retry_count() -> None:
    qp = requester(retry_limit=1, window_bytes=10**6)
    qp.post_send(1, 10 * MTU, 0)
    for sequence in range(5):
        now_ns = sequence * 10 * TIMEOUT_NS
        sent(qp, now_ns=now_ns)
        qp.handle_timeout(now_ns + TIMEOUT_NS)
        sent(qp, now_ns=now_ns + TIMEOUT_NS)
        ack(qp, sequence, now_ns=now_ns + TIMEOUT_NS)

    assert qp.statistics().timeouts == 5
    assert qp.statistics().failure is None


def test_giving_up_names_the_packet() -> None:
    qp = requester(retry_limit=0)
    qp.post_send(1, 1, 0)
    sent(qp)
    qp.handle_timeout(TIMEOUT_NS)

    (failure,) = events(qp)
    assert failure.reason == "gave up after 0 retries: no ACK for PSN 16777214"
    assert failure.retried_for == FOR_TIMEOUT


def test_requester_waits_forever_without_a_timeout() -> None:
    qp = requester(retransmit_timeout_ns=0)
    qp.post_send(1, 1, 0)
    sent(qp)

    assert qp.next_timeout_ns() == NEVER


def test_packet_acknowledged_before_retransmission_was_late() -> None:
    qp = requester(window_bytes=10**6)
    qp.post_send(1, 6 * MTU, 0)
    sent(qp)
    nak(qp, 2)
    ack(qp, 2)

    assert qp.statistics().naks_overtaken == 1
    assert sent(qp)[0].psn == psn(3)


def test_packet_acknowledged_after_retransmission_may_be_lost() -> None:
    qp = requester(window_bytes=10**6)
    qp.post_send(1, 6 * MTU, 0)
    sent(qp)
    nak(qp, 2)
    sent(qp)
    ack(qp, 2)
    ack(qp, 5)

    assert qp.statistics().naks_overtaken == 0


def test_missing_nak_is_not_counted_as_late() -> None:
    qp = requester(window_bytes=10**6, retransmit_timeout_ns=TIMEOUT_NS)
    qp.post_send(1, 6 * MTU, 0)
    sent(qp)
    qp.handle_timeout(TIMEOUT_NS)
    ack(qp, 5)

    assert qp.statistics().naks_overtaken == 0


# Why packets are sent again, and how long one waits.


def test_retransmissions_are_counted_by_reason() -> None:
    qp = requester(window_bytes=10**6)
    qp.post_send(1, 6 * MTU, 0)
    sent(qp)
    nak(qp, 1)  # five again
    sent(qp)
    nak(qp, 2, code=0x20 | 1, now_ns=100)  # four again, 10 us later
    sent(qp, now_ns=10_100)
    ack(qp, 3, now_ns=10_200)
    qp.handle_timeout(10_200 + TIMEOUT_NS)  # two again
    sent(qp, now_ns=10_200 + TIMEOUT_NS)

    statistics = qp.statistics()
    assert statistics.retransmitted_for_nak == 5
    assert statistics.retransmitted_for_rnr == 4
    assert statistics.retransmitted_for_timeout == 2
    assert statistics.packets_retransmitted == 11


@pytest.mark.parametrize("limit", [0, 3])
def test_number_of_rnr_naks_is_limited(limit: int) -> None:
    qp = requester(rnr_retry_limit=limit)
    qp.post_send(1, 10, 0)
    now_ns = 0
    for _ in range(limit):
        sent(qp, now_ns=now_ns)
        nak(qp, 0, code=0x20 | 1, now_ns=now_ns)
        now_ns += 10_000
    assert events(qp) == []
    sent(qp, now_ns=now_ns)
    nak(qp, 0, code=0x20 | 1, now_ns=now_ns)

    (failure,) = events(qp)
    assert failure.reason == (
        f"gave up after {limit} RNR retries: the peer is not ready to receive PSN "
        f"{psn(0)}"
    )


def test_duplicate_rnr_nak_counts_once() -> None:
    qp = requester(rnr_retry_limit=1, window_bytes=10**6)
    qp.post_send(1, 2 * MTU, 0)
    sent(qp)
    for now_ns in (0, 5_000):
        nak(qp, 1, code=0x20 | 1, now_ns=now_ns)  # 10 us

    assert events(qp) == []
    assert qp.statistics().naks_stale == 1
    assert qp.next_timeout_ns() == 10_000  # nor does it wait for longer
    sent(qp, now_ns=10_000)
    nak(qp, 1, code=0x20 | 1, now_ns=11_000)
    (failure,) = events(qp)
    assert "gave up after 1 RNR retries" in failure.reason
    assert failure.retried_for == FOR_RNR


def test_seven_rnr_retries_are_no_limit() -> None:
    qp = requester(rnr_retry_limit=7)
    qp.post_send(1, 10, 0)
    for turn in range(50):
        sent(qp, now_ns=turn * 10_000)
        nak(qp, 0, code=0x20 | 1, now_ns=turn * 10_000)

    assert events(qp) == []
    assert qp.statistics().receiver_not_ready == 50


def test_early_packet_is_requested_without_a_limit() -> None:
    """A slow peer requests a packet again during its retransmission."""
    qp = requester(rnr_retry_limit=7, retry_limit=2, window_bytes=10**6)
    qp.post_send(1, 4 * MTU, 0)
    for turn in range(20):
        now_ns = turn * 100_000
        sent(qp, now_ns=now_ns)
        nak(qp, 0, now_ns=now_ns)
        sent(qp, now_ns=now_ns)
        nak(qp, 0, code=0x20 | 1, now_ns=now_ns)

    assert events(qp) == []


def test_progress_resets_the_rnr_retry_count() -> None:
    qp = requester(rnr_retry_limit=1, window_bytes=10**6)
    qp.post_send(1, 4 * MTU, 0)
    for sequence in range(4):
        sent(qp, now_ns=sequence * 10_000)
        nak(qp, sequence, code=0x20 | 1, now_ns=sequence * 10_000)

    assert events(qp) == []


def test_adaptive_timeouts_grow_through_ranges() -> None:
    low_ns, tries = 50_000, 3
    qp = requester(
        retry_limit=20,
        adaptive_low_ns=low_ns,
        adaptive_tries=tries,
        retransmit_timeout_ns=10**12,
    )
    qp.post_send(1, 10, 0)
    now_ns = 0
    waits = []
    for _ in range(15):
        sent(qp, now_ns=now_ns)
        waits.append(qp.next_timeout_ns() - now_ns)
        now_ns = qp.next_timeout_ns()
        qp.handle_timeout(now_ns)

    for turn, wait_ns in enumerate(waits):
        # The fourth range is the last.
        lowest_ns = low_ns << min(turn // tries, 3)
        assert lowest_ns <= wait_ns < 2 * lowest_ns
    assert len(set(waits)) == len(waits)


def test_adaptive_timeouts_of_two_queue_pairs_differ() -> None:
    timeouts = set()
    for qpn in range(20):
        qp = make_queue_pair(qpn, adaptive_low_ns=50_000)
        qp.post_send(1, 10, 0)
        sent(qp)
        timeouts.add(qp.next_timeout_ns())

    assert len(timeouts) == 20
