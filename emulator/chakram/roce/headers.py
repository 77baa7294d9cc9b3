"""The RoCEv2 headers and packets: bytes to values and back.

A packet here is the UDP payload: base transport header, extended headers, payload, pad
and the four bytes of the invariant CRC. This is the readable form, for tests, tools and
odd packets; the data plane stamps templates instead (`chakram.roce.wire`).

Source: IBA volume 1, chapter 9, and annex A17 (RoCEv2); names as there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum

from chakram.errors import PacketError
from chakram.roce.constants import ICRC_BYTES
from chakram.roce.psn import PSN_MASK

__all__ = [
    "ACK_CREDITS_UNUSED",
    "BTH_BYTES",
    "DEFAULT_PARTITION_KEY",
    "QPN_MASK",
    "RNR_TIMER_NS",
    "Aeth",
    "Bth",
    "ImmDt",
    "NakCode",
    "Opcode",
    "Packet",
    "Reth",
    "decode_packet",
    "encode_packet",
    "has_aeth",
    "has_immediate",
    "has_reth",
]

BTH_BYTES = 12
DEFAULT_PARTITION_KEY = 0xFFFF
QPN_MASK = (1 << 24) - 1

ACK_CREDITS_UNUSED = 0x1F
"""AETH syndrome of an ACK that says nothing about credits."""

RNR_TIMER_NS = (
    655_360_000, 10_000, 20_000, 30_000, 40_000, 60_000, 80_000, 120_000,
    160_000, 240_000, 320_000, 480_000, 640_000, 960_000, 1_280_000, 1_920_000,
    2_560_000, 3_840_000, 5_120_000, 7_680_000, 10_240_000, 15_360_000, 20_480_000,
    30_720_000, 40_960_000, 61_440_000, 81_920_000, 122_880_000, 163_840_000,
    245_760_000, 327_680_000, 491_520_000,
)  # fmt: skip
"""How long a receiver-not-ready NAK asks to wait, by its timer code."""


class Opcode(IntEnum):
    """BTH opcodes of the reliable connection service, and the CNP."""

    SEND_FIRST = 0x00
    SEND_MIDDLE = 0x01
    SEND_LAST = 0x02
    SEND_LAST_WITH_IMMEDIATE = 0x03
    SEND_ONLY = 0x04
    SEND_ONLY_WITH_IMMEDIATE = 0x05
    WRITE_FIRST = 0x06
    WRITE_MIDDLE = 0x07
    WRITE_LAST = 0x08
    WRITE_LAST_WITH_IMMEDIATE = 0x09
    WRITE_ONLY = 0x0A
    WRITE_ONLY_WITH_IMMEDIATE = 0x0B
    READ_REQUEST = 0x0C
    READ_RESPONSE_FIRST = 0x0D
    READ_RESPONSE_MIDDLE = 0x0E
    READ_RESPONSE_LAST = 0x0F
    READ_RESPONSE_ONLY = 0x10
    ACKNOWLEDGE = 0x11
    ATOMIC_ACKNOWLEDGE = 0x12
    COMPARE_SWAP = 0x13
    FETCH_ADD = 0x14
    CNP = 0x81


class NakCode(IntEnum):
    """AETH syndromes of the NAKs."""

    PSN_SEQUENCE_ERROR = 0x60
    INVALID_REQUEST = 0x61
    REMOTE_ACCESS_ERROR = 0x62
    REMOTE_OPERATIONAL_ERROR = 0x63
    INVALID_RD_REQUEST = 0x64


_WITH_RETH = frozenset(
    (
        Opcode.WRITE_FIRST,
        Opcode.WRITE_ONLY,
        Opcode.WRITE_ONLY_WITH_IMMEDIATE,
        Opcode.READ_REQUEST,
    )
)
_WITH_AETH = frozenset(
    (
        Opcode.ACKNOWLEDGE,
        Opcode.READ_RESPONSE_FIRST,
        Opcode.READ_RESPONSE_LAST,
        Opcode.READ_RESPONSE_ONLY,
    )
)
_WITH_IMMEDIATE = frozenset(
    (
        Opcode.SEND_LAST_WITH_IMMEDIATE,
        Opcode.SEND_ONLY_WITH_IMMEDIATE,
        Opcode.WRITE_LAST_WITH_IMMEDIATE,
        Opcode.WRITE_ONLY_WITH_IMMEDIATE,
    )
)
# Atomics are known by name only: nothing here sends them or answers them.
_NOT_DECODED = frozenset(
    (Opcode.ATOMIC_ACKNOWLEDGE, Opcode.COMPARE_SWAP, Opcode.FETCH_ADD)
)


def has_reth(opcode: Opcode) -> bool:
    """Tell whether packets of *opcode* carry an RDMA extended transport header."""
    return opcode in _WITH_RETH


def has_aeth(opcode: Opcode) -> bool:
    """Tell whether packets of *opcode* carry an ACK extended transport header."""
    return opcode in _WITH_AETH


def has_immediate(opcode: Opcode) -> bool:
    """Tell whether packets of *opcode* carry immediate data."""
    return opcode in _WITH_IMMEDIATE


def _check_bits(name: str, value: int, bits: int) -> None:
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{name} {value:#x} does not fit in {bits} bits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bth:
    """Base transport header.

    ``forward_congestion`` and ``backward_congestion`` are FECN and BECN;
    ``reserved`` (6 bits) and ``reserved_ack`` (7 bits) are kept so that decoding and
    encoding again gives the same bytes.
    """

    opcode: Opcode
    destination_qpn: int
    psn: int
    ack_request: bool = False
    solicited: bool = False
    migrated: bool = False
    partition_key: int = DEFAULT_PARTITION_KEY
    forward_congestion: bool = False
    backward_congestion: bool = False
    reserved: int = 0
    reserved_ack: int = 0

    def __post_init__(self) -> None:
        _check_bits("destination QPN", self.destination_qpn, 24)
        _check_bits("PSN", self.psn, 24)
        _check_bits("partition key", self.partition_key, 16)
        _check_bits("reserved bits", self.reserved, 6)
        _check_bits("reserved bits beside AckReq", self.reserved_ack, 7)

    def encode(self, pad_bytes: int = 0) -> bytes:
        """Return the 12 bytes; *pad_bytes* is how much the payload is padded."""
        return struct.pack(
            ">BBHII",
            self.opcode,
            self.solicited << 7 | self.migrated << 6 | pad_bytes << 4,
            self.partition_key,
            self.forward_congestion << 31
            | self.backward_congestion << 30
            | self.reserved << 24
            | self.destination_qpn,
            self.ack_request << 31 | self.reserved_ack << 24 | self.psn,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reth:
    """RDMA extended transport header: where a WRITE goes and how long it is."""

    virtual_address: int
    remote_key: int
    dma_length_bytes: int

    def __post_init__(self) -> None:
        _check_bits("virtual address", self.virtual_address, 64)
        _check_bits("remote key", self.remote_key, 32)
        _check_bits("DMA length", self.dma_length_bytes, 32)

    def encode(self) -> bytes:
        """Return the 16 bytes."""
        return struct.pack(
            ">QII", self.virtual_address, self.remote_key, self.dma_length_bytes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImmDt:
    """Immediate data: the number of the message."""

    value: int

    def __post_init__(self) -> None:
        _check_bits("immediate data", self.value, 32)

    def encode(self) -> bytes:
        """Return the 4 bytes."""
        return struct.pack(">I", self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aeth:
    """ACK extended transport header.

    ``syndrome`` is an ACK below 0x20, receiver-not-ready below 0x40, and a `NakCode`
    from 0x60; ``msn`` counts the messages that the responder has completed.
    """

    syndrome: int
    msn: int

    def __post_init__(self) -> None:
        _check_bits("syndrome", self.syndrome, 8)
        _check_bits("MSN", self.msn, 24)

    def is_ack(self) -> bool:
        """Tell whether this is a positive acknowledgement."""
        return self.syndrome >> 5 == 0

    def is_receiver_not_ready(self) -> bool:
        """Tell whether the responder asks to try again later."""
        return self.syndrome >> 5 == 1

    def encode(self) -> bytes:
        """Return the 4 bytes."""
        return struct.pack(">I", self.syndrome << 24 | self.msn)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """One packet from the BTH on.

    ``icrc`` are the last four bytes as they stand, not checked. ``payload`` is without
    pad; ``pad`` is None for the zero bytes that every sender pads with, else what was
    found. The payload of a CNP are its 16 reserved bytes.
    """

    bth: Bth
    reth: Reth | None = None
    immediate: ImmDt | None = None
    aeth: Aeth | None = None
    payload: bytes = b""
    pad: bytes | None = None
    icrc: bytes = field(default=bytes(ICRC_BYTES))

    def __post_init__(self) -> None:
        opcode = self.bth.opcode
        for name, header, expected in (
            ("RETH", self.reth, has_reth(opcode)),
            ("immediate data", self.immediate, has_immediate(opcode)),
            ("AETH", self.aeth, has_aeth(opcode)),
        ):
            if (header is not None) != expected:
                verb = "carries" if expected else "does not carry"
                raise ValueError(f"{opcode.name} {verb} {name}")
        if len(self.icrc) != ICRC_BYTES:
            raise ValueError(f"an ICRC has 4 bytes, not {len(self.icrc)}")
        if self.pad is not None and len(self.pad) != -len(self.payload) % 4:
            raise ValueError(f"{len(self.pad)} bytes do not pad {len(self.payload)}")


def encode_packet(packet: Packet) -> bytes:
    """Return the UDP payload of *packet*, with the ICRC as it stands there."""
    pad_bytes = -len(packet.payload) % 4
    return b"".join(
        (
            packet.bth.encode(pad_bytes),
            packet.reth.encode() if packet.reth else b"",
            packet.aeth.encode() if packet.aeth else b"",
            packet.immediate.encode() if packet.immediate else b"",
            packet.payload,
            bytes(pad_bytes) if packet.pad is None else packet.pad,
            packet.icrc,
        )
    )


def decode_packet(datagram: bytes) -> Packet:
    """Return the packet in the UDP payload *datagram*; its ICRC is not checked.

    Raises:
        PacketError: If it is too short for its headers, has a transport version other
            than 0, an opcode that is not one of `Opcode`, or a pad that does not round
            the payload up to four bytes.
    """
    length = len(datagram)
    if length < BTH_BYTES + ICRC_BYTES:
        raise PacketError("BTH", f"the packet has only {length} bytes")
    code, flags, partition_key, word, sequence = struct.unpack_from(">BBHII", datagram)
    if flags & 0x0F:
        raise PacketError("BTH byte 1", f"transport version {flags & 0x0F} is not 0")
    try:
        opcode = Opcode(code)
    except ValueError:
        raise PacketError("BTH byte 0", f"unknown opcode {code:#04x}") from None
    if opcode in _NOT_DECODED:
        raise PacketError("BTH byte 0", f"{opcode.name} is not supported")
    bth = Bth(
        opcode=opcode,
        destination_qpn=word & QPN_MASK,
        psn=sequence & PSN_MASK,
        ack_request=bool(sequence >> 31),
        solicited=bool(flags & 0x80),
        migrated=bool(flags & 0x40),
        partition_key=partition_key,
        forward_congestion=bool(word >> 31),
        backward_congestion=bool(word >> 30 & 1),
        reserved=word >> 24 & 0x3F,
        reserved_ack=sequence >> 24 & 0x7F,
    )
    offset = BTH_BYTES
    extended = 16 * has_reth(opcode) + 4 * has_aeth(opcode) + 4 * has_immediate(opcode)
    pad_bytes = flags >> 4 & 3
    payload_bytes = length - offset - extended - pad_bytes - ICRC_BYTES
    if payload_bytes < 0:
        raise PacketError(
            f"{opcode.name}", f"{length} bytes are too short for its headers and pad"
        )
    if (payload_bytes + pad_bytes) % 4:
        raise PacketError(
            "BTH byte 1", f"{payload_bytes} bytes are padded with {pad_bytes}"
        )
    reth = aeth = immediate = None
    if has_reth(opcode):
        address, key, dma_length_bytes = struct.unpack_from(">QII", datagram, offset)
        reth = Reth(
            virtual_address=address, remote_key=key, dma_length_bytes=dma_length_bytes
        )
        offset += 16
    if has_aeth(opcode):
        (acknowledgement,) = struct.unpack_from(">I", datagram, offset)
        aeth = Aeth(syndrome=acknowledgement >> 24, msn=acknowledgement & PSN_MASK)
        offset += 4
    if has_immediate(opcode):
        immediate = ImmDt(value=struct.unpack_from(">I", datagram, offset)[0])
        offset += 4
    pad = datagram[offset + payload_bytes : length - ICRC_BYTES]
    return Packet(
        bth=bth,
        reth=reth,
        aeth=aeth,
        immediate=immediate,
        payload=bytes(datagram[offset : offset + payload_bytes]),
        pad=bytes(pad) if any(pad) else None,
        icrc=bytes(datagram[length - ICRC_BYTES :]),
    )
