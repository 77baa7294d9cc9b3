"""Directories and files that identify labs, even after a crash.

``<root>/<lab>/`` contains:

- ``holder.json``: the owner of the lab, written before anything is built
- ``state.json``: the state of the lab, once it is up
- ``holder.sock``: socket for requests to the holder
- ``holder.log``: log of the holder
- ``sockets/``: sockets of agents and controllers
- ``pids/``: one file per process that belongs to the lab
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from chakram.fabric.labs.lab_spec import LabState, check_lab_name, decode_state
from chakram.fabric.process_control import is_alive, process_start_ticks
from chakram.foundation.errors import ConfigError, FabricError

CONTROLLER = "controller"
"""Role of the process that controls a run. A lab with such a process is in use."""

STATE_ROOT_VARIABLE = "CHAKRAM_STATE_DIR"
"""Environment variable that overrides the root, set for processes inside a lab."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that owns a lab, and the names it created outside the directory."""

    pid: int
    start_ticks: int
    netns_names: tuple[str, ...] = ()

    @property
    def alive(self) -> bool:
        """Whether this process is still running."""
        return is_alive(self.pid, self.start_ticks)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredProcess:
    """A process that belongs to a lab and ends with it."""

    pid: int
    start_ticks: int
    role: str


def state_root() -> Path:
    """Return the directory that contains the labs of this user.

    The directory is ``$CHAKRAM_STATE_DIR`` if set. Otherwise it is ``/run/chakram`` for
    root, and ``$XDG_RUNTIME_DIR/chakram`` or ``/tmp/chakram-<uid>`` for other users.
    """
    if override := os.environ.get(STATE_ROOT_VARIABLE):
        return Path(override)
    if os.geteuid() == 0:
        return Path("/run/chakram")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir() and os.access(runtime, os.W_OK):
        return Path(runtime) / "chakram"
    return Path(f"/tmp/chakram-{os.geteuid()}")


def prepare_root(root: Path) -> None:
    """Create the root directory if needed, and check that only this user can access it.

    Files in the root determine which processes ``fabric down`` ends.

    Raises:
        FabricError: If the directory cannot be created, or belongs to another user.
    """
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = root.lstat()
    except OSError as error:
        raise FabricError(
            str(root),
            f"cannot create the directory ({error.strerror})",
            f"set {STATE_ROOT_VARIABLE} to a directory that you own",
        ) from error
    if (
        not stat.S_ISDIR(status.st_mode)
        or status.st_uid != os.geteuid()
        or status.st_mode & 0o077
    ):
        raise FabricError(
            str(root),
            "it is not a directory that only you can access",
            "remove it, or make yourself its owner with mode 0700",
        )


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Prevent other processes of this user from adding or removing labs."""
    prepare_root(root)
    descriptor = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # unlocks


def lab_directory(lab: str, root: Path | None = None) -> Path:
    """Return the directory of a lab.

    Raises:
        ConfigError: If *lab* is not a valid lab name.
    """
    check_lab_name(lab)
    return (root or state_root()) / lab


def sockets_directory(lab: str, root: Path | None = None) -> Path:
    """Return the directory for Unix sockets of a lab's agents and controllers."""
    return lab_directory(lab, root) / "sockets"


def lab_names(root: Path | None = None) -> list[str]:
    """Return the sorted names of all labs with a directory in the root."""
    names: list[str] = []
    with suppress(FileNotFoundError):
        for path in (root or state_root()).iterdir():
            with suppress(ConfigError):
                check_lab_name(path.name)
                if path.is_dir():
                    names.append(path.name)
    return sorted(names)


def write_holder(directory: Path, holder: Holder) -> None:
    """Write ``holder.json``."""
    write_whole(directory / "holder.json", json.dumps(asdict(holder)))


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, "utf-8")
    temporary.replace(path)


def read_holder(directory: Path) -> Holder | None:
    """Return the owner of a lab, or None if it is unknown."""
    try:
        fields = json.loads((directory / "holder.json").read_text("utf-8"))
        return Holder(
            pid=int(fields["pid"]),
            start_ticks=int(fields["start_ticks"]),
            netns_names=tuple(str(name) for name in fields["netns_names"]),
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return None


def read_state(lab: str, root: Path | None = None) -> LabState | None:
    """Return the state of a lab, or None if it is not up.

    Raises:
        FabricError: If the state was written by another version of Chakram.
    """
    directory = lab_directory(lab, root)
    try:
        text = (directory / "state.json").read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return decode_state(text)
    except FabricError as error:
        raise FabricError(
            f"lab {lab}",
            f"its state cannot be read: {error.found}",
            "another version of chakram may have written it; remove the lab: chakram "
            f"fabric down {lab}",
        ) from error


def register_process(lab: str, pid: int, role: str) -> None:
    """Register a process with a lab, so that ``fabric down`` ends it.

    Args:
        lab: Name of the lab.
        pid: Process, usually the caller.
        role: Role of the process, for example ``controller``, ``agent`` or ``shard``.

    Raises:
        FabricError: If there is no such lab or no such process.
    """
    ticks = process_start_ticks(pid)
    if ticks is None:
        raise FabricError(f"lab {lab}", f"there is no process {pid} to register")
    process = RegisteredProcess(pid=pid, start_ticks=ticks, role=role)
    path = lab_directory(lab) / "pids" / str(pid)
    try:
        write_whole(path, json.dumps(asdict(process)))
    except FileNotFoundError:
        raise FabricError(
            f"lab {lab}", "there is no such lab", "see: chakram fabric status"
        ) from None


def unregister(lab: str, pid: int) -> None:
    """Unregister a process, if it is registered."""
    (lab_directory(lab) / "pids" / str(pid)).unlink(missing_ok=True)


def registered_processes(directory: Path) -> list[RegisteredProcess]:
    """Return the processes of a lab that still run, by process ID."""
    found: list[RegisteredProcess] = []
    with suppress(FileNotFoundError):
        for path in (directory / "pids").iterdir():
            with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
                fields = json.loads(path.read_text("utf-8"))
                process = RegisteredProcess(
                    pid=int(fields["pid"]),
                    start_ticks=int(fields["start_ticks"]),
                    role=str(fields["role"]),
                )
                if is_alive(process.pid, process.start_ticks):
                    found.append(process)
    return sorted(found, key=lambda process: process.pid)


def remove_directory(directory: Path) -> None:
    """Remove a lab's directory and its contents, if the directory exists.

    Raises:
        FabricError: If the directory cannot be removed.
    """
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FabricError(
            str(directory), f"cannot remove it ({error.strerror})", "remove it by hand"
        ) from error
