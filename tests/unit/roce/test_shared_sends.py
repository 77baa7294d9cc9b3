"""Single-packet messages that share a send call."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.roce.burst import Burst
from chakram.roce.congestion import CongestionControl
from chakram.roce.constants import Verb
from chakram.roce.queue_pair import QueuePair
from tests.virtual_wire import make_queue_pair

MTU = 1024
FIRST_PSN = 2**24 - 2


def requester(**settings: Any) -> QueuePair:
    return make_queue_pair(send_psn=FIRST_PSN, **settings)


def psn(sequence: int) -> int:
    return (FIRST_PSN + sequence) % 2**24


def sent(qp: QueuePair, now_ns: int = 0, max_packets: int = 15) -> list[Burst]:
    return list(iter(lambda: qp.next_burst(now_ns, max_packets), None))


def events(qp: QueuePair) -> list[Any]:
    return list(iter(qp.next_event, None))


def nak(qp: QueuePair, sequence: int, now_ns: int = 0) -> None:
    qp.arrivals.receive_ack(0x60, psn(sequence), now_ns)


def ack(qp: QueuePair, sequence: int, now_ns: int = 0) -> None:
    qp.arrivals.receive_ack(0x1F, psn(sequence), now_ns)


def posted(qp: QueuePair, sizes: list[int], *, first_id: int = 0) -> QueuePair:
    for number, size in enumerate(sizes):
        qp.post_send(first_id + number, size, 0)
    return qp


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([100] * 3, [[0, 1, 2]]),
        ([0, 0], [[0, 1]]),
        ([MTU] * 2, [[0, 1]]),
        ([100, 100, 104, 104], [[0, 1], [2, 3]]),
        # What fits the pad is of another size all the same.
        ([100, 99], [None, None]),
        ([100, 2 * MTU, 100, 100], [None, None, [2, 3]]),
        ([100] * 17, [list(range(15)), [15, 16]]),
    ],
)
@pytest.mark.parametrize("verb", list(Verb))
def test_equal_messages_of_one_packet_share_a_send(
    sizes: list[int], expected: list[list[int] | None], verb: Verb
) -> None:
    bursts = sent(posted(requester(verb=verb), sizes))

    if verb is Verb.SEND and 2 * MTU in sizes:
        expected = [None, None, None, [2, 3]]
    assert [burst.message_ids for burst in bursts] == expected
    assert all(burst.ack_request for burst in bursts if burst.message_ids)
    assert sum(burst.payload_bytes for burst in bursts) == sum(sizes)


def test_messages_share_a_send_only_in_one_order_and_all_with_immediate() -> None:
    qp = requester()
    for message_id, order in ((1, 0), (2, 0), (3, 1), (4, 1), (-1, 1), (-1, 1)):
        qp.requester.post_send(message_id, 8, 0, order)

    assert [burst.message_ids for burst in sent(qp)] == [[1, 2], [3, 4], [-1, -1]]


def test_messages_that_share_a_send_fit_the_window() -> None:
    qp = posted(requester(window_bytes=250), [100] * 5)

    assert [burst.message_ids for burst in sent(qp)] == [[0, 1]]
    ack(qp, 0)
    assert [burst.message_ids for burst in sent(qp)] == [None]
    ack(qp, 2)
    assert [burst.message_ids for burst in sent(qp)] == [[3, 4]]


def test_shared_send_respects_the_kernel_limit() -> None:
    qp = posted(requester(path_mtu=4096, window_bytes=1 << 30), [4096] * 64)

    counts = [burst.count for burst in sent(qp, max_packets=64)]
    assert counts == [15] * 4 + [4]


def test_packets_per_send_are_bounded_for_messages_too() -> None:
    assert len(sent(posted(requester(), [8] * 4), max_packets=1)) == 4


def test_a_pace_bounds_the_messages_of_a_send() -> None:
    # 15 us at 1 Gbit/s are 1,875 bytes: one full packet and no more.
    control = CongestionControl()
    control.rate_bps = 10**9
    qp = posted(requester(congestion_control=control), [8] * 4)

    burst = qp.next_burst(0, 15)
    assert burst is not None
    assert burst.count == 1


def test_each_message_of_a_send_has_its_own_fate() -> None:
    qp = posted(requester(), [100] * 4)
    sent(qp, now_ns=5)
    nak(qp, 2, now_ns=10)
    (again,) = sent(qp, now_ns=20)
    ack(qp, 3, now_ns=30)

    assert again.message_ids == [2, 3]
    assert again.resent_packets
    completions = events(qp)
    assert [each.message_id for each in completions] == [0, 1, 2, 3]
    assert [each.retransmitted for each in completions] == [0, 0, 1, 1]
    assert [each.first_sent_ns for each in completions] == [5] * 4
    assert [each.last_acked_ns for each in completions] == [10, 10, 30, 30]
    assert qp.statistics().bytes_retransmitted == 200


def test_a_send_may_hold_messages_of_which_some_go_again() -> None:
    qp = posted(requester(), [100] * 2)
    sent(qp)
    posted(qp, [100] * 2, first_id=2)
    nak(qp, 1)
    (burst,) = sent(qp)
    ack(qp, 3)

    assert burst.message_ids == [1, 2, 3]
    assert [each.retransmitted for each in events(qp)] == [0, 1, 0, 0]
    assert qp.statistics().packets_retransmitted == 1


def test_a_part_of_a_send_holds_its_messages() -> None:
    (burst,) = sent(posted(requester(), [100] * 4))

    middle, one = burst.part(1, 2), burst.part(3, 1)
    assert middle.message_ids == [1, 2]
    assert (middle.psn, middle.payload_bytes) == (psn(1), 200)
    assert middle.wire_bytes == burst.wire_bytes // 2
    assert middle.ack_request
    assert (one.message_ids, one.message_id, one.payload_bytes) == (None, 3, 100)
    # So do those who keep what became of each.
    assert [each.message_id for each in middle.parts_of] == [1, 2]
    assert (middle.parts.message_id, one.parts.message_id) == (1, 3)
    assert one.packet_wire_bytes(0) == one.wire_bytes
