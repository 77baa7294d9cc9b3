"""Atomic file creation: a file gets its name only when it is complete.

Existing files are replaced only on request.
"""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from chakram.foundation.errors import OutputExists
from chakram.foundation.write_errors import explained_writes

_HINT = "choose another place"


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to overwrite an existing path.

    Raises:
        OutputExists: If *path* is a folder or device, or is a file and *force* is
            false.
    """
    if path.is_dir():
        raise OutputExists(str(path), "is a folder", "choose a file name in it")
    if path.exists() and not path.is_file():
        raise OutputExists(str(path), "is not a file", _HINT)
    if path.exists() and not force:
        raise OutputExists(
            str(path),
            "exists already",
            "choose another name, or use --force to replace it",
        )


@contextmanager
def new_file(path: Path, *, force: bool = False) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """Open a file for writing that gets its name when the ``with`` block succeeds.

    If the block raises an error, no new file remains and an existing file stays
    unchanged. If the name ends in ``.gz``, the content is compressed. The same content
    always results in the same bytes.

    Args:
        path: Path of the file. The folder is created if it does not exist.
        force: Replace an existing file.

    Raises:
        OutputExists: See ``refuse_existing``.
        RunDirectoryError: If the file cannot be written.
    """
    refuse_existing(path, force=force)
    with explained_writes(path, hint=_HINT):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(
            prefix=f".{path.name}.", suffix=".part", dir=path.parent
        )
    part = Path(name)
    try:
        with explained_writes(path, hint=_HINT):
            with os.fdopen(descriptor, "wb") as file:
                if path.name.endswith(".gz"):
                    # A time stamp or file name in the header would make files with
                    # equal content differ.
                    with gzip.GzipFile(
                        filename="", mode="wb", fileobj=file, mtime=0
                    ) as compressed:
                        yield compressed
                else:
                    yield file
            # mkstemp restricts access to the owner. Apply the usual permissions.
            os.chmod(part, 0o666 & ~_umask())
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
