"""A queue pair: creation, and use without a port."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.roce.constants import NEVER, BurstKind
from chakram.roce.headers import Aeth, Bth, ImmDt, Packet, Reth
from chakram.roce.opcodes import Opcode
from tests.virtual_wire import make_queue_pair


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("qpn", 2**24),
        ("qpn", -1),
        ("remote_qpn", 2**24),
        ("source_port", 2**16),
        ("send_psn", 2**24),
        ("receive_psn", -1),
        ("path_mtu", 1000),
        ("window_bytes", 0),
        ("ack_interval_packets", 0),
        ("retransmit_timeout_ns", -1),
        ("retransmit_timeout_ns", NEVER - 1),
        ("retry_limit", -1),
        ("burst_ns", -1),
        ("burst_bound_ns", -1),
    ],
)
def test_settings_out_of_range_are_refused(setting: str, value: int) -> None:
    with pytest.raises(ValueError, match=setting):
        make_queue_pair(**{setting: value})


def test_queue_pair_identifies_itself() -> None:
    qp = make_queue_pair(1, 2, source_port=3, path_mtu=256)

    assert (qp.qpn, qp.remote_qpn, qp.source_port) == (1, 2, 3)
    assert (qp.destination, qp.path_mtu) == (0, 256)


def test_message_is_acknowledged_without_a_port() -> None:
    left, right = make_queue_pair(1, 2), make_queue_pair(2, 1)
    assert left.next_timeout_ns() == NEVER
    left.post_send(7, 3_000, 0)
    assert left.next_timeout_ns() == 0
    while (burst := left.next_burst(0, 15)) is not None:
        right.receive_burst(burst, 1_000)
    event = right.next_event()
    assert (event.message_id, event.size_bytes) == (7, 3_000)
    assert right.next_event() is None
    assert right.next_timeout_ns() == 0
    ack = right.next_burst(1_000, 15)
    assert ack is not None
    left.receive_burst(ack, 2_000)
    assert left.next_event().last_acked_ns == 2_000
    assert left.next_timeout_ns() == NEVER


def test_parts_of_a_burst_can_be_received() -> None:
    left, right = make_queue_pair(1, 2), make_queue_pair(2, 1)
    left.post_send(7, 4 * 1024 - 9, 0)
    start, rest = left.next_burst(0, 1), left.next_burst(0, 15)
    assert start is not None
    assert rest is not None
    right.receive_burst(start, 0)
    right.receive_burst(rest, 0, count=1)
    right.receive_burst(rest, 0, first=1, ce=1)

    assert right.next_event().size_bytes == 4 * 1024 - 9
    assert right.statistics().ce == 1
    ack = right.next_burst(0, 1)
    assert ack is not None
    assert ack.psn == 3


def test_part_without_the_end_of_a_burst_requests_no_ack() -> None:
    left, right = make_queue_pair(1, 2), make_queue_pair(2, 1)
    left.post_send(7, 2 * 1024, 0)
    burst = left.next_burst(0, 15)
    assert burst is not None
    assert burst.ack_request
    right.receive_burst(burst, 0, 0, 1)

    assert right.next_burst(0, 1) is None


def bth(opcode: Opcode, psn: int, **fields: Any) -> Bth:
    return Bth(opcode=opcode, destination_qpn=1, psn=psn, **fields)


def test_decoded_packets_of_any_sender_are_accepted() -> None:
    qp = make_queue_pair(1, 2, path_mtu=256, cnp_interval_ns=0)
    full = bytes(256)
    for packet in (
        Packet(bth=bth(Opcode.SEND_FIRST, 0), payload=full),
        Packet(bth=bth(Opcode.SEND_MIDDLE, 1), payload=full),
        Packet(bth=bth(Opcode.SEND_LAST, 2), payload=b"a"),
        Packet(
            bth=bth(Opcode.WRITE_FIRST, 3),
            reth=Reth(virtual_address=0, remote_key=0, dma_length_bytes=257),
            payload=full,
        ),
        Packet(
            bth=bth(Opcode.WRITE_LAST_WITH_IMMEDIATE, 4, ack_request=True),
            immediate=ImmDt(value=9),
            payload=b"b",
        ),
    ):
        qp.receive_packet(packet, 0, ce=packet.bth.psn == 4)

    sizes = [(each.message_id, each.size_bytes) for each in iter(qp.next_event, None)]
    assert sizes == [(None, 513), (9, 257)]
    assert qp.statistics().failure is None
    kinds = [each.kind for each in iter(lambda: qp.next_burst(0, 1), None)]
    assert kinds == [BurstKind.CNP, BurstKind.ACK]


def test_decoded_answers_are_accepted() -> None:
    qp = make_queue_pair(1, 2)
    qp.post_send(1, 10, 0)
    qp.post_send(2, 10, 0)
    while qp.next_burst(0, 1) is not None:
        pass
    cnp = Bth(opcode=Opcode.CNP, destination_qpn=1, psn=0, backward_congestion=True)
    qp.receive_packet(Packet(bth=cnp, payload=bytes(16)), 0)
    # Without BECN it says nothing.
    qp.receive_packet(Packet(bth=bth(Opcode.CNP, 0), payload=bytes(16)), 0)
    qp.receive_packet(
        Packet(bth=bth(Opcode.ACKNOWLEDGE, 0), aeth=Aeth(syndrome=0x1F, msn=1)), 0
    )
    qp.receive_packet(
        Packet(bth=bth(Opcode.ACKNOWLEDGE, 1), aeth=Aeth(syndrome=0x60, msn=1)), 0
    )

    statistics = qp.statistics()
    assert (statistics.cnps_received, statistics.messages_completed) == (1, 1)
    assert qp.next_burst(0, 1).resent_packets


def test_queue_pair_can_be_created_for_a_real_peer() -> None:
    qp = make_queue_pair(
        destination=4,
        overhead_bytes=78,
        remote_address=0x1234567890ABCDEF,
        remote_key=0xFEDCBA98,
    )
    qp.post_send(1, 3, 0)
    burst = qp.next_burst(0, 1)

    assert burst is not None
    assert (burst.remote_address, burst.remote_key) == (0x1234567890ABCDEF, 0xFEDCBA98)
    assert (burst.destination, burst.wire_bytes) == (4, 78 + 16 + 4 + 4)
