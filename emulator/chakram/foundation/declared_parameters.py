"""User-settable parameters, each declared once in the type of its field.

A ``Knob`` in the type of a field adds two things to the field's bounds: its number in
the wire message and its key in the experiment file. The docstring below the field
describes the parameter. The rest is derived from this declaration:

* the message (``tools/generate_proto.py``) and its mapping
  (``chakram.control.message_mapping``)
* the key with its type, bounds, default and help (``chakram.config.transport``)
* the JSON Schema and the reference
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from functools import cache
from typing import Any

from chakram.foundation.field_bounds import Declared, declared_fields

_UNITS = ("_ns", "_bytes")


@dataclass(frozen=True, slots=True)
class Knob:
    """Declaration of a field that users, or programs that make plans, may set.

    Attributes:
        number: Number of the field in the message; never reused for another field.
        key: Key below its section, e.g. ``dscp.data``. Empty: the name of the field
            without its unit. None: the experiment file has no key for it.
        is_optional: Whether the key may be omitted. Another rule then decides, or the
            field's default means "none".
        least: Smallest value allowed in the file, if the field accepts smaller ones.
        above: Exclusive lower bound of the value in the file.
        most: Largest value allowed in the file, if the field accepts larger ones.
        default: Default of the key, if it differs from that of the field.
        words: Words in the experiment file that replace the field's values.
        example: An example value.
    """

    number: int
    _: KW_ONLY
    key: str | None = ""
    is_optional: bool = False
    least: float | None = None
    above: float | None = None
    most: float | None = None
    default: Any = None
    words: Mapping[str, Any] | None = None
    example: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobField:
    """A dataclass field with a knob.

    Attributes:
        name: Name of the field.
        declared: Declarations in the field's type.
        default: Its default; ``MISSING`` if it has none.
        knob: The knob.
    """

    name: str
    declared: Declared
    default: Any
    knob: Knob

    @property
    def path(self) -> tuple[str, ...]:
        """Key of the field below its section, split at the dots."""
        name = self.name
        for unit in _UNITS:
            name = name.removesuffix(unit)
        return tuple((self.knob.key or name).split("."))


@cache
def knobs_of(kind: type) -> tuple[KnobField, ...]:
    """Return the fields of a dataclass that have knobs, in declaration order."""
    known = declared_fields(kind)
    return tuple(
        KnobField(
            name=each.name,
            declared=known[each.name],
            default=each.default,
            knob=knob,
        )
        for each in fields(kind)
        if (knob := known[each.name].bound(Knob)) is not None
    )
