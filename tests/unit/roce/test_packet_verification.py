"""Verification of packets that arrive at a socket."""

from __future__ import annotations

import random

import pytest

from chakram.roce.constants import BurstKind, Verb
from chakram.roce.icrc import advance, icrc, masked_headers, retreat_tables
from chakram.roce.packet_encoder import WireEncoder
from chakram.roce.packet_verification import (
    INTACT,
    WRONG_ICRC,
    WRONG_PAYLOAD,
    PacketVerifier,
)
from chakram.roce.port import PortEngine
from chakram.roce.segment_parser import MALFORMED, SegmentParser
from tests.virtual_wire import make_queue_pair, split

MTU = 256
SOURCE_PORT = 0xC000
FAMILIES = [("198.18.0.1", "198.18.0.2"), ("fd00::1", "fd00::2")]
families = pytest.mark.parametrize(("local", "remote"), FAMILIES)


def packets(
    local: str, remote: str, *, size: int = 17 * MTU, verb: Verb = Verb.WRITE
) -> list[list[bytes]]:
    """Return all packets of one message, by send."""
    encoder = WireEncoder(local_address=local, path_mtu=MTU, max_burst_packets=15)
    encoder.set_destination(0, remote)
    qp = make_queue_pair(path_mtu=MTU, verb=verb)
    qp.post_send(7, size, 0)
    return [
        split(*encoder.encode(burst))
        for burst in iter(lambda: qp.next_burst(0, 14), None)
    ]


class Checked:
    """Results of one verifier for packets, in the order of arrival."""

    def __init__(self, local: str, remote: str, *, is_ours: bool = True) -> None:
        self.verifier = PacketVerifier(local_address=remote, path_mtu=MTU)
        self.flow = self.verifier.flow(local, is_ours=is_ours)
        self.parser = SegmentParser()

    def judge(
        self, packet: bytes, position: int = 0, source_port: int = SOURCE_PORT
    ) -> int:
        # It may begin anywhere in what was received.
        data = b"\xaa" * 8 + packet + b"\xaa" * 8
        assert self.parser.parse(data, 8, len(packet)) != MALFORMED
        return self.verifier.judge(
            data, 8, len(packet), self.parser, self.flow, source_port, position
        )


def resealed(packet: bytes, local: str, remote: str, identification: int = 0) -> bytes:
    """Return a packet with the ICRC of its contents."""
    family = masked_headers(
        source=bytes(map(int, local.split("."))),
        destination=bytes(map(int, remote.split("."))),
        source_port=SOURCE_PORT,
        udp_payload_bytes=len(packet),
        identification=identification,
    )
    return packet[:-4] + icrc(family, packet[:-4])


@families
@pytest.mark.parametrize("verb", Verb)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 255, 256, 257, 17 * MTU, 4096 + 5])
def test_encoded_packets_pass_verification(
    local: str, remote: str, verb: Verb, size: int
) -> None:
    checked = Checked(local, remote)
    for send in packets(local, remote, size=size, verb=verb):
        checked.verifier.begin()
        for position, packet in enumerate(send):
            assert checked.judge(packet, position) == INTACT


