"""Tells whether somebody still writes a run directory, or was killed while at it.

The writer holds a lock (``flock``) on the directory itself.  The kernel lets go of it
when the writer ends, however it ends, and no process id can be mistaken for another.
A lock is seen by everybody under one kernel, containers included; ``run.json`` names
the boot of that kernel, because of others that read the directory over a network
nothing can be told.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace
from pathlib import Path

from chakram.run_directory.manifest import KILLED, RUNNING, RunManifest, read_manifest

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_KILLED = "its process was killed, its machine went down, or its disk was full"


class RunLock:
    """The writer's hold on its directory, until ``release`` or the end of the process.

    On file systems that have no such locks there is none.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor: int | None = None
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Whoever looks at it holds it for a moment.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            os.close(descriptor)
        else:
            self._descriptor = descriptor

    @property
    def is_held(self) -> bool:
        """Whether there is a lock."""
        return self._descriptor is not None

    def release(self) -> None:
        """Let go; nothing happens the second time."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()


def is_locked(folder: Path) -> bool:
    """Tell whether somebody under this kernel writes the directory.

    Raises:
        OSError: If nobody can tell.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def boot_id() -> str | None:
    """Return what tells this kernel, since it was started, from all others."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def read_manifest_of_now(folder: Path) -> RunManifest:
    """Return ``run.json`` with the status that holds now: nobody writes ``killed``.

    A run that says it is running, and whose writer held a lock that nobody holds any
    more, was killed.  A machine of the same name that has been started since then is
    taken for the one that it ran on.  Of a run on another machine, or without a lock,
    nothing is known but what it said.

    Raises:
        NoRunDirectory: If it is not there, not one of ours, or of a newer version.
        RunDirectoryError: If it cannot be read.
    """
    manifest = read_manifest(folder)
    if _may_still_run(folder, manifest):
        return manifest
    # It may have ended between the two looks.
    manifest = read_manifest(folder)
    if manifest.status != RUNNING:
        return manifest
    return replace(manifest, status=KILLED, reason=_KILLED)


def _may_still_run(folder: Path, manifest: RunManifest) -> bool:
    """Tell whether the status of a manifest is to be believed."""
    if manifest.status != RUNNING or not manifest.lock:
        return True
    if manifest.lock.get("boot_id") != boot_id():
        return manifest.lock.get("hostname") != os.uname().nodename
    try:
        return is_locked(folder)
    except OSError:
        return True
