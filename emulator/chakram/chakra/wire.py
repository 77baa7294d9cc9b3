"""Fields of a protobuf message one by one, as they stand, without merging them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
LENGTH_DELIMITED: Final = 2
FIXED32: Final = 5


def fields_of(body: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield ``(field number, wire type, value)`` of a message's top level.

    Raises:
        ValueError: If the bytes are not a message.
    """
    position = 0
    while position < len(body):
        tag, position = _varint(body, position)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("field number 0")
        value: int | bytes
        if wire_type == VARINT:
            value, position = _varint(body, position)
        else:
            if wire_type == LENGTH_DELIMITED:
                length, position = _varint(body, position)
            elif wire_type in (FIXED64, FIXED32):
                length = 8 if wire_type == FIXED64 else 4
            else:
                raise ValueError(f"wire type {wire_type}")
            if position + length > len(body):
                raise ValueError("a field ends behind its message")
            value = body[position : position + length]
            position += length
        yield number, wire_type, value


def _varint(body: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(body) and shift < 70:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a number does not end")
