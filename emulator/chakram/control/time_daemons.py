"""Read this host's wall clock, and query the daemons that synchronize it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from chakram.control.wall_clock_sync import (
    TimeSource,
    parse_time_status,
    parse_tracking,
)
from chakram.foundation.command_output import command_output

_CHRONY = ("chronyc", "-c", "-n", "tracking")
_PTP = ("pmc", "-u", "-b", "0", "GET TIME_STATUS_NP")
_TIMEOUT_S = 1.5
_READINGS = 5


async def _output(command: Sequence[str]) -> str:
    found = await asyncio.to_thread(command_output, command, timeout_s=_TIMEOUT_S)
    return found.decode(errors="replace")


async def time_source(
    output: Callable[[Sequence[str]], Awaitable[str]] = _output,
) -> TimeSource | None:
    """Return this host's time source, or None if no daemon responds."""
    found = parse_tracking(await output(_CHRONY))
    if found is not None and found.is_synchronized:
        return found
    return parse_time_status(await output(_PTP)) or found


def wall_ahead_ns(
    monotonic_ns: Callable[[], int], wall_ns: Callable[[], int] = time.time_ns
) -> int:
    """Return how far the wall clock is ahead of a monotonic clock.

    A reading may be interrupted, so the result is the fastest of several readings.
    """
    readings = []
    for _ in range(_READINGS):
        before_ns = monotonic_ns()
        now_ns = wall_ns()
        after_ns = monotonic_ns()
        readings.append((after_ns - before_ns, now_ns - (before_ns + after_ns) // 2))
    return min(readings)[1]
