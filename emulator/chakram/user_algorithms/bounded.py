"""Reads files of users' algorithms."""

from __future__ import annotations

from functools import partial

from chakram.bounded import read_bounded
from chakram.errors import ScheduleError

__all__ = ["read_algorithm_file"]

read_algorithm_file = partial(
    read_bounded,
    limit_bytes=64 << 20,
    error=ScheduleError,
    path_hint="the path starts at the folder of the experiment file",
)
