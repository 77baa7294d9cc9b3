"""Sections of an experiment made of what plans declare (``chakram.knobs``).

From a knob follows the key with its type, bounds, default and help; and from what was
written there, the field of the plan.
"""

from __future__ import annotations

from dataclasses import MISSING
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from chakram.fields import AtMost, Matching, OneOf, Within
from chakram.knobs import KnobField, knobs_of
from chakram.settings.quantities import Model, Number, Size, Time, Whole

_UNITS = ("_ns", "_bytes")


def section_of(kind: type, *place: str) -> Any:
    """Return a model with the keys of a plan's part that stand at *place*.

    Sections derive from it. What describes the keys stands below the plan's fields.
    """
    fields: dict[str, Any] = {
        each.name: (_type(each), _field(each))
        for each in knobs_of(kind)
        if each.knob.key is not None and each.path[:-1] == place
    }
    made = create_model(f"{kind.__name__}Keys", __base__=Model, **fields)
    made.described_by = kind
    return made


def written(section: Model, kind: type) -> dict[str, Any]:
    """Return the fields of a plan's part that a section says something of."""
    found: dict[str, Any] = {}
    for each in knobs_of(kind):
        if each.knob.key is None:
            continue
        value: Any = section
        for name in (*each.path[:-1], each.name):
            value = None if value is None else getattr(value, name)
        if value is not None:
            words = each.knob.words
            found[each.name] = value if words is None else words[value]
    return found


def _field(each: KnobField) -> Any:
    knob = each.knob
    default = each.default if knob.default is None else knob.default
    if knob.is_optional:
        default = None
    if knob.words is not None and default is not MISSING:
        default = next(word for word, value in knob.words.items() if value == default)
    return Field(
        ... if default is MISSING else default,
        alias=each.path[-1] if each.path[-1] != each.name else None,
        examples=None if knob.example is None else [knob.example],
        **_limits(each),
    )


def _type(each: KnobField) -> Any:
    """Return what may be written."""
    kind = _single_type(each)
    return kind | None if each.knob.is_optional or each.declared.may_be_none else kind


def _single_type(each: KnobField) -> Any:
    knob, declared = each.knob, each.declared
    choices = declared.bound(OneOf)
    words = knob.words or (choices and choices.choices)
    if words:
        return Literal[tuple(words)]
    if declared.kind is str:
        pattern, length = declared.bound(Matching), declared.bound(AtMost)
        if pattern is not None:
            return Annotated[
                str, Field(pattern=pattern.pattern, max_length=pattern.most)
            ]
        most: Any = knob.most or (None if length is None else length.most)
        return Annotated[str, Field(min_length=1, max_length=most)]
    if each.name.endswith(_UNITS):
        return Time if each.name.endswith("_ns") else Size
    return Number if declared.kind is float else Whole


def _limits(each: KnobField) -> dict[str, Any]:
    """Return the bounds of what may be written, where its type has not said them."""
    knob, within = each.knob, each.declared.bound(Within)
    limits: dict[str, Any] = {}
    # Times and sizes have bounds of their own.
    if within is not None and knob.words is None and not each.name.endswith(_UNITS):
        limits = {"ge": within.least, "le": within.most}
    if knob.above is not None:
        limits["gt"] = knob.above
        limits.pop("ge", None)
    if each.declared.kind is not str:
        said = {"ge": knob.least, "le": knob.most}
        limits |= {name: limit for name, limit in said.items() if limit is not None}
    return limits
