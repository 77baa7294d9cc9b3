"""Lock that shows whether a process still writes a run directory.

The writer holds a lock (``flock``) on the directory itself. The kernel releases the
lock when the writer ends for any reason. Unlike a process ID, a lock cannot belong to a
later process by mistake. All processes under one kernel see the lock, including
processes in containers. A reader on another machine cannot see the lock, so
``run.json`` contains the boot ID of the writer's kernel, and an identifier of the
writer's machine.
"""

from __future__ import annotations

import errno
import os
import platform
from dataclasses import replace
from pathlib import Path

from chakram.foundation.platform_support import module_or_none
from chakram.run_directory.manifest import KILLED, RUNNING, RunManifest, read_manifest

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MACHINE_ID = Path("/etc/machine-id")
fcntl = module_or_none("fcntl")
_KILLED = "its process was killed, its machine went down, or its disk was full"


class RunLock:
    """The writer's lock on its directory, until ``release`` or the end of the process.

    On systems and file systems without ``flock``, ``is_held`` is False.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor: int | None = None
        if fcntl is None:
            return
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # A reader holds the lock briefly during a check, so this call may wait.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            os.close(descriptor)
        else:
            self._descriptor = descriptor

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def release(self) -> None:
        """Release the lock. Later calls have no effect."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()


def is_locked(folder: Path) -> bool:
    """Return whether a process under this kernel is writing the directory.

    Raises:
        OSError: If locks do not work here, so the answer is unknown.
    """
    if fcntl is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def boot_id() -> str | None:
    """Return the kernel's boot ID, which changes with every boot."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def machine_id() -> str | None:
    """Return an identifier of this machine, or None if its system has none.

    The result is a hash, because the identifier of the system is confidential.
    """
    import hashlib

    try:
        found = _MACHINE_ID.read_bytes().strip()
    except OSError:
        return None
    if not found:
        return None
    return hashlib.blake2b(found, person=b"chakram", digest_size=8).hexdigest()


def owner() -> dict[str, str | None]:
    """Return properties that identify this machine, for ``lock`` in ``run.json``."""
    return {
        "hostname": platform.node(),
        "machine_id": machine_id(),
        "boot_id": boot_id(),
    }


def read_current_manifest(folder: Path) -> RunManifest:
    """Return ``run.json`` with its current status, which may be ``killed``.

    A run was killed if its recorded status is running, but no process holds the lock.
    It was also killed if the recorded machine has rebooted since. For a run on another
    machine or without a lock, the function returns the recorded status.

    Raises:
        NoRunDirectory: If ``run.json`` is missing, invalid, or of a newer version.
        RunDirectoryError: If ``run.json`` cannot be read.
    """
    manifest = read_manifest(folder)
    if _may_still_run(folder, manifest):
        return manifest
    # The run may have ended after the first read, so read its status again.
    manifest = read_manifest(folder)
    if manifest.status != RUNNING:
        return manifest
    return replace(manifest, status=KILLED, reason=_KILLED)


def _may_still_run(folder: Path, manifest: RunManifest) -> bool:
    """Return whether the recorded status may still be correct."""
    if manifest.status != RUNNING or not manifest.lock:
        return True
    own, other = owner(), manifest.lock
    if other.get("boot_id") != own["boot_id"]:
        machines = {own["machine_id"], other.get("machine_id")} - {None}
        return len(machines) > 1 or other.get("hostname") != own["hostname"]
    try:
        return is_locked(folder)
    except OSError:
        return True
