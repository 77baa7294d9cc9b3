"""The name of a host's monotonic clock.  Processes with equal names share a clock."""

from __future__ import annotations

import os
from pathlib import Path


def host_clock() -> str:
    """Return a name for this process's monotonic clock, empty if unknown.

    Processes with equal names read the same clock. Such processes run on one machine,
    since the same boot, and in the same time namespace.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/time')}"
    except OSError:
        return ""
