"""Paths that may be opened as a network namespace."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from chakram.fabric.labs.enter_namespace import open_namespace
from chakram.foundation.errors import FabricError

NO_NAMESPACE = (
    r"it is not a network namespace \(list network namespaces with ip netns\)"
)


def test_a_network_namespace_is_opened() -> None:
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    found = open_namespace("/proc/self/ns/net")
    try:
        assert os.path.sameopenfile(own, found)
        assert not os.get_inheritable(found)
    finally:
        os.close(own)
        os.close(found)


@pytest.mark.parametrize(
    "path", ["/proc/self/ns/uts", "/proc/self/stat", "/dev/zero", "/proc/self"]
)
def test_path_that_is_no_network_namespace_is_refused(path: str) -> None:
    with pytest.raises(FabricError, match=NO_NAMESPACE):
        open_namespace(path)


def test_blocking_files_and_devices_are_not_opened(tmp_path: Path) -> None:
    fifo, file, link, name = (tmp_path / each for each in ("f", "file", "l", "s"))
    os.mkfifo(fifo)
    file.touch()
    link.symlink_to(fifo)
    os.mknod(name, stat.S_IFSOCK)
    for path in (fifo, file, link, name, tmp_path):
        with pytest.raises(FabricError, match=NO_NAMESPACE):
            open_namespace(str(path))


def test_invalid_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FabricError, match="it does not exist"):
        open_namespace(str(tmp_path / "gone"))
    for path in ("\0", "a" * 5000):
        with pytest.raises(FabricError, match="this is not a valid path"):
            open_namespace(path)


def test_wait_for_a_hanging_file_system_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = threading.Event()

    def slow(*_: object) -> int:
        answers.wait(60)
        raise OSError(5, "it was slow")

    monkeypatch.setattr(os, "open", slow)
    try:
        with pytest.raises(FabricError, match=r"did not answer within 0\.01 s"):
            open_namespace("/mnt/slow/namespace", timeout_s=0.01)
    finally:
        answers.set()
