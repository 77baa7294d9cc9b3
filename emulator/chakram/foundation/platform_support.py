"""Helpers for parts of Python that not every operating system supports."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from chakram.foundation.errors import EnvironmentProblem


def module_or_none(name: str) -> Any:
    """Return a standard library module, or None if this system does not have it."""
    try:
        return import_module(name)
    except ImportError:
        return None


def usable_cores() -> set[int]:
    """Return the numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def require_linux(what: str) -> None:
    """Raise an error if the system is not Linux, which *what* requires.

    Args:
        what: The command, e.g. ``chakram run``.

    Raises:
        EnvironmentProblem: If this system is not Linux.
    """
    system: str = sys.platform
    if system != "linux":
        raise EnvironmentProblem(
            what,
            f"needs Linux, and this is {system}",
            "chakram simulate and the commands that read results run here, too",
        )
