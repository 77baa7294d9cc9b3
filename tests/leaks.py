"""Resources that a test must not leave: processes, threads, descriptors, namespaces.

Others on the machine make namespaces as well: the labs of tests have the number of the
process in their names, and only those are looked at.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path

from tests.waiting import Stopwatch

GRACE_S = 10.0
"""For what ends on its own, as the threads of a closed channel do."""

# gRPC and pyarrow keep event descriptors and daemon threads for the life of the
# process once they were used; only what is the test's own business is compared.
WATCHED_DESCRIPTORS = ("socket:", "pipe:", "net:", "/")
UNWATCHED_FILES = ("/dev/null", "/dev/urandom", "/dev/pts/", "/proc/", "/sys/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Belongings:
    """Resources of this process at one moment, each with a description."""

    children: frozenset[str]
    threads: frozenset[str]
    descriptors: frozenset[str]
    namespaces: frozenset[str]

    @classmethod
    def now(cls) -> Belongings:
        """Return the present resources."""
        return cls(
            children=children(),
            threads=threads(),
            descriptors=descriptors(),
            namespaces=namespaces(),
        )

    def left_behind(self) -> list[str]:
        """Return resources that are new since then, after ``GRACE_S`` at most."""
        watch = Stopwatch()
        while True:
            left = self._left_behind_now()
            if not left or watch.look() > GRACE_S:
                return left
            gc.collect()
            time.sleep(0.02)

    def _left_behind_now(self) -> list[str]:
        now = Belongings.now()
        return [
            f"{kind}: {', '.join(sorted(more))}"
            for kind, more in (
                ("child processes", now.children - self.children),
                ("threads", now.threads - self.threads),
                ("descriptors", now.descriptors - self.descriptors),
                ("namespaces", now.namespaces - self.namespaces),
            )
            if more
        ]


def children() -> frozenset[str]:
    """Return number and command of this process' children, unreaped ones included."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The command is in parentheses and may hold spaces and parentheses.
            command, _, rest = stat.read_text(errors="replace").rpartition(")")
            arguments = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue  # it has just ended
        parent = rest.split()[1]
        # The tracker of multiprocessing lives as long as the process that made it.
        if int(parent) == os.getpid() and b"resource_tracker" not in arguments:
            number, _, name = command.partition(" (")
            found.add(f"{number} {name}")
    return frozenset(found)


def threads() -> frozenset[str]:
    """Return the threads that would keep this process from ending."""
    return frozenset(
        thread.name for thread in threading.enumerate() if not thread.daemon
    )


def descriptors() -> frozenset[str]:
    """Return the open descriptors: sockets, pipes, namespaces and files."""
    found = set()
    tracker = getattr(resource_tracker._resource_tracker, "_fd", None)
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue  # the listing's own
        if int(number) == tracker or target.startswith(UNWATCHED_FILES):
            continue
        if target.startswith(WATCHED_DESCRIPTORS):
            found.add(f"{number} -> {target}")
    return frozenset(found)


def own_lab(name: str) -> str:
    """Return the name of a lab that no other process on the machine has."""
    return f"{name}-{os.getpid()}"


def namespaces() -> frozenset[str]:
    """Return the named network namespaces of the labs of this process."""
    return frozenset(
        name for name in names_in("/run/netns") if own_lab("") + "-" in name
    )


def names_in(folder: str) -> frozenset[str]:
    """Return the names in *folder*; none if it does not exist."""
    try:
        return frozenset(os.listdir(folder))
    except FileNotFoundError:
        return frozenset()
