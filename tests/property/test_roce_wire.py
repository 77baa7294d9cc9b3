"""Laws of encoding: decoding inverts it, and every ICRC is correct."""

from __future__ import annotations

import contextlib
from ipaddress import ip_address

from hypothesis import example, given
from hypothesis import strategies as st

from chakram.foundation.errors import PacketError
from chakram.roce.burst import Burst
from chakram.roce.constants import BurstKind, Verb
from chakram.roce.headers import encode_packet
from chakram.roce.icrc import (
    advance,
    icrc,
    identification_table,
    ip_icrc,
    masked_headers,
    residue,
    stride_tables,
)
from chakram.roce.opcodes import Opcode
from chakram.roce.packet_encoder import WireEncoder
from chakram.roce.packet_verification import PacketVerifier
from chakram.roce.port import PortEngine
from tests.packets import decode_packet
from tests.strategies import (
    first_psns,
    message_sizes,
    packets,
    path_mtus,
    psns,
    verbs,
)
from tests.virtual_wire import make_queue_pair, split

ADDRESSES = {4: ("198.18.0.1", "198.18.1.2"), 6: ("fd00::1", "fd00:9::2")}


def bursts_of(
    *, path_mtu: int, psn: int, verb: Verb, sizes: list[int], max_packets: int
) -> list[Burst]:
    port = PortEngine(rate_bps=None, burst_bound_ns=0, max_burst_packets=max_packets)
    port.add_queue_pair(
        make_queue_pair(
            0xABCDEF,
            0x123456,
            path_mtu=path_mtu,
            send_psn=psn,
            verb=verb,
            window_bytes=10**9,
            source_port=0xC0DE,
        )
    )
    for number, size in enumerate(sizes):
        port.post_send(0xABCDEF, 0xCAFE0000 + number, size, 0)
    return list(iter(lambda: port.next_burst(0), None))


@given(packet=packets())
def test_decoding_inverts_encoding(packet) -> None:  # type: ignore[no-untyped-def] # of many kinds
    assert decode_packet(encode_packet(packet)) == packet


@given(data=st.binary(max_size=80))
@example(data=bytes([0x0A, 0x30]) + bytes(34))
@example(data=bytes([0x11, 0x00]) + bytes(14))
def test_decoding_raises_only_packet_errors(data: bytes) -> None:
    try:
        packet = decode_packet(data)
    except PacketError:
        return
    assert encode_packet(packet) == data


@given(data=st.binary(max_size=120))
def test_any_ip_packet_has_an_icrc_or_is_refused(data: bytes) -> None:
    with contextlib.suppress(PacketError):
        assert len(ip_icrc(data)) == 4


@given(
    data=st.binary(max_size=4_200),
    segment_size=st.integers(-1, 300),
    opcodes=st.lists(st.sampled_from([*Opcode, 0x16, 0x64]), min_size=1, max_size=40),
    psn_changes=st.lists(st.integers(-2, 3), min_size=1, max_size=40),
    length=st.integers(-1, 5_000),
    ce=st.booleans(),
)
def test_any_datagram_is_parsed_without_an_exception(
    data: bytes,
    segment_size: int,
    opcodes: list[int],
    psn_changes: list[int],
    length: int,
    ce: bool,
) -> None:
    verifier = PacketVerifier(local_address="198.18.0.1", path_mtu=256, every=3)
    port = PortEngine(
        rate_bps=None, burst_bound_ns=0, max_burst_packets=15, verifier=verifier
    )
    pair = make_queue_pair(path_mtu=256, cnp_interval_ns=0)
    pair.flow = verifier.flow("198.18.0.2")
    port.add_queue_pair(pair)
    port.receive_datagrams(data, length, segment_size, 0, ce, 0xC000)
    # Arbitrary bytes hardly ever look like a packet, so help them.
    likely = bytearray(data)
    size = segment_size if segment_size > 0 else max(len(data), 1)
    psn = 0
    for number, start in enumerate(range(0, len(data) - 12, size)):
        psn = psn + psn_changes[number % len(psn_changes)] & 0xFFFFFF
        likely[start] = opcodes[number % len(opcodes)]
        likely[start + 1] = -size % 4 << 4
        likely[start + 5 : start + 8] = (0x11).to_bytes(3, "big")
        likely[start + 9 : start + 12] = psn.to_bytes(3, "big")
    port.receive_datagrams(likely, len(likely), segment_size, 0, ce)
    while port.next_burst(0) is not None:
        pass
    while port.next_event() is not None:
        pass

    statistics = port.statistics()
    assert statistics.packets_received > 0
    assert statistics.malformed <= statistics.packets_received


