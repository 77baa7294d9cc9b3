"""A capture of another implementation: Linux Soft-RoCE (rdma_rxe)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from chakram.roce.events import MessageReceived
from chakram.roce.headers import Packet, encode_packet
from chakram.roce.icrc import ip_icrc
from chakram.roce.opcodes import ACK_CREDITS_UNUSED, NakCode, Opcode
from chakram.roce.packet_verification import INTACT, PacketVerifier
from chakram.roce.port import PortEngine
from chakram.roce.segment_parser import SegmentParser
from tests.packets import decode_packet
from tests.pcap_files import ip_packet, read_frames
from tests.virtual_wire import make_queue_pair

COLUMNS = (
    *("frame", "identification", "type of service", "traffic class", "time to live"),
    *("hop limit", "source port", "length", "opcode", "solicited", "migrated", "pad"),
    *("partition key", "destination", "ack request", "psn", "address", "key"),
    *("dma length", "immediate", "syndrome", "msn", "queue key", "source", "swap"),
    *("compare", "original", "icrc"),
)
"""Of the table in the capture's description: fields as tshark 4.0 shows them."""

# Counted in that table.
KINDS = Counter(
    {
        (4, "SEND_FIRST"): 5,
        (4, "SEND_MIDDLE"): 5,
        (4, "SEND_LAST"): 4,
        (4, "SEND_LAST_WITH_IMMEDIATE"): 1,
        (4, "SEND_ONLY"): 4,
        (4, "SEND_ONLY_WITH_IMMEDIATE"): 2,
        (4, "WRITE_FIRST"): 6,
        (4, "WRITE_MIDDLE"): 21,
        (4, "WRITE_LAST"): 4,
        (4, "WRITE_LAST_WITH_IMMEDIATE"): 3,
        (4, "WRITE_ONLY"): 4,
        (4, "WRITE_ONLY_WITH_IMMEDIATE"): 8,
        (4, "READ_REQUEST"): 1,
        (4, "READ_RESPONSE_FIRST"): 1,
        (4, "READ_RESPONSE_MIDDLE"): 1,
        (4, "READ_RESPONSE_LAST"): 1,
        (4, "FETCH_ADD"): 1,
        (4, "COMPARE_SWAP"): 1,
        (4, "ATOMIC_ACKNOWLEDGE"): 2,
        (4, "UC_SEND_FIRST"): 1,
        (4, "UC_SEND_MIDDLE"): 1,
        (4, "UC_SEND_LAST"): 1,
        (4, "UC_WRITE_FIRST"): 1,
        (4, "UC_WRITE_LAST_WITH_IMMEDIATE"): 1,
        (4, "UC_WRITE_ONLY"): 1,
        (4, "UD_SEND_ONLY"): 5,
        (4, "UD_SEND_ONLY_WITH_IMMEDIATE"): 1,
        (6, "UD_SEND_ONLY"): 3,
        (6, "UD_SEND_ONLY_WITH_IMMEDIATE"): 1,
        (4, "ACKNOWLEDGE"): 25,
        (4, "PSN_SEQUENCE_ERROR"): 1,
        (4, "REMOTE_ACCESS_ERROR"): 1,
        (4, "RECEIVER_NOT_READY"): 1,
        (6, "SEND_FIRST"): 2,
        (6, "SEND_MIDDLE"): 2,
        (6, "SEND_LAST"): 1,
        (6, "SEND_LAST_WITH_IMMEDIATE"): 1,
        (6, "SEND_ONLY"): 3,
        (6, "SEND_ONLY_WITH_IMMEDIATE"): 2,
        (6, "WRITE_FIRST"): 3,
        (6, "WRITE_MIDDLE"): 4,
        (6, "WRITE_LAST"): 2,
        (6, "WRITE_LAST_WITH_IMMEDIATE"): 1,
        (6, "WRITE_ONLY"): 3,
        (6, "WRITE_ONLY_WITH_IMMEDIATE"): 3,
        (6, "ACKNOWLEDGE"): 16,
    }
)

