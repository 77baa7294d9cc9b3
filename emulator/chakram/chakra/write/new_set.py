"""Creation of trace sets. The rank files and the group file appear together.

Atomic file creation: a file gets its name only when it is complete.

Existing files are replaced only on request.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from chakram.foundation.errors import RunDirectoryError

GROUP_FILE: Final = "comm_group.json"


@dataclass(slots=True, eq=False)
class NewSet:
    """A trace set that is being written. Its files are in a temporary folder."""

    folder: Path
    aside: Path

    def open(self, name: str) -> AbstractContextManager[IO[bytes] | gzip.GzipFile]:
        """Open a file of the set. A file whose name ends in ``.gz`` is compressed."""
        return new_file(self.aside / name)

    def names(self) -> list[str]:
        """Return the names of the written files, ordered by rank."""
        return sorted((path.name for path in self.aside.iterdir()), key=_order)

    def written(self) -> list[Path]:
        """Return the final paths of the files."""
        return [self.folder / name for name in self.names()]


@contextmanager
def new_trace_set(
    folder: Path, *, prefix: str, force: bool = False
) -> Iterator[NewSet]:
    """Write a trace set that moves into place when the ``with`` block succeeds.

    If the block raises an error, the folder stays unchanged.

    Args:
        folder: The target. It is created if it does not exist.
        prefix: Start of the file names.
        force: Replace an existing group file and an existing set with that prefix.
            Files of ranks that the new set lacks are deleted too, because they would
            make the set wrong.

    Raises:
        RunDirectoryError: If the folder cannot be written or already has such files.
    """
    of_set = re.compile(re.escape(prefix) + r"[._][0-9]+\.(et|eg|json)(\.gz)?")
    made = not folder.exists()
    with ExitStack() as stack:
        try:
            present = _present(folder, of_set)
            if present and not force:
                raise RunDirectoryError(
                    str(folder),
                    f"contains {present[0].name}"
                    + (f" and {len(present) - 1} more" if len(present) > 1 else ""),
                    "choose another folder, or use --force to replace these files",
                )
            folder.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(prefix=f".{prefix}.", dir=folder))
            stack.callback(_tidy, aside, folder if made else None)
            new = NewSet(folder, aside)
            yield new
            for path in present:
                path.unlink()
            for name in new.names():
                os.replace(aside / name, folder / name)
        except OSError as error:
            raise RunDirectoryError(
                str(folder),
                f"cannot be written: {error.strerror}",
                "choose another folder",
            ) from error


def _present(folder: Path, of_set: re.Pattern[str]) -> list[Path]:
    """Return the existing files that a new set would conflict with.

    Raises:
        RunDirectoryError: If *folder* is a file.
    """
    if not folder.exists():
        return []
    if not folder.is_dir():
        raise RunDirectoryError(
            str(folder),
            "is not a folder",
            "choose a folder: a trace set has a file per rank",
        )
    return sorted(
        path
        for path in folder.iterdir()
        if of_set.fullmatch(path.name) or path.name == GROUP_FILE
    )


def _order(name: str) -> tuple[bool, list[int], str]:
    """Return a sort key: files of ranks by their numbers, then the group file."""
    return (
        name == GROUP_FILE,
        [int(digits) for digits in re.findall(r"\d+", name)],
        name,
    )


def _tidy(aside: Path, made: Path | None) -> None:
    shutil.rmtree(aside, ignore_errors=True)
    if made is not None and made.is_dir() and not any(made.iterdir()):
        made.rmdir()


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to overwrite an existing path.

    Raises:
        RunDirectoryError: If *path* is a folder, or is a file and *force* is false.
    """
    if path.is_dir():
        raise RunDirectoryError(str(path), "is a folder", "choose a file name in it")
    if path.exists() and not force:
        raise RunDirectoryError(
            str(path),
            "exists already",
            "choose another name, or use --force to replace it",
        )


@contextmanager
def new_file(path: Path, *, force: bool = False) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """Open a file for writing that gets its name when the ``with`` block succeeds.

    If the block raises an error, no new file remains and an existing file stays
    unchanged. If the name ends in ``.gz``, the content is compressed. Equal content
    gives equal files.

    Args:
        path: The name. Its folder is created if it does not exist.
        force: Replace an existing file.

    Raises:
        RunDirectoryError: If the file already exists or cannot be written.
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
                # A time stamp or file name in the header would make files with equal
                # content differ.
                with gzip.GzipFile(
                    filename="", mode="wb", fileobj=file, mtime=0
                ) as compressed:
                    yield compressed
            else:
                yield file
        # mkstemp restricts access to the owner. Apply the usual permissions.
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
