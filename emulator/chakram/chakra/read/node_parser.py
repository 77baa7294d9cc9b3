# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Parser for the fields of one node, directly from the bytes of a file.

The parser *declines* nodes that are not plain. Such nodes have encodings that protobuf
accepts but writers rarely use, or fields that cannot be interpreted from their bytes
alone.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from chakram.chakra.et_codec import NodeType
from chakram.chakra.read.attribute_bits import (
    ATTRIBUTES,
    FIRST_NOT_PLAIN,
    GROUP,
    GROUP_NUMBER,
    INVOLVED,
    ON_CPU,
    OP_TYPE,
)
from chakram.trace.nullable_columns import NO_VALUE

if TYPE_CHECKING:
    Bytes = bytes | bytearray

__all__ = ["EDGES", "NodeBytes"]

EDGES = 2048
"""Capacity for dependencies of each kind. A node with more is not plain."""

_EDGES = EDGES
_ZEROS = bytes(8 * EDGES)
_NO_VALUE = NO_VALUE
_NOWHERE = -1
_INT64_MAX = 2**63 - 1
_WORD_MASK = 2**64 - 1

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5

_LAST_TYPE = int(NodeType.DATA_OP)

_COUNT = len(ATTRIBUTES)
_WIDTH = max(map(len, ATTRIBUTES))

# Field numbers of the oneof that contains an attribute's value.
_INT32, _INT64, _UINT32, _UINT64, _BOOL, _STRING, _BYTES = 7, 9, 11, 13, 27, 29, 31
_BOOL_LIST = 28


