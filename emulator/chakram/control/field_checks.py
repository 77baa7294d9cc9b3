"""Checks of the single fields of a message that nobody vouches for. Pure.

A check returns the value, or raises ``Fault`` with the path inside the message: every
level that was decoding prefixes its own name, so that a path costs nothing unless
something is wrong.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeVar

from chakram.addresses import why_unusable
from chakram.collectives.ops import CollectiveOp
from chakram.units import LARGEST_SIZE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

__all__ = [
    "MAX_NAMES",
    "MAX_TEXT",
    "MAX_TIME_NS",
    "Fault",
    "address",
    "between",
    "check_count",
    "collective_op",
    "inside",
    "name_text",
    "one_of",
    "rows",
    "size",
    "text",
]

MAX_TEXT = 1024
"""Characters of a name or a path."""
MAX_TIME_NS = 2**62
MAX_NAMES = 2**17
"""Ranks, or addresses, of a whole plan."""

_OPS = {op.value: op for op in CollectiveOp}

_T = TypeVar("_T")
_M = TypeVar("_M")


class Fault(Exception):
    """Something is wrong at a path inside a message."""

    def __init__(self, path: str, found: str, hint: str | None = None) -> None:
        super().__init__(path, found, hint)
        self.path = path
        self.found = found
        self.hint = hint

    def below(self, name: str) -> Fault:
        """Return the fault as the level above sees it."""
        path = f"{name}.{self.path}" if self.path else name
        return Fault(path, self.found, self.hint)


def rows(
    name: str, items: Sequence[_M], decode: Callable[[_M], _T], *, most: int
) -> tuple[_T, ...]:
    """Return every item decoded; Fault if there are more than *most*."""
    check_count(name, items, most)
    decoded: list[_T] = []
    try:
        for item in items:
            decoded.append(decode(item))  # noqa: PERF401 - a fault needs the count
    except Fault as fault:
        raise fault.below(f"{name}[{len(decoded)}]") from None
    return tuple(decoded)


def inside(name: str, item: _M, decode: Callable[[_M], _T]) -> _T:
    """Return *item* decoded."""
    try:
        return decode(item)
    except Fault as fault:
        raise fault.below(name) from None


def collective_op(path: str, name: str) -> CollectiveOp:
    """Return the collective of a name; Fault if there is none."""
    op = _OPS.get(name)
    if op is None:
        raise Fault(path, f"{name[:40]!r} is no collective")
    return op


def check_count(name: str, items: Sequence[object], most: int) -> None:
    """Refuse more than *most* items."""
    if len(items) > most:
        raise Fault(name, f"{len(items)} of them, at most {most} are allowed")


def between(name: str, value: int, least: int, most: int) -> int:
    """Return a number that is in *least* to *most*, both inclusive."""
    if not least <= value <= most:
        raise Fault(name, f"{value} is not in {least}..{most}")
    return value


def size(name: str, value: int) -> int:
    """Return a size in bytes."""
    return between(name, value, 0, LARGEST_SIZE_BYTES)


def text(name: str, value: str) -> str:
    """Return a text of bounded length; it may be empty."""
    if len(value) > MAX_TEXT:
        raise Fault(name, f"{len(value)} characters, at most {MAX_TEXT} are allowed")
    return value


def name_text(name: str, value: str) -> str:
    """Return a text that names something."""
    if not value or "\0" in value:
        raise Fault(name, f"{value[:40]!r} is no name")
    return text(name, value)


def one_of(name: str, value: str, choices: Collection[str]) -> str:
    """Return a text that is one of *choices*."""
    if value not in choices:
        raise Fault(name, f"{value[:40]!r} is none of {', '.join(choices)}")
    return value


def address(name: str, value: str) -> str:
    """Return the address of a port, of IPv4 or IPv6, as it is written everywhere."""
    try:
        unusable = why_unusable(value)
        if unusable is not None:
            raise Fault(name, f"{value[:40]!r} is no address of a port: {unusable}")
        return str(ip_address(value))
    except ValueError:
        raise Fault(name, f"{value[:40]!r} is no IP address") from None
