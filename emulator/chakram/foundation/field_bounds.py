"""What fields of plain data may hold, said once: in their types.

``Annotated[int, Within(1, 65535)]`` is an integer with bounds.  Whoever takes values
from somebody else (``chakram.control.message_mapping``) finds the bounds there.  A
bound takes a value and returns it, or raises ``Fault`` with the path inside of it:
every level prefixes its own name, so that a path costs nothing unless something is
wrong.
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
"""Characters of a name or a path."""
MAX_TIME_NS = 2**62
MAX_NAMES = 2**17
"""Ranks, or addresses, of a whole plan."""

_T = TypeVar("_T")


class Fault(ValueError):
    """Something is wrong at a path."""

    def __init__(self, path: str, found: str, hint: str | None = None) -> None:
        super().__init__(path, found, hint)
        self.path = path
        self.found = found
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.path}: {self.found}" if self.path else self.found

    def below(self, name: str) -> Fault:
        """Return the fault as the level above sees it."""
        joint = "." if self.path and not self.path.startswith("[") else ""
        return Fault(f"{name}{joint}{self.path}", self.found, self.hint)


def inside(name: str, value: Any, *takers: Callable[[Any], Any]) -> Any:
    """Return what *takers* make of a value, one after the other; a Fault names it."""
    try:
        for take in takers:
            value = take(value)
    except Fault as fault:
        raise fault.below(name) from None
    return value


def rows(
    name: str, items: Sequence[Any], take: Callable[[Any], _T], *, most: int
) -> tuple[_T, ...]:
    """Return what *take* makes of at most so many items."""
    return tuple(
        inside(name, items, AtMost(most).take, lambda items: taken(items, take))
    )


def taken(items: Iterable[Any], take: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return what *take* makes of all items; Fault with the place of a wrong one."""
    done: list[Any] = []
    try:
        for item in items:
            done.append(take(item))  # noqa: PERF401 - a fault needs the count
    except Fault as fault:
        raise fault.below(f"[{len(done)}]") from None
    return tuple(done)


@dataclass(frozen=True, slots=True)
class Within:
    """A number from *least* to *most*, both inclusive."""

    least: float
    most: float

    def take(self, value: Any) -> Any:
        """Return a number that is."""
        if not self.least <= value <= self.most:
            raise Fault("", f"{value} is not in {self.least}..{self.most}")
        return value


class Share:
    """A number from 0 to less than 1."""

    def take(self, value: float) -> float:
        """Return a number that is."""
        if not 0.0 <= value < 1.0:
            raise Fault("", f"{value} is not in [0, 1)")
        return value


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of *choices*."""

    choices: Sequence[Any]

    def take(self, value: Any) -> Any:
        """Return a value that is."""
        if value not in self.choices:
            shown = repr(value[:40]) if isinstance(value, str) else value
            raise Fault("", f"{shown} is none of {', '.join(map(str, self.choices))}")
        return value


@dataclass(frozen=True, slots=True)
class AtMost:
    """Something of bounded length."""

    most: int
    noun: str = "of them"

    def take(self, value: Any) -> Any:
        """Return what is no longer."""
        if len(value) > self.most:
            raise Fault(
                "", f"{len(value)} {self.noun}, at most {self.most} are allowed"
            )
        return value


class Distinct:
    """Several, none of them twice."""

    def take(self, value: Any) -> Any:
        """Return what is so."""
        if len(set(value)) < len(value):
            raise Fault("", "one stands there twice")
        return value


class _Naming:
    """A text that names something."""

    def take(self, value: str) -> str:
        """Return a text that does."""
        if not value or "\0" in value:
            raise Fault("", f"{value[:40]!r} is no name")
        return value


@dataclass(frozen=True, slots=True)
class Matching:
    """A text of at most *most* characters that a *pattern* describes."""

    pattern: str
    most: int

    def take(self, value: str) -> str:
        """Return a text that is."""
        if len(value) > self.most or re.search(self.pattern, value) is None:
            raise Fault("", f"{value[:40]!r} is no name")
        return value


class _Address:
    """The address of a port, of IPv4 or IPv6, as it is written everywhere."""

    @staticmethod
    @lru_cache(MAX_NAMES)
    def take(value: str) -> str:
        """Return it so; a plan has every address many times."""
        try:
            unusable = why_unusable(value)
            written = str(ip_address(value))
        except ValueError:
            raise Fault("", f"{value[:40]!r} is no IP address") from None
        if unusable is not None:
            raise Fault("", f"{value[:40]!r} is no address of a port: {unusable}")
        return written


@dataclass(frozen=True, slots=True)
class Clipped:
    """Texts for people: of more than *most*, or longer ones, the rest is left out."""

    most: int
    length: int

    def take(self, value: Sequence[str]) -> tuple[str, ...]:
        """Return what is left."""
        return tuple(text[: self.length] for text in value[: self.most])


@dataclass(frozen=True, slots=True)
class Rows:
    """64-bit integers as bytes: rows of *per_row* of them, or just one row."""

    per_row: int
    is_one: bool = False

    def take(self, value: bytes) -> bytes:
        """Return bytes that are."""
        row_bytes = 8 * self.per_row
        if self.is_one and len(value) != row_bytes:
            raise Fault("", f"{len(value) // 8} counters instead of {self.per_row}")
        if len(value) % row_bytes:
            raise Fault(
                "", f"{len(value)} bytes are no rows of {self.per_row} integers"
            )
        return value


Text = Annotated[str, AtMost(MAX_TEXT, "characters")]
"""A text of bounded length; it may be empty."""
Name = Annotated[str, _Naming(), AtMost(MAX_TEXT, "characters")]
"""A text of bounded length that names something."""
Identifier = Annotated[str, Matching(r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", 64)]
"""Name of an experiment, a job or a host: letters, digits, ``_``, ``.``, ``-``."""
HostAddress = Annotated[str, _Address()]
"""The address of a port, of IPv4 or IPv6, as it is written everywhere."""
UdpPort = Annotated[int, Within(1, 65535)]
Size = Annotated[int, Within(0, LARGEST_SIZE_BYTES)]
"""Bytes."""
TimeNs = Annotated[int, Within(0, MAX_TIME_NS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What the type of a field says.

    Attributes:
        kind: The type itself, whatever else it may be.
        said: What is said of it, bounds and others.
        may_be_none: Whether it may be None.
    """

    kind: Any
    said: tuple[Any, ...]
    may_be_none: bool

    @property
    def takers(self) -> tuple[Callable[[Any], Any], ...]:
        """What takes a value, of its bounds."""
        return tuple(each.take for each in self.said if hasattr(each, "take"))

    def bound(self, kind: type[_T]) -> _T | None:
        """Return what is said by a *kind* of bound; None: nothing."""
        return next((each for each in self.said if isinstance(each, kind)), None)


def declared(kind: Any) -> Declared:
    """Return what a type says."""
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
    """Return what the types of a dataclass's fields say, by their names."""
    return _declared_fields(kind)


@cache
def _declared_fields(kind: Any) -> Mapping[str, Declared]:
    hints = get_type_hints(kind, include_extras=True)
    return {each.name: declared(hints[each.name]) for each in fields(kind)}


def check_fields(value: Any) -> None:
    """Check the fields of a dataclass against their own bounds.

    Raises:
        Fault: At the first one that is wrong.
    """
    for name, each in declared_fields(type(value)).items():
        held = getattr(value, name)
        if held is None and each.may_be_none:
            continue
        try:
            for take in each.takers:
                take(held)
        except Fault as fault:
            raise fault.below(name) from None
