"""Files are written completely or not at all."""

from __future__ import annotations

import gzip
import os
from typing import TYPE_CHECKING

import pytest

from chakram.chakra.write.atomic_file import new_file
from chakram.foundation.errors import InputError, RunDirectoryError

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, content: bytes, *, force: bool = False) -> None:
    with new_file(path, force=force) as file:
        file.write(content)


def test_a_file_appears_with_its_folder_and_ordinary_rights(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.bin"
    write(path, b"x")
    assert path.read_bytes() == b"x"
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    assert [each.name for each in path.parent.iterdir()] == ["b.bin"]


def test_existing_file_is_not_replaced_by_default(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, b"old")
    with pytest.raises(InputError, match="exists already"):
        write(path, b"new")
    assert path.read_bytes() == b"old"
    write(path, b"new", force=True)
    assert path.read_bytes() == b"new"
    with pytest.raises(InputError, match="is a folder"):
        write(tmp_path, b"new", force=True)


def test_failure_keeps_the_previous_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, b"old")
    with pytest.raises(TypeError), new_file(path, force=True) as file:
        file.writelines([b"half", None])  # type: ignore[list-item] # wrong on purpose
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_name_determines_compression(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        write(tmp_path / name, b"content")
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"content"
    # Neither a time nor a name is in it.
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_unwritable_location_raises_our_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        write(tmp_path / "file" / "a", b"x")


def test_pipes_and_devices_are_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with (
        pytest.raises(InputError, match="is not a file"),
        new_file(pipe, force=True),
    ):
        pass
    assert pipe.is_fifo()