@given(
    version=st.sampled_from([4, 6]),
    path_mtu=path_mtus,
    psn=first_psns,
    verb=verbs,
    max_packets=st.integers(1, 15),
    slots=st.integers(1, 3),
    data=st.data(),
)
def test_encoded_packets_decode_to_the_sent_values(
    version: int,
    path_mtu: int,
    psn: int,
    verb: Verb,
    max_packets: int,
    slots: int,
    data: st.DataObject,
) -> None:
    local, remote = ADDRESSES[version]
    sizes = data.draw(message_sizes(path_mtu, max_packets=20, max_messages=5))
    encoder = WireEncoder(
        local_address=local,
        path_mtu=path_mtu,
        max_burst_packets=max_packets,
        slots=slots,
    )
    encoder.set_destination(0, remote)
    number, left, expected_psn = 0, None, psn
    for turn, burst in enumerate(
        bursts_of(
            path_mtu=path_mtu, psn=psn, verb=verb, sizes=sizes, max_packets=max_packets
        )
    ):
        sealed = split(*encoder.encode(burst, turn % slots))
        assert len(sealed) == burst.count
        assert all(len(each) == len(sealed[0]) for each in sealed[:-1])
        assert len(sealed[-1]) <= len(sealed[0])
        overhead_bytes = 14 + 20 + 8
        assert burst.wire_bytes == sum(len(each) + overhead_bytes for each in sealed)
        for segment, datagram in enumerate(sealed):
            assert burst.packet_wire_bytes(segment) == len(datagram) + overhead_bytes
            headers = masked_headers(
                source=ip_address(local).packed,
                destination=ip_address(remote).packed,
                source_port=0xC0DE,
                udp_payload_bytes=len(datagram),
                identification=segment,
            )
            assert icrc(headers, datagram[:-4]) == datagram[-4:]
            packet = decode_packet(datagram)
            assert packet.bth.destination_qpn == 0x123456
            assert packet.bth.psn == expected_psn
            assert packet.pad is None
            # Every packet that ends a message asks, others at the end of a burst.
            is_end = segment == burst.count - 1 or burst.message_ids is not None
            assert packet.bth.ack_request == (burst.ack_request and is_end)
            if left is None:
                left = sizes[number]
                if packet.reth is not None:
                    assert packet.reth is not None
                    assert packet.reth.dma_length_bytes == left
            left -= len(packet.payload)
            if packet.immediate is not None:
                assert packet.immediate.value == 0xCAFE0000 + number
                assert left == 0
                number, left = number + 1, None
            expected_psn = (expected_psn + 1) % 2**24
    assert number == len(sizes)


