"""Bounds on the fields of plain data, declared once in their types.

``Annotated[int, Within(1, 65535)]`` is an integer with bounds. Code that accepts values
from other processes (``chakram.control.dataclass_codec``) reads the bounds from these
types. The ``take`` method of a bound takes a value and returns it, or raises ``Fault``
with the path to the wrong value. Each level prepends its own name to that path, so
paths cost nothing unless a value is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from ipaddress import ip_address
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from chakram.foundation.ip_addresses import why_unusable
from chakram.foundation.units import LARGEST_SIZE_BYTES

MAX_TEXT = 1024
"""Maximum number of characters of a name or a path."""
MAX_TIME_NS = 2**62
MAX_FAULTS = 64
"""Maximum number of packet faults of one run; each has its own counter slot."""
MAX_NAMES = 2**17
"""Maximum number of ranks, or of addresses, in a whole plan."""

_T = TypeVar("_T")


class Fault(ValueError):
    """A wrong value at a path."""

    def __init__(self, path: str, found: str, hint: str | None = None) -> None:
        super().__init__(path, found, hint)
        self.path = path
        self.found = found
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.path}: {self.found}" if self.path else self.found

    def below(self, name: str) -> Fault:
        """Return the same fault with *name* prepended to its path."""
        joint = "." if self.path and not self.path.startswith("[") else ""
        return Fault(f"{name}{joint}{self.path}", self.found, self.hint)


def inside(name: str, value: Any, *takers: Callable[[Any], Any]) -> Any:
    """Apply *takers* to a value in order, with *name* prepended to faults."""
    try:
        for take in takers:
            value = take(value)
    except Fault as fault:
        raise fault.below(name) from None
    return value


def rows(
    name: str, items: Sequence[Any], take: Callable[[Any], _T], *, most: int
) -> tuple[_T, ...]:
    """Return the results of *take* for *items*.

    More than *most* items are a fault.
    """
    return tuple(
        inside(name, items, AtMost(most).take, lambda items: taken(items, take))
    )


def taken(items: Iterable[Any], take: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return the results of *take* for all items, with an item's index in its fault."""
    done: list[Any] = []
    try:
        for item in items:
            done.append(take(item))  # noqa: PERF401 - a fault needs the index
    except Fault as fault:
        raise fault.below(f"[{len(done)}]") from None
    return tuple(done)


@dataclass(frozen=True, slots=True)
class Within:
    """A number from *least* to *most*, both inclusive."""

    least: float
    most: float

    def take(self, value: Any) -> Any:
        """Return *value* if it is in range, or raise ``Fault`` if not."""
        if not self.least <= value <= self.most:
            raise Fault("", f"{value} is not in {self.least}..{self.most}")
        return value


