"""Conversion of dataclasses to and from messages, according to their field types.

A dataclass and its message have the same field names. ``Mapper`` converts them field by
field. The type of a field declares its bounds (``chakram.foundation.field_bounds``),
and decoding checks received values against them. The types correspond as follows:

* A tuple of dataclasses is a repeated message.
* A tuple of several types is a message with one field per type, in order.
* A member of an enumeration is its name as a string.
* An array of integers is bytes.
* None is an absent field.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from chakram.foundation.field_bounds import (
    Clipped,
    Declared,
    Fault,
    OneOf,
    declared,
    declared_fields,
    taken,
)

if TYPE_CHECKING:
    from google.protobuf.message import Message


_T = TypeVar("_T")
_M = TypeVar("_M", bound="Message")

_Field = Any
"""A field descriptor. Its class depends on the installation of protobuf."""

_Way = tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]
"""Encoder and decoder of a value. None if the value needs no conversion."""


def pack_numbers(values: Iterable[int], code: str = "q") -> bytes:
    """Encode integers of array type *code* as little-endian bytes."""
    if not isinstance(values, array) or sys.byteorder == "big":
        values = array(code, values)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def unpack_numbers(data: bytes, code: str = "q") -> array[int]:
    """Decode the output of ``pack_numbers``. *data* must not end within an integer."""
    values = array(code)
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


class Mapper(Generic[_T, _M]):
    """Converter between a dataclass and a message.

    Args:
        kind: Dataclass to convert.
        message: Message type that corresponds to the dataclass.
        without: Fields of the dataclass that the message lacks. Pass them to
            ``decode``.
        beyond: Fields of the message that the dataclass lacks. Set them after
            ``encode``.

    Raises:
        TypeError: If the dataclass and the message differ in other fields.
    """

    def __init__(
        self,
        kind: type[_T],
        message: type[_M],
        *,
        without: Collection[str] = (),
        beyond: Collection[str] = (),
    ) -> None:
        hints = declared_fields(kind)
        known = message.DESCRIPTOR.fields_by_name
        names = [
            each.name
            for each in fields(kind)  # type: ignore[arg-type] # a dataclass
            if each.init and each.name not in without
        ]
        if differing := {*names} ^ {*known} - {*beyond}:
            raise TypeError(
                f"{kind.__name__} and {message.DESCRIPTOR.name} differ in "
                f"{', '.join(sorted(differing))}"
            )
        self._kind = kind
        self._message = message
        ways = {name: _way_of_field(hints[name], known[name]) for name in names}
        self._encoders = [(name, way[0]) for name, way in ways.items()]
        self._decoders = [
            (name, _reader(name, way[1], may_be_none=hints[name].may_be_none))
            for name, way in ways.items()
        ]

    def encode(self, value: _T) -> _M:
        """Convert *value* to a message."""
        return self._message(
            **{
                name: getattr(value, name) if way is None else way(getattr(value, name))
                for name, way in self._encoders
            }
        )

    def decode(self, message: _M, **others: Any) -> _T:
        """Convert *message* to the dataclass, with *others* as additional fields.

        Raises:
            Fault: If a value is invalid.
        """
        name = ""
        try:
            for name, read in self._decoders:
                others[name] = read(message)
        except Fault as fault:
            raise fault.below(name) from None
        try:
            return self._kind(**others)
        except Fault:
            raise
        except ValueError as error:
            raise Fault("", str(error)) from None


def _reader(
    name: str, way: Callable[[Any], Any] | None, *, may_be_none: bool
) -> Callable[[Any], Any]:
    """Return a function that reads a field of a message."""
    if may_be_none:
        return lambda message: (
            None
            if not message.HasField(name)
            else getattr(message, name)
            if way is None
            else way(getattr(message, name))
        )
    if way is None:
        return attrgetter(name)
    return lambda message: way(getattr(message, name))


def _in_turn(takers: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any] | None:
    if len(takers) < 2:
        return takers[0] if takers else None
    first, *others = takers
    then = _in_turn(others)
    assert then is not None
    return lambda value: then(first(value))


def _is_repeated(field: _Field) -> bool:
    # Older protobuf versions have only the label, which newer versions deprecate.
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)


def _way_of_field(kind: Declared, field: _Field) -> _Way:
    if not _is_repeated(field):
        encode, decode = _way(kind, field)
        if encode is None or not kind.may_be_none:
            return encode, decode
        return lambda value: None if value is None else encode(value), decode
    encode, decode = _way(declared(get_args(kind.kind)[0]), field)
    take = _in_turn(
        [*kind.takers, tuple if decode is None else lambda items: taken(items, decode)]
    )
    if encode is not None:
        return lambda items: [encode(item) for item in items], take
    # Both the sender and the receiver shorten texts for the user.
    clip = kind.bound(Clipped)
    return None if clip is None else clip.take, take


def _way(kind: Declared, field: _Field) -> _Way:
    """Return the encoder and decoder of a value that is not repeated."""
    each = kind.kind
    if get_origin(each) is tuple:
        return _way_of_row(get_args(each), GetMessageClass(field.message_type))
    if isinstance(each, type) and is_dataclass(each):
        nested: Mapper[Any, Any] = Mapper(each, GetMessageClass(field.message_type))
        return nested.encode, nested.decode
    if isinstance(each, type) and issubclass(each, Enum):
        members = {
            one.value if isinstance(one.value, str) else one.name.lower(): one
            for one in each
        }
        names = {one: name for name, one in members.items()}
        choice = OneOf(tuple(members))
        return names.__getitem__, lambda name: members[choice.take(name)]
    if field.type == FieldDescriptor.TYPE_BYTES and each is not bytes:
        return pack_numbers, _in_turn([*kind.takers, unpack_numbers])
    return None, _in_turn(kind.takers)


def _way_of_row(kinds: tuple[Any, ...], message: type[Message]) -> _Way:
    """Return the encoder and decoder of a tuple: a message with a field per item."""
    known: list[_Field] = list(message.DESCRIPTOR.fields)
    ways = [
        (field.name, *_way(declared(kind), field))
        for kind, field in zip(kinds, known, strict=True)
    ]

    def encode(row: tuple[Any, ...]) -> Message:
        return message(
            **{
                name: value if way is None else way(value)
                for (name, way, _), value in zip(ways, row, strict=True)
            }
        )

    def decode(row: Message) -> tuple[Any, ...]:
        found = []
        name = ""
        try:
            for name, _, way in ways:
                value = getattr(row, name)
                found.append(value if way is None else way(value))
        except Fault as fault:
            raise fault.below(name) from None
        return tuple(found)

    return encode, decode
