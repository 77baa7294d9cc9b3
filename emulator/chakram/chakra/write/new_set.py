"""Trace sets that appear whole: all files of the ranks, and their group file."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from chakram.chakra.write.new_file import new_file
from chakram.foundation.errors import RunDirectoryError

if TYPE_CHECKING:
    import gzip


GROUP_FILE: Final = "comm_group.json"


class NewSet:
    """A trace set that is being written; its files stand in a folder aside."""

    def __init__(self, folder: Path, aside: Path) -> None:
        self._folder = folder
        self._aside = aside

    def open(self, name: str) -> AbstractContextManager[IO[bytes] | gzip.GzipFile]:
        """Open a file of the set; a name that ends in ``.gz`` is compressed."""
        return new_file(self._aside / name)

    def names(self) -> list[str]:
        """Return the names of the files that are written, the ranks in order."""
        return sorted((path.name for path in self._aside.iterdir()), key=_order)

    def written(self) -> list[Path]:
        """Return where the files stand once the set is whole."""
        return [self._folder / name for name in self.names()]


@contextmanager
def new_trace_set(
    folder: Path, *, prefix: str, force: bool = False
) -> Iterator[NewSet]:
    """Write a trace set that takes its place when the ``with`` block ends well.

    If the block raises, the folder is as it was.

    Args:
        folder: Where to; made if it is not there.
        prefix: Start of the names of its files.
        force: Replace a set of that prefix, and a group file, that are there.  Files of
            ranks that the new set lacks go too: they would make it another, wrong set.

    Raises:
        RunDirectoryError: If the folder cannot be written, or has such files already.
    """
    of_set = re.compile(re.escape(prefix) + r"[._][0-9]+\.(et|eg|json)(\.gz)?")
    made = not folder.exists()
    with ExitStack() as stack:
        try:
            present = _present(folder, of_set)
            if present and not force:
                raise RunDirectoryError(
                    str(folder),
                    f"holds {present[0].name}"
                    + (f" and {len(present) - 1} more" if len(present) > 1 else ""),
                    "choose another folder, or --force replaces them",
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
    """Return the files that a new set would meet.

    Raises:
        RunDirectoryError: If *folder* is a file.
    """
    if not folder.exists():
        return []
    if not folder.is_dir():
        raise RunDirectoryError(
            str(folder),
            "is no folder",
            "a trace set has a file per rank; name a folder",
        )
    return sorted(
        path
        for path in folder.iterdir()
        if of_set.fullmatch(path.name) or path.name == GROUP_FILE
    )


def _order(name: str) -> tuple[bool, list[int], str]:
    """Order the files of ranks by their numbers, the group file last."""
    return (
        name == GROUP_FILE,
        [int(digits) for digits in re.findall(r"\d+", name)],
        name,
    )


def _tidy(aside: Path, made: Path | None) -> None:
    shutil.rmtree(aside, ignore_errors=True)
    if made is not None and made.is_dir() and not any(made.iterdir()):
        made.rmdir()
