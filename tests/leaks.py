"""What a test must not leave behind: processes, threads, descriptors, links."""

from __future__ import annotations

import gc
import os
import threading
import time
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path

# gRPC and pyarrow keep event descriptors and daemon threads for the life of the
# process once they were used; only what is the test's own business is compared.
WATCHED_DESCRIPTORS = ("socket:", "pipe:", "net:", "/")
UNWATCHED_FILES = ("/dev/null", "/dev/urandom", "/dev/pts/", "/proc/", "/sys/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Belongings:
    """What belongs to this process at one moment; every entry tells what it is."""

    children: frozenset[str]
    threads: frozenset[str]
    descriptors: frozenset[str]
    namespaces: frozenset[str]
    links: frozenset[str]

    @classmethod
    def now(cls) -> Belongings:
        """Return what there is now."""
        return cls(
            children=children(),
            threads=threads(),
            descriptors=descriptors(),
            namespaces=names_in("/run/netns"),
            links=names_in("/sys/class/net"),
        )

    def left_behind(self, *, grace_s: float) -> list[str]:
        """Return what is there now and was not then, after at most *grace_s*.

        The grace is for what ends on its own, as the threads of a closed channel do.
        """
        deadline_s = time.monotonic() + grace_s
        while True:
            left = self._left_behind_now()
            if not left or time.monotonic() > deadline_s:
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
                ("links", now.links - self.links),
            )
            if more
        ]


def children() -> frozenset[str]:
    """Return number and command of this process' children, unreaped ones included."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The command stands in parentheses and may hold spaces and parentheses.
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


def names_in(folder: str) -> frozenset[str]:
    """Return the names in *folder*; none if it does not exist."""
    try:
        return frozenset(os.listdir(folder))
    except FileNotFoundError:
        return frozenset()
