"""The RoCEv2 headers and packets: bytes to values and back.

A packet here is the UDP payload: base transport header, extended headers, payload, pad
and the four bytes of the invariant CRC. This is the readable form, for tests, tools and
odd packets; the data plane stamps templates instead (`chakram.roce.wire`).

Source: IBA volume 1, chapter 9, and annex A17 (RoCEv2); names as there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, ClassVar

from chakram.errors import PacketError
from chakram.roce.constants import ICRC_BYTES
from chakram.roce.opcodes import Opcode, extended_headers
from chakram.roce.psn import PSN_MASK

__all__ = [
    "BTH_BYTES",
    "DEFAULT_PARTITION_KEY",
    "MIGRATED",
    "QPN_MASK",
    "Aeth",
    "AtomicAnswer",
    "AtomicEth",
    "Bth",
    "Deth",
    "Ieth",
    "ImmDt",
    "Packet",
    "Reth",
    "decode_packet",
    "encode_packet",
]

BTH_BYTES = 12
DEFAULT_PARTITION_KEY = 0xFFFF
QPN_MASK = (1 << 24) - 1
MIGRATED = 0x40
"""MigReq, in the second byte of a BTH: set by all who do not migrate paths.

So do adapters in all requests and answers of the reliable connection service, but not
in CNPs. Receivers without alternate paths do not look at it.
"""


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
    """RDMA extended transport header: where a WRITE or READ goes and how long it is."""

    virtual_address: int
    remote_key: int
    dma_length_bytes: int

    SIZE_BYTES: ClassVar[int] = 16

    def __post_init__(self) -> None:
        _check_bits("virtual address", self.virtual_address, 64)
        _check_bits("remote key", self.remote_key, 32)
        _check_bits("DMA length", self.dma_length_bytes, 32)

    @classmethod
    def decode(cls, data: bytes, offset: int) -> Reth:
        """Return the header that stands at *offset*."""
        address, key, length_bytes = struct.unpack_from(">QII", data, offset)
        return cls(
            virtual_address=address, remote_key=key, dma_length_bytes=length_bytes
        )

    def encode(self) -> bytes:
        """Return the 16 bytes."""
        return struct.pack(
            ">QII", self.virtual_address, self.remote_key, self.dma_length_bytes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomicEth:
    """Atomic extended transport header: where, and the operands.

    ``swap_or_add`` and ``compare`` are operands of 64 bits; the second means nothing to
    a fetch-and-add.
    """

    virtual_address: int
    remote_key: int
    swap_or_add: int
    compare: int

    SIZE_BYTES: ClassVar[int] = 28

    def __post_init__(self) -> None:
        _check_bits("virtual address", self.virtual_address, 64)
        _check_bits("remote key", self.remote_key, 32)
        _check_bits("swap or add data", self.swap_or_add, 64)
        _check_bits("compare data", self.compare, 64)

    @classmethod
    def decode(cls, data: bytes, offset: int) -> AtomicEth:
        """Return the header that stands at *offset*."""
        address, key, swap, compare = struct.unpack_from(">QIQQ", data, offset)
        return cls(
            virtual_address=address, remote_key=key, swap_or_add=swap, compare=compare
        )

    def encode(self) -> bytes:
        """Return the 28 bytes."""
        return struct.pack(
            ">QIQQ",
            self.virtual_address,
            self.remote_key,
            self.swap_or_add,
            self.compare,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomicAnswer:
    """Atomic acknowledge extended transport header: what was there before."""

    original: int

    SIZE_BYTES: ClassVar[int] = 8

    def __post_init__(self) -> None:
        _check_bits("original data", self.original, 64)

    @classmethod
    def decode(cls, data: bytes, offset: int) -> AtomicAnswer:
        """Return the header that stands at *offset*."""
        return cls(original=struct.unpack_from(">Q", data, offset)[0])

    def encode(self) -> bytes:
        """Return the 8 bytes."""
        return struct.pack(">Q", self.original)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deth:
    """Datagram extended transport header: the queue key, and who sends.

    ``reserved`` (8 bits) is kept, as in `Bth`.
    """

    queue_key: int
    source_qpn: int
    reserved: int = 0

    SIZE_BYTES: ClassVar[int] = 8

    def __post_init__(self) -> None:
        _check_bits("queue key", self.queue_key, 32)
        _check_bits("source QPN", self.source_qpn, 24)
        _check_bits("reserved bits", self.reserved, 8)

    @classmethod
    def decode(cls, data: bytes, offset: int) -> Deth:
        """Return the header that stands at *offset*."""
        key, word = struct.unpack_from(">II", data, offset)
        return cls(queue_key=key, source_qpn=word & QPN_MASK, reserved=word >> 24)

    def encode(self) -> bytes:
        """Return the 8 bytes."""
        return struct.pack(">II", self.queue_key, self.reserved << 24 | self.source_qpn)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImmDt:
    """Immediate data: the number of the message."""

    value: int

    SIZE_BYTES: ClassVar[int] = 4

    def __post_init__(self) -> None:
        _check_bits("immediate data", self.value, 32)

    @classmethod
    def decode(cls, data: bytes, offset: int) -> ImmDt:
        """Return the header that stands at *offset*."""
        return cls(value=struct.unpack_from(">I", data, offset)[0])

    def encode(self) -> bytes:
        """Return the 4 bytes."""
        return struct.pack(">I", self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ieth:
    """Invalidate extended transport header: the key that is not valid any more."""

    remote_key: int

    SIZE_BYTES: ClassVar[int] = 4

    def __post_init__(self) -> None:
        _check_bits("remote key", self.remote_key, 32)

    @classmethod
    def decode(cls, data: bytes, offset: int) -> Ieth:
        """Return the header that stands at *offset*."""
        return cls(remote_key=struct.unpack_from(">I", data, offset)[0])

    def encode(self) -> bytes:
        """Return the 4 bytes."""
        return struct.pack(">I", self.remote_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aeth:
    """ACK extended transport header.

    ``syndrome`` is an ACK below 0x20, receiver-not-ready below 0x40, and a `NakCode`
    from 0x60; ``msn`` counts the messages that the responder has completed.
    """

    syndrome: int
    msn: int

    SIZE_BYTES: ClassVar[int] = 4

    def __post_init__(self) -> None:
        _check_bits("syndrome", self.syndrome, 8)
        _check_bits("MSN", self.msn, 24)

    def is_ack(self) -> bool:
        """Tell whether this is a positive acknowledgement."""
        return self.syndrome >> 5 == 0

    def is_receiver_not_ready(self) -> bool:
        """Tell whether the responder asks to try again later."""
        return self.syndrome >> 5 == 1

    @classmethod
    def decode(cls, data: bytes, offset: int) -> Aeth:
        """Return the header that stands at *offset*."""
        (word,) = struct.unpack_from(">I", data, offset)
        return cls(syndrome=word >> 24, msn=word & PSN_MASK)

    def encode(self) -> bytes:
        """Return the 4 bytes."""
        return struct.pack(">I", self.syndrome << 24 | self.msn)


ExtendedHeader = Deth | Reth | AtomicEth | Aeth | AtomicAnswer | ImmDt | Ieth

# Field of `Packet`, its class, and what errors call it; in the order on the wire.
_EXTENDED: tuple[tuple[str, type[ExtendedHeader], str], ...] = (
    ("deth", Deth, "DETH"),
    ("reth", Reth, "RETH"),
    ("atomic", AtomicEth, "AtomicETH"),
    ("aeth", Aeth, "AETH"),
    ("atomic_answer", AtomicAnswer, "AtomicAckETH"),
    ("immediate", ImmDt, "immediate data"),
    ("invalidate", Ieth, "IETH"),
)
_CLASSES = {name: header for name, header, _ in _EXTENDED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """One packet from the BTH on.

    ``icrc`` are the last four bytes as they stand, not checked. ``payload`` is without
    pad; ``pad`` is None for the zero bytes that every sender pads with, else what was
    found. The payload of a CNP are its 16 reserved bytes.
    """

    bth: Bth
    deth: Deth | None = None
    reth: Reth | None = None
    atomic: AtomicEth | None = None
    aeth: Aeth | None = None
    atomic_answer: AtomicAnswer | None = None
    immediate: ImmDt | None = None
    invalidate: Ieth | None = None
    payload: bytes = b""
    pad: bytes | None = None
    icrc: bytes = field(default=bytes(ICRC_BYTES))

    def __post_init__(self) -> None:
        opcode = self.bth.opcode
        carried = extended_headers(opcode)
        for name, _, title in _EXTENDED:
            expected = name in carried
            if (getattr(self, name) is not None) != expected:
                verb = "carries" if expected else "does not carry"
                raise ValueError(f"{opcode.name} {verb} {title}")
        if len(self.icrc) != ICRC_BYTES:
            raise ValueError(f"an ICRC has 4 bytes, not {len(self.icrc)}")
        if self.pad is not None and len(self.pad) != -len(self.payload) % 4:
            raise ValueError(f"{len(self.pad)} bytes do not pad {len(self.payload)}")

    def extended(self) -> list[ExtendedHeader]:
        """Return what stands between BTH and payload, in that order."""
        return [getattr(self, name) for name in extended_headers(self.bth.opcode)]


def encode_packet(packet: Packet) -> bytes:
    """Return the UDP payload of *packet*, with the ICRC as it stands there."""
    pad_bytes = -len(packet.payload) % 4
    return b"".join(
        (
            packet.bth.encode(pad_bytes),
            *(header.encode() for header in packet.extended()),
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
    bth = Bth(
        opcode=opcode,
        destination_qpn=word & QPN_MASK,
        psn=sequence & PSN_MASK,
        ack_request=bool(sequence >> 31),
        solicited=bool(flags & 0x80),
        migrated=bool(flags & MIGRATED),
        partition_key=partition_key,
        forward_congestion=bool(word >> 31),
        backward_congestion=bool(word >> 30 & 1),
        reserved=word >> 24 & 0x3F,
        reserved_ack=sequence >> 24 & 0x7F,
    )
    offset = BTH_BYTES
    names = extended_headers(opcode)
    extended = sum(_CLASSES[name].SIZE_BYTES for name in names)
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
    headers: dict[str, Any] = {}
    for name in names:
        header = _CLASSES[name]
        headers[name] = header.decode(datagram, offset)
        offset += header.SIZE_BYTES
    pad = datagram[offset + payload_bytes : length - ICRC_BYTES]
    return Packet(
        bth=bth,
        **headers,
        payload=bytes(datagram[offset : offset + payload_bytes]),
        pad=bytes(pad) if any(pad) else None,
        icrc=bytes(datagram[length - ICRC_BYTES :]),
    )
