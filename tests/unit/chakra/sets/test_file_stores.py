"""Folders and archives of traces."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from chakram.chakra.sets import file_stores
from chakram.chakra.sets.file_stores import (
    ArchiveStore,
    FolderStore,
    StoredFile,
    is_archive,
)
from chakram.foundation.errors import TraceError


class Broken(io.BytesIO):
    """A file on a failed disk."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise OSError("the disk has gone")


def archive_of(path: Path, *names: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
    return path


def test_read_failure_raises_our_error() -> None:
    with (
        StoredFile(Broken(), "w.0.et") as file,
        pytest.raises(TraceError, match=r"w.0.et: cannot be read: the disk has gone"),
    ):
        file.read(10)


def test_a_folder_has_its_files_and_no_folders(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"bytes")
    (tmp_path / "a").mkdir()
    store = FolderStore(tmp_path)
    assert list(store.names()) == ["b"]
    with store.open("b") as file:
        assert (file.read(3), file.read(9), file.read(9)) == (b"byt", b"es", b"")
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        store.open("a")
    store.close()


def test_an_archive_has_its_members_in_their_order(tmp_path: Path) -> None:
    path = archive_of(tmp_path / "a.tar.gz", "./z", "d/y", "x")
    assert is_archive(path)
    store = ArchiveStore(path)
    assert list(store.names()) == ["z", "d/y", "x"]
    for name in ("x", "d/y"):
        with store.open(name) as file:
            assert file.read(100).decode().endswith(name)
    store.close()


def test_number_of_archive_members_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_stores, "_MEMBER_LIMIT", 2)
    ArchiveStore(archive_of(tmp_path / "a.tar", "1", "2")).close()
    with pytest.raises(TraceError, match="more than 2 members"):
        ArchiveStore(archive_of(tmp_path / "b.tar", "1", "2", "3"))


@pytest.mark.parametrize(
    "name", ["a.tar.gz", "a.tgz", "a.tar", "a.tar.xz", "a.tar.bz2"]
)
def test_an_archive_is_a_file_with_such_a_name(tmp_path: Path, name: str) -> None:
    assert not is_archive(tmp_path / name)
    (tmp_path / name).write_bytes(b"")
    assert is_archive(tmp_path / name)
    assert not is_archive(tmp_path)
