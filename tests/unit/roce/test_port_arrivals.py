"""A port: delivery of arriving packets, unknown destinations, and answers."""

from __future__ import annotations

import pytest

from chakram.records.counter_definitions import sampled_of
from chakram.records.counter_slots import fct_bucket
from chakram.roce.constants import NEVER, BurstKind
from chakram.roce.headers import Bth, Packet, encode_packet
from chakram.roce.opcodes import Opcode
from chakram.roce.packet_encoder import WireEncoder
from chakram.roce.packet_verification import PacketVerifier
from tests.unit.roce.ports import GIGABIT, MTU, ack_of, drained, make_port
from tests.virtual_wire import Pair, make_queue_pair


def test_answers_are_sent_before_data() -> None:
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


def test_port_reports_news_only_for_relevant_packets() -> None:
    port, peer = make_port(), make_port(qpns=())
    peer.add_queue_pair(make_queue_pair(101, 1, ack_interval_packets=99))
    peer.post_send(101, 0, 3 * MTU, 0)
    bursts = [peer.next_burst(0) for _ in range(3)]
    assert port.next_wakeup_ns() == NEVER
    for burst in bursts[:2]:
        port.receive_burst(burst, 0)
        assert not port.has_news()
    port.receive_burst(bursts[2], 0)
    assert port.has_news()
    drained(port, 0)
    assert port.next_wakeup_ns() == NEVER
    assert port.has_news()  # a message has come
    assert port.next_event() is not None
    assert not port.has_news()
    port.post_send(1, 0, MTU, 0)
    assert port.has_news()


def test_samples_equal_a_snapshot() -> None:
    port, peer = make_port(rate_bps=GIGABIT), make_port(qpns=())
    peer.add_queue_pair(make_queue_pair(101, 1))
    peer.post_send(101, 0, 3 * MTU, 0)
    port.post_send(1, 0, 2 * MTU, 0)
    for burst in drained(peer):
        port.receive_burst(burst, 0)
    assert drained(port, 10**6)
    counted, disturbances = port.sampled()
    assert (counted, disturbances) == sampled_of(port.statistics())
    assert len({*counted}) > 2


def test_packets_to_unknown_queue_pairs_are_counted() -> None:
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


def test_segments_of_several_queue_pairs_are_separated() -> None:
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


def test_unsupported_packets_are_counted() -> None:
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
def test_unsupported_requests_are_refused(opcode: int) -> None:
    port = make_port()
    request = bytes((opcode,)) + bytes.fromhex("00ffff0000000180000000") + bytes(32)
    port.receive_datagrams(request, len(request), 0, 0)

    assert port.next_burst(0).syndrome == 0x61
    failure = port.queue_pair(1).statistics().failure or ""
    assert failure.endswith(f"opcode {opcode:#04x} is not supported")


def test_wrong_icrcs_are_dropped_in_a_sample() -> None:
    verifier = PacketVerifier(local_address="198.18.0.2", path_mtu=MTU, every=2)
    port = make_port(verifier=verifier)
    port.queue_pair(1).flow = verifier.flow("198.18.0.1")
    peer = make_port(qpns=())
    peer.add_queue_pair(make_queue_pair(101, 1))
    encoder = WireEncoder(local_address="198.18.0.1", path_mtu=MTU, max_burst_packets=1)
    encoder.set_destination(0, "198.18.0.2")
    for number in range(4):
        peer.post_send(101, number, 10, 0)
        data = bytearray(encoder.encode(peer.next_burst(0))[0])
        data[-5] ^= number == 3
        port.receive_datagrams(data, len(data), 0, 0, False, 0xC000)
    assert port.queue_pair(1).statistics().messages_received == 3
    # Without the sender's port nothing can be checked, nor for a stranger.
    port.receive_datagrams(data, len(data), 0, 0)
    data[7] = 99
    port.receive_datagrams(data, len(data), 0, 0, False, 0xC000)

    statistics = port.statistics()
    assert (statistics.verified, statistics.icrc_errors) == (2, 1)
    assert port.queue_pair(1).statistics().messages_received == 4


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


def test_events_contain_owner_and_context() -> None:
    owner, context = object(), object()
    port = make_port(qpns=(1, 2))
    port.queue_pair(1).belong_to(owner)
    for qpn in (1, 2):
        port.post_send(qpn, 0, MTU, 0, context=context)
    drained(port)
    for qpn in (1, 2):
        port.receive_burst(ack_of(0, qpn), 10)
    found = list(iter(port.next_event, None))
    assert [each for each, _ in found] == [owner, 2]
    assert all(event.context is context for _, event in found)
