"""CPU priority for measured processes while others use the machine."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import require

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["before_others", "niceness_of", "urgent"]


@contextmanager
def before_others() -> Iterator[None]:
    """Have this process and its session served first, where it may ask for that."""
    group = Path("/proc/self/autogroup")
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    # Its text ends in "nice 0".  Kernels without such groups have no such file; it is
    # empty where no ancestor of this process ever started a session.
    words = group.read_text().split() if group.exists() else []
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        if words:
            group.write_text("-20")
    try:
        yield
    finally:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, priority)
            if words:
                group.write_text(words[-1])


@contextmanager
def urgent() -> Iterator[None]:
    """Set the niceness of this process to 0, if permitted."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    reason: str | None = "this user may not go before others"
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        reason = None
    require("niceness", reason)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def niceness_of(pid: int, *, session: int) -> tuple[int, int]:
    """Return that of a process, and that of its session.

    Without autogroups in the kernel the latter is what is expected, *session*.
    """
    group = Path(f"/proc/{pid}/autogroup")
    words = group.read_text().split() if group.exists() else []
    found = int(words[-1]) if words else session
    return os.getpriority(os.PRIO_PROCESS, pid), found
