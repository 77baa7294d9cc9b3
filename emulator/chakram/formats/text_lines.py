"""Helpers for readers of text files: bounded lines and 63-bit numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from chakram.foundation.errors import ResultsError

_LONGEST_LINE = 1 << 16
_DECIMAL = re.compile(r"[0-9]{1,19}")
_LARGEST = (1 << 63) - 1
_SHOWN = 60


def lines_of(data: bytes, source: str) -> Iterator[tuple[str, str]]:
    """Yield (position, line) for each line that is not blank.

    The position is ``source:line``.

    Raises:
        ResultsError: If the data is not UTF-8, or a line exceeds 65,536 bytes.
    """
    for count, raw in enumerate(data.split(b"\n"), 1):
        where = f"{source}:{count}"
        if len(raw) > _LONGEST_LINE:
            raise ResultsError(
                where,
                f"is a line of {len(raw)} bytes, which is too long",
                "check that this is the right file",
            )
        try:
            line = raw.decode().strip()
        except UnicodeDecodeError as error:
            raise ResultsError(
                where, "is not UTF-8 text", "check that this is the right file"
            ) from error
        if line:
            yield where, line


def number(text: str, where: str, what: str) -> int:
    """Parse a non-negative integer of at most 63 bits.

    Raises:
        ResultsError: If the text is not such an integer.
    """
    if not _DECIMAL.fullmatch(text) or int(text) > _LARGEST:
        raise ResultsError(
            where,
            f"{what} {text[:_SHOWN]!r} is not a whole number",
            "use a number from 0 to 2**63 - 1",
        )
    return int(text)
