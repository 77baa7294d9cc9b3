"""The parser of segments, byte by byte."""

from __future__ import annotations

import pytest

from chakram.roce.constants import Verb
from chakram.roce.headers import (
    Aeth,
    Bth,
    ImmDt,
    Packet,
    Reth,
    encode_packet,
)
from chakram.roce.opcodes import Opcode, extended_headers
from chakram.roce.segment_parser import (
    MALFORMED,
    SERVED,
    UNSUPPORTED,
    Run,
    SegmentParser,
)


def packet(opcode: Opcode, payload: bytes = b"", psn: int = 0x123456) -> bytes:
    return encode_packet(
        Packet(
            bth=Bth(
                opcode=opcode,
                destination_qpn=0xABCDEF,
                psn=psn,
                ack_request=True,
                backward_congestion=opcode == Opcode.CNP,
            ),
            reth=Reth(virtual_address=1, remote_key=2, dma_length_bytes=0xFFFFFFFE)
            if "reth" in extended_headers(opcode)
            else None,
            immediate=ImmDt(value=0xFFFFFFFD)
            if "immediate" in extended_headers(opcode)
            else None,
            aeth=Aeth(syndrome=0x61, msn=3)
            if "aeth" in extended_headers(opcode)
            else None,
            payload=payload,
        )
    )


DATA = [each for each in Opcode if each <= Opcode.WRITE_ONLY_WITH_IMMEDIATE]


@pytest.mark.parametrize("opcode", DATA)
def test_data_is_parsed_in_place(opcode: Opcode) -> None:
    data = packet(opcode, b"hello")
    parser = SegmentParser()

    assert parser.parse(b"before" + data + b"behind", 6, len(data)) == SERVED
    assert parser.is_data
    assert (parser.opcode, parser.qpn, parser.psn) == (opcode, 0xABCDEF, 0x123456)
    assert parser.ack_request
    verb = Verb.SEND if opcode < Opcode.WRITE_FIRST else Verb.WRITE
    assert parser.verb == verb
    assert parser.is_first == ("FIRST" in opcode.name or "ONLY" in opcode.name)
    assert parser.is_last == ("LAST" in opcode.name or "ONLY" in opcode.name)
    assert parser.payload_bytes == 5
    assert parser.dma_length_bytes == (
        0xFFFFFFFE if "reth" in extended_headers(opcode) else 0
    )
    assert parser.immediate == (
        0xFFFFFFFD if "immediate" in extended_headers(opcode) else -1
    )


def test_answers_are_parsed() -> None:
    parser = SegmentParser()
    nak = packet(Opcode.ACKNOWLEDGE)
    assert parser.parse(nak, 0, len(nak)) == SERVED
    assert not parser.is_data
    assert parser.syndrome == 0x61
    cnp = packet(Opcode.CNP, bytes(16))
    assert parser.parse(cnp, 0, len(cnp)) == SERVED
    assert parser.opcode == Opcode.CNP


@pytest.mark.parametrize(
    ("opcode", "size"),
    [
        (Opcode.READ_REQUEST, 16),
        (Opcode.COMPARE_SWAP, 28),
        (Opcode.FETCH_ADD, 28),
        (0x12, 0),
        (0x15, 0),
        (0x16, 0),
        (0x1F, 0),
        (0x64, 0),
        (0xFF, 0),
    ],
)
def test_other_opcodes_are_unsupported(opcode: int, size: int) -> None:
    data = bytearray(packet(Opcode.SEND_ONLY, bytes(size)))
    data[0] = opcode
    parser = SegmentParser()

    assert parser.parse(data, 0, len(data)) == UNSUPPORTED
    # Without its headers it is nothing at all.
    if size:
        assert parser.parse(data, 0, len(data) - 4) == MALFORMED


@pytest.mark.parametrize(
    "data",
    [
        bytes(15),
        b"\x04\x01" + bytes(14),  # version
        b"\x04\x10" + bytes(14),  # no room for the pad
        b"\x04\x10" + bytes(16),  # the pad does not round up
        b"\x0a\x00" + bytes(29),  # no room for the RETH
        b"\x05\x00" + bytes(17),  # no room for the immediate
        b"\x11\x00" + bytes(14),  # no AETH
        b"\x11\x00" + bytes(22),  # more than an AETH
        b"\x11\x10" + bytes(19),  # an ACK that is padded
        b"\x11\x00" + bytes(19),  # an ACK of a length that needs a pad
        b"\x81\x10" + bytes(14),  # a CNP that is all pad
        b"\x81\0\xff\xff\x40" + bytes(11),  # without its reserved bytes
        b"\x81\0\xff\xff\x40" + bytes(26),  # with too few of them
        b"\x81\0\xff\xff\x40" + bytes(31),  # with too many
        b"\x81\x10\xff\xff\x40" + bytes(28),  # with a pad
        b"\x81\0\xff\xff\xbf" + bytes(27),  # without BECN
    ],
)
def test_invalid_datagram_is_malformed(data: bytes) -> None:
    assert SegmentParser().parse(data, 0, len(data)) == MALFORMED


def parsed(opcode: Opcode, size: int, psn: int) -> SegmentParser:
    parser = SegmentParser()
    data = packet(opcode, bytes(size), psn)
    assert parser.parse(data, 0, len(data)) == SERVED
    return parser


def test_packets_of_one_message_make_a_run() -> None:
    run = Run()
    assert not run.extend(parsed(Opcode.WRITE_MIDDLE, 256, 0))
    run.begin(parsed(Opcode.WRITE_FIRST, 256, 0xFFFFFF), 256)
    assert run.extend(parsed(Opcode.WRITE_MIDDLE, 256, 0))
    assert run.extend(parsed(Opcode.WRITE_LAST_WITH_IMMEDIATE, 3, 1))

    assert (run.psn, run.count, run.payload_bytes) == (0xFFFFFF, 3, 515)
    assert run.is_first
    assert run.is_last
    assert run.ack_request
    assert run.dma_length_bytes == 0xFFFFFFFE
    assert run.immediate == 0xFFFFFFFD
    assert run.verb == Verb.WRITE


@pytest.mark.parametrize(
    ("start", "size", "opcode", "psn"),
    [
        (Opcode.WRITE_FIRST, 256, Opcode.WRITE_MIDDLE, 6),
        (Opcode.WRITE_FIRST, 256, Opcode.SEND_MIDDLE, 5),
        (Opcode.WRITE_FIRST, 252, Opcode.WRITE_MIDDLE, 5),
        (Opcode.WRITE_FIRST, 256, Opcode.WRITE_FIRST, 5),
        (Opcode.WRITE_LAST, 256, Opcode.WRITE_MIDDLE, 5),
        (Opcode.WRITE_FIRST, 256, Opcode.ACKNOWLEDGE, 5),
    ],
)
def test_other_packets_end_a_run(
    start: Opcode, size: int, opcode: Opcode, psn: int
) -> None:
    run = Run()
    run.begin(parsed(start, size, 4), 256)
    payload = 0 if opcode == Opcode.ACKNOWLEDGE else 256

    assert not run.extend(parsed(opcode, payload, psn))
    assert run.count == 1
