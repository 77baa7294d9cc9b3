"""When the jobs of an experiment begin, how often they repeat, and by which rules."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from chakram.plan.plan import JobSettings

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment

__all__ = ["arrivals_ns", "job_settings"]


def job_settings(experiment: Experiment) -> tuple[JobSettings, ...]:
    """Return what the jobs do otherwise than usual."""
    offsets_ns = arrivals_ns(experiment)
    warmup = experiment.iterations.warmup
    found = tuple(
        JobSettings(
            job=job.name,
            offset_ns=offsets_ns[job.name],
            iterations=warmup + job.repeat if isinstance(job.repeat, int) else None,
            is_background=job.is_background,
            policy=job.policy,
            order=job.order,
        )
        for job in experiment.jobs
    )
    return tuple(each for each in found if each != JobSettings(job=each.job))


def arrivals_ns(experiment: Experiment) -> dict[str, int]:
    """Return when every job begins, from the start of the run."""
    start_ns = {job.name: job.start_ns for job in experiment.jobs}
    arrivals = experiment.arrivals
    if arrivals is None:
        return start_ns
    rng = random.Random(experiment.seed)
    names = list(start_ns)
    if arrivals.order == "random":
        rng.shuffle(names)
    elif not isinstance(arrivals.order, str):
        names = list(arrivals.order)
    arrival_ns = 0
    for name in names:
        start_ns[name] += arrival_ns
        arrival_ns += (
            arrivals.gap_ns
            if arrivals.spacing == "even" or not arrivals.gap_ns
            else round(rng.expovariate(1 / arrivals.gap_ns))
        )
    return start_ns
