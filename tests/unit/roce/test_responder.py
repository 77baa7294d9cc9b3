"""The responder of a queue pair, one run of packets at a time."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.roce.burst import Burst
from chakram.roce.constants import BurstKind, Verb
from chakram.roce.events import MessageReceived, QueuePairFailed
from chakram.roce.headers import Bth, Packet, Reth
from chakram.roce.opcodes import Opcode
from chakram.roce.queue_pair import QueuePair
from tests.virtual_wire import make_queue_pair

MTU = 1024
WRITE, SEND = int(Verb.WRITE), int(Verb.SEND)


def receive(
    qp: QueuePair,
    psn: int,
    count: int = 1,
    *,
    verb: int = WRITE,
    first: bool = True,
    last: bool = True,
    payload: int = 10,
    length: int | None = None,
    immediate: int = 1,
    ack: bool = True,
    ce: int = 0,
    now_ns: int = 0,
) -> None:
    qp.arrivals.receive_run(
        psn,
        count,
        verb,
        first,
        last,
        payload,
        payload if length is None else length,
        immediate,
        ack,
        ce,
        now_ns,
    )


def answers(qp: QueuePair) -> list[Burst]:
    return list(iter(lambda: qp.next_burst(0, 1), None))


def events(qp: QueuePair) -> list[Any]:
    return list(iter(qp.next_event, None))


def test_a_message_is_reported_with_its_immediate() -> None:
    qp = make_queue_pair(receive_psn=5, cnp_interval_ns=None)
    receive(qp, 5, 2, last=False, payload=2 * MTU, length=2 * MTU + 3, ce=1, now_ns=10)
    assert events(qp) == []
    receive(qp, 7, first=False, payload=3, immediate=99, ce=1, now_ns=30)

    (event,) = events(qp)
    assert isinstance(event, MessageReceived)
    assert (event.message_id, event.size_bytes) == (99, 2 * MTU + 3)
    assert (event.packets, event.ce) == (3, 2)
    assert (event.first_received_ns, event.received_ns) == (10, 30)
    assert "message_id=99" in repr(event)
    assert qp.statistics().ce == 2
    assert qp.statistics().cnps_sent == 0


def test_newer_ack_replaces_an_unsent_one_and_counts_messages() -> None:
    qp = make_queue_pair()
    assert answers(qp) == []
    receive(qp, 0, ack=False)
    assert answers(qp) == []
    receive(qp, 1)
    receive(qp, 2)

    (burst,) = answers(qp)
    assert burst.kind == BurstKind.ACK
    assert (burst.psn, burst.syndrome, burst.msn) == (2, 0x1F, 3)
    assert (burst.source_qpn, burst.destination_qpn) == (0x11, 0x12)
    assert burst.wire_bytes == 62
    assert burst.packet_wire_bytes(0) == 62
    assert burst.packet_payload_bytes(0) == 0
    assert "ACK psn=2" in repr(burst)


def test_gap_causes_one_nak() -> None:
    qp = make_queue_pair()
    receive(qp, 0)
    answers(qp)
    receive(qp, 2)
    receive(qp, 3, 4, payload=3 * MTU + 1)
    (nak,) = answers(qp)
    receive(qp, 9)

    assert nak.kind == BurstKind.NAK
    assert (nak.psn, nak.syndrome, nak.msn) == (1, 0x60, 1)
    assert answers(qp) == []
    statistics = qp.statistics()
    assert (statistics.out_of_sequence, statistics.naks_sent) == (6, 1)
    receive(qp, 1)
    receive(qp, 3)
    assert [(each.kind, each.psn) for each in answers(qp)] == [
        (BurstKind.ACK, 1),
        (BurstKind.NAK, 2),
    ]
    assert qp.statistics().naks_sent == 2


def gap(qp: QueuePair) -> None:
    """Omit packet 1, so that a NAK requests it."""
    receive(qp, 0)
    receive(qp, 2)
    receive(qp, 3)
    answers(qp)


def naks(qp: QueuePair) -> tuple[int, int]:
    """Return the number of NAKs for a packet, and of those for a late one."""
    statistics = qp.statistics()
    return statistics.sequence_naks_sent, statistics.sequence_naks_reordered


def test_requested_packet_that_arrives_once_was_lost() -> None:
    qp = make_queue_pair()
    gap(qp)
    for psn in (1, 2, 3, 4):
        receive(qp, psn)

    assert naks(qp) == (1, 0)


def test_requested_packet_that_arrives_twice_was_late() -> None:
    qp = make_queue_pair()
    gap(qp)
    receive(qp, 1)
    receive(qp, 1)
    for psn in (2, 3, 3, 1):
        receive(qp, psn)

    assert naks(qp) == (1, 1)


def test_gap_that_continues_after_a_late_packet_has_one_cause() -> None:
    qp = make_queue_pair()
    gap(qp)
    receive(qp, 1)
    answers(qp)
    # New, and not what came early: the sender has not gone back.
    receive(qp, 4)
    answers(qp)
    for psn in (2, 3, 4):
        receive(qp, psn)

    # The cause of the first one is unknown: packet 1 was never repeated.
    assert naks(qp) == (2, 1)


def test_lost_retransmission_is_a_new_gap() -> None:
    qp = make_queue_pair()
    gap(qp)
    receive(qp, 1)
    answers(qp)
    receive(qp, 3)
    answers(qp)

    assert naks(qp) == (2, 0)


def test_only_sequence_naks_are_classified() -> None:
    qp = make_queue_pair()
    qp.responder.set_not_ready(0, 0, 0)
    answers(qp)
    receive(qp, 0)
    receive(qp, 0)

    assert naks(qp) == (0, 0)
    assert qp.statistics().naks_sent == 1


def test_packet_that_closes_a_gap_is_acknowledged_at_once() -> None:
    qp = make_queue_pair()
    receive(qp, 1)
    answers(qp)
    receive(qp, 0, last=False, payload=MTU, length=5 * MTU, ack=False)
    receive(qp, 1, first=False, last=False, payload=MTU, ack=False)

    assert [(each.kind, each.psn) for each in answers(qp)] == [(BurstKind.ACK, 1)]
    receive(qp, 2, first=False, last=False, payload=MTU, ack=False)
    assert answers(qp) == []


def test_gap_that_closes_in_time_causes_no_nak() -> None:
    qp = make_queue_pair()
    receive(qp, 1)
    receive(qp, 0)

    assert [(each.kind, each.psn) for each in answers(qp)] == [(BurstKind.ACK, 0)]


def test_a_nak_replaces_the_ack_before_it() -> None:
    qp = make_queue_pair()
    receive(qp, 0)
    receive(qp, 5)

    assert [(each.kind, each.psn) for each in answers(qp)] == [(BurstKind.NAK, 1)]


def test_duplicates_are_acknowledged_again_and_not_delivered() -> None:
    qp = make_queue_pair()
    for psn in range(4):
        receive(qp, psn)
    answers(qp)
    events(qp)
    receive(qp, 1, ack=False)

    assert events(qp) == []
    assert [(each.psn, each.msn) for each in answers(qp)] == [(3, 4)]
    assert qp.statistics().duplicates == 1


def test_new_part_of_a_run_is_accepted() -> None:
    qp = make_queue_pair()
    receive(qp, 0, 3, last=False, payload=3 * MTU, length=5 * MTU)
    receive(qp, 1, 4, first=False, payload=4 * MTU, ce=4)

    (event,) = events(qp)
    assert (event.size_bytes, event.packets, event.ce) == (5 * MTU, 5, 2)
    assert qp.statistics().duplicates == 2
    assert qp.statistics().ce == 4


def test_repeated_first_packet_does_not_restart_the_message() -> None:
    qp = make_queue_pair()
    receive(qp, 0, 1, last=False, payload=MTU, length=2 * MTU)
    receive(qp, 0, 2, payload=2 * MTU, ce=1)

    (event,) = events(qp)
    assert (event.size_bytes, event.ce) == (2 * MTU, 1)


def test_write_without_immediate_has_no_completion() -> None:
    qp = make_queue_pair()
    receive(qp, 0, immediate=-1)

    assert events(qp) == []
    assert qp.statistics().messages_received == 1
    assert [each.msn for each in answers(qp)] == [1]


def test_a_send_without_immediate_has_no_number() -> None:
    qp = make_queue_pair()
    receive(qp, 0, verb=SEND, immediate=-1)

    (event,) = events(qp)
    assert event.message_id is None


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        (
            [
                {"last": False, "payload": MTU, "length": 9 * MTU},
                {"last": False, "payload": MTU},
            ],
            "a message begins inside another one",
        ),
        ([{"first": False}], "a packet continues a message that has not begun"),
        (
            [
                {"last": False, "payload": MTU, "length": 9 * MTU},
                {"first": False, "verb": SEND},
            ],
            "a message continues with another verb",
        ),
        (
            [{"last": False, "payload": MTU - 4, "length": 9 * MTU}],
            "a packet inside a message does not have the size of the path MTU",
        ),
        ([{"payload": MTU + 4}], "the last packet of a message has a wrong size"),
        (
            [
                {"last": False, "payload": MTU, "length": MTU},
                {"first": False, "payload": 0},
            ],
            "the last packet of a message has a wrong size",
        ),
        ([{"length": 11}], "a WRITE does not have the length in its RETH"),
        (
            [{"last": False, "payload": MTU, "length": MTU - 1}],
            "a WRITE does not have the length in its RETH",
        ),
        (
            [
                {"count": 2**21, "verb": SEND, "last": False, "payload": 2**31},
                {"first": False, "verb": SEND, "payload": 1},
            ],
            "a message is too long",
        ),
        (
            [{"last": False, "payload": MTU, "length": 2**31 + 1}],
            "a message is too long",
        ),
    ],
)
def test_invalid_request_fails_the_queue_pair(
    runs: list[dict[str, Any]], reason: str
) -> None:
    qp = make_queue_pair()
    qp.post_send(1, 10, 0)
    psn = 0
    for run in runs:
        receive(qp, psn, ack=False, now_ns=70, **run)
        psn += run.get("count", 1)

    (event,) = events(qp)
    assert isinstance(event, QueuePairFailed)
    assert event.reason == f"invalid request of the peer: {reason}"
    assert (event.flushed, event.failed_ns) == (1, 70)
    # The NAK still leaves, and nothing after it.
    (nak,) = answers(qp)
    assert (nak.kind, nak.syndrome, nak.psn) == (BurstKind.NAK, 0x61, psn - 1)
    receive(qp, psn)
    assert answers(qp) == []
    assert qp.statistics().invalid_requests == 1
    assert qp.statistics().failure == event.reason


def test_a_wrong_packet_out_of_order_is_just_late() -> None:
    qp = make_queue_pair()
    receive(qp, 3, first=False, payload=MTU + 8)

    assert [each.syndrome for each in answers(qp)] == [0x60]
    assert qp.statistics().failure is None


def test_the_longest_message_may_begin() -> None:
    qp = make_queue_pair()
    receive(qp, 0, last=False, payload=MTU, length=2**31)

    assert qp.statistics().failure is None


def test_mark_counts_even_if_the_receiver_is_not_ready() -> None:
    qp = make_queue_pair(cnp_interval_ns=50_000)
    assert qp.responder.set_not_ready(0, 1, 1_000)
    assert [each.kind for each in answers(qp)] == [BurstKind.CNP, BurstKind.NAK]
    assert qp.responder.set_not_ready(0, 1, 2_000)
    assert [each.kind for each in answers(qp)] == [BurstKind.NAK]
    assert qp.statistics().ce == 2


def test_unsupported_request_after_a_gap_causes_a_sequence_nak() -> None:
    qp = make_queue_pair(cnp_interval_ns=0)
    receive(qp, 0)
    answers(qp)
    qp.arrivals.refuse(3, 1, 0, "it is not supported")
    qp.arrivals.refuse(4, 0, 0, "it is not supported")
    qp.arrivals.refuse(0, 0, 0, "it is not supported")

    cnp, nak = answers(qp)
    assert (cnp.kind, nak.kind) == (BurstKind.CNP, BurstKind.NAK)
    assert (nak.psn, nak.syndrome) == (1, 0x60)
    statistics = qp.statistics()
    assert (statistics.failure, statistics.ce, statistics.packets_received) == (
        None,
        1,
        1,
    )
    assert statistics.invalid_requests == 0


def test_duplicate_request_causes_no_nak() -> None:
    qp = make_queue_pair()
    receive(qp, 0)
    answers(qp)
    qp.arrivals.refuse(0, 0, 0, "it is not supported")

    assert answers(qp) == []
    assert qp.statistics().failure is None


def test_unsupported_requests_are_refused() -> None:
    qp = make_queue_pair()
    read = Packet(
        bth=Bth(opcode=Opcode.READ_REQUEST, destination_qpn=0x11, psn=1),
        reth=Reth(virtual_address=0, remote_key=0, dma_length_bytes=1),
    )
    qp.receive_packet(read, 0)
    assert qp.statistics().failure is None
    assert [(each.syndrome, each.psn) for each in answers(qp)] == [(0x60, 0)]
    receive(qp, 0)
    answers(qp)
    qp.receive_packet(read, 0)

    assert [each.syndrome for each in answers(qp)] == [0x61]
    assert "READ_REQUEST is not supported" in (qp.statistics().failure or "")


def test_cnps_for_marked_packets_are_rate_limited() -> None:
    qp = make_queue_pair(cnp_interval_ns=50_000)
    receive(qp, 0, ack=False, ce=1, now_ns=1_000)
    (cnp,) = answers(qp)
    assert cnp.kind == BurstKind.CNP
    assert cnp.wire_bytes == 74
    receive(qp, 1, ack=False, ce=1, now_ns=50_999)
    assert answers(qp) == []
    # Packets that are dropped for their order tell of congestion like others.
    receive(qp, 9, ce=1, now_ns=51_000)
    assert [each.kind for each in answers(qp)] == [BurstKind.CNP, BurstKind.NAK]
    assert qp.statistics().cnps_sent == 2
    assert qp.statistics().ce == 3


def test_rnr_nak_is_sent_until_the_packet_arrives_again() -> None:
    qp = make_queue_pair(receive_psn=5, rnr_timer=14)
    receive(qp, 5, payload=10)
    assert not qp.responder.set_not_ready(5, 1, 0)  # it has been taken
    assert qp.responder.set_not_ready(6, 0, 0)
    receive(qp, 7, payload=10)  # what follows is dropped without a word
    ack, *others = answers(qp)
    assert (ack.kind, ack.syndrome, ack.psn) == (BurstKind.NAK, 0x20 | 14, 6)
    assert others == []
    receive(qp, 8, payload=10)
    assert answers(qp) == []
    receive(qp, 6, payload=10)

    (again,) = answers(qp)
    assert (again.kind, again.psn, again.msn) == (BurstKind.ACK, 6, 2)
    statistics = qp.statistics()
    assert (statistics.naks_sent, statistics.receiver_not_ready_sent) == (1, 1)
    assert statistics.out_of_sequence == 2
    assert (statistics.packets_received, statistics.ce) == (5, 0)


def test_failed_responder_sends_no_rnr_nak() -> None:
    qp = make_queue_pair(receive_psn=5)
    receive(qp, 5, first=False)
    answers(qp)

    assert not qp.responder.set_not_ready(5, 1, 0)
    assert answers(qp) == []
    assert qp.statistics().ce == 0


def test_writes_without_immediate_count_for_the_next_with_immediate() -> None:
    qp = make_queue_pair(receive_psn=0)
    receive(qp, 0, payload=100, immediate=-1, ce=1, now_ns=10)
    receive(qp, 1, payload=200, immediate=-1, now_ns=20)
    assert events(qp) == []
    receive(qp, 2, payload=3, immediate=7, now_ns=30)
    receive(qp, 3, payload=4, immediate=8, now_ns=40)

    first, second = events(qp)
    assert (first.message_id, first.size_bytes, first.packets) == (7, 303, 3)
    assert (first.ce, first.first_received_ns, first.received_ns) == (1, 10, 30)
    assert (second.message_id, second.size_bytes, second.packets) == (8, 4, 1)
    assert second.first_received_ns == 40
