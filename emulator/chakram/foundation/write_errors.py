"""Conversion of operating system errors that occur when files are written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chakram.foundation.errors import ChakramError, RunDirectoryError


@contextmanager
def explained_writes(
    path: Path,
    error: type[ChakramError] = RunDirectoryError,
    hint: str | None = None,
) -> Iterator[None]:
    """Convert operating system errors in the block to an *error* about *path*.

    Raises:
        ChakramError: An *error* with the hint, if something cannot be written.
    """
    try:
        yield
    except OSError as problem:
        found = f"cannot be written: {problem.strerror or problem}"
        raise error(str(path), found, hint) from problem
