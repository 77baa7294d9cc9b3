"""Access to the files of a trace set: in a folder or a tar archive.

Archives are read in place and never extracted to disk, so malicious member names are
harmless. Links and device files in archives are skipped.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, Self

from chakram.foundation.errors import TraceError

_ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_MEMBER_LIMIT = 100_000

# Errors that tarfile raises for damaged archives, including errors of other modules.
_DAMAGE = (tarfile.TarError, EOFError, OSError, zlib.error, ValueError)


@dataclass(slots=True, eq=False)
class StoredFile:
    """An open file that raises only ``TraceError``."""

    file: IO[bytes]
    name: str

    def read(self, size: int, /) -> bytes:
        """Return at most *size* bytes, or no bytes at the end of the file.

        Raises:
            TraceError: If the file or its archive cannot be read.
        """
        try:
            return self.file.read(size)
        except _DAMAGE as error:
            raise TraceError(
                self.name,
                f"cannot be read: {error}",
                "check that the file is complete",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


class Store(Protocol):
    """A collection of named files."""

    place: str

    def names(self) -> Sequence[str]:
        """Return the names, with ``/`` between folders, in the fastest read order."""
        ...

    def listing(self) -> Sequence[str]:
        """Return the names of all entries. Folder names end in ``/``."""
        ...

    def open(self, name: str) -> StoredFile:
        """Open one of the files."""
        ...

    def close(self) -> None:
        """Release all resources. No file can be opened afterward."""
        ...


def is_archive(path: Path) -> bool:
    """Return whether a path is a file with the name of an archive."""
    return path.name.endswith(_ARCHIVE_SUFFIXES) and path.is_file()


class FolderStore:
    """The files directly in a folder."""

    def __init__(self, folder: Path) -> None:
        self.place = str(folder)
        # Other processes that open the files may have a different working directory.
        self._folder = folder.absolute()

    def names(self) -> Sequence[str]:
        """Return the names of the files.

        Raises:
            TraceError: If the folder cannot be listed.
        """
        return [path.name for path in self._paths() if path.is_file()]

    def listing(self) -> Sequence[str]:
        """Return the names of files and folders, except hidden ones.

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
                self.place, f"cannot be listed: {error.strerror}", "check the path"
            ) from error

    def open(self, name: str) -> StoredFile:
        """Open one of the files."""
        path = str(Path(self.place, name))
        try:
            return StoredFile((self._folder / name).open("rb"), path)
        except OSError as error:
            raise TraceError(
                path, f"cannot be read: {error.strerror}", "check its permissions"
            ) from error

    def close(self) -> None:
        """Do nothing: a folder has no open resources."""


class ArchiveStore:
    """The regular files of a tar archive, compressed or not.

    The archive stays open. Reading members in order is cheap. Going back in a
    compressed archive means decompressing it again from the start.
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
                        "put only one trace set into an archive",
                    )
                if member.isreg():
                    members[member.name.removeprefix("./")] = member
        except _DAMAGE as error:
            raise self._damaged(error) from error
        return members

    def _damaged(self, error: Exception) -> TraceError:
        # tarfile reports the error of every decompressor, one per line.
        reason = str(error).partition("\n")[0].rstrip(":")
        return TraceError(
            self.place,
            f"cannot be read as an archive: {reason}",
            "check that it is complete",
        )

    def names(self) -> Sequence[str]:
        """Return the names of the regular files, in archive order."""
        return list(self._members)

    def listing(self) -> Sequence[str]:
        """Return the names of the regular files, including their folders."""
        return self.names()

    def open(self, name: str) -> StoredFile:
        """Open one of the files."""
        file = self._archive.extractfile(self._members[name])
        if file is None:
            raise TraceError(
                f"{self.place}/{name}",
                "is not a regular file",
                "use an archive with regular files only",
            )
        return StoredFile(file, f"{self.place}/{name}")

    def close(self) -> None:
        """Close the archive."""
        self._archive.close()
