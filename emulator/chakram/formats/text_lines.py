"""What readers of text files share: lines of bounded length, numbers of 64 bits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from chakram.foundation.errors import ResultsError

_LONGEST_LINE = 1 << 16
_DECIMAL = re.compile(r"[0-9]{1,19}")
_LARGEST = (1 << 63) - 1
_SHOWN = 60


def lines_of(data: bytes, source: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a text that are not empty, each with its place.

    Raises:
        ResultsError: If it is no text, or a line is longer than any real one.
    """
    for count, raw in enumerate(data.split(b"\n"), 1):
        where = f"{source}:{count}"
        if len(raw) > _LONGEST_LINE:
            raise ResultsError(where, f"is a line of {len(raw)} bytes")
        try:
            line = raw.decode().strip()
        except UnicodeDecodeError as error:
            raise ResultsError(where, "is no text in UTF-8") from error
        if line:
            yield where, line


def number(text: str, where: str, what: str) -> int:
    """Return a whole number of at most 63 bits.

    Raises:
        ResultsError: If it is something else.
    """
    if not _DECIMAL.fullmatch(text) or int(text) > _LARGEST:
        raise ResultsError(where, f"{what} {text[:_SHOWN]!r} is not a whole number")
    return int(text)
