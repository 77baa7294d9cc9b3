"""Readers of a run directory know whether a process still writes it."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from chakram.run_directory import lock
from chakram.run_directory.lock import RunLock, is_locked
from chakram.run_directory.manifest import KILLED, MANIFEST, RUNNING, read_manifest
from chakram.run_directory.reader import open_run
from chakram.run_directory.run_list import list_runs
from tests.leaks import descriptors
from tests.run_directories import STARTED, begin
from tests.small_run import small_rows


def status(path: Path) -> str:
    """Return the status that all readers of the run report."""
    results = open_run(path)
    (listed,), _ = list_runs(path.parent)
    found = results.manifest.status
    assert results.summary().facts.status == listed.manifest.status == found
    return found


def killed_run(parent: Path) -> Path:
    """Return an unfinished run whose writer has ended."""
    directory = begin(parent)
    directory.add(small_rows(1))
    directory.flush()
    path = directory.path
    del directory  # releases the lock like a process that ends
    assert read_manifest(path).status == RUNNING
    return path


def change(path: Path, **lock: Any) -> None:
    document = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    document["lock"].update(lock)
    (path / MANIFEST).write_text(json.dumps(document), encoding="utf-8")


def test_run_is_running_while_its_lock_is_held(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    directory.add(small_rows(1))
    directory.flush()
    assert status(directory.path) == RUNNING
    directory.finish(ended=STARTED)
    assert status(directory.path) == "complete"
    assert not is_locked(directory.path)


def test_run_without_a_lock_holder_was_killed(tmp_path: Path) -> None:
    path = killed_run(tmp_path)
    assert status(path) == KILLED
    (banner,) = open_run(path).summary().banners
    assert banner.startswith("KILLED: its process was killed, its machine went down")
    assert open_run(path).ranks()
    assert read_manifest(path).status == RUNNING, "reading changes nothing"


def test_run_from_before_a_reboot_was_killed(tmp_path: Path) -> None:
    path = killed_run(tmp_path)
    change(path, boot_id="of before")
    assert status(path) == KILLED


@pytest.mark.parametrize("other", ["hostname", "machine_id", None])
def test_status_in_the_file_is_used_if_the_lock_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str | None
) -> None:
    identifier = tmp_path / "machine-id"
    identifier.write_text("0123\n")
    monkeypatch.setattr(lock, "_MACHINE_ID", identifier)
    path = killed_run(tmp_path)
    if other is not None:
        assert read_manifest(path).lock["machine_id"] not in (None, "0123")
        change(path, boot_id="another", **{other: "another"})
    else:
        document = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        document.pop("lock")
        (path / MANIFEST).write_text(json.dumps(document), encoding="utf-8")
    assert status(path) == RUNNING


def test_run_continues_without_lock_support(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    directory = begin(tmp_path)
    directory.add(small_rows(1))
    directory.flush()
    assert dict(directory.manifest.lock) == {}
    assert status(directory.path) == RUNNING


def test_lock_is_released_once_without_a_leaked_descriptor(tmp_path: Path) -> None:
    def opened() -> list[str]:
        return [each for each in descriptors() if each.endswith(f" {tmp_path}")]

    lock = RunLock(tmp_path)
    assert lock.is_held
    assert is_locked(tmp_path)
    assert len(opened()) == 1
    lock.release()
    lock.release()
    assert not is_locked(tmp_path)
    assert opened() == []
