"""The invariant CRC compared with packets of known CRC."""

from __future__ import annotations

import re

import pytest

from chakram.foundation.errors import PacketError
from chakram.roce.icrc import icrc, ip_icrc, masked_headers

# From the IP header on; made by hand and agreed upon by two implementations.
KNOWN = {
    "ack": (
        "4568003000004000401126530a0000020a000001c00112b7001c0000"
        "1100ffff00000011000000071f0000016ce7e889"
    ),
    "nak": (
        "4568003000004000401126530a0000020a000001c00112b7001c0000"
        "1100ffff000000110000000660000001167ed487"
    ),
    "cnp": (
        "45c0003c00004000401125ef0a0000020a000001c00112b700280000"
        "8100ffff40000011000000000000000000000000000000000000000093727150"
    ),
    "write": (
        "456a0044000040004011263d0a0000010a000002c00112b700300000"
        "0b00ffff0000001280ffffff000000000000100000001234000000040000cafe"
        "61626364413b332c"
    ),
}
ACK = bytes.fromhex(KNOWN["ack"])


def nic_cnp() -> bytes:
    """A CNP that a ConnectX-4 Lx sent, as scapy's RoCE tests list it."""
    ip = bytes.fromhex("45c2003c718c400040110000") + bytes([10, 0, 17, 1, 10, 0, 18, 1])
    udp = bytes.fromhex("000012b700280000")
    bth = bytes.fromhex("8100ffff4000011800000000")
    return ip + udp + bth + bytes(16) + bytes.fromhex("82fd002a")


@pytest.mark.parametrize("name", ["ack", "nak", "cnp", "write"])
def test_icrc_of_known_packets_is_correct(name: str) -> None:
    packet = bytes.fromhex(KNOWN[name])

    assert ip_icrc(packet) == packet[-4:]


def test_icrc_of_a_nic_packet_with_an_ip_identification_is_correct() -> None:
    packet = nic_cnp()

    assert ip_icrc(packet) == packet[-4:]
    without = packet[:4] + bytes(2) + packet[6:]
    assert ip_icrc(without) == bytes.fromhex("af515342")


@pytest.mark.parametrize("at", [1, 8, 10, 11, 26, 27, 32])
def test_icrc_excludes_variable_fields(at: int) -> None:
    changed = bytearray(ACK)
    changed[at] ^= 0xFF

    assert ip_icrc(bytes(changed)) == ACK[-4:]


@pytest.mark.parametrize("at", [4, 5, 12, 19, 20, 22, 24, 28, 36, 40])
def test_icrc_covers_all_other_fields(at: int) -> None:
    changed = bytearray(ACK)
    changed[at] ^= 0x01

    assert ip_icrc(bytes(changed)) != ACK[-4:]


def test_masked_headers_give_the_same_icrc() -> None:
    headers = masked_headers(
        source=ACK[12:16],
        destination=ACK[16:20],
        source_port=0xC001,
        udp_payload_bytes=20,
    )

    assert icrc(headers, ACK[28:-4]) == ACK[-4:]


@pytest.mark.parametrize("at", [None, 0, 1, 2, 3, 7, 46, 47, 52])
def test_the_variable_fields_of_ipv6_are_not_covered(at: int | None) -> None:
    transport = ACK[28:-4]
    source, destination = bytes(range(16)), bytes(range(16, 32))
    headers = masked_headers(
        source=source, destination=destination, source_port=9, udp_payload_bytes=20
    )
    ip = bytes.fromhex("60000000001c1140") + source + destination
    packet = bytearray(ip + bytes.fromhex("000912b7001c0000") + transport + bytes(4))
    if at is not None:
        packet[at] ^= 0x0F if at == 0 else 0xFF

    assert ip_icrc(bytes(packet)) == icrc(headers, transport)


def test_addresses_are_of_one_version() -> None:
    with pytest.raises(
        ValueError, match="of 4 and 16 bytes do not have the same IP version"
    ):
        masked_headers(
            source=bytes(4), destination=bytes(16), source_port=1, udp_payload_bytes=16
        )


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (b"", "version 0 is neither 4 nor 6"),
        (b"\x50" + ACK[1:], "version 5 is neither 4 nor 6"),
        (ACK[:43], "the packet has only 43 bytes"),
        (b"\x60" + bytes(60), "the packet has only 61 bytes"),
        (ACK[:9] + b"\x06" + ACK[10:], "protocol 6 is not UDP"),
        (ACK[:6] + b"\x20" + ACK[7:], "the packet is a fragment"),
        (ACK[:7] + b"\x01" + ACK[8:], "the packet is a fragment"),
    ],
)
def test_packet_without_an_icrc_is_refused(packet: bytes, message: str) -> None:
    with pytest.raises(PacketError, match=re.escape(message)):
        ip_icrc(packet)
