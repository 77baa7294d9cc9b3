"""Reads files of users within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.errors import ScheduleError
from chakram.units import format_size

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MAX_FILE_BYTES", "read_bounded"]

MAX_FILE_BYTES = 64 << 20


def read_bounded(path: Path) -> bytes:
    """Return what is in the file at *path*.

    Raises:
        ScheduleError: If it cannot be read, or is too long.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ScheduleError(
            str(path),
            f"cannot be read: {error.strerror}",
            "the path starts at the folder of the experiment file",
        ) from error
    if len(text) > MAX_FILE_BYTES:
        raise ScheduleError(str(path), f"is longer than {format_size(MAX_FILE_BYTES)}")
    return text
