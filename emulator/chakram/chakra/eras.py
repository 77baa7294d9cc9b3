"""Which era of the Chakra schema a file belongs to, from the raw bytes of its records.

There is no reliable version marker.  Since schema 0.0.4 (October 2023) the first record
is a GlobalMetadata; but files of that schema without one exist, and every older file
lacks it too.  Read with today's schema an older file gives no error, only nonsense:
its compute nodes become memory stores.  So the bytes are looked at first:

* a GlobalMetadata has only the fields 1 and 2, both length-delimited; a Node starts
  with field 1 or 3 as a varint;
* only proto2, that is a schema before 0.0.4, writes a zero (``08 00``) or an unpacked
  list of parents (field 4 as a varint);
* attributes stood in field 11 in 0.0.2 and 0.0.3; in 0.0.1 there were none, and the
  fields 12 to 20 were numbers.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5

_FIELD_ID, _FIELD_NAME, _FIELD_TYPE, _FIELD_PARENT = 1, 2, 3, 4
_FIELD_OLD_ATTRIBUTE = 11
_STORAGE_NODE = 8
"""Since July 2026 field 11 holds a storage operation, in nodes of this type only."""


class FirstRecord(Enum):
    """What the first record of a file is."""

    METADATA = "metadata"
    NODE = "node"
    NEITHER = "neither"


def classify_first_record(body: bytes) -> FirstRecord:
    """Tell a GlobalMetadata from a Node by the top-level fields."""
    try:
        fields = [(number, wire_type) for number, wire_type, _ in _fields(body)]
    except ValueError:
        return FirstRecord.NEITHER
    if all(
        field in ((1, _LENGTH_DELIMITED), (2, _LENGTH_DELIMITED)) for field in fields
    ):
        return FirstRecord.METADATA
    # A name (field 2) alone would be a node of type INVALID: no producer writes that.
    if (_FIELD_TYPE, _VARINT) in fields or (_FIELD_ID, _VARINT) in fields:
        return FirstRecord.NODE
    return FirstRecord.NEITHER


def old_schema_of_metadata(body: bytes) -> str | None:
    """Return the name of an unreadable schema that a metadata record betrays, or None.

    In August 2023, and for one commit of the 0.0.4 series, attributes stood in field 1,
    where the version is now: an attribute starts with the tag of its name, a version
    with a digit.
    """
    for number, _, value in _fields(body):
        if number == 1 and isinstance(value, bytes) and value.startswith(b"\n"):
            return "0.0.3"
    return None


def old_schema_of_node(body: bytes, *, has_metadata: bool) -> str | None:
    """Return the name of an unreadable schema that a node record betrays, or None.

    Args:
        body: The record.
        has_metadata: Whether the file starts with a metadata record.  Then a writer
            that spells out zeros or does not pack its lists is merely unusual.
    """
    node_type: int | bytes = 0
    old_attribute = False
    try:
        for number, wire_type, value in _fields(body):
            if number == _FIELD_TYPE:
                node_type = value
            elif number == _FIELD_OLD_ATTRIBUTE and wire_type == _LENGTH_DELIMITED:
                old_attribute = True
            elif 12 <= number <= 20 and wire_type == _VARINT and not has_metadata:
                return "0.0.1"
            elif (
                wire_type == _VARINT
                and not has_metadata
                and (number == _FIELD_PARENT or (number == _FIELD_ID and value == 0))
            ):
                return "0.0.3 or earlier"
    except ValueError:
        return None
    if old_attribute and node_type != _STORAGE_NODE:
        return "0.0.2 or 0.0.3"
    return None


def _fields(body: bytes) -> Iterator[tuple[int, int, int | bytes]]:
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
        if wire_type == _VARINT:
            value, position = _varint(body, position)
        else:
            if wire_type == _LENGTH_DELIMITED:
                length, position = _varint(body, position)
            elif wire_type in (_FIXED64, _FIXED32):
                length = 8 if wire_type == _FIXED64 else 4
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
