"""RoCEv2 headers and packets as values, and their encoding.

A packet here is the UDP payload: base transport header, extended headers, payload, pad
and the four bytes of the invariant CRC. This readable form is for tests, tools and
unusual packets. The data plane stamps templates instead (see `packet_encoder`).

Source: IBA volume 1, chapter 9, and annex A17 (RoCEv2). Names follow the specification.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Annotated

from chakram.foundation.field_bounds import declared_fields
from chakram.roce.constants import ICRC_BYTES
from chakram.roce.opcodes import Opcode, extended_headers

DEFAULT_PARTITION_KEY = 0xFFFF
MIGRATED = 0x40
"""MigReq bit in the second byte of a BTH, set by senders that do not migrate paths.

Adapters set it in all requests and responses of the reliable connection service, but
not in CNPs. Receivers without alternate paths ignore it.
"""


@dataclass(frozen=True, slots=True)
class Bits:
    """Width of a field, its title in errors, and the zero bits that follow it."""

    count: int
    title: str
    gap: int = 0


def layout(kind: type) -> tuple[tuple[str, Bits], ...]:
    """Return the fields of a header class, most significant bits first."""
    return _layout(kind)


@cache
def _layout(kind: type) -> tuple[tuple[str, Bits], ...]:
    return tuple(
        (name, bits)
        for name, each in declared_fields(kind).items()
        if (bits := each.bound(Bits)) is not None
    )


def size_bytes(kind: type) -> int:
    """Return the length of a header class in bytes."""
    return sum(bits.count + bits.gap for _, bits in layout(kind)) // 8


class Header:
    """Base class of headers: big-endian bit fields in the order of declaration."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for name, bits in layout(type(self)):
            value = getattr(self, name)
            if not 0 <= value < 1 << bits.count:
                raise ValueError(
                    f"{bits.title} {value:#x} does not fit in {bits.count} bits"
                )

    def encode(self) -> bytes:
        """Return the bytes of the header."""
        word = 0
        for name, bits in layout(type(self)):
            word = (word << bits.count | getattr(self, name)) << bits.gap
        return word.to_bytes(size_bytes(type(self)), "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bth(Header):
    """Base transport header. `encode` writes a pad count of 0.

    ``forward_congestion`` and ``backward_congestion`` are FECN and BECN. ``reserved``
    (6 bits) and ``reserved_ack`` (7 bits) are kept so that decoding and encoding again
    gives the same bytes.
    """

    opcode: Annotated[Opcode, Bits(8, "opcode")]
    solicited: Annotated[bool, Bits(1, "SE")] = False
    # Followed by the pad count and the transport version, which is 0.
    migrated: Annotated[bool, Bits(1, "MigReq", gap=6)] = False
    partition_key: Annotated[int, Bits(16, "partition key")] = DEFAULT_PARTITION_KEY
    forward_congestion: Annotated[bool, Bits(1, "FECN")] = False
    backward_congestion: Annotated[bool, Bits(1, "BECN")] = False
    reserved: Annotated[int, Bits(6, "reserved bits")] = 0
    destination_qpn: Annotated[int, Bits(24, "destination QPN")]
    ack_request: Annotated[bool, Bits(1, "AckReq")] = False
    reserved_ack: Annotated[int, Bits(7, "reserved bits next to AckReq")] = 0
    psn: Annotated[int, Bits(24, "PSN")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reth(Header):
    """RDMA extended transport header: target memory and length of a WRITE or READ."""

    virtual_address: Annotated[int, Bits(64, "virtual address")]
    remote_key: Annotated[int, Bits(32, "remote key")]
    dma_length_bytes: Annotated[int, Bits(32, "DMA length")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomicEth(Header):
    """Atomic extended transport header: target memory and operands.

    ``swap_or_add`` and ``compare`` are 64-bit operands. Fetch-and-add ignores
    ``compare``.
    """

    virtual_address: Annotated[int, Bits(64, "virtual address")]
    remote_key: Annotated[int, Bits(32, "remote key")]
    swap_or_add: Annotated[int, Bits(64, "swap or add data")]
    compare: Annotated[int, Bits(64, "compare data")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomicAnswer(Header):
    """Atomic acknowledge extended transport header: the value before the operation."""

    original: Annotated[int, Bits(64, "original data")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deth(Header):
    """Datagram extended transport header: queue key and source queue pair.

    ``reserved`` (8 bits) is kept, as in `Bth`.
    """

    queue_key: Annotated[int, Bits(32, "queue key")]
    reserved: Annotated[int, Bits(8, "reserved bits")] = 0
    source_qpn: Annotated[int, Bits(24, "source QPN")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImmDt(Header):
    """Immediate data: the message number."""

    value: Annotated[int, Bits(32, "immediate data")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ieth(Header):
    """Invalidate extended transport header: the remote key to invalidate."""

    remote_key: Annotated[int, Bits(32, "remote key")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aeth(Header):
    """ACK extended transport header.

    A ``syndrome`` below 0x20 means ACK. Values from 0x20 to 0x3F mean receiver not
    ready. A value of 0x60 or higher is a `NakCode`. ``msn`` counts the messages that
    the responder has completed.
    """

    syndrome: Annotated[int, Bits(8, "syndrome")]
    msn: Annotated[int, Bits(24, "MSN")]


# Fields of `Packet` and their titles in errors, in wire order.
_EXTENDED = {
    "deth": "DETH",
    "reth": "RETH",
    "atomic": "AtomicETH",
    "aeth": "AETH",
    "atomic_answer": "AtomicAckETH",
    "immediate": "immediate data",
    "invalidate": "IETH",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """One packet, from the BTH to the ICRC.

    ``icrc`` contains the last four bytes, unchecked. ``payload`` excludes the pad.
    ``pad`` contains the pad bytes, or None if all of them are zero, as senders set
    them. The payload of a CNP is its 16 reserved bytes.
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
        for name, title in _EXTENDED.items():
            expected = name in carried
            if (getattr(self, name) is not None) != expected:
                verb = "carries" if expected else "does not carry"
                raise ValueError(f"{opcode.name} {verb} {title}")
        if len(self.icrc) != ICRC_BYTES:
            raise ValueError(f"an ICRC has 4 bytes, not {len(self.icrc)}")
        if self.pad is not None and len(self.pad) != -len(self.payload) % 4:
            raise ValueError(
                f"a pad of {len(self.pad)} bytes does not fit a payload of "
                f"{len(self.payload)}"
            )

    def extended(self) -> list[Header]:
        """Return the extended headers in wire order."""
        return [getattr(self, name) for name in extended_headers(self.bth.opcode)]


def encode_packet(packet: Packet) -> bytes:
    """Return the UDP payload of *packet*, with its ``icrc`` field unchanged."""
    pad_bytes = -len(packet.payload) % 4
    opcode, flags, *others = packet.bth.encode()
    return b"".join(
        (
            bytes((opcode, flags | pad_bytes << 4, *others)),
            *(header.encode() for header in packet.extended()),
            packet.payload,
            bytes(pad_bytes) if packet.pad is None else packet.pad,
            packet.icrc,
        )
    )
