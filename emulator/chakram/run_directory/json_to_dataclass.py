"""Conversion of JSON documents to dataclasses, by the rules of pydantic.

Importing pydantic and building its validators takes longer than reading a run
directory. This module therefore converts valid documents itself. Pydantic handles all
other documents: it converts values of other types, or explains what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from chakram.foundation.field_bounds import declared

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema, ErrorDetails

_T = TypeVar("_T")
_Take = Callable[[Any], Any]
"""Function that converts a value, or raises an error if pydantic has to decide."""


@dataclass(frozen=True, slots=True)
class InRange:
    """Limits of an integer, as in ``range``: from *start* to below *stop*."""

    start: int
    stop: int

    def check(self, value: int) -> int:
        """Return *value* if it is in the range, or raise ValueError."""
        if not self.start <= value < self.stop:
            raise ValueError(value)
        return value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic_core.core_schema import int_schema

        return int_schema(ge=self.start, lt=self.stop)


class Members:
    """Types of a mapping's members, of which only *needed* must exist."""

    def __init__(self, *needed: str, **kinds: Any) -> None:
        self._needed = needed
        self._kinds = kinds

    def check(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return *value* if its members are valid, or raise ValueError."""
        for name, take in self._takers.items():
            if name in value or name in self._needed:
                take(value.get(name, ...))
        return value

    @cached_property
    def _takers(self) -> dict[str, _Take]:
        return {name: _taker(kind) for name, kind in self._kinds.items()}

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic import AfterValidator

        return AfterValidator(self.check).__get_pydantic_core_schema__(source, handler)


class InvalidDocument(ValueError):
    """Mistakes in a document, as ``pydantic.ValidationError`` describes them."""

    def __init__(self, mistakes: Sequence[ErrorDetails]) -> None:
        super().__init__(mistakes)
        self.mistakes = mistakes


class DocumentReader(Generic[_T]):
    """Converter from documents to a dataclass.

    It ignores unknown fields of documents. Its methods raise ``InvalidDocument``.

    Args:
        kind: The dataclass. Its fields may have plain types, and tuples, lists,
            mappings and dataclasses of these, with ``InRange`` and ``Members``.
    """

    def __init__(self, kind: type[_T]) -> None:
        self._kind = kind

    def read(self, document: Any) -> _T:
        """Return the contents of a parsed document."""
        take = self._take
        try:
            return take(document)
        except (TypeError, ValueError):
            return self._validated(lambda reader: reader.validate_python(document))

    def read_json(self, text: bytes) -> _T:
        """Return the contents of a JSON text. Values must have the declared types."""
        take = self._take
        try:
            # pydantic refuses half of a surrogate pair, but json accepts it.
            return take(None if rb"\u" in text else json.loads(text.decode()))
        except (RecursionError, TypeError, ValueError):
            return self._validated(lambda each: each.validate_json(text, strict=True))

    @cached_property
    def _take(self) -> Callable[[Any], _T]:
        return _taker(self._kind)

    def _validated(self, read: Callable[[TypeAdapter[_T]], _T]) -> _T:
        from pydantic import TypeAdapter, ValidationError

        try:
            return read(TypeAdapter(self._kind))
        except ValidationError as error:
            raise InvalidDocument(error.errors()) from error


def _taker(kind: Any) -> _Take:
    """Return a function that converts a value as pydantic does, or raises an error."""
    found = declared(kind)
    json_kind, convert = _conversion(found.kind)
    checks = [each.check for each in found.said if isinstance(each, InRange | Members)]

    def take(value: Any) -> Any:
        if value is None and found.may_be_none:
            return None
        if json_kind is not None and type(value) is not json_kind:
            raise ValueError(value)
        value = convert(value)
        for check in checks:
            check(value)
        return value

    return take


def _conversion(kind: Any) -> tuple[type | None, _Take]:
    """Return the JSON type of a value (None for any), and its conversion to *kind*.

    Raises:
        TypeError: If ``DocumentReader`` does not support *kind*.
    """
    if kind is Any:
        return None, lambda value: value
    if kind in (str, int, bool):
        return kind, lambda value: value
    if kind is float:
        return None, _number
    if is_dataclass(kind):
        return dict, _constructor(kind)
    origin = get_origin(kind)
    takers = [_taker(each) for each in get_args(kind) if each is not ...]
    if origin in (dict, Mapping):
        name, held = takers
        return dict, lambda value: {name(k): held(v) for k, v in value.items()}
    if origin is list or ... in get_args(kind):
        (item,) = takers
        return list, lambda value: origin(map(item, value))
    if origin is tuple:
        return list, lambda value: tuple(
            take(each) for take, each in zip(takers, value, strict=True)
        )
    raise TypeError(f"documents contain no {kind}")


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(value)
    return float(value)


def _constructor(kind: Any) -> _Take:
    """Return a function that creates a dataclass. Missing fields raise TypeError."""
    hints = get_type_hints(kind, include_extras=True)
    takers = {each.name: _taker(hints[each.name]) for each in fields(kind) if each.init}
    return lambda value: kind(
        **{name: take(value[name]) for name, take in takers.items() if name in value}
    )
