"""What is left of a plan when one job has the fabric to itself."""

from __future__ import annotations

from dataclasses import replace

from chakram.errors import PlanError
from chakram.plan.plan import JobSettings, Plan, RunSettings


def job_alone(plan: Plan, job: str) -> Plan:
    """Return the plan of one job: the same ports, queue pairs and paths, no others.

    It begins at once, and if it would repeat until the others have ended, it does as
    many iterations as the run has.

    Raises:
        PlanError: If there is no such job.
    """
    kept = [rank for rank in plan.ranks() if rank.program.job == job]
    if not kept:
        jobs = sorted({rank.program.job for rank in plan.ranks()})
        raise PlanError(
            f"job {job}", "is not in the experiment", f"it has {', '.join(jobs)}"
        )
    number_of = {rank.number: number for number, rank in enumerate(kept)}
    numbers = tuple((job, rank.program.rank, number_of[rank.number]) for rank in kept)
    used = {rank.port for rank in kept}
    peers = tuple(port.address for port in plan.ports() if port.number in used)
    agents = []
    for agent in plan.agents:
        ranks = tuple(
            replace(rank, number=number_of[rank.number])
            for rank in agent.ranks
            if rank.number in number_of
        )
        if ranks:
            agents.append(
                replace(
                    agent,
                    ranks=ranks,
                    ports=tuple(port for port in agent.ports if port.number in used),
                    settings=settings_alone(agent.settings, job),
                    peers=peers,
                    rank_numbers=numbers,
                )
            )
    return Plan(run_id=plan.run_id, agents=tuple(agents))


def settings_alone(settings: RunSettings, job: str) -> RunSettings:
    """Return what a job does when it is alone: it begins at once, and it has an end."""
    own = replace(settings.of(job), offset_ns=0, is_background=False)
    return replace(settings, jobs=() if own == JobSettings(job=job) else (own,))
