"""Headers and packets as values."""

from __future__ import annotations

import re
from typing import Any

import pytest

from chakram.foundation.errors import PacketError
from chakram.roce.headers import (
    Aeth,
    Bth,
    ImmDt,
    Packet,
    Reth,
    encode_packet,
)
from chakram.roce.opcodes import Opcode
from tests.packets import decode_packet

WRITE_ONLY = bytes.fromhex(
    "0b00ffff0000001280ffffff000000000000100000001234000000040000cafe61626364413b332c"
)


def test_a_write_decodes_into_its_parts() -> None:
    packet = decode_packet(WRITE_ONLY)

    assert packet == Packet(
        bth=Bth(
            opcode=Opcode.WRITE_ONLY_WITH_IMMEDIATE,
            destination_qpn=0x12,
            psn=0xFFFFFF,
            ack_request=True,
        ),
        reth=Reth(virtual_address=0x1000, remote_key=0x1234, dma_length_bytes=4),
        immediate=ImmDt(value=0xCAFE),
        payload=b"abcd",
        icrc=bytes.fromhex("413b332c"),
    )
    assert encode_packet(packet) == WRITE_ONLY


def test_an_ack_decodes_into_its_parts() -> None:
    data = bytes.fromhex("1100ffff00000011000000071f0000016ce7e889")
    packet = decode_packet(data)

    assert packet.aeth == Aeth(syndrome=0x1F, msn=1)
    assert (packet.bth.opcode, packet.bth.psn) == (Opcode.ACKNOWLEDGE, 7)
    assert encode_packet(packet) == data


def test_nonzero_pad_is_kept() -> None:
    packet = Packet(
        bth=Bth(opcode=Opcode.SEND_ONLY, destination_qpn=1, psn=2),
        payload=b"abc",
        pad=b"x",
    )

    data = encode_packet(packet)

    assert data[1] >> 4 == 1
    assert decode_packet(data) == packet


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "BTH: the packet has only 0 bytes"),
        (WRITE_ONLY[:15], "BTH: the packet has only 15 bytes"),
        (b"\x0b\x01" + WRITE_ONLY[2:], "BTH byte 1: transport version 1 is not 0"),
        (b"\xff" + WRITE_ONLY[1:], "BTH byte 0: unknown opcode 0xff"),
        (
            b"\x13" + WRITE_ONLY[1:],
            "COMPARE_SWAP: 40 bytes are too short for its headers and pad",
        ),
        (
            WRITE_ONLY[:20],
            "WRITE_ONLY_WITH_IMMEDIATE: 20 bytes are too short for its headers and pad",
        ),
        (
            WRITE_ONLY[:1] + b"\x10" + WRITE_ONLY[2:-5] + WRITE_ONLY[-4:],
            "BTH byte 1: 2 bytes are padded with 1",
        ),
    ],
)
def test_invalid_packet_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(PacketError, match=re.escape(message)):
        decode_packet(data)


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (Bth, {"psn": 2**24}),
        (Bth, {"psn": -1}),
        (Bth, {"destination_qpn": 2**24}),
        (Bth, {"partition_key": 2**16}),
        (Bth, {"reserved": 64}),
        (Bth, {"reserved_ack": 128}),
        (Reth, {"virtual_address": 2**64}),
        (Reth, {"remote_key": 2**32}),
        (Reth, {"dma_length_bytes": 2**32}),
        (Aeth, {"syndrome": 256}),
        (Aeth, {"msn": 2**24}),
        (ImmDt, {"value": 2**32}),
    ],
)
def test_values_fit_their_bits(make: Any, changes: dict[str, int]) -> None:
    good = {
        Bth: {"opcode": Opcode.CNP, "destination_qpn": 0, "psn": 0},
        Reth: {"virtual_address": 0, "remote_key": 0, "dma_length_bytes": 0},
        Aeth: {"syndrome": 0, "msn": 0},
        ImmDt: {"value": 0},
    }[make]
    make(**good)
    with pytest.raises(ValueError, match="does not fit in"):
        make(**(good | changes))


def test_headers_match_the_opcode() -> None:
    bth = Bth(opcode=Opcode.SEND_ONLY, destination_qpn=0, psn=0)
    with pytest.raises(ValueError, match="SEND_ONLY does not carry AETH"):
        Packet(bth=bth, aeth=Aeth(syndrome=0, msn=0))
    write = Bth(opcode=Opcode.WRITE_FIRST, destination_qpn=0, psn=0)
    with pytest.raises(ValueError, match="WRITE_FIRST carries RETH"):
        Packet(bth=write)
    with pytest.raises(ValueError, match="an ICRC has 4 bytes, not 3"):
        Packet(bth=bth, icrc=b"abc")
    with pytest.raises(
        ValueError, match="a pad of 1 bytes does not fit a payload of 4"
    ):
        Packet(bth=bth, payload=b"abcd", pad=b"x")
