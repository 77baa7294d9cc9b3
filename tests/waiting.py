"""Waiting for something, with limits that a machine which stands still does not use up.

A machine may be shared with others who take all of it, for a second or more: then what
is waited for stands still, and so does whoever waits.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["PATIENCE_S", "Stopwatch", "seconds_of", "wait_until"]

PATIENCE_S = 60.0
"""How long a slow, busy machine may take for what takes a second."""

_LOOK_S = 0.01
_COUNTS_S = 0.25
"""What counts of the time between two looks, which are far closer together."""


class Stopwatch:
    """Counts the time in which this process runs; it wants to be looked at often."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._last_s = time.monotonic()

    def look(self) -> float:
        """Return the seconds since it was made."""
        now_s = time.monotonic()
        self._seconds += min(now_s - self._last_s, _COUNTS_S)
        self._last_s = now_s
        return self._seconds


def wait_until(
    holds: Callable[[], bool], what: str, *, timeout_s: float = PATIENCE_S
) -> None:
    """Wait until something holds.

    Raises:
        TimeoutError: If it does not in time; with *what*.
    """
    watch = Stopwatch()
    while not holds():
        if watch.look() > timeout_s:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(_LOOK_S)


async def seconds_of(awaited: Awaitable[object]) -> float:
    """Wait for something and return how long it took."""
    watch = Stopwatch()
    task = asyncio.ensure_future(awaited)
    try:
        while not (await asyncio.wait([task], timeout=_LOOK_S))[0]:
            watch.look()
    finally:
        task.cancel()  # only if the wait was given up
    await task
    return watch.look()