class Share:
    """A number from 0 to less than 1."""

    def take(self, value: float) -> float:
        """Return *value* if it is in range, or raise ``Fault`` if not."""
        if not 0.0 <= value < 1.0:
            raise Fault("", f"{value} is not in [0, 1)")
        return value


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of *choices*."""

    choices: Sequence[Any]

    def take(self, value: Any) -> Any:
        """Return *value* if it is one of the choices, or raise ``Fault`` if not."""
        if value not in self.choices:
            shown = repr(value[:40]) if isinstance(value, str) else value
            raise Fault(
                "", f"{shown} is not one of {', '.join(map(str, self.choices))}"
            )
        return value


@dataclass(frozen=True, slots=True)
class AtMost:
    """A value whose length is bounded."""

    most: int
    noun: str = "entries"

    def take(self, value: Any) -> Any:
        """Return *value* if it is not too long, or raise ``Fault`` if it is."""
        if len(value) > self.most:
            raise Fault(
                "", f"{len(value)} {self.noun}, but at most {self.most} are allowed"
            )
        return value


class Distinct:
    """A sequence without duplicates."""

    def take(self, value: Any) -> Any:
        """Return *value* if its items are distinct, or raise ``Fault`` if not."""
        if len(set(value)) < len(value):
            raise Fault("", "contains a duplicate")
        return value


class _Naming:
    """A string that is not empty and has no NUL character."""

    def take(self, value: str) -> str:
        """Return *value* if it is such a string, or raise ``Fault`` if not."""
        if not value or "\0" in value:
            raise Fault("", f"{value[:40]!r} is not a valid name")
        return value


@dataclass(frozen=True, slots=True)
class Matching:
    """A string of at most *most* characters that matches *pattern*."""

    pattern: str
    most: int

    def take(self, value: str) -> str:
        """Return *value* if it matches, or raise ``Fault`` if not."""
        if len(value) > self.most or re.search(self.pattern, value) is None:
            raise Fault("", f"{value[:40]!r} is not a valid name")
        return value


class _Address:
    """An IPv4 or IPv6 address that a port may have, in its usual notation."""

    @staticmethod
    @lru_cache(MAX_NAMES)
    def take(value: str) -> str:
        """Return the usual notation, cached because a plan repeats its addresses."""
        try:
            unusable = why_unusable(value)
            written = str(ip_address(value))
        except ValueError:
            raise Fault("", f"{value[:40]!r} is not an IP address") from None
        if unusable is not None:
            raise Fault(
                "", f"{value[:40]!r} cannot be the address of a port: {unusable}"
            )
        return written


@dataclass(frozen=True, slots=True)
class Clipped:
    """At most *most* human-readable strings, each cut to *length* characters."""

    most: int
    length: int

    def take(self, value: Sequence[str]) -> tuple[str, ...]:
        """Return the strings, reduced to these limits."""
        return tuple(text[: self.length] for text in value[: self.most])


@dataclass(frozen=True, slots=True)
class Rows:
    """64-bit integers as bytes: rows of *per_row* integers, or exactly one row."""

    per_row: int
    is_one: bool = False

    def take(self, value: bytes) -> bytes:
        """Return *value* if its length fits, or raise ``Fault`` if not."""
        row_bytes = 8 * self.per_row
        if self.is_one and len(value) != row_bytes:
            raise Fault("", f"{len(value) // 8} counters instead of {self.per_row}")
        if len(value) % row_bytes:
            raise Fault(
                "", f"{len(value)} bytes are not rows of {self.per_row} integers"
            )
        return value


Text = Annotated[str, AtMost(MAX_TEXT, "characters")]
"""A string of bounded length, which may be empty."""
Name = Annotated[str, _Naming(), AtMost(MAX_TEXT, "characters")]
"""A string of bounded length that is not empty."""
Identifier = Annotated[str, Matching(r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", 64)]
"""Name of an experiment, a job or a host: letters, digits, ``_``, ``.``, ``-``."""
HostAddress = Annotated[str, _Address()]
"""An IPv4 or IPv6 address that a port may have, in its usual notation."""
UdpPort = Annotated[int, Within(1, 65535)]
Size = Annotated[int, Within(0, LARGEST_SIZE_BYTES)]
"""A size in bytes."""
TimeNs = Annotated[int, Within(0, MAX_TIME_NS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The declarations in the type of a field.

    Attributes:
        kind: The type itself, without ``None`` and annotations.
        said: Annotations in the type, including bounds.
        may_be_none: Whether None is allowed.
    """

    kind: Any
    said: tuple[Any, ...]
    may_be_none: bool

    @property
    def takers(self) -> tuple[Callable[[Any], Any], ...]:
        """The ``take`` methods of the bounds in the type."""
        return tuple(each.take for each in self.said if hasattr(each, "take"))

    def bound(self, kind: type[_T]) -> _T | None:
        """Return the first annotation of type *kind*, or None if there is none."""
        return next((each for each in self.said if isinstance(each, kind)), None)


def declared(kind: Any) -> Declared:
    """Return the declarations in a type."""
    said: list[Any] = []
    may_be_none = False
    while True:
        inside = [each for each in get_args(kind) if each is not NoneType]
        if get_origin(kind) is Annotated:
            kind, *more = inside
            said += more
        elif get_origin(kind) in (UnionType, Union) and len(inside) == 1:
            (kind,) = inside
            may_be_none = True
        else:
            return Declared(kind=kind, said=tuple(said), may_be_none=may_be_none)


def declared_fields(kind: type) -> Mapping[str, Declared]:
    """Return the declarations of a dataclass's fields, by field name."""
    return _declared_fields(kind)


@cache
def _declared_fields(kind: Any) -> Mapping[str, Declared]:
    hints = get_type_hints(kind, include_extras=True)
    return {each.name: declared(hints[each.name]) for each in fields(kind)}


def check_fields(value: Any) -> None:
    """Check the fields of a dataclass instance against their bounds.

    Raises:
        Fault: If a field violates its bounds. The fault is about the first one.
    """
    kind: Any = type(value)
    for name, may_be_none, takers in _checks(kind):
        held = getattr(value, name)
        if held is None and may_be_none:
            continue
        try:
            for take in takers:
                take(held)
        except Fault as fault:
            raise fault.below(name) from None


@cache
def _checks(kind: Any) -> tuple[tuple[str, bool, Sequence[Callable[..., Any]]], ...]:
    """Return each field with bounds: its name, whether it may be None, its bounds."""
    return tuple(
        (name, each.may_be_none, each.takers)
        for name, each in declared_fields(kind).items()
        if each.takers
    )
