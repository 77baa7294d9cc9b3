"""User settings, each declared once in the type of its field.

The type of a field contains the field's bounds. A ``Setting`` in the type adds the key
in the experiment file and the number in the wire message, if there are any. The
docstring below the field describes the setting. The following items are derived from
this declaration:

* the key with its type, bounds, default and help
  (``chakram.settings.declared_sections``)
* the JSON Schema and the reference
* the entry in ``run.json``
* the message (``tools/generate_proto.py``) and its mapping
  (``chakram.control.dataclass_codec``)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from functools import cache
from typing import Any

from chakram.foundation.field_bounds import Declared, declared_fields

_UNITS = ("_ns", "_bytes")


@dataclass(frozen=True, slots=True)
class Setting:
    """Declaration of a field that users, or programs that make plans, may set.

    Attributes:
        number: Number of the field in the message, which is never reused for another
            field. None if no message has the field.
        key: Key below its section, e.g. ``dscp.data``. Empty: the name of the field
            without its unit. None: the experiment file has no key for it.
        is_optional: Whether the key may be omitted. Another rule then sets the value,
            or the field's default means "none".
        least: Smallest value allowed in the file, if the field accepts smaller ones.
        above: Exclusive lower bound of the value in the file.
        most: Largest value allowed in the file, if the field accepts larger ones.
        default: Default of the key, if it differs from that of the field.
        words: Words in the experiment file that replace the field's values.
        example: An example value.
    """

    number: int | None = None
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
class SettingField:
    """A dataclass field with a setting.

    Attributes:
        name: Name of the field.
        declared: Declarations in the field's type.
        default: Default of the field, or ``MISSING`` if it has none.
        setting: The setting.
    """

    name: str
    declared: Declared
    default: Any
    setting: Setting

    @property
    def path(self) -> tuple[str, ...]:
        """Key of the field below its section, split at the dots."""
        name = self.name
        for unit in _UNITS:
            name = name.removesuffix(unit)
        return tuple((self.setting.key or name).split("."))


@cache
def settings_of(kind: type) -> tuple[SettingField, ...]:
    """Return the declared settings of a dataclass, with base class settings last."""
    known = declared_fields(kind)
    inherited = {
        name
        for base in kind.__mro__[1:]
        for name in getattr(base, "__dataclass_fields__", ())
    }
    return tuple(
        SettingField(
            name=each.name,
            declared=known[each.name],
            default=each.default,
            setting=setting,
        )
        for each in sorted(fields(kind), key=lambda each: each.name in inherited)
        if (setting := known[each.name].bound(Setting)) is not None
    )
