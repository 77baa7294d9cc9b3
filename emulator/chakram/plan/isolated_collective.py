"""Plans reduced to one collective or one job, which then runs alone on the fabric."""

from __future__ import annotations

from dataclasses import replace

from chakram.foundation.errors import PlanError
from chakram.plan.plan import JobSettings, Plan, RankPlan, RunSettings
from chakram.program.columns import COLLECTIVE
from chakram.program.operations import CollectiveOperation, program_of


def collective_alone(plan: Plan, job: str, group: str, number: int) -> Plan:
    """Return the plan of one collective, with the same ports, queue pairs and paths.

    The collective runs once, and all its ranks start immediately. There are no faults.

    Args:
        plan: The plan that contains the collective.
        job: Job of the collective.
        group: Process group of the collective.
        number: Number of the collective within the group.

    Raises:
        ValueError: If there is no such collective.
    """
    kept = [
        found
        for rank in plan.ranks()
        if rank.program.job == job
        and (found := _rank_alone(rank, group, number)) is not None
    ]
    if not kept:
        raise ValueError(f"the plan has no collective {number} of {job} {group}")
    # Keep all ports: random draws that replace a hash depend on the order of ports.
    numbers = {rank.number: at for at, rank in enumerate(kept)}
    renumbered = {
        rank.number: replace(rank, number=numbers[rank.number]) for rank in kept
    }
    rank_numbers = tuple(
        (job, rank.program.rank, numbers[rank.number]) for rank in kept
    )
    return Plan(
        run_id=plan.run_id,
        agents=tuple(
            replace(
                agent,
                ranks=tuple(
                    renumbered[rank.number]
                    for rank in agent.ranks
                    if rank.number in renumbered
                ),
                settings=_settings_alone(agent.settings),
                rank_numbers=rank_numbers,
            )
            for agent in plan.agents
        ),
    )


def is_collective_alone(plan: Plan) -> bool:
    """Return whether a plan runs only one collective, once and without faults.

    Such a plan takes exactly the time of the isolated collective.
    """
    found = set()
    for rank in plan.ranks():
        program = rank.program
        columns = program.columns
        if len(columns) != 1:
            return False
        operation = program.operation(0)
        if (
            not isinstance(operation, CollectiveOperation)
            or operation.start_ns is not None
        ):
            return False
        found.add((program.job, operation.group, operation.number))
    return len(found) == 1 and all(
        agent.settings == _settings_alone(agent.settings) for agent in plan.agents
    )


def _rank_alone(rank: RankPlan, group: str, number: int) -> RankPlan | None:
    program = rank.program
    columns = program.columns
    place = next(
        (at for at, each in enumerate(program.groups) if each.name == group), None
    )
    for row in columns.rows_of(COLLECTIVE) if place is not None else ():
        if (columns.targets[row], columns.numbers[row]) != (place, number):
            continue
        operation = program.operation(row)
        if isinstance(operation, CollectiveOperation):
            return replace(
                rank,
                program=program_of(
                    [replace(operation, dependencies=(), start_ns=None)],
                    job=program.job,
                    rank=program.rank,
                    groups=tuple(each for each in program.groups if each.name == group),
                    algorithms=program.algorithms,
                ),
                queue_pairs=tuple(
                    pair for pair in rank.queue_pairs if pair.group == group
                ),
            )
    return None


def _settings_alone(settings: RunSettings) -> RunSettings:
    return replace(
        settings,
        warmup=0,
        measured=1,
        sync="free",
        gap_ns=0,
        drop_ratio=0.0,
        faults=(),
        jobs=(),
    )


def job_alone(plan: Plan, job: str) -> Plan:
    """Return the plan of one job, with the ports, queue pairs and paths of *plan*.

    The job starts immediately. A background job, which would repeat until all other
    jobs have ended, runs the default number of iterations.

    Raises:
        PlanError: If there is no such job.
    """
    kept = [rank for rank in plan.ranks() if rank.program.job == job]
    if not kept:
        jobs = sorted({rank.program.job for rank in plan.ranks()})
        raise PlanError(
            f"job {job}", "is not in the experiment", f"choose from {', '.join(jobs)}"
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
    """Return the settings of a job that runs alone in the foreground, at offset 0."""
    own = replace(settings.of(job), offset_ns=0, is_background=False)
    return replace(settings, jobs=() if own == JobSettings(job=job) else (own,))
