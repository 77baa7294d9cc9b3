"""Detection of fields that occur twice in a record with different values.

Protobuf silently takes the last value. For example, the size of a send could change
from 1 MiB to 7 bytes. The value that the producer meant is unknown, so Chakram refuses
such records.

``fields_of`` yields the fields of a message in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from chakram.foundation.errors import TraceError

VARINT: Final = 0
FIXED64: Final = 1
LENGTH_DELIMITED: Final = 2
FIXED32: Final = 5


def fields_of(body: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield ``(field number, wire type, value)`` for each top-level field of a message.

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
                raise ValueError("a field ends after the end of its message")
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


_HINT: Final = "fix the producer: it must write one value"

_NODE: Final = {
    (1, VARINT): "id",
    (2, LENGTH_DELIMITED): "name",
    (3, VARINT): "type",
    (6, VARINT): "start_time_micros",
    (7, VARINT): "duration_micros",
}
_METADATA: Final = {(1, LENGTH_DELIMITED): "version"}
_ATTRIBUTE: Final = {(1, LENGTH_DELIMITED): "name"}

_METADATA_NODE, _INPUT_VALUES = 1, 1
_RECORD: Final = b"record_param_comms"
_TEXT, _BYTES, _LAST_ARM = 29, 31, 32
_FIXED64_ARMS: Final = frozenset({3, 21, 25})
_FIXED32_ARMS: Final = frozenset({5, 19, 23})


def refuse_repeats_in_node(body: bytes, where: str) -> None:
    """Refuse a node in which a field occurs twice with different values.

    Inputs and outputs are ignored, with one exception: the input values of metadata
    nodes and of PyTorch's communication records are checked.

    Raises:
        TraceError: If there is such a field. *where* is the error's location.
    """
    _refuse(body, where, _NODE, attributes=10, inputs=8)


def refuse_repeats_in_metadata(body: bytes, where: str) -> None:
    """Refuse metadata in which a field occurs twice with different values.

    Raises:
        TraceError: If there is such a field. *where* is the error's location.
    """
    _refuse(body, where, _METADATA, attributes=2, inputs=None)


def _refuse(
    body: bytes,
    where: str,
    names: Mapping[tuple[int, int], str],
    *,
    attributes: int,
    inputs: int | None,
) -> None:
    first: dict[str, int | bytes] = {}
    of_inputs: list[bytes] = []
    for number, wire_type, value in fields_of(body):
        _refuse_second(first, names.get((number, wire_type)), value, where)
        if wire_type != LENGTH_DELIMITED or not isinstance(value, bytes):
            continue
        if number == attributes:
            _refuse_in_attribute(value, where)
        elif number == inputs:
            of_inputs += [
                text
                for field, _, text in fields_of(value)
                if field == _INPUT_VALUES and isinstance(text, bytes)
            ]
    if first.get("type") == _METADATA_NODE or first.get("name") == _RECORD:
        for text in of_inputs[1:]:
            _refuse_second(
                {"inputs.values": of_inputs[0]}, "inputs.values", text, where
            )


def _refuse_second(
    first: dict[str, int | bytes], name: str | None, value: int | bytes, where: str
) -> None:
    if name is not None and first.setdefault(name, value) != value:
        raise _twice(where, f"the field {name!r}", first[name], value)


def _refuse_in_attribute(body: bytes, where: str) -> None:
    """Refuse an attribute that has two names or two values."""
    first: dict[str, int | bytes] = {}
    values: list[tuple[int, int | bytes]] = []
    for number, wire_type, value in fields_of(body):
        _refuse_second(first, _ATTRIBUTE.get((number, wire_type)), value, where)
        if wire_type == _wire_type_of(number):
            values.append((number, value))
    for arm, value in values[1:]:
        # Protobuf concatenates repeated lists. The producer did not write the
        # concatenated list, so refuse it too.
        if (arm, value) != values[0] or arm % 2 == 0:
            name = first.get("name", b"")
            what = f"a value of the attribute {_shown(name)}"
            raise _twice(where, what, values[0][1], value)


def _wire_type_of(arm: int) -> int:
    """Return the wire type of a oneof field of an attribute, or -1 for other fields."""
    if not 3 <= arm <= _LAST_ARM:
        return -1
    if arm % 2 == 0 or arm in (_TEXT, _BYTES):
        return LENGTH_DELIMITED
    if arm in _FIXED64_ARMS:
        return FIXED64
    return FIXED32 if arm in _FIXED32_ARMS else VARINT


def _twice(
    where: str, what: str, first: int | bytes, second: int | bytes
) -> TraceError:
    return TraceError(
        where, f"has {what} twice: {_shown(first)} and {_shown(second)}", _HINT
    )


def _shown(value: int | bytes) -> str:
    if isinstance(value, int):
        return str(value)
    return repr(value.decode("utf-8", "replace"))[:40]
