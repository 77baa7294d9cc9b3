"""Reads files of users whole, within a bound."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from chakram.units import format_size

if TYPE_CHECKING:
    from chakram.errors import InputError


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
    """Return what is in the file at *path*.

    Raises:
        InputError: An *error* if it cannot be read or is too long, with the hint.
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
    """Return the rest of *stream*, which *source* names in errors.

    Raises:
        InputError: An *error* if it is too long.
    """
    data = stream.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise error(source, f"is longer than {format_size(limit_bytes)}", hint)
    return data
