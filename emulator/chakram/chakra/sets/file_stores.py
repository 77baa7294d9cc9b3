"""Where the files of a trace set stand: a folder, or a tar archive.

An archive is read in place: nothing of it is written to the disk, so that the names
of its members can do no harm; links and devices in it are passed over.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol, Self

from chakram.foundation.errors import TraceError

_ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_MEMBER_LIMIT = 100_000

# What tarfile lets through of a damaged archive, its own errors aside.
_DAMAGE = (tarfile.TarError, EOFError, OSError, zlib.error, ValueError)


class StoredFile:
    """One file, open for reading; it gives only our errors."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name

    def read(self, size: int, /) -> bytes:
        """Return at most *size* bytes, none at the end.

        Raises:
            TraceError: If the file, or the archive round it, cannot be read.
        """
        try:
            return self._file.read(size)
        except _DAMAGE as error:
            raise TraceError(
                self._name, f"cannot be read: {error}", "is the file complete?"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class Store(Protocol):
    """Files with names."""

    place: str

    def names(self) -> Sequence[str]:
        """Return the names, with ``/`` between folders, in a good order to read."""
        ...

    def listing(self) -> Sequence[str]:
        """Return the names of all it holds, for messages; ``/`` ends a folder's."""
        ...

    def open(self, name: str) -> StoredFile:
        """Open one of the files."""
        ...

    def close(self) -> None:
        """Let go of what is held; no file can be opened any more."""
        ...


def is_archive(path: Path) -> bool:
    """Say whether a path has the name of an archive and is a file."""
    return path.name.endswith(_ARCHIVE_SUFFIXES) and path.is_file()


class FolderStore:
    """The files that stand directly in a folder."""

    def __init__(self, folder: Path) -> None:
        self.place = str(folder)
        self._folder = folder

    def names(self) -> Sequence[str]:
        """Return the names of its files.

        Raises:
            TraceError: If the folder cannot be listed.
        """
        return [path.name for path in self._paths() if path.is_file()]

    def listing(self) -> Sequence[str]:
        """Return the names of its files and folders, hidden ones aside.

        Raises:
            TraceError: If the folder cannot be listed.
        """
        return [
            f"{path.name}/" if path.is_dir() else path.name
            for path in self._paths()
            if not path.name.startswith(".")
        ]

    def _paths(self) -> Sequence[Path]:
        try:
            return sorted(self._folder.iterdir())
        except OSError as error:
            raise TraceError(
                self.place, f"cannot be listed: {error.strerror}", "is the path right?"
            ) from error

    def open(self, name: str) -> StoredFile:
        """Open one of its files."""
        path = self._folder / name
        try:
            return StoredFile(path.open("rb"), str(path))
        except OSError as error:
            raise TraceError(str(path), f"cannot be read: {error.strerror}") from error

    def close(self) -> None:
        """Do nothing: a folder holds nothing."""


class ArchiveStore:
    """The regular files of a tar archive, compressed or not.

    It stays open: members are cheap to read in their order, but going back in a
    compressed archive means to decompress it from its start.
    """

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        try:
            self._archive = tarfile.open(path)  # noqa: SIM115 - close() closes it
        except _DAMAGE as error:
            raise self._damaged(error) from error
        try:
            self._members = self._list()
        except BaseException:
            self._archive.close()
            raise

    def _list(self) -> dict[str, tarfile.TarInfo]:
        members: dict[str, tarfile.TarInfo] = {}
        try:
            for number, member in enumerate(self._archive):
                if number == _MEMBER_LIMIT:
                    raise TraceError(
                        self.place,
                        f"the archive has more than {number} members",
                        "put one trace set into an archive",
                    )
                if member.isreg():
                    members[member.name.removeprefix("./")] = member
        except _DAMAGE as error:
            raise self._damaged(error) from error
        return members

    def _damaged(self, error: Exception) -> TraceError:
        # tarfile lists what every decompressor said, a line each.
        reason = str(error).partition("\n")[0].rstrip(":")
        return TraceError(
            self.place, f"cannot be read as an archive: {reason}", "is it complete?"
        )

    def names(self) -> Sequence[str]:
        """Return the names of its regular files, in their order in the archive."""
        return list(self._members)

    def listing(self) -> Sequence[str]:
        """Return the names of its regular files; they tell the folders as well."""
        return self.names()

    def open(self, name: str) -> StoredFile:
        """Open one of its files."""
        file = self._archive.extractfile(self._members[name])
        if file is None:
            raise TraceError(f"{self.place}/{name}", "is not a regular file")
        return StoredFile(file, f"{self.place}/{name}")

    def close(self) -> None:
        """Close the archive."""
        self._archive.close()
