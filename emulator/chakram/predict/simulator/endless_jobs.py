"""Error for a background job that lets no virtual time pass, so that no job ends."""

from __future__ import annotations

from typing import Final

from chakram.foundation.errors import RunFailed

__all__ = ["MOST_AT_ONCE", "endless_job"]

MOST_AT_ONCE: Final = 1_000
"""Iterations of a background job that may follow each other at one time."""


def endless_job(job: str, rank: int) -> RunFailed:
    """Return the error for a background job after ``MOST_AT_ONCE`` such iterations."""
    return RunFailed(
        "simulation",
        f"job {job} repeats until others end, but iterations of its rank {rank} take "
        "no time",
        "set a number of repetitions, or let the job compute, or use links with a rate",
    )
