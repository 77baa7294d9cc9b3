"""Checks across sections, for values that are valid alone but conflict with each other.

A check takes the experiment sections that it needs and returns mistakes. It runs if
those sections are valid, even if others are not. One pass therefore reports all
mistakes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Any

from chakram.config.collectives import check_collectives
from chakram.config.dilation import check_dilated_sections, check_dilation
from chakram.config.jobs import Job, TraceFiles
from chakram.config.link_faults import check_link_faults
from chakram.config.preflight import check_preflight
from chakram.config.simulation import check_simulation
from chakram.config.transport import Faults, Transport
from chakram.config.transport_checks import (
    check_class_of,
    check_fault_keys,
    check_fault_queue_pairs,
    check_packet_faults,
    check_transport,
    check_transport_itself,
)
from chakram.fabric.fabric_types.base import SIMULATE, FabricKind
from chakram.settings.located_errors import Location, Mistake
from chakram.synth.settings.base import SynthTrace
from chakram.trace.replication import ALL

Check = Callable[..., Iterable[Mistake]]


def check_jobs(jobs: tuple[Job, ...]) -> Iterator[Mistake]:
    """Check each job, and that job names are unique."""
    first: dict[str, int] = {}
    for index, job in enumerate(jobs):
        where: Location = ("jobs", index)
        if job.name in first:
            yield Mistake(
                (*where, "name"),
                f"job {first[job.name]} is also named {job.name!r}",
                "give every job a unique name",
            )
        first.setdefault(job.name, index)
        yield from _check_roofline(job, where)
        if isinstance(job.trace, SynthTrace):
            yield from _check_synth(job.trace, (*where, "trace"))
        else:
            yield from _check_replication(job.trace, (*where, "trace"))
        yield from _check_order(job, (*where, "placement", "order"))
        yield from _check_ports(job, (*where, "placement"))
    if all(job.is_background for job in jobs):
        yield Mistake(
            ("jobs", 0, "repeat"),
            "every job repeats until the others have ended, so no job ends",
            "set a number of iterations for one of them",
        )


def _check_ports(job: Job, where: Location) -> Iterator[Mistake]:
    placement = job.placement
    if placement.ports is not None and placement.first_port is not None:
        yield Mistake(
            (*where, "first_port"),
            "cannot be combined with ports",
            "remove one of them",
        )


def check_arrivals(arrivals: Any, jobs: tuple[Job, ...]) -> Iterator[Mistake]:
    """Check that ``arrivals.order``, if it is a list, names every job once."""
    if arrivals is None or isinstance(arrivals.order, str):
        return
    names = sorted(job.name for job in jobs)
    if sorted(arrivals.order) == names:
        return
    yield Mistake(
        ("arrivals", "order"),
        f"does not list each of the jobs {', '.join(names)} once",
        "name every job once, or write order: listed",
    )


def _check_roofline(job: Job, where: Location) -> Iterator[Mistake]:
    compute = job.compute
    if compute.source == "roofline" and compute.peak_flops is None:
        yield Mistake(
            (*where, "compute"),
            "roofline requires the compute rate of a rank",
            "add peak, e.g. peak: 989 TFLOPS",
        )
    elif compute.peak_flops == 0 or compute.memory_bytes_per_s == 0:
        yield Mistake(
            (*where, "compute"),
            "peak or memory is zero, so compute nodes would never end",
            "e.g. peak: 989 TFLOPS, memory: 3.35 TB/s",
        )


def _check_synth(trace: SynthTrace, where: Location) -> list[Mistake]:
    return [
        Mistake((*where, *problem.key.split(".")), problem.found, problem.hint)
        for problem in trace.problems()
    ]


def _check_replication(trace: TraceFiles, where: Location) -> Iterator[Mistake]:
    if trace.replicate is None:
        for name in ("rank", "groups", "peer_offset"):
            if getattr(trace, name) not in (0, {}, None):
                yield Mistake(
                    (*where, name),
                    "has no effect without replicate",
                    "add replicate, e.g. replicate: 64, or remove it",
                )
        return
    ranks = prod(trace.dimensions.values())
    if trace.dimensions and ranks != trace.replicate:
        sizes = " x ".join(map(str, trace.dimensions.values()))
        yield Mistake(
            (*where, "dimensions"),
            f"make {sizes} = {ranks} ranks, but replicate is {trace.replicate}",
            "the product of the dimensions must equal replicate",
        )
    for group, names in trace.groups.items():
        unknown = [
            name for name in names if name != ALL and name not in trace.dimensions
        ]
        if unknown:
            known = ", ".join([*trace.dimensions, ALL])
            yield Mistake(
                (*where, "groups", group),
                f"there is no dimension {unknown[0]!r}",
                f"choose from {known}",
            )


def _known_ranks(job: Job) -> int | None:
    """Return the number of ranks of a job, or None if it depends on trace files."""
    if isinstance(job.trace, SynthTrace):
        # `SynthTrace.problems` reports a rank count that does not match the degrees.
        return job.trace.nranks
    return job.trace.replicate


def _check_order(job: Job, where: Location) -> Iterator[Mistake]:
    order = job.placement.order
    if order == "linear":
        return
    twice = [rank for rank, count in Counter(order).items() if count > 1]
    if twice:
        yield Mistake(where, f"rank {min(twice)} occurs twice", "name every rank once")
        return
    ranks = _known_ranks(job)
    if ranks is not None and set(order) != set(range(ranks)):
        yield Mistake(
            where,
            f"does not list all ranks from 0 to {ranks - 1}",
            "name every rank once, or write order: linear",
        )


def check_iterations(iterations: Any) -> Iterator[Mistake]:
    """Check that ``gap`` is set with ``sync: gap``, and only then."""
    if (iterations.sync == "gap") == (iterations.gap_ns > 0):
        return
    if iterations.sync == "gap":
        yield Mistake(
            ("iterations", "sync"),
            "sync: gap requires a gap",
            "add gap, e.g. gap: 10ms",
        )
    else:
        yield Mistake(
            ("iterations", "gap"),
            f"has no effect with sync: {iterations.sync}",
            "write sync: gap, or remove it",
        )


def check_credits(transport: Transport, jobs: tuple[Job, ...]) -> list[Mistake]:
    """Reject credits for jobs with overlapping collectives, which could deadlock."""
    if transport.credits is None:
        return []
    return [
        Mistake(
            ("jobs", index, "ordering"),
            "overlapping collectives may wait forever for each other's credits",
            "remove transport.credits, or write ordering: serial",
        )
        for index, job in enumerate(jobs)
        if job.ordering == "overlap"
    ]


def check_faults(faults: Faults, jobs: tuple[Job, ...]) -> Iterator[Mistake]:
    """Check packet faults, and their jobs as far as their rank counts are known."""
    yield from check_fault_keys(faults)
    ranks_of = {job.name: _known_ranks(job) for job in jobs}
    yield from check_packet_faults(faults, ranks_of)


def check_places(jobs: tuple[Job, ...], fabric: FabricKind) -> Iterator[Mistake]:
    """Check that every rank has a port, as far as rank counts are known."""
    ports = fabric.nports
    if ports is None:
        return
    next_port = 0
    taken: set[int] = set()
    for index, job in enumerate(jobs):
        ranks = _known_ranks(job)
        if ranks is None:
            return
        placement = job.placement
        needed = -(-ranks // placement.ranks_per_port)
        if placement.ports is not None or placement.pattern != "packed":
            # A name may represent several ports, and the ports left for later jobs are
            # unknown.
            named = placement.ports or ()
            free = len(named)
            if placement.ports is None:
                first = placement.first_port or 0
                free = sum(port not in taken for port in range(first, ports))
            if needed > free and not any(isinstance(name, str) for name in named):
                yield Mistake(
                    ("jobs", index),
                    f"needs {needed} ports, but only {free} are available",
                    "use a larger fabric, fewer ranks, or more ranks_per_port",
                )
            return
        first = next_port if placement.first_port is None else placement.first_port
        if first + needed > ports:
            yield Mistake(
                ("jobs", index),
                f"needs ports {first} to {first + needed - 1}, but the fabric has "
                f"{ports}",
                "use a larger fabric, fewer ranks, or more ranks_per_port",
            )
        next_port = max(next_port, first + needed)
        taken.update(range(first, first + needed))


def check_predictions(
    predict: tuple[str, ...], fabric: FabricKind
) -> Iterator[Mistake]:
    """Check that simulated predictions have a topology."""
    if SIMULATE in predict and not fabric.is_simulated:
        yield Mistake(
            ("predict",),
            "simulate requires a description of the fabric",
            "add fabric.topology and fabric.links",
        )


_STRETCHED = ("iterations", "arrivals", "faults", "preflight", "records", "simulation")


def _check_stretched(fabric: FabricKind, *sections: Any) -> list[Mistake]:
    return check_dilated_sections(
        fabric, **dict(zip(_STRETCHED, sections, strict=True))
    )


CHECKS: tuple[tuple[tuple[str, ...], Check], ...] = (
    (("jobs",), check_jobs),
    (("arrivals", "jobs"), check_arrivals),
    (("collectives",), check_collectives),
    (("iterations",), check_iterations),
    (("fabric",), lambda fabric: fabric.check()),
    (("transport",), check_transport_itself),
    (("transport", "jobs"), check_class_of),
    (("transport", "fabric"), check_transport),
    (("fabric", "jobs", "transport"), check_dilation),
    (("fabric", *_STRETCHED), _check_stretched),
    (("preflight", "fabric"), check_preflight),
    (("transport", "jobs"), check_credits),
    (("faults", "jobs"), check_faults),
    (("faults", "transport"), check_fault_queue_pairs),
    (("faults", "fabric", "simulation"), check_link_faults),
    (("jobs", "fabric"), check_places),
    (("predict", "fabric"), check_predictions),
    (("simulation",), check_simulation),
)
"""All checks, each with the names of the sections that it takes."""
