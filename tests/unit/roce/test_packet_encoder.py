"""The encoder: known bytes and refusals."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from chakram.plan.transport import ICRC_MODES
from chakram.roce.burst import Burst
from chakram.roce.constants import NO_IMMEDIATE, Verb
from chakram.roce.contents_encoder import ContentsEncoder
from chakram.roce.icrc import icrc, masked_headers
from chakram.roce.opcodes import Opcode
from chakram.roce.packet_encoder import WireEncoder
from tests.packets import decode_packet
from tests.virtual_wire import make_queue_pair, split


def make_encoder(*, remote: str = "10.0.0.1", **settings: Any) -> WireEncoder:
    defaults: dict[str, Any] = {
        "local_address": "10.0.0.2",
        "path_mtu": 1024,
        "max_burst_packets": 4,
    }
    encoder = WireEncoder(**(defaults | settings))
    encoder.set_destination(0, remote)
    return encoder


def bursts_of(size: int, **settings: Any) -> list[Burst]:
    qp = make_queue_pair(**({"window_bytes": 10**6} | settings))
    qp.post_send(7, size, 0)
    return list(iter(lambda: qp.next_burst(0, 4), None))


@pytest.mark.parametrize(
    ("start", "psn", "ce", "expected"),
    [
        (7, 7, 0, "1140ffff00000011000000071f000001119c1343"),
        (7, 7, 1, "8100ffff4000001100000000" + "00" * 16 + "93727150"),
    ],
)
def test_encoded_packets_equal_known_bytes(
    start: int, psn: int, ce: int, expected: str
) -> None:
    responder = make_queue_pair(
        0x12, 0x11, receive_psn=start, source_port=0xC001, cnp_interval_ns=0
    )
    responder.arrivals.receive_run(psn, 1, 0, True, True, 1, 1, 1, True, ce, 0)
    burst = responder.next_burst(0, 1)
    assert burst is not None

    assert bytes(make_encoder().encode(burst)[0]).hex() == expected


def test_encoded_nak_equals_known_bytes() -> None:
    responder = make_queue_pair(0x12, 0x11, receive_psn=5, source_port=0xC001)
    responder.arrivals.receive_run(5, 1, 0, True, True, 1, 1, 1, False, 0, 0)
    responder.arrivals.receive_run(9, 1, 0, True, True, 1, 1, 1, False, 0, 0)
    burst = responder.next_burst(0, 1)
    assert burst is not None

    expected = "1140ffff0000001100000006600000016b052f4d"
    assert bytes(make_encoder().encode(burst)[0]).hex() == expected


def test_write_contains_address_and_length() -> None:
    qp = make_queue_pair(
        0x11,
        0xABCDEF,
        source_port=0xC001,
        send_psn=0xFFFFFF,
        window_bytes=10**6,
        remote_address=0x123456789ABCDEF0,
        remote_key=0xFEDCBA98,
    )
    qp.post_send(0xCAFEBABE, 1_027, 0)
    burst = qp.next_burst(0, 4)
    assert burst is not None
    first, last = (decode_packet(each) for each in split(*make_encoder().encode(burst)))

    assert first.reth is not None
    assert first.reth.virtual_address == 0x123456789ABCDEF0
    assert first.reth.remote_key == 0xFEDCBA98
    assert first.reth.dma_length_bytes == 1_027
    assert first.bth.destination_qpn == 0xABCDEF
    assert (first.bth.psn, first.bth.ack_request) == (0xFFFFFF, False)
    assert (last.bth.psn, last.bth.ack_request) == (0, True)
    assert last.immediate is not None
    assert last.immediate.value == 0xCAFEBABE
    assert last.payload == first.payload[:3]


@pytest.mark.parametrize("verb", list(Verb))
@pytest.mark.parametrize("version", [4, 6])
def test_a_message_of_one_packet(verb: Verb, version: int) -> None:
    (burst,) = bursts_of(5, verb=verb)
    encoder = make_encoder()
    if version == 6:
        encoder = WireEncoder(
            local_address="fd00::1", path_mtu=1024, max_burst_packets=1
        )
        encoder.set_destination(0, "fd00::2")
    packet = decode_packet(bytes(encoder.encode(burst)[0]))

    assert packet.bth.opcode.name == f"{verb.name}_ONLY_WITH_IMMEDIATE"
    assert packet.immediate is not None
    assert packet.immediate.value == 7
    assert len(packet.payload) == 5


def test_the_payload_survives_a_last_packet_among_middles() -> None:
    encoder = make_encoder()
    before = bursts_of(4 * 1024, verb=Verb.SEND)[0]
    packets = split(*encoder.encode(before))
    for burst in bursts_of(6 * 1024 - 8):
        encoder.encode(burst)

    assert split(*encoder.encode(before)) == packets


def test_slots_hold_bursts_side_by_side() -> None:
    encoder = make_encoder(slots=2)
    first, second = bursts_of(6 * 1024)[1:3]
    one, _ = encoder.encode(first, 0)
    before = bytes(one)
    two, _ = encoder.encode(second, 1)

    assert bytes(one) == before
    assert bytes(two) != before
    assert bytes(encoder.encode(second, 0)[0]) == bytes(two)


def test_each_destination_has_its_address_and_port() -> None:
    encoder = make_encoder()
    encoder.set_destination(1, "10.0.0.1", 4792)
    qps = []
    for destination in (0, 1):
        qp = make_queue_pair(1, 2, destination=destination)
        qp.post_send(0, 8, 0)
        qps.append(qp)
    packets = [bytes(encoder.encode(qp.next_burst(0, 1))[0]) for qp in qps]

    assert packets[0][:-4] == packets[1][:-4]
    assert packets[0][-4:] != packets[1][-4:]
    # It is the same as that of an encoder whose every peer has that port.
    qps[1].handle_timeout(0)
    other = WireEncoder(
        local_address="10.0.0.2", path_mtu=1024, max_burst_packets=4, udp_port=4792
    )
    other.set_destination(1, "10.0.0.1")
    again = bursts_of(8)[0]
    encoder.set_destination(0, "10.0.0.1", 4792)
    other.set_destination(0, "10.0.0.1")
    assert bytes(encoder.encode(again)[0]) == bytes(other.encode(again)[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path_mtu": 1500}, "path MTU 1500"),
        ({"max_burst_packets": 0}, "0 packets in a burst"),
        ({"slots": 0}, "0 slots"),
        ({"udp_port": 0}, "UDP port 0"),
        ({"local_address": "nowhere"}, "nowhere"),
    ],
)
def test_settings_out_of_range_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_encoder(**settings)


def test_destinations_are_of_the_local_version() -> None:
    encoder = make_encoder()
    with pytest.raises(ValueError, match="fd00::1 does not have the IP version"):
        encoder.set_destination(1, "fd00::1")
    with pytest.raises(ValueError, match="UDP port 65536"):
        encoder.set_destination(1, "10.0.0.1", 65536)


def test_bursts_that_do_not_fit_are_refused() -> None:
    encoder = make_encoder()
    burst = bursts_of(6 * 1024)[1]
    with pytest.raises(ValueError, match=r"slot 1 is not in 0\.\.0"):
        encoder.encode(burst, 1)
    with pytest.raises(ValueError, match="slot -1"):
        encoder.encode(burst, -1)
    with pytest.raises(ValueError, match="exceeds the limits of this encoder"):
        make_encoder(max_burst_packets=2).encode(burst)
    with pytest.raises(ValueError, match="exceeds the limits of this encoder"):
        make_encoder(path_mtu=2048).encode(burst)
    unknown = WireEncoder(local_address="10.0.0.2", path_mtu=1024, max_burst_packets=4)
    with pytest.raises(ValueError, match="destination 0 is unknown"):
        unknown.encode(burst)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 0}, "is inconsistent"),
        ({"message_packets": 2}, "is inconsistent"),
        ({"message_packets": 5, "message_bytes": 10**6}, "is inconsistent"),
        (
            {"message_packets": 6, "message_bytes": 6 * 1024},
            "does not fit into one send",
        ),
        ({"packet_index": 0}, "does not fit into one send"),
    ],
)
def test_invalid_bursts_are_refused(changes: dict[str, int], message: str) -> None:
    encoder = make_encoder()
    burst = bursts_of(20 * 1024)[1]
    assert (burst.packet_index, burst.count) == (2, 4)
    for name, value in changes.items():
        setattr(burst, name, value)

    with pytest.raises(ValueError, match=message):
        encoder.encode(burst)


@pytest.mark.parametrize(
    "addresses", [("10.0.0.2", "10.0.0.1"), ("fd00::2", "fd00::1")]
)
@pytest.mark.parametrize("verb", list(Verb))
@pytest.mark.parametrize("size", [0, 5, 1_024, 3_075, 7_000])
def test_all_icrc_modes_except_none_agree(
    addresses: tuple[str, str], verb: Verb, size: int
) -> None:
    local, remote = addresses
    encoders = {}
    for mode in ICRC_MODES:
        encoders[mode] = make_encoder(local_address=local, remote=remote, icrc=mode)
    responder = make_queue_pair(receive_psn=0)
    responder.arrivals.receive_run(0, 1, 0, True, True, 1, 1, 1, True, 0, 0)
    answer = responder.next_burst(0, 1)
    assert answer is not None
    for burst in [*bursts_of(size, verb=verb), answer]:
        by_table, in_full, off = (
            split(*encoders[mode].encode(burst)) for mode in ICRC_MODES
        )
        assert in_full == by_table
        assert [each[:-4] for each in off] == [each[:-4] for each in by_table]
        assert {each[-4:] for each in off} == {bytes(4)}


@pytest.mark.parametrize("size", [0, 3, 2_000, 5_000])
def test_message_without_immediate_has_the_other_opcode(size: int) -> None:
    encoder = make_encoder()
    queue_pair = make_queue_pair(window_bytes=10**6)
    queue_pair.post_send(NO_IMMEDIATE, size, 0)
    packets: list[bytes] = []
    for burst in iter(lambda: queue_pair.next_burst(0, 4), None):
        new = split(*encoder.encode(burst))
        # 42 bytes of Ethernet, IPv4 and UDP are not in a datagram.
        assert sum(map(len, new)) + 42 * len(new) == burst.wire_bytes
        packets += new

    last = decode_packet(packets[-1])
    assert last.immediate is None
    assert last.bth.opcode in (Opcode.WRITE_ONLY, Opcode.WRITE_LAST)
    assert sum(len(decode_packet(each).payload) for each in packets) == size


@pytest.mark.parametrize("verb", list(Verb))
def test_migreq_bit_is_set_except_in_notifications(
    verb: Verb,
) -> None:
    # As adapters do it that use no alternate path; scapy's list of captures has both.
    contents = ContentsEncoder(local_address="10.0.0.2")
    contents.set_destination(0, "10.0.0.1", 4791)
    queue_pair = make_queue_pair(verb=verb, window_bytes=10**6)
    responder = make_queue_pair(receive_psn=0, cnp_interval_ns=0)
    responder.arrivals.receive_run(0, 1, 0, True, True, 1, 1, 1, True, 1, 0)
    cnp, ack = (responder.next_burst(0, 1) for _ in range(2))
    assert cnp is not None
    assert ack is not None
    found = []
    for size in (5, 1_025, 7_000):
        for burst in bursts_of(size, verb=verb):
            found += split(*make_encoder().encode(burst))
        queue_pair.post_send(1, size, 0, bytes(size))
    for burst in iter(lambda: queue_pair.next_burst(0, 4), None):
        found += split(*contents.encode(burst))
    found.append(bytes(make_encoder().encode(ack)[0]))

    assert {each[1] & ~0x30 for each in found} == {0x40}
    assert decode_packet(found[0]).bth.migrated
    assert make_encoder().encode(cnp)[0][1] == 0


@pytest.mark.parametrize(
    "addresses", [("10.0.0.2", "10.0.0.1"), ("fd00::2", "fd00::1")]
)
@pytest.mark.parametrize("mode", ["table", "full", "contents"])
@pytest.mark.parametrize("size", [5, 1_025, 4_000, 9_000])
def test_unsegmented_packets_have_their_own_icrc(
    addresses: tuple[str, str], mode: str, size: int
) -> None:
    local, remote = addresses
    queue_pair = make_queue_pair(window_bytes=10**6, source_port=0xC001)
    encoder: WireEncoder | ContentsEncoder
    if mode == "contents":
        encoder = ContentsEncoder(local_address=local)
        encoder.set_destination(0, remote, 4791)
    else:
        encoder = make_encoder(local_address=local, remote=remote, icrc=mode)
    for number in range(3):
        contents = bytes(size) if mode == "contents" else None
        queue_pair.post_send(number, size, 0, contents)
    bursts = list(iter(lambda: queue_pair.next_burst(0, 4), None))
    together = [split(*encoder.encode(burst)) for burst in bursts]
    encoder.send_unsegmented()
    alone = [split(*encoder.encode(burst)) for burst in bursts]

    is_ipv4 = ":" not in local
    assert any(len(packets) > 1 for packets in alone) or mode == "contents"
    for before, after in zip(together, alone, strict=True):
        for position, packet in enumerate(after):
            headers = masked_headers(
                source=ip_address(local).packed,
                destination=ip_address(remote).packed,
                source_port=0xC001,
                udp_payload_bytes=len(packet),
            )
            assert packet[-4:] == icrc(headers, packet[:-4])
            assert (packet == before[position]) is (not is_ipv4 or position == 0)


def test_an_icrc_mode_has_a_name() -> None:
    with pytest.raises(ValueError, match="ICRC mode 'some' is not one of"):
        make_encoder(icrc="some")