@families
def test_every_flipped_bit_outside_of_variable_fields_is_found(
    local: str, remote: str
) -> None:
    checked = Checked(local, remote)
    parser = SegmentParser()
    for send in packets(local, remote, size=3 * MTU + 5):
        for position, packet in enumerate(send):
            for bit in range(8 * len(packet)):
                damaged = bytearray(packet)
                damaged[bit // 8] ^= 1 << bit % 8
                if parser.parse(bytes(damaged), 0, len(packet)) == MALFORMED:
                    continue  # that is what it is counted as
                checked.verifier.begin()
                expected = INTACT if bit // 8 == 4 else WRONG_ICRC
                if 5 <= bit // 8 < 8:
                    continue  # for another queue pair
                assert checked.judge(bytes(damaged), position) == expected, bit


@families
def test_packet_from_another_port_fails_verification(local: str, remote: str) -> None:
    checked = Checked(local, remote)
    ((first, *_), *_) = packets(local, remote)
    assert checked.judge(first, source_port=SOURCE_PORT + 1) == WRONG_ICRC


def test_wrong_payload_with_a_correct_icrc_is_distinguished() -> None:
    local, remote = FAMILIES[0]
    checked = Checked(local, remote)
    (_, send, *_) = packets(local, remote)
    for position in (0, 1, 5):
        packet = send[position]
        other = packet[:40] + bytes([packet[40] ^ 1]) + packet[41:]
        right = resealed(other, local, remote, position)
        checked.verifier.begin()
        assert checked.judge(other, position) == WRONG_ICRC
        assert checked.judge(right, position) == WRONG_PAYLOAD
    # A pad is no payload, but what is in it is sealed as well.
    ((only,),) = packets(local, remote, size=5)
    padded = only[:-5] + b"\1" + only[-4:]
    assert checked.judge(padded) == WRONG_ICRC
    assert checked.judge(resealed(padded, local, remote)) == WRONG_PAYLOAD


def test_packets_are_verified_at_any_position_of_their_send() -> None:
    """Neighbors may be lost, sends be joined, packets leave one by one."""
    local, remote = FAMILIES[0]
    checked = Checked(local, remote)
    sends = packets(local, remote)
    joined = [*sends[1][3:7], *sends[1][9:], *sends[2], *sends[1][:2]]
    assert [checked.judge(each, at) for at, each in enumerate(joined)] == [
        INTACT
    ] * len(joined)
    encoder = WireEncoder(local_address=local, path_mtu=MTU, max_burst_packets=15)
    encoder.set_destination(0, remote)
    encoder.send_unsegmented()
    qp = make_queue_pair(path_mtu=MTU, verb=Verb.SEND)
    qp.post_send(0, 14 * MTU, 0)
    burst = qp.next_burst(0, 14)
    assert burst is not None
    checked.verifier.begin()
    for at, packet in enumerate(split(*encoder.encode(burst))):
        assert checked.judge(packet, at) == INTACT


@pytest.mark.parametrize("identification", [0, 1, 127, 128, 255, 256, 4711, 0xFFFF])
def test_any_ip_identification_of_foreign_peers_is_accepted(
    identification: int,
) -> None:
    local, remote = FAMILIES[0]
    (_, (packet, *_), *_) = packets(local, remote)
    sealed = resealed(packet, local, remote, identification)
    ours, foreign = Checked(local, remote), Checked(local, remote, is_ours=False)
    assert ours.judge(sealed) == (INTACT if identification < 128 else WRONG_ICRC)
    assert foreign.judge(sealed) == INTACT
    # Of a foreign peer any payload is right, if the ICRC is.
    other = resealed(
        packet[:40] + bytes(9) + packet[49:], local, remote, identification
    )
    assert foreign.judge(other) == INTACT
    assert foreign.judge(other[:60] + b"?" + other[61:]) == WRONG_ICRC


@families
def test_answers_are_verified_at_any_position(local: str, remote: str) -> None:
    encoder = WireEncoder(local_address=local, path_mtu=MTU, max_burst_packets=15)
    encoder.set_destination(0, remote)
    qp = make_queue_pair(path_mtu=MTU, cnp_interval_ns=0)
    qp.arrivals.receive_run(0, 1, 0, True, True, 1, 1, 1, True, 1, 0)
    answers = list(iter(lambda: qp.next_burst(0, 1), None))
    assert {each.kind for each in answers} == {BurstKind.ACK, BurstKind.CNP}
    checked = Checked(local, remote)
    for position in (0, 1, 200):
        for burst in answers:
            packet = bytes(encoder.encode(burst)[0])
            assert checked.judge(packet, position) == INTACT
            damaged = packet[:9] + bytes([packet[9] ^ 1]) + packet[10:]
            assert checked.judge(damaged, position) == WRONG_ICRC


def test_without_icrcs_the_payload_alone_is_compared() -> None:
    local, remote = FAMILIES[0]
    checked = Checked(local, remote)
    checked.verifier = PacketVerifier(
        local_address=remote, path_mtu=MTU, has_icrcs=False
    )
    (_, (packet, *_), *_) = packets(local, remote)
    assert checked.judge(packet[:-4] + bytes(4)) == INTACT
    assert checked.judge(packet[:40] + b"?" + packet[41:-4] + bytes(4)) == WRONG_PAYLOAD


def test_crc_register_can_be_reversed() -> None:
    rng = random.Random(3)
    tables = retreat_tables()
    for length in (1, 2, 3, 100, 4096, 8191):
        register = rng.getrandbits(32)
        back = advance(register, length)
        for k in range(17):
            if length >> k & 1:
                base = 1024 * k
                back = (
                    tables[base + (back & 0xFF)]
                    ^ tables[base + 256 + (back >> 8 & 0xFF)]
                    ^ tables[base + 512 + (back >> 16 & 0xFF)]
                    ^ tables[base + 768 + (back >> 24)]
                )
        assert back == register


def test_sample_size_and_packet_size_are_validated() -> None:
    with pytest.raises(ValueError, match="one in 0 packets"):
        PacketVerifier(local_address="198.18.0.1", path_mtu=MTU, every=0)
    with pytest.raises(ValueError, match="path MTU 300"):
        PacketVerifier(local_address="198.18.0.1", path_mtu=300)
    verifier = PacketVerifier(local_address="198.18.0.1", path_mtu=MTU)
    with pytest.raises(ValueError, match="IP version"):
        verifier.flow("fd00::1")


def port_with(verifier: PacketVerifier | None, local: str) -> PortEngine:
    port = PortEngine(
        rate_bps=None, burst_bound_ns=0, max_burst_packets=15, verifier=verifier
    )
    pair = make_queue_pair(0x12, 0x11, path_mtu=MTU)
    if verifier is not None:
        pair.flow = verifier.flow(local)
    port.add_queue_pair(pair)
    return port


@families
@pytest.mark.parametrize("every", [None, 1, 3])
@pytest.mark.parametrize("at", [0, 1, 2, 4, 7, 8, 9, 11, 12, 140, 267, 268, 271])
@pytest.mark.parametrize("which", [None, 0, 1, 2, 7, 13])
def test_joined_packets_have_the_same_effect_as_single_ones(
    local: str, remote: str, every: int | None, at: int, which: int | None
) -> None:
    first, middles, *_ = packets(local, remote)
    if which is not None:
        damaged = bytearray(middles[which])
        damaged[at] ^= 0x40
        middles[which] = bytes(damaged)
    found = []
    for sends in ([first, [b"".join(middles)]], [first, middles]):
        verifier = None
        if every is not None:
            verifier = PacketVerifier(local_address=remote, path_mtu=MTU, every=every)
        port = port_with(verifier, local)
        for send in sends:
            for data in send:
                size = len(middles[0]) if len(data) > 2 * MTU else 0
                port.receive_datagrams(data, len(data), size, 0, False, SOURCE_PORT)
        counters = port.statistics()
        answers = [
            (burst.kind, burst.psn, burst.syndrome, burst.msn)
            for burst in iter(lambda port=port: port.next_burst(0), None)
        ]
        found.append((counters, port.queue_pair(0x12).statistics(), answers))
    assert found[0] == found[1]
    if which is None and every == 1:
        assert found[0][0].verified == len(first) + len(middles)
        assert found[0][0].icrc_errors == 0
        assert found[0][1].packets_received == len(first) + len(middles)
