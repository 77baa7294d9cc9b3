"""RoCEv2 packets decoded from bytes, in readable form."""

from __future__ import annotations

from typing import Any, TypeVar

from chakram.foundation.errors import PacketError
from chakram.foundation.field_bounds import declared_fields
from chakram.roce.constants import BTH_BYTES, ICRC_BYTES
from chakram.roce.headers import Bth, Header, Packet, layout, size_bytes
from chakram.roce.opcodes import Opcode, extended_headers

_T = TypeVar("_T", bound=Header)

_CLASSES = {
    name: each.kind
    for name, each in declared_fields(Packet).items()
    if isinstance(each.kind, type) and issubclass(each.kind, Header)
}


def decode_header(kind: type[_T], data: bytes) -> _T:
    """Return the header in all of *data*."""
    word = int.from_bytes(data, "big")
    values: dict[str, Any] = {}
    for name, bits in reversed(layout(kind)):
        word >>= bits.gap
        values[name] = declared_fields(kind)[name].kind(word & (1 << bits.count) - 1)
        word >>= bits.count
    return kind(**values)


def decode_packet(datagram: bytes) -> Packet:
    """Return the packet in the UDP payload *datagram*; its ICRC is not checked.

    Raises:
        PacketError: If it is too short for its headers, or its transport version is
            not 0. Also if its opcode is not one of `Opcode`, or its pad does not round
            the payload up to four bytes.
    """
    length = len(datagram)
    if length < BTH_BYTES + ICRC_BYTES:
        raise PacketError("BTH", f"the packet has only {length} bytes")
    if version := datagram[1] & 0x0F:
        raise PacketError("BTH byte 1", f"transport version {version} is not 0")
    try:
        opcode = Opcode(datagram[0])
    except ValueError:
        raise PacketError("BTH byte 0", f"unknown opcode {datagram[0]:#04x}") from None
    offset = BTH_BYTES
    names = extended_headers(opcode)
    pad_bytes = datagram[1] >> 4 & 3
    extended = sum(size_bytes(_CLASSES[name]) for name in names)
    payload_bytes = length - offset - extended - pad_bytes - ICRC_BYTES
    if payload_bytes < 0:
        raise PacketError(
            f"{opcode.name}", f"{length} bytes are too short for its headers and pad"
        )
    if (payload_bytes + pad_bytes) % 4:
        raise PacketError(
            "BTH byte 1", f"{payload_bytes} bytes are padded with {pad_bytes}"
        )
    headers: dict[str, Any] = {"bth": decode_header(Bth, datagram[:BTH_BYTES])}
    for name in names:
        end = offset + size_bytes(_CLASSES[name])
        headers[name] = decode_header(_CLASSES[name], datagram[offset:end])
        offset = end
    pad = datagram[offset + payload_bytes : length - ICRC_BYTES]
    return Packet(
        **headers,
        payload=bytes(datagram[offset : offset + payload_bytes]),
        pad=bytes(pad) if any(pad) else None,
        icrc=bytes(datagram[length - ICRC_BYTES :]),
    )