@given(
    version=st.sampled_from([4, 6]),
    kind=st.sampled_from(["ack", "nak", "cnp"]),
    psn=psns,
)
def test_encoded_answers_decode_to_the_sent_values(
    version: int, kind: str, psn: int
) -> None:
    local, remote = ADDRESSES[version]
    encoder = WireEncoder(local_address=local, path_mtu=1024, max_burst_packets=4)
    encoder.set_destination(0, remote)
    responder = make_queue_pair(0x12, 0x11, receive_psn=psn, cnp_interval_ns=0)
    responder.arrivals.receive_run(
        (psn + (kind == "nak")) % 2**24,
        1,
        0,
        True,
        True,
        5,
        5,
        1,
        True,
        kind == "cnp",
        0,
    )
    burst = responder.next_burst(0, 1)
    assert burst is not None
    view, size = encoder.encode(burst)
    datagram = bytes(view)
    packet = decode_packet(datagram)

    assert size == len(datagram)
    assert burst.wire_bytes == size + 42
    headers = masked_headers(
        source=ip_address(local).packed,
        destination=ip_address(remote).packed,
        source_port=0xC000,
        udp_payload_bytes=size,
    )
    assert icrc(headers, datagram[:-4]) == datagram[-4:]
    if kind == "cnp":
        assert burst.kind == BurstKind.CNP
        assert packet.bth.opcode is Opcode.CNP
        assert packet.bth.backward_congestion
        assert packet.payload == bytes(16)
    else:
        assert packet.aeth is not None
        assert packet.aeth.syndrome == (0x60 if kind == "nak" else 0x1F)
        assert packet.aeth.msn == (0 if kind == "nak" else 1)
        assert packet.bth.psn == psn


@given(
    register=st.integers(0, 2**32 - 1),
    head=st.binary(max_size=40),
    payload=st.binary(max_size=4_096),
)
def test_a_register_advances_over_payload_by_table(
    register: int, head: bytes, payload: bytes
) -> None:
    # residue(head) is any register; the residue of both is the law.
    start = residue(head)
    assert advance(start, len(payload)) ^ residue(payload) == residue(head + payload)
    assert advance(register, 0) == register
    # Four bytes of data count as bytes of the register before the stride over them.
    padded = payload[:4].ljust(4, b"\0") + bytes(len(payload))
    stride = stride_tables(len(padded))
    found = (start ^ int.from_bytes(padded[:4], "little")).to_bytes(4, "little")
    at_once = 0
    for place, value in enumerate(found):
        at_once ^= stride[256 * place + value]
    assert at_once == residue(head + padded)


@given(
    before=st.binary(min_size=4, max_size=4),
    after=st.binary(min_size=14, max_size=14),
    behind=st.binary(max_size=60),
    number=st.integers(0, 255),
)
def test_the_identification_adds_a_constant(
    before: bytes, after: bytes, behind: bytes, number: int
) -> None:
    registers = [
        residue(before + identification.to_bytes(2, "big") + after + behind)
        for identification in (0, number)
    ]
    assert registers[0] ^ registers[1] == identification_table(len(behind))[number]


@given(
    sizes=st.lists(st.integers(0, 5_000), min_size=1, max_size=4),
    flips=st.lists(st.integers(0, 10**6), max_size=3),
)
def test_damaged_packet_is_not_accepted(sizes: list[int], flips: list[int]) -> None:
    local, remote = ADDRESSES[4]
    encoder = WireEncoder(local_address=remote, path_mtu=1024, max_burst_packets=15)
    encoder.set_destination(0, local)
    verifier = PacketVerifier(local_address=local, path_mtu=1024)
    port = PortEngine(
        rate_bps=None, burst_bound_ns=0, max_burst_packets=15, verifier=verifier
    )
    pair = make_queue_pair(0x123456, 0xABCDEF)
    pair.flow = verifier.flow(remote)
    port.add_queue_pair(pair)
    damaged = 0
    for number, burst in enumerate(
        bursts_of(path_mtu=1024, psn=0, verb=Verb.WRITE, sizes=sizes, max_packets=15)
    ):
        view, segment_size = encoder.encode(burst)
        data = bytearray(view)
        if number < len(flips):
            # Anywhere but in what routes the packet to its queue pair, or is masked.
            at = 8 + flips[number] % (min(len(data), segment_size) - 8)
            data[at] ^= 1
            damaged += 1
        port.receive_datagrams(data, len(data), segment_size, 0, False, 0xC0DE)

    assert port.statistics().icrc_errors == damaged
    assert port.statistics().verified == port.statistics().packets_received
