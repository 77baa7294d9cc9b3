"""Runs that leave out hosts whose agents do not start, if the user tolerates that."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from chakram.config.experiment import Experiment, recorded_experiment
from chakram.config.jobs import TraceFiles
from chakram.execution.run_experiment import run_experiment
from chakram.foundation.errors import HostsAbsent, InputError

if TYPE_CHECKING:
    from chakram.config.jobs import Trace
    from chakram.execution.outcome import RunOutcome
    from chakram.execution.request import RunRequest

_LEAST_RANKS = 2


async def run_tolerantly(request: RunRequest, tolerated: int) -> RunOutcome:
    """Run an experiment, if necessary without hosts whose agents do not start.

    Ranks move to unused ports of other hosts. If there are too few of these ports, the
    last job is left out, or runs fewer replicas if its trace is replicated.

    Args:
        request: Request for the run.
        tolerated: Number of hosts that may be absent.

    Raises:
        ChakramError: As for ``run_experiment``.
        HostsAbsent: If more hosts are absent, or the other hosts cannot run the
            experiment.
    """
    absent: set[str] = set()
    while True:
        try:
            return await run_experiment(request)
        except HostsAbsent as error:
            absent |= error.hosts
            if len(absent) > tolerated:
                raise
            request = await asyncio.to_thread(_without, request, error)


def _without(request: RunRequest, error: HostsAbsent) -> RunRequest:
    """Return a request without absent hosts, with a banner that names them.

    Raises:
        HostsAbsent: If the other hosts cannot run the experiment.
    """
    used: dict[str, set[int]] = defaultdict(set)
    for rank in request.resolve().expected_plan("absent").ranks():
        used[rank.program.job].add(rank.port)
    try:
        experiment, changes = without_hosts(request.experiment, error.hosts, used)
    except InputError as problem:
        raise HostsAbsent(
            error.where,
            f"{error.found}; without it, {problem.where} {problem.found}",
            "repair the hosts, or list further hosts in the inventory",
            hosts=error.hosts,
        ) from None
    note = f"left out: hosts {', '.join(sorted(error.hosts))} ({error.found})"
    if changes:
        note += f", so that {', '.join(changes)}"
    request.progress.note(note)
    return replace(
        request,
        experiment=experiment,
        text=f"# {note}\n{request.text}",
        banners=(*request.banners, note),
    )


def without_hosts(
    experiment: Experiment, hosts: Collection[str], used: Mapping[str, Collection[int]]
) -> tuple[Experiment, tuple[str, ...]]:
    """Return an experiment without some hosts, and its other changes in words.

    Jobs that name a port of these hosts are left out. If too few ports remain for the
    other jobs, the last jobs of the file run fewer replicas or are left out.

    Args:
        experiment: An experiment on an external fabric.
        hosts: Names of the hosts.
        used: By job, the numbers of the ports that it uses on all hosts.

    Raises:
        InputError: If no job is left, or the remaining experiment is not valid.
    """
    fabric = experiment.fabric
    owners = fabric.host_names(0)
    fabric.only_hosts(set(owners) - set(hosts))
    names = [port.host for port in fabric.planned_ports(len(owners))]
    lost = {at for at, owner in enumerate(owners) if owner in hosts}
    gone = lost | {names[at] for at in lost}
    kept = [
        job for job in experiment.jobs if not (gone & set(job.placement.ports or ()))
    ]
    fewer: dict[str, dict[str, Any]] = {}
    while (
        excess := len(set().union(*(used[job.name] for job in kept)))
        - len(owners)
        + len(lost)
    ) > 0:
        last = kept.pop()
        shared = set().union(*(used[job.name] for job in kept))
        replicas = _with_fewer_replicas(last.trace, len(used[last.name]), excess)
        # Ports that other jobs use as well are not free.
        if replicas is not None and shared.isdisjoint(used[last.name]):
            fewer[last.name] = replicas
            kept.append(last)
            break
    if all(job.is_background for job in kept):
        raise InputError("--tolerate", "leaves no job")
    chosen = {job.name for job in kept}
    document = experiment.written.model_dump(mode="json", by_alias=True)
    document["jobs"] = [each for each in document["jobs"] if each["name"] in chosen]
    for each in document["jobs"]:
        each["trace"] |= fewer.get(each["name"], {})
    document["fabric"]["hosts"] = [
        each for each in document["fabric"]["hosts"] if each["name"] not in hosts
    ]
    changes = [
        f"job {job.name} is left out, too"
        if job.name not in chosen
        else f"job {job.name} has {fewer[job.name]['replicate']} ranks instead of "
        f"{len(used[job.name])}"
        for job in experiment.jobs
        if job.name not in chosen or job.name in fewer
    ]
    hint = "without the absent hosts, the experiment is not valid"
    return recorded_experiment(document, "--tolerate", hint), tuple(changes)


def _with_fewer_replicas(
    trace: Trace, ports: int, excess: int
) -> dict[str, Any] | None:
    """Return the size of a replicated trace without *excess* ranks, or None.

    Only data parallelism can shrink, which is the outermost dimension ``dp`` or the
    only one.  Its inner dimensions remain complete.
    """
    if not isinstance(trace, TraceFiles) or trace.replicate != ports:
        return None
    sizes = dict(trace.dimensions)
    name, outer = sizes.popitem() if sizes else ("dp", ports)
    inner = prod(sizes.values())
    left = outer - -(-excess // inner)
    if name != "dp" or left < 1 or left * inner < _LEAST_RANKS:
        return None
    changed: dict[str, Any] = {"replicate": left * inner}
    return changed | ({"dimensions": {**sizes, name: left}} if trace.dimensions else {})