class NodeBytes:
    """Parser for the fields of nodes, one node at a time.

    The dependencies of each node are appended to those of previous nodes.
    """

    def __init__(self) -> None:
        self._data = array("Q", _ZEROS)
        self._control = array("Q", _ZEROS)
        self._edges = 0
        self._control_edges = 0
        # Entries of absent attributes are never read, but must exist.
        self._numbers = array("q", _ZEROS[: 8 * _COUNT])
        self._lengths = bytes(map(len, ATTRIBUTES))
        self._names_of = b"".join(name.ljust(_WIDTH) for name in ATTRIBUTES)

    def _read(self, data: Bytes, start: int, end: int) -> bool:
        """Parse the fields of a node. Return False if they are not plain."""
        self._node_id = self._start = self._duration = 0
        self._node_type = 0
        self._name_at = self._name_end = 0
        self._seen = self._odd = 0
        self._at = start
        while self._at < end:
            tag = self._varint(data, end)
            if self._at < 0:
                return False
            field, wire_type = tag >> 3, tag & 7
            value = self._varint(data, end)
            if self._at < 0:
                return False
            if wire_type == _VARINT:
                # The slow path handles repeated fields. An explicit zero indicates an
                # old schema.
                if not value:
                    return False
                if field == 1 and not self._node_id:
                    self._node_id = value
                elif field == 3 and value <= _LAST_TYPE and not self._node_type:
                    self._node_type = value
                elif field == 6 and not self._start:
                    self._start = value
                elif field == 7 and not self._duration:
                    self._duration = value
                else:
                    return False
                continue
            at = self._at
            left = end - at
            if wire_type != _LENGTH_DELIMITED or value > left:
                return False
            stop = at + value
            if field == 10:
                if not self._read_attribute(data, at, stop):
                    return False
            elif field == 2:
                if self._name_end or not _is_ascii(data, at, stop):
                    return False
                self._name_at, self._name_end = at, stop
            elif field in (4, 5):
                if not self._read_ids(data, stop, field == 4):
                    return False
            elif field in (8, 9):
                if not self._read_texts(data, stop):
                    return False
            else:
                return False
            self._at = stop
        return True

    def _read_ids(self, data: Bytes, stop: int, control: bool) -> bool:
        while self._at < stop:
            value = self._varint(data, stop)
            if self._at < 0:
                return False
            if control:
                if self._control_edges == _EDGES:
                    return False
                self._control[self._control_edges] = value
                self._control_edges += 1
            else:
                if self._edges == _EDGES:
                    return False
                self._data[self._edges] = value
                self._edges += 1
        return True

    def _read_texts(self, data: Bytes, stop: int) -> bool:
        """Skip the values, shapes and types of inputs or outputs."""
        while self._at < stop:
            tag = self._varint(data, stop)
            wire_type = tag & 7
            if self._at < 0 or wire_type != _LENGTH_DELIMITED or not 1 <= tag >> 3 <= 3:
                return False
            length = self._varint(data, stop)
            left = stop - self._at
            if self._at < 0 or length > left:
                return False
            if not _is_ascii(data, self._at, self._at + length):
                return False
            self._at += length
        return True

    def _read_attribute(self, data: Bytes, start: int, stop: int) -> bool:
        name_at = name_end = value_at = value_end = start
        arm = 0
        number = 0
        self._at = start
        while self._at < stop:
            tag = self._varint(data, stop)
            if self._at < 0:
                return False
            if tag >> 3 > 32:
                return False
            field, wire_type = tag >> 3, tag & 7
            if field > 2:
                if arm:
                    return False
                arm = field
                if wire_type != _wire_type_of(arm):
                    return False
            elif wire_type != _LENGTH_DELIMITED or not field:
                return False
            if wire_type == _VARINT:
                number = self._varint(data, stop)
                if self._at < 0:
                    return False
                continue
            if wire_type in (_FIXED64, _FIXED32):
                self._at += 8 if wire_type == _FIXED64 else 4
                if self._at > stop:
                    return False
                continue
            length = self._varint(data, stop)
            at = self._at
            left = stop - at
            if at < 0 or length > left:
                return False
            end = at + length
            if field == 1:
                if name_end != start:
                    return False
                name_at, name_end = at, end
            elif field > 2:
                value_at, value_end = at, end
            if arm == field and not arm & 1:
                if not self._read_list(data, end, arm - 1):
                    return False
            elif field != _BYTES and not _is_ascii(data, at, end):
                return False
            self._at = end
        if not arm:
            return True
        which = self._which(data, name_at, name_end - name_at)
        if which < 0:
            return True
        bit = 1 << which
        if self._seen & bit:
            # The attribute occurs twice. The slow path compares the values.
            return False
        self._seen |= bit
        if which == GROUP:
            if arm != _STRING:
                self._odd |= bit
            self._group_at, self._group_end = value_at, value_end
        elif which == OP_TYPE:
            if arm != _STRING:
                self._odd |= bit
            self._op_type_at, self._op_type_end = value_at, value_end
        elif which == INVOLVED:
            # An attribute whose values are all true has no effect.
            if arm != _BOOL_LIST or not _all_true(data, value_at, value_end):
                self._odd |= bit
        elif which <= ON_CPU:
            self._set_number(which, arm, number)
        elif which >= FIRST_NOT_PLAIN:
            self._odd |= bit
        return True

    def _read_list(self, data: Bytes, stop: int, arm: int) -> bool:
        """Skip a list attribute. *arm* is the oneof field for a single value."""
        of_values = _wire_type_of(arm)
        while self._at < stop:
            tag = self._varint(data, stop)
            # Numbers may also be unpacked, but no producer writes them in that way.
            field, wire_type = tag >> 3, tag & 7
            if self._at < 0 or field != 1 or wire_type != _LENGTH_DELIMITED:
                return False
            length = self._varint(data, stop)
            left = stop - self._at
            if self._at < 0 or length > left:
                return False
            end = self._at + length
            if of_values == _VARINT:
                while self._at < end:
                    self._varint(data, end)
                    if self._at < 0:
                        return False
            elif of_values == _FIXED64:
                if length & 7:
                    return False
            elif of_values == _FIXED32:
                if length & 3:
                    return False
            elif arm != _BYTES and not _is_ascii(data, self._at, end):
                return False
            self._at = end
        return True

    def _set_number(self, which: int, arm: int, stored: int) -> None:
        """Store an attribute that must be an integer."""
        number = _NO_VALUE
        if arm == _INT64 or (arm == _UINT64 and stored <= _INT64_MAX):
            number = stored if stored <= _INT64_MAX else -1 - (_WORD_MASK - stored)
        elif arm in (_INT32, _UINT32):
            # Only the lower 32 bits count.
            number = stored & 0xFFFFFFFF
            if arm == _INT32 and number > 0x7FFFFFFF:
                number -= 0x100000000
        elif arm == _BOOL and which != GROUP_NUMBER:
            number = 1 if stored else 0
        if number == _NO_VALUE:
            self._odd |= 1 << which
        else:
            self._numbers[which] = number

    def _which(self, data: Bytes, at: int, length: int) -> int:
        """Return the number of a relevant attribute, or -1 for other attributes."""
        for which in range(_COUNT):
            if self._lengths[which] == length:
                place = 0
                begin = which * _WIDTH
                while place < length and data[at + place] == self._names_of[begin]:
                    place += 1
                    begin += 1
                if place == length:
                    return which
        return _NOWHERE

    def _varint(self, data: Bytes, end: int) -> int:
        """Read a varint and advance. If it does not end, set the position to -1."""
        at = self._at
        if at < end and data[at] < 0x80:
            self._at = at + 1
            return data[at]
        value = 0
        shift = 0
        while at < end and shift < 70:
            byte = data[at]
            at += 1
            if shift == 63 and byte > 1:
                break
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._at = at
                return value
            shift += 7
        self._at = _NOWHERE
        return 0


def _is_ascii(data: Bytes, start: int, end: int) -> bool:
    bits = 0
    for at in range(start, end):
        bits |= data[at]
    return bits < 0x80


def _all_true(data: Bytes, start: int, end: int) -> bool:
    """Return whether a list of booleans is one packed run of only ``true``."""
    if start == end:
        return True
    # The tag and the length take one byte each: no job has more than 127 dimensions.
    if data[start] != 10 or start + 2 + data[start + 1] != end:
        return False
    at = start + 2
    while at < end and data[at] == 1:
        at += 1
    return at == end


def _wire_type_of(arm: int) -> int:
    """Return the wire type of a oneof field of an attribute, or -1 for other fields."""
    if arm < 3 or arm > 32:
        return -1
    if arm & 1 == 0 or arm in (_STRING, _BYTES):
        return _LENGTH_DELIMITED
    if arm == 3 or arm == 21 or arm == 25:
        return _FIXED64
    if arm == 5 or arm == 19 or arm == 23:
        return _FIXED32
    return _VARINT
