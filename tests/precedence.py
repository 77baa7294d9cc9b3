"""The processor first for what is measured, while others use the machine."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["before_others"]


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
