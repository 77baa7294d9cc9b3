"""Creation of trace sets. The rank files and the group file appear together."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from chakram.chakra.write.atomic_file import new_file
from chakram.foundation.errors import OutputExists
from chakram.foundation.write_errors import explained_writes

if TYPE_CHECKING:
    import gzip


GROUP_FILE: Final = "comm_group.json"


def refuse_folder_of(place: str, folder: Path) -> None:
    """Refuse to write a set into the folder of the set that it is made from.

    Args:
        place: The folder and the prefix of the set that is read.
        folder: The target folder.

    Raises:
        OutputExists: If *folder* contains the set that is read, because its files
            would be replaced.
    """
    if folder.resolve() == Path(place).resolve().parent:
        raise OutputExists(
            str(folder),
            "contains the set that is read, which the new files would replace",
            "choose another folder",
        )


class NewSet:
    """A trace set that is being written. Its files are in a temporary folder."""

    def __init__(self, folder: Path, aside: Path) -> None:
        self._folder = folder
        self._aside = aside

    def open(self, name: str) -> AbstractContextManager[IO[bytes] | gzip.GzipFile]:
        """Open a file of the set. A file whose name ends in ``.gz`` is compressed."""
        return new_file(self._aside / name)

    def names(self) -> list[str]:
        """Return the names of the written files, ordered by rank."""
        return sorted((path.name for path in self._aside.iterdir()), key=_order)

    def written(self) -> list[Path]:
        """Return the final paths of the files."""
        return [self._folder / name for name in self.names()]


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
            not match the set.

    Raises:
        OutputExists: If the folder already has such files, or is a file.
        RunDirectoryError: If the folder cannot be written.
    """
    of_set = re.compile(re.escape(prefix) + r"[._][0-9]+\.(et|eg|json)(\.gz)?")
    made = not folder.exists()
    explained = explained_writes(folder, hint="choose another folder")
    with ExitStack() as stack, explained:
        present = _present(folder, of_set)
        if present and not force:
            raise OutputExists(
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


def _present(folder: Path, of_set: re.Pattern[str]) -> list[Path]:
    """Return the existing files that a new set would conflict with.

    Raises:
        OutputExists: If *folder* is a file.
    """
    if not folder.exists():
        return []
    if not folder.is_dir():
        raise OutputExists(
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
