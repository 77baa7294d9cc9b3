"""Reads this host's wall clock, and asks the daemons that synchronize it."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from chakram.control.wall_clock import TimeSource, parse_time_status, parse_tracking

_CHRONY = ("chronyc", "-c", "-n", "tracking")
_PTP = ("pmc", "-u", "-b", "0", "GET TIME_STATUS_NP")
_TIMEOUT_S = 1.5
_READINGS = 5


async def _output(command: Sequence[str]) -> str:
    """Return the output of a command; empty if it is missing, fails or hangs."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return ""
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return output.decode(errors="replace") if process.returncode == 0 else ""


async def time_source(
    output: Callable[[Sequence[str]], Awaitable[str]] = _output,
) -> TimeSource | None:
    """Return the time source of this host's wall clock, or None if none responds."""
    found = parse_tracking(await output(_CHRONY))
    if found is not None and found.is_synchronized:
        return found
    return parse_time_status(await output(_PTP)) or found


def wall_ahead_ns(
    monotonic_ns: Callable[[], int], wall_ns: Callable[[], int] = time.time_ns
) -> int:
    """Return how far the wall clock is ahead of a monotonic clock.

    The readings may be interrupted, so this takes the fastest of several.
    """
    readings = []
    for _ in range(_READINGS):
        before_ns = monotonic_ns()
        now_ns = wall_ns()
        after_ns = monotonic_ns()
        readings.append((after_ns - before_ns, now_ns - (before_ns + after_ns) // 2))
    return min(readings)[1]
