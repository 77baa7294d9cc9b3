"""Loading of jobs: read and check traces, and lower them to programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.chakra.lint.replay_blockers import require_replayable
from chakram.chakra.read.reader_options import (
    DependencyPolicy,
    ReadOptions,
    merge_warnings,
)
from chakram.chakra.sets.trace_set import TraceSet, load_replicated, load_trace_set
from chakram.chakra.trace_warning import WarningKind
from chakram.collectives.algorithms import (
    AlgorithmSource,
    UserAlgorithm,
    user_algorithms,
)
from chakram.collectives.ops import CollectiveOp
from chakram.config.jobs import Job, Placement, TraceFiles
from chakram.foundation.errors import PlanError
from chakram.foundation.grouping import grouped
from chakram.plan.placement import PlacementOptions
from chakram.program.job_check import check_job
from chakram.program.least_bytes import too_small_warnings
from chakram.program.lowering import (
    LoweringOptions,
    lower_alike,
    lower_job,
)
from chakram.program.operations import RankProgram
from chakram.program.program_check import ProgramChecks
from chakram.synth.synthesize import (
    first_traces,
    synthesize,
    synthesized_trace_set,
)
from chakram.synth.trace_builder import Synthesis
from chakram.trace.replication import Replication

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from chakram.config.experiment import Experiment


_NAMES_LISTED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedJob:
    """A job whose trace has been read and lowered.

    Attributes:
        name: Name of the job.
        trace: Origin of the trace.
        producer: Tool that wrote the trace.
        digest: SHA-256 of the trace set.
        nodes: Number of trace nodes of all ranks.
        lowered: Programs of the ranks.
        warnings: Anomalies of the trace or of its replay, one sentence each.
        size_scale: Factor that multiplies all sizes, as text, e.g. ``1/64``.
        placement: Placement of the job's ranks.
    """

    name: str
    trace: str
    producer: str
    digest: str
    nodes: int
    programs: tuple[RankProgram, ...]
    warnings: tuple[str, ...]
    size_scale: str
    placement: PlacementOptions

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return len(self.programs)


def load_jobs(
    experiment: Experiment, *, workers: Executor | None = None
) -> list[LoadedJob]:
    """Read and lower the traces of all jobs.

    Args:
        experiment: Experiment with the jobs.
        workers: Processes that read files in parallel. None means this process.

    Raises:
        ConfigError: If the experiment requests a trace that cannot be synthesized.
        TraceError: If a trace cannot be read or replayed.
        MatchingError: If ranks disagree about their collectives.
    """
    loaded: list[LoadedJob] = []
    sources = _sources(experiment)
    for job in experiment.jobs:
        options = lowering_options(experiment, job, sources)
        if isinstance(job.trace, TraceFiles):
            found = _loaded_job(job, options, _trace_files(job.trace, workers))
        else:
            synthesis = synthesize(job.trace)
            found = _alike_job(job, options, synthesis) or _loaded_job(
                job, options, synthesized_trace_set(synthesis)
            )
        loaded.append(found)
    return loaded


def _sources(experiment: Experiment) -> dict[UserAlgorithm, AlgorithmSource]:
    """Return the sources of all user algorithms. Most experiments have none."""
    users = [
        user
        for choice in experiment.collectives.values()
        for user in user_algorithms(choice)
    ]
    if not users:
        return {}
    from chakram.user_algorithms.files import load_sources

    return load_sources(users)


def _alike_job(
    job: Job, options: LoweringOptions, synthesis: Synthesis
) -> LoadedJob | None:
    """Return a large synthetic job of which few ranks are lowered, or None."""
    if (options.resources, options.order) != ("streams", "dependencies"):
        return None  # the order of operations depends on all ranks together
    traces = first_traces(synthesis)
    if traces is None:
        return None
    lowered = lower_alike(job.name, traces.graphs, traces.groups, options, traces.alike)
    # The other ranks are copies of the first ones.
    firsts = [lowered.programs[rank] for rank in traces.alike.firsts]
    checks = ProgramChecks()
    problems = [text for program in firsts for text in checks.problems(program)]
    if problems:
        raise PlanError.of_problems(f"job {job.name}", problems)
    return LoadedJob(
        name=job.name,
        trace=f"synth:{synthesis.kind}",
        producer=synthesis.producer,
        digest=traces.digest,
        nodes=traces.nodes,
        programs=lowered.programs,
        warnings=(*lowered.warnings, *too_small_warnings(firsts)),
        size_scale=str(job.size_scale),
        placement=placement_options(job.placement),
    )


def _loaded_job(job: Job, options: LoweringOptions, traces: TraceSet) -> LoadedJob:
    of_files = isinstance(job.trace, TraceFiles)
    require_replayable(traces.graphs, traces.groups, traces.least_ranks)
    lowered = lower_job(job.name, traces.graphs, traces.groups, options)
    problems = check_job(lowered.programs)
    if problems:
        raise PlanError.of_problems(f"job {job.name}", problems)
    return LoadedJob(
        name=job.name,
        trace=traces.name,
        producer=traces.producer,
        digest=traces.digest,
        nodes=sum(map(len, traces.graphs.values())),
        programs=lowered.programs,
        warnings=(
            *(_misleading(traces, job) if of_files else ()),
            *traces.notes,
            *merge_warnings(traces.warnings).values(),
            *lowered.warnings,
            *too_small_warnings(lowered.programs),
        ),
        size_scale=str(job.size_scale),
        placement=placement_options(job.placement),
    )


def _misleading(traces: TraceSet, job: Job) -> Iterable[str]:
    """Return warnings that do not apply to synthetic traces."""
    from chakram.chakra.lint.computation_warnings import LintWarningKind
    from chakram.chakra.lint.traffic_warnings import summarize_warnings, warnings_of

    found = warnings_of(traces)
    if job.order != "start_times":
        found = [each for each in found if each.kind != LintWarningKind.TIME_BACKWARDS]
    return summarize_warnings(found)


def job_warnings(jobs: Iterable[LoadedJob]) -> list[str]:
    """Return the warnings of all jobs. Warnings that jobs share occur once."""
    names = grouped(
        (warning, job.name) for job in jobs for warning in dict.fromkeys(job.warnings)
    )
    return [
        f"job{'s' if len(of) > 1 else ''} {_listed(of)}: {warning}"
        for warning, of in names.items()
    ]


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMES_LISTED
    listed = ", ".join(names[:_NAMES_LISTED])
    return f"{listed} and {more} more" if more > 0 else listed


def _trace_files(trace: TraceFiles, workers: Executor | None) -> TraceSet:
    options = ReadOptions(
        bytes_per_element=trace.bytes_per_element,
        dependencies=DependencyPolicy(trace.dependencies),
        drop_missing_dependencies=trace.drop_missing_dependencies,
        duration_unit_ns=trace.duration_unit_ns,
        uncorrected=frozenset(map(WarningKind, trace.uncorrected)),
        unnamed_groups=trace.unnamed_group,
        dimensions=tuple(trace.dimensions.values()),
    )
    if trace.replicate is None:
        return load_trace_set(
            trace.path,
            comm_groups=trace.comm_groups,
            kineto=trace.kineto,
            options=options,
            workers=workers,
        )
    return load_replicated(
        trace.path,
        Replication(
            nranks=trace.replicate,
            dimensions=trace.dimensions,
            groups=trace.groups,
            peer_offset=trace.peer_offset,
        ),
        rank=trace.rank,
        comm_groups=trace.comm_groups,
        kineto=trace.kineto,
        options=options,
    )


def lowering_options(
    experiment: Experiment,
    job: Job,
    sources: Mapping[UserAlgorithm, AlgorithmSource],
) -> LoweringOptions:
    """Return the options for lowering the traces of *job* to programs."""
    return LoweringOptions(
        compute_from=job.compute.source,
        scale=job.compute.scale,
        peak_flops=job.compute.peak_flops,
        memory_bytes_per_s=job.compute.memory_bytes_per_s,
        size_scale=job.size_scale,
        algorithms={op: experiment.algorithm_of(op) for op in CollectiveOp},
        sources=sources,
        sync_barrier=experiment.iterations.sync == "barrier",
        ordering=job.ordering,
        order=job.order,
        with_starts=job.policy == "start_time",
        resources=job.resources,
    )


def placement_options(placement: Placement) -> PlacementOptions:
    """Return the options for placing the ranks of a job."""
    order = placement.order
    return PlacementOptions(
        order=None if isinstance(order, str) else order,
        ranks_per_port=placement.ranks_per_port,
        first_port=placement.first_port,
        pattern=placement.pattern,
        ports=placement.ports,
        local_rate_bps=(
            None if placement.same_host == "fabric" else placement.local_rate_bps or 0
        ),
    )