SENDS = {
    Opcode.SEND_FIRST,
    Opcode.SEND_MIDDLE,
    Opcode.SEND_LAST,
    Opcode.SEND_LAST_WITH_IMMEDIATE,
    Opcode.SEND_ONLY,
    Opcode.SEND_ONLY_WITH_IMMEDIATE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One captured packet; frames count from 1, as in every decoder."""

    number: int
    ip: bytes

    @property
    def is_ipv4(self) -> bool:
        return self.ip[0] >> 4 == 4

    @property
    def source(self) -> str:
        return ".".join(str(byte) for byte in self.ip[12:16])

    @property
    def source_port(self) -> int:
        return int.from_bytes(self.ip[20:22], "big")

    @property
    def datagram(self) -> bytes:
        return self.ip[28:] if self.is_ipv4 else self.ip[48:]


def kind_of(packet: Packet) -> str:
    """Return the name of its opcode, or of the NAK that it is."""
    if packet.bth.opcode is not Opcode.ACKNOWLEDGE:
        return packet.bth.opcode.name
    assert packet.aeth is not None
    syndrome = packet.aeth.syndrome
    names = {0: "ACKNOWLEDGE", 1: "RECEIVER_NOT_READY"}
    return names.get(syndrome >> 5) or NakCode(syndrome).name


@pytest.fixture(scope="module")
def frames(chakram_data: Path) -> list[Frame]:
    path = chakram_data / "reference" / "rxe.pcap"
    captured = read_frames(path.read_bytes(), where=str(path))
    return [
        Frame(number=number, ip=ip_packet(frame.data))
        for number, frame in enumerate(captured, 1)
    ]


@pytest.fixture(scope="module")
def told(chakram_data: Path) -> list[list[str]]:
    """Return the fields that tshark printed for each frame."""
    text = (chakram_data / "reference" / "rxe.txt").read_text()
    columns = len(COLUMNS)
    rows = [line.split("|") for line in text.splitlines() if line[:1].isdigit()]
    return [row + [""] * (columns - len(row)) for row in rows if len(row) > 1]


def test_every_icrc_equals_ours(frames: list[Frame]) -> None:
    assert len(frames) == 162
    assert {frame.is_ipv4 for frame in frames} == {True, False}
    for frame in frames:
        assert ip_icrc(frame.ip) == frame.ip[-4:], frame.number


def test_packets_decode_and_encode_to_the_same_bytes(frames: list[Frame]) -> None:
    kinds: Counter[tuple[int, str]] = Counter()
    for frame in frames:
        packet = decode_packet(frame.datagram)
        kinds[4 if frame.is_ipv4 else 6, kind_of(packet)] += 1
        # The ICRC is not carried over: it is computed again.
        again = replace(packet, icrc=ip_icrc(frame.ip))
        assert encode_packet(again) == frame.datagram, frame.number

    assert kinds == KINDS


def test_fields_equal_those_of_tshark(
    frames: list[Frame], told: list[list[str]]
) -> None:
    for frame, row in zip(frames, told, strict=True):
        fields = dict(zip(COLUMNS, row, strict=True))
        assert int(fields["frame"]) == frame.number
        packet = decode_packet(frame.datagram)
        bth = packet.bth
        assert int(fields["opcode"]) == bth.opcode
        assert int(fields["destination"], 16) == bth.destination_qpn
        assert int(fields["psn"]) == bth.psn
        assert fields["ack request"] == str(int(bth.ack_request))
        assert fields["solicited"] == str(int(bth.solicited))
        assert int(fields["pad"]) == -len(packet.payload) % 4
        if bth.opcode in SENDS:
            continue  # it may have taken a SEND's payload for another protocol
        reth, aeth, immediate = packet.reth, packet.aeth, packet.immediate
        assert fields["dma length"] == (str(reth.dma_length_bytes) if reth else "")
        atomic, answer, deth = packet.atomic, packet.atomic_answer, packet.deth
        assert fields["swap"] == (str(atomic.swap_or_add) if atomic else "")
        assert fields["compare"] == (str(atomic.compare) if atomic else "")
        assert fields["original"] == (str(answer.original) if answer else "")
        assert fields["source"] == (f"0x{deth.source_qpn:08x}" if deth else "")
        assert fields["syndrome"] == (str(aeth.syndrome) if aeth else "")
        assert fields["msn"] == (str(aeth.msn) if aeth else "")
        # It lists immediate data twice.
        told_immediate = fields["immediate"].partition(",")[0]
        assert told_immediate == (f"{immediate.value:08x}" if immediate else "")
        assert fields["icrc"] == f"0x{packet.icrc.hex()}"


def test_headers_contain_the_values_of_the_sender(frames: list[Frame]) -> None:
    def packet(number: int) -> Packet:
        return decode_packet(frames[number - 1].datagram)

    # WRITE of 3075 bytes with immediate; its ACK; the wrong key; a lost packet.
    first, last = packet(66), packet(69)
    assert first.reth is not None
    assert first.reth.dma_length_bytes == 3_075
    assert last.immediate is not None
    assert last.immediate.value == 0x12345678
    assert last.bth.ack_request
    assert len(last.payload) == 3
    pattern = bytes((7 * i + (i >> 8)) & 0xFF for i in range(3_075))
    assert b"".join(packet(number).payload for number in range(66, 70)) == pattern
    ack = packet(70).aeth
    assert ack is not None
    assert ack.syndrome == ACK_CREDITS_UNUSED
    assert packet(70).bth.psn == last.bth.psn
    syndromes = {
        decoded.aeth.syndrome
        for frame in frames
        if frame.datagram[0] == Opcode.ACKNOWLEDGE
        and (decoded := decode_packet(frame.datagram)).aeth is not None
    }
    assert {NakCode.PSN_SEQUENCE_ERROR, NakCode.REMOTE_ACCESS_ERROR} <= syndromes
    assert any(syndrome >> 5 == 1 for syndrome in syndromes)  # receiver not ready


@pytest.mark.parametrize(
    ("first", "last", "sizes"),
    [
        (60, 70, [0, 5, 1_024, 3_075]),  # WRITE with immediate
        (1, 10, [0, 1, 64, 3_001]),  # SEND
        (103, 113, [0, 5, 1_024, 3_075]),  # WRITE with immediate over IPv6
    ],
)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_our_responder_answers_like_the_captured_one(
    frames: list[Frame], first: int, last: int, sizes: list[int], as_bytes: bool
) -> None:
    conversation = frames[first - 1 : last]
    requests = [each for each in conversation if each.datagram[0] != Opcode.ACKNOWLEDGE]
    answers = [
        decode_packet(each.datagram)
        for each in conversation
        if each.datagram[0] == Opcode.ACKNOWLEDGE
    ]
    start = decode_packet(requests[0].datagram).bth
    port = PortEngine(rate_bps=None, burst_bound_ns=0, max_burst_packets=15)
    port.add_queue_pair(
        make_queue_pair(start.destination_qpn, 0x99, receive_psn=start.psn)
    )
    assert answers[0].aeth is not None
    said_before = answers[0].aeth.msn - 1
    given_answers = []
    for request in requests:
        if as_bytes:
            port.receive_datagrams(request.datagram, len(request.datagram), 0, 0)
            burst = port.next_burst(0)
        else:
            queue_pair = port.queue_pair(start.destination_qpn)
            queue_pair.receive_packet(decode_packet(request.datagram), 0)
            burst = queue_pair.next_burst(0, 1)
        if burst is not None:
            given_answers.append((burst.psn, burst.syndrome, burst.msn))
    events = [event for _, event in iter(port.next_event, None)]

    assert given_answers == [
        (answer.bth.psn, answer.aeth.syndrome, answer.aeth.msn - said_before)
        for answer in answers
        if answer.aeth is not None
    ]
    assert all(isinstance(event, MessageReceived) for event in events)
    assert [event.size_bytes for event in events] == sizes


def test_our_responder_requests_a_lost_packet_like_the_captured_one(
    frames: list[Frame],
) -> None:
    # A WRITE of 22 packets of which the second was lost: its end, the NAK, the retry.
    packets = [decode_packet(frame.datagram) for frame in frames[147:155]]
    late, nak, again = packets[:4], packets[4], packets[5:]
    assert nak.aeth is not None
    lost_psn = nak.bth.psn
    responder = make_queue_pair(0x1A, 0x1B, receive_psn=lost_psn - 1)
    responder.arrivals.receive_run(
        lost_psn - 1, 1, 0, True, False, 1024, 22 * 1024, -1, False, 0, 0
    )
    answers = []
    for packet in late + again:
        responder.receive_packet(packet, 0)
        answers += list(iter(lambda: responder.next_burst(0, 1), None))

    asked, *said = [(each.psn, each.syndrome, each.msn) for each in answers]
    assert asked == (lost_psn, nak.aeth.syndrome, nak.aeth.msn)
    # Unlike its own kind we say that it has come, which helps it on.
    assert said == [(lost_psn, 0x1F, nak.aeth.msn)]
    assert responder.statistics().out_of_sequence == 4
    assert responder.statistics().bytes_received == 4 * 1024


def test_our_requester_goes_back_like_the_captured_one(frames: list[Frame]) -> None:
    nak = decode_packet(frames[151].datagram)
    again = [decode_packet(frame.datagram).bth for frame in frames[152:155]]
    requester = make_queue_pair(0x1B, 0x1A, send_psn=nak.bth.psn - 1)
    requester.post_send(1, 22 * 1024, 0)
    while requester.next_burst(0, 1) is not None:
        pass
    requester.receive_packet(nak, 0)

    for header in again:
        burst = requester.next_burst(0, 1)
        assert burst is not None
        assert burst.psn == header.psn
        assert burst.resent_packets
        assert burst.ack_request == header.ack_request


def test_its_packets_can_be_checked_at_a_socket(frames: list[Frame]) -> None:
    # Soft-RoCE numbers its packets, and a socket does not see the numbers.
    verifier = PacketVerifier(local_address="10.9.0.2", path_mtu=4096)
    flow = verifier.flow("10.9.0.1", is_ours=False)
    parser = SegmentParser()
    checked = 0
    for frame in frames:
        if not frame.is_ipv4 or frame.source != "10.9.0.1":
            continue
        damaged = bytearray(frame.datagram)
        damaged[-5] ^= 1
        for data, is_intact in ((frame.datagram, True), (bytes(damaged), False)):
            parser.parse(data, 0, len(data))
            verdict = verifier.judge(
                data, 0, len(data), parser, flow, frame.source_port, 0
            )
            assert (verdict == INTACT) is is_intact
        checked += 1
    assert checked > 40
