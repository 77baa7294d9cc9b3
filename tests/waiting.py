"""Waiting with time limits that exclude stalls of the machine.

Other users of a shared machine may take all its cores for a second or more.  Then both
the awaited process and the waiting test stall.  The kernel reports for how long a
process was ready to run but had no core; limits exclude that time.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

__all__ = ["PATIENCE_S", "Stopwatch", "seconds_of", "wait_until"]

PATIENCE_S = 60.0
"""How long a slow, busy machine may take for what takes a second."""

_LOOK_S = 0.01
_COUNTS_S = 0.25
"""What counts of the time between two looks, which are far closer together."""


class Stopwatch:
    """Counts the time in which this process runs; call ``look`` often.

    Args:
        processes: Processes that the test waits for.  Time in which one of them, or
            this process, was ready to run but had no core is not counted.
    """

    def __init__(self, processes: Iterable[int] = ()) -> None:
        pids = tuple(processes)
        self._queue = _Queue((*pids, os.getpid()) if pids else ())
        self._seconds = 0.0
        self._last_s = time.monotonic()

    def look(self) -> float:
        """Return the seconds since it was made."""
        now_s = time.monotonic()
        passed_s = now_s - self._last_s
        ran_s = passed_s - min(self._queue.look(passed_s), passed_s)
        self._seconds += min(ran_s, _COUNTS_S)
        self._last_s = now_s
        return self._seconds


@dataclass(frozen=True, slots=True)
class _Thread:
    """A thread at its last reading.

    Attributes:
        ran_ns: On a core.
        queued_ns: For a core, up to when it last got one.
        ahead_s: In the queue since, by our own account.
    """

    ran_ns: int
    queued_ns: int
    ahead_s: float


class _Queue:
    """The time in which threads of processes wait for a core."""

    def __init__(self, processes: tuple[int, ...]) -> None:
        self._processes = processes
        self._seen: dict[Path, _Thread] = {}
        self.look(0.0)

    def look(self, passed_s: float) -> float:
        """Return that of the thread that waited longest since the last look.

        Args:
            passed_s: The time since then.
        """
        found_s = 0.0
        for process in self._processes:
            for folder in _threads_of(process):
                try:
                    ran, queued, _ = (folder / "schedstat").read_text().split()
                    stat = (folder / "stat").read_text("utf-8", "replace")
                except (OSError, ValueError):
                    continue  # it has ended; or this kernel does not say
                now = _Thread(int(ran), int(queued), 0.0)
                last = self._seen.get(folder, now)
                # The command is in parentheses; the state follows.
                is_ready = stat.rpartition(")")[2].split()[0] == "R"
                if is_ready and now == _Thread(last.ran_ns, last.queued_ns, 0.0):
                    found_s = max(found_s, passed_s)
                    now = _Thread(now.ran_ns, now.queued_ns, last.ahead_s + passed_s)
                else:
                    more_s = (now.queued_ns - last.queued_ns) / 1e9
                    found_s = max(found_s, more_s - last.ahead_s)
                self._seen[folder] = now
        return found_s


def _threads_of(process: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{process}/task").iterdir())
    except OSError:
        return []


def wait_until(
    holds: Callable[[], bool],
    what: str,
    *,
    timeout_s: float = PATIENCE_S,
    processes: Iterable[int] = (),
) -> None:
    """Wait until something holds.

    Args:
        holds: Whether it does.
        what: It is, for an error.
        timeout_s: How long to wait.
        processes: As of a `Stopwatch`.

    Raises:
        TimeoutError: If it does not in time; with *what*.
    """
    watch = Stopwatch(processes)
    while not holds():
        if watch.look() > timeout_s:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(_LOOK_S)


async def seconds_of(
    awaited: Awaitable[object], *, processes: Iterable[int] = ()
) -> float:
    """Wait for something and return how long it took; *processes* as in `Stopwatch`."""
    watch = Stopwatch(processes)
    task = asyncio.ensure_future(awaited)
    try:
        while not (await asyncio.wait([task], timeout=_LOOK_S))[0]:
            watch.look()
    finally:
        task.cancel()  # only if the wait was given up
    await task
    return watch.look()
