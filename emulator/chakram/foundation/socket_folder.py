"""Temporary folders for Unix sockets, whose paths have a limit of 107 bytes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chakram.foundation.errors import EnvironmentProblem

_LONGEST_PARENT_BYTES = 64
_SHORT_PARENT = "/tmp"


@contextmanager
def socket_folder() -> Iterator[Path]:
    """Yield the path of a new folder that only its owner can open, then remove it.

    The folder is in ``TMPDIR``, unless paths of sockets there would be too long.

    Raises:
        EnvironmentProblem: If the folder cannot be created.
    """
    try:
        parent = tempfile.gettempdir()
        is_long = len(os.fsencode(parent)) > _LONGEST_PARENT_BYTES
        folder = tempfile.TemporaryDirectory(
            prefix="chakram-", dir=_SHORT_PARENT if is_long else parent
        )
    except OSError as error:
        raise EnvironmentProblem(
            "temporary folder",
            f"cannot be created ({error.strerror})",
            "free space there, or set TMPDIR to another folder",
        ) from error
    with folder as name:
        yield Path(name)
