"""Error for a background job whose iterations take no virtual time."""

from __future__ import annotations

from typing import Final

from chakram.foundation.errors import RunFailed

__all__ = ["MOST_AT_ONCE", "endless_job"]

MOST_AT_ONCE: Final = 1_000
"""Maximum number of iterations of a background job at the same virtual time."""


def endless_job(job: str, rank: int) -> RunFailed:
    """Return the error for a job after ``MOST_AT_ONCE`` iterations at the same time."""
    return RunFailed(
        "simulation",
        f"job {job} repeats until others end, but iterations of its rank {rank} take "
        "no time",
        "set a number of repetitions, or let the job compute, or use links with a rate",
    )
