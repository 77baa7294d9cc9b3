"""Monotonic clock of the host.

A compiled module uses the function of the same name in ``host_time_direct.pxd``, which
calls the C library and creates no Python integer.
"""

from __future__ import annotations

import time

__all__ = ["host_ns"]


def host_ns() -> int:
    """Return the time of the host's monotonic clock, as `time.monotonic_ns` does."""
    return time.monotonic_ns()
