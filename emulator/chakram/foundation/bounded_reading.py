"""Read user-supplied files, and the JSON in them, within size limits."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, Protocol

from chakram.foundation.errors import InputError
from chakram.foundation.units import format_size

_MOST_DIGITS = 20
"""Maximum number of digits of an integer. 64-bit integers have at most 20."""

_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read_bounded(
    path: Path,
    *,
    limit_bytes: int,
    error: type[InputError],
    path_hint: str = "is the path right?",
    size_hint: str | None = None,
) -> bytes:
    """Return the content of the file at *path*.

    Raises:
        InputError: An *error* with the hint, if the file cannot be read or is too long.
    """
    try:
        with path.open("rb") as file:
            return read_stream_bounded(
                file, str(path), limit_bytes=limit_bytes, error=error, hint=size_hint
            )
    except OSError as problem:
        raise error(
            str(path), f"cannot be read: {problem.strerror}", path_hint
        ) from problem


def read_stream_bounded(
    stream: _Stream,
    source: str,
    *,
    limit_bytes: int,
    error: type[InputError],
    hint: str | None = None,
) -> bytes:
    """Return the remaining content of *stream*, which errors refer to as *source*.

    Raises:
        InputError: An *error* if the stream is longer than *limit_bytes*.
    """
    data = stream.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise error(source, f"is longer than {format_size(limit_bytes)}", hint)
    return data


def parse_json(
    data: bytes, source: str, *, error: type[InputError], hint: str | None = None
) -> Any:
    """Return the value of a JSON document, with None for NaN and Infinity.

    Other numbers must be finite, integers have at most 20 digits, and strings must be
    valid Unicode.

    Args:
        data: The document.
        source: Name of the document, for error messages.
        error: Exception type to raise.
        hint: Suggested remedy, for error messages.

    Raises:
        InputError: An *error* if the document violates these rules.
    """
    try:
        document = json.loads(
            data,
            parse_constant=lambda _: None,
            parse_float=_finite,
            parse_int=_integer,
        )
        if _HALF_CHARACTER.search(data):
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as problem:
        raise error(source, f"is not valid JSON: {problem}", hint) from problem
    return document


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > _MOST_DIGITS:
        raise ValueError(f"the number {text[:40]} has more than {_MOST_DIGITS} digits")
    return int(text)
