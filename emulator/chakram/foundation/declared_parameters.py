"""What people may set, declared once: in the type of the field that takes it.

A ``Knob`` in the type of a field says what the field's other bounds do not: its number
in the wire message and its key in the experiment file.  What it means says the text
below the field.  From it follow the message (``tools/generate_proto.py``) and its
mapping (``chakram.control.message_mapping``), the key with its type, bounds, default
and help (``chakram.config.transport``), and so the JSON Schema and the reference.
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
    """What is to be said of a field that people, or whoever makes plans, may set.

    Attributes:
        number: Of the field of the message; never used again for another one.
        key: Its key, below its section, e.g. ``dscp.data``; empty: the name of the
            field without its unit; None: the file has none for it.
        is_optional: Whether nothing may be written: then something else decides, or the
            field's default says that there is none.
        least: The least that may be written, where the field itself takes less.
        above: What may be written is more than this.
        most: The most that may be written, where the field itself takes more.
        default: Of the key, where the field has another one.
        words: What is written in place of the field's values.
        example: What it may be.
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
    """A field with a knob.

    Attributes:
        name: Of the field.
        declared: What its type says.
        default: Its default; ``MISSING``: it has none.
        knob: The knob.
    """

    name: str
    declared: Declared
    default: Any
    knob: Knob

    @property
    def path(self) -> tuple[str, ...]:
        """Its key, below its section."""
        name = self.name
        for unit in _UNITS:
            name = name.removesuffix(unit)
        return tuple((self.knob.key or name).split("."))


@cache
def knobs_of(kind: type) -> tuple[KnobField, ...]:
    """Return the fields of a dataclass that have knobs, in their order."""
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
