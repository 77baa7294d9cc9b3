"""Functions that group values and times by key."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """Return the values of each key, both in order of occurrence."""
    found: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def spans(times: Iterable[tuple[_Key, int, int]]) -> dict[_Key, tuple[int, int]]:
    """Return the first start and last end by key, from triples (key, start, end)."""
    found: dict[_Key, tuple[int, int]] = {}
    for key, start_ns, end_ns in times:
        first_ns, last_ns = found.get(key, (start_ns, end_ns))
        found[key] = min(first_ns, start_ns), max(last_ns, end_ns)
    return found
