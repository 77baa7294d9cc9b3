"""Host lists in Slurm notation, such as ``gpu[001-064,070]-ib``.

A list consists of names, separated by commas. A name may contain bracket groups with
numbers and ranges. A name with several groups expands to all combinations, in which the
leftmost group varies slowest. The numbers of a range are padded to the width of its
first number. The semantics are those of ``scontrol show hostnames``, except that
duplicates are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product

from chakram.foundation.errors import ConfigError

MAX_HOSTS = 65_536
"""Maximum number of hosts in a list."""

MAX_LENGTH = 1 << 20
"""Maximum length of a list, in characters."""

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_BRACKETS = re.compile(r"\[([^\]]*)\]")
_SHOWN = 60
_HINT = "write names and ranges, e.g. gpu[001-064],login1"


def expand_host_list(text: str, *, where: str) -> list[str]:
    """Return the host names of a list, in list order.

    Args:
        text: Host list. Spaces around names are ignored.
        where: Location of the list, for error messages.

    Raises:
        ConfigError: If the list is malformed, names a host twice or has too many hosts.
    """
    if len(text) > MAX_LENGTH:
        raise ConfigError(
            where,
            f"is longer than {MAX_LENGTH} characters",
            "use ranges, e.g. gpu[001-064]",
        )
    names: list[str] = []
    for part in _split(text, where):
        pieces, count = _pieces(part, where)
        if len(names) + count > MAX_HOSTS:
            raise ConfigError(
                where,
                f"has more than {MAX_HOSTS} hosts with {_shown(part)}",
                "use a smaller range",
            )
        names += map("".join, product(*pieces))
    seen: set[str] = set()
    for name in names:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                where,
                f"{_shown(name)} is not a host name",
                "host names have letters, digits, dots, underscores and dashes",
            )
        if name in seen:
            raise ConfigError(where, f"names host {name} twice", "name each host once")
        seen.add(name)
    return names


def _split(text: str, where: str) -> Iterator[str]:
    """Split a list at the commas outside brackets, and yield the parts."""
    begin = depth = 0
    for at, character in enumerate(text):
        if character == "," and not depth:
            yield _stripped(text[begin:at], where)
            begin = at + 1
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth not in (0, 1):
            found = "a '[' within brackets" if depth > 1 else "a ']' without a '['"
            raise ConfigError(where, f"has {found}: {_shown(text[begin:])}", _HINT)
    if depth:
        found = f"has a '[' without a ']': {_shown(text[begin:])}"
        raise ConfigError(where, found, _HINT)
    yield _stripped(text[begin:], where)


def _stripped(part: str, where: str) -> str:
    part = part.strip()
    if not part:
        raise ConfigError(where, "has no name before or after a comma", _HINT)
    return part


def _pieces(part: str, where: str) -> tuple[list[Iterable[str]], int]:
    """Return the alternatives for each piece of a name, and how many names result."""
    pieces: list[Iterable[str]] = []
    count = 1
    for at, piece in enumerate(_BRACKETS.split(part)):
        if not at % 2:
            pieces.append((piece,))
            continue
        ranges = [_range(each.strip(), where) for each in piece.split(",")]
        count *= sum(map(len, (numbers for numbers, _ in ranges)))
        pieces.append(
            f"{number:0{width}}" for numbers, width in ranges for number in numbers
        )
    return pieces, count


def _range(text: str, where: str) -> tuple[range, int]:
    """Return the numbers of a range, and the width to which they are padded."""
    found = _RANGE.fullmatch(text)
    if found is None:
        what = f"has {_shown(text)} in brackets, which is not a number or range"
        raise ConfigError(where, what, _HINT)
    low, high = found[1], found[2] or found[1]
    if int(high) < int(low):
        raise ConfigError(where, f"has a range that runs backwards: {text}", _HINT)
    return range(int(low), int(high) + 1), len(low)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
