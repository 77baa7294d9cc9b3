"""Files that appear under their names once they are whole, and replace none unasked."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from chakram.foundation.errors import RunDirectoryError


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to write where something is already.

    Raises:
        RunDirectoryError: If *path* exists, unless *force* says to replace a file.
    """
    if path.is_dir():
        raise RunDirectoryError(str(path), "is a folder", "name a file in it")
    if path.exists() and not force:
        raise RunDirectoryError(
            str(path), "exists already", "choose another name, or --force replaces it"
        )


@contextmanager
def new_file(path: Path, *, force: bool = False) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """Open a file for writing that takes its name when the ``with`` block ends well.

    If the block raises, nothing is left behind, and what stood there before still
    stands.  A name that ends in ``.gz`` is compressed; equal content makes equal files.

    Args:
        path: The name; its folder is made if it is not there.
        force: Replace a file of that name.

    Raises:
        RunDirectoryError: If it exists already, or cannot be written.
    """
    refuse_existing(path, force=force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(
            prefix=f".{path.name}.", suffix=".part", dir=path.parent
        )
    except OSError as error:
        raise _unwritable(path, error) from error
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if path.name.endswith(".gz"):
                # A time stamp or a name in the header would make equal files differ.
                with gzip.GzipFile(
                    filename="", mode="wb", fileobj=file, mtime=0
                ) as compressed:
                    yield compressed
            else:
                yield file
        # mkstemp's files are for their owner only; these are like any other.
        os.chmod(part, 0o666 & ~_umask())
        os.replace(part, path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        part.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _unwritable(path: Path, error: OSError) -> RunDirectoryError:
    return RunDirectoryError(
        str(path), f"cannot be written: {error.strerror}", "choose another place"
    )
