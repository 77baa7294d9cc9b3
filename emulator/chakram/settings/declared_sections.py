"""Sections of the experiment file, created from declared settings.

A ``Setting`` in the type of a dataclass field defines the key, with its type, bounds,
default and help. The value in the file sets the field.
"""

from __future__ import annotations

from dataclasses import MISSING, is_dataclass
from typing import Annotated, Any, Literal, get_origin

from pydantic import Field, create_model

from chakram.foundation.declared_settings import SettingField, settings_of
from chakram.foundation.field_bounds import AtMost, Matching, OneOf, Within
from chakram.settings.field_types import Model, Number, Size, Time, Whole

_UNITS = ("_ns", "_bytes")


def section_of(kind: type, *place: str) -> Any:
    """Return a model with the keys that the dataclass *kind* declares at *place*.

    Sections derive from the model. The docstrings below the fields of *kind* describe
    the keys. A field that is itself such a dataclass becomes a section with the name of
    the field.
    """
    return _made(f"{kind.__name__}Keys", kind, place)


def _made(name: str, kind: type, place: tuple[str, ...]) -> Any:
    fields: dict[str, Any] = {
        each.name: (_type(each), _field(each))
        for each in settings_of(kind)
        if each.setting.key is not None and each.path[:-1] == place
    }
    made = create_model(name, __base__=Model, __doc__=kind.__doc__, **fields)
    made.described_by = kind
    return made


def field_values(section: Model, kind: type) -> dict[str, Any]:
    """Return the fields of the dataclass *kind* that a section sets."""
    found: dict[str, Any] = {}
    for each in settings_of(kind):
        if each.setting.key is None:
            continue
        value: Any = section
        for name in (*each.path[:-1], each.name):
            value = None if value is None else getattr(value, name)
        if isinstance(value, Model):
            value = each.declared.kind(**field_values(value, each.declared.kind))
        if value is not None:
            words = each.setting.words
            found[each.name] = value if words is None else words[value]
    return found


def _field(each: SettingField) -> Any:
    setting = each.setting
    default = each.default if setting.default is None else setting.default
    if setting.is_optional:
        default = None
    if setting.words is not None and default is not MISSING:
        default = next(
            word for word, value in setting.words.items() if value == default
        )
    return Field(
        ... if default is MISSING else default,
        alias=each.path[-1] if each.path[-1] != each.name else None,
        examples=None if setting.example is None else [setting.example],
        **_limits(each),
    )


def _type(each: SettingField) -> Any:
    """Return the type of the key in the file."""
    kind = _single_type(each)
    may_be_none = each.setting.is_optional or each.declared.may_be_none
    return kind | None if may_be_none else kind


def _single_type(each: SettingField) -> Any:
    setting, declared = each.setting, each.declared
    choices = declared.bound(OneOf)
    words = setting.words or (choices and choices.choices)
    if words:
        return Literal[tuple(words)]
    if isinstance(declared.kind, type) and is_dataclass(declared.kind):
        return _made(declared.kind.__name__, declared.kind, ())
    if get_origin(declared.kind) is Literal:
        return declared.kind
    if declared.kind is str:
        pattern, length = declared.bound(Matching), declared.bound(AtMost)
        if pattern is not None:
            return Annotated[
                str, Field(pattern=pattern.pattern, max_length=pattern.most)
            ]
        most: Any = setting.most or (None if length is None else length.most)
        return Annotated[str, Field(min_length=1, max_length=most)]
    if each.name.endswith(_UNITS):
        return Time if each.name.endswith("_ns") else Size
    return Number if declared.kind is float else Whole


def _limits(each: SettingField) -> dict[str, Any]:
    """Return the bounds of the key that its type does not already define."""
    setting, within = each.setting, each.declared.bound(Within)
    limits: dict[str, Any] = {}
    # The types of times and sizes define their own bounds.
    if within is not None and setting.words is None and not each.name.endswith(_UNITS):
        limits = {"ge": within.least, "le": within.most}
    if setting.above is not None:
        limits["gt"] = setting.above
        limits.pop("ge", None)
    if each.declared.kind is not str:
        said = {"ge": setting.least, "le": setting.most}
        limits |= {name: limit for name, limit in said.items() if limit is not None}
    return limits
