from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from chakram.fabric.labs.lab import lab_status
from chakram.fabric.labs.lab_files import (
    STATE_ROOT_VARIABLE,
    Holder,
    lab_directory,
    lab_names,
    locked,
    prepare_root,
    read_holder,
    read_state,
    register_process,
    registered_processes,
    remove_directory,
    state_root,
    unregister,
    write_holder,
)
from chakram.fabric.labs.netns_mounts import end_processes, remove_leftovers
from chakram.fabric.process_control import is_alive, process_start_ticks
from chakram.foundation.errors import ConfigError, FabricError


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "root"
    monkeypatch.setenv(STATE_ROOT_VARIABLE, str(path))
    prepare_root(path)
    return path


def make_lab(root: Path, name: str) -> Path:
    directory = root / name
    (directory / "pids").mkdir(parents=True)
    return directory


def dead() -> Holder:
    """Return a holder that certainly does not run: this process, at another time."""
    return Holder(pid=os.getpid(), start_ticks=1, netns_names=("lab-h0",))


def test_state_root_follows_the_environment_or_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(STATE_ROOT_VARIABLE, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert state_root() == Path("/run/chakram")

    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert state_root() == tmp_path / "chakram"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    assert state_root() == Path("/tmp/chakram-1234")

    monkeypatch.setenv(STATE_ROOT_VARIABLE, "/somewhere")
    assert state_root() == Path("/somewhere")


def test_a_root_that_others_may_use_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o755)
    with pytest.raises(FabricError, match="not a directory that only you can access"):
        prepare_root(open_to_all)

    elsewhere = tmp_path / "link"
    elsewhere.symlink_to(tmp_path)
    with pytest.raises(FabricError, match="not a directory that only you can access"):
        prepare_root(elsewhere)

    file = tmp_path / "file"
    file.touch()
    with pytest.raises(FabricError, match="cannot create the directory"):
        prepare_root(file)


def test_labs_are_directories_with_valid_names(root: Path) -> None:
    for name in ("b", "a", "Not-A-Lab"):
        (root / name).mkdir()
    (root / "file").touch()
    with locked(root):
        assert lab_names(root) == ["a", "b"]
    assert lab_names(root / "missing") == []
    with pytest.raises(ConfigError, match="a lab's name"):
        lab_directory("../a")


def test_a_lock_makes_the_directory_for_its_user_alone(tmp_path: Path) -> None:
    with locked(tmp_path / "made"):
        assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with (
        pytest.raises(FabricError, match="only you can access"),
        locked(open_to_all),
    ):
        pytest.fail("labs of others could be put there")


def test_a_lab_can_be_added_by_one_process_at_a_time(root: Path) -> None:
    descriptor = os.open(root / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        with (
            locked(root),
            pytest.raises(BlockingIOError),
        ):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)


def test_a_holder_is_written_and_read(root: Path) -> None:
    directory = make_lab(root, "lab")
    assert read_holder(directory) is None
    write_holder(directory, dead())
    assert read_holder(directory) == dead()
    assert not dead().alive
    for text in ("", "[]", "{}", '{"pid": "x"}'):
        (directory / "holder.json").write_text(text)
        assert read_holder(directory) is None


def test_processes_are_registered_until_they_end_or_are_forgotten(root: Path) -> None:
    directory = make_lab(root, "lab")
    register_process("lab", os.getpid(), "controller")
    register_process("lab", os.getppid(), "parent")
    assert [
        (each.pid, each.role) for each in registered_processes(directory)
    ] == sorted([(os.getpid(), "controller"), (os.getppid(), "parent")])
    unregister("lab", os.getppid())
    unregister("lab", os.getppid())
    assert [each.role for each in registered_processes(directory)] == ["controller"]

    # The same number, but another process: started at another time.
    file = directory / "pids" / str(os.getpid())
    ticks = process_start_ticks(os.getpid())
    assert ticks is not None
    file.write_text(file.read_text().replace(str(ticks), str(ticks + 1)))
    assert registered_processes(directory) == []
    assert end_processes(directory, spare=frozenset()) == 0
    (directory / "pids" / "junk").write_text("junk")
    assert registered_processes(directory) == []


def test_only_running_processes_can_join_existing_labs(root: Path) -> None:
    with pytest.raises(FabricError, match="there is no such lab"):
        register_process("lab", os.getpid(), "agent")
    make_lab(root, "lab")
    with pytest.raises(FabricError, match="there is no process 4194305"):
        register_process("lab", 2**22 + 1, "agent")


def test_leftovers_of_a_dead_lab_are_removed_but_a_live_one_is_refused(
    root: Path,
) -> None:
    assert not remove_leftovers("lab", root, spare=frozenset())
    directory = make_lab(root, "lab")
    ticks = process_start_ticks(os.getpid())
    assert ticks is not None
    write_holder(directory, Holder(pid=os.getpid(), start_ticks=ticks))
    with pytest.raises(FabricError, match="choose another name with --lab"):
        remove_leftovers("lab", root, spare=frozenset())

    write_holder(directory, Holder(pid=os.getpid(), start_ticks=ticks + 1))
    assert remove_leftovers("lab", root, spare=frozenset())
    assert not directory.exists()
    make_lab(root, "lab")  # without a holder: its maker was killed at once
    assert remove_leftovers("lab", root, spare=frozenset())


def test_a_lab_that_was_never_finished_shows_as_dead(root: Path) -> None:
    assert lab_status("lab") is None
    write_holder(make_lab(root, "lab"), dead())
    found = lab_status("lab")
    assert found is not None
    assert (found.alive, found.state, found.processes) == (False, None, ())


def test_a_state_of_another_version_is_refused(root: Path) -> None:
    directory = make_lab(root, "lab")
    assert read_state("lab") is None
    (directory / "state.json").write_text("{}")
    with pytest.raises(FabricError, match="another version") as caught:
        read_state("lab")
    assert str(caught.value).startswith("lab lab: its state cannot be read: a field")
    assert "chakram fabric down lab" in str(caught.value)


def test_removing_a_directory_twice_is_no_error(root: Path) -> None:
    directory = make_lab(root, "lab")
    remove_directory(directory)
    remove_directory(directory)
    assert not directory.exists()


def test_start_time_distinguishes_processes() -> None:
    ticks = process_start_ticks(os.getpid())
    assert ticks is not None
    assert is_alive(os.getpid(), ticks)
    assert not is_alive(os.getpid(), ticks + 1)
    assert process_start_ticks(2**22 + 1) is None
    assert not is_alive(2**22 + 1, ticks)
