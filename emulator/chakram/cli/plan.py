"""``chakram plan``: show what an experiment would do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE
from rich.table import Column

from chakram.cli.common import options
from chakram.cli.common.escaping_console import Console, Table, facts_table
from chakram.cli.common.progress import ProgressReporter
from chakram.foundation.errors import InputError
from chakram.foundation.ip_addresses import IPV6
from chakram.foundation.units import about_size, format_time, three_digits

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.plan.plan import Plan
    from chakram.preparation.plan_summary import PlanSummary


_MOST_HOSTS = 8


def plan(
    experiment: options.ExperimentPath,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Save the programs to this file. `run` and `simulate` read it with "
            "--plan instead of the traces.",
        ),
    ] = None,
    hosts: options.Hosts = None,
    overrides: options.Overrides = None,
    jobs: options.ReadingJobs = 1,
    dask: options.ReadingDask = None,
    as_json: options.Json = False,
) -> None:
    """Show what an experiment would do, without running it."""
    settings, _ = options.read_experiment(experiment, overrides, hosts=hosts)
    quiet = as_json or not sys.stderr.isatty()
    with ProgressReporter(quiet=quiet) as progress:
        progress.phase("reading traces")
        summary = _summary(settings, progress, save, jobs=jobs, dask=dask)
    if as_json:
        options.print_json("plan", asdict(summary))
        return
    _show(summary)


def _summary(
    settings: Experiment,
    progress: ProgressReporter,
    save: Path | None,
    *,
    jobs: int,
    dask: str | None,
) -> PlanSummary:
    from chakram.preparation.idle_faults import idle_faults
    from chakram.preparation.plan_summary import summarize_plan
    from chakram.preparation.resolved_run import load_run
    from chakram.preparation.workers import readers

    with readers(jobs, dask) as workers:
        resolved = load_run(settings, workers=workers)
    if save is not None:
        from chakram.preparation.saved_plans import save_plan

        save_plan(save, settings, resolved.jobs)
    progress.phase("placing ranks")
    planned = resolved.expected_plan("plan")
    topology = resolved.topology()
    return summarize_plan(
        planned,
        resolved.jobs,
        dilation=settings.dilation,
        warnings=[
            *resolved.warnings(),
            *_refusals(settings, planned),
            *([] if topology is None else idle_faults(settings, planned, topology)),
        ],
    )


def _refusals(settings: Experiment, planned: Plan) -> Iterator[str]:
    """Yield the reasons why a run would refuse this plan. A simulation accepts it."""
    from chakram.preparation.link_fault_times import refuse_faults_of_runs
    from chakram.preparation.plan_settings import refuse_neighbors_on_one_port

    checks = [partial(refuse_faults_of_runs, settings)]
    if settings.fabric.has_switches:
        checks.append(partial(refuse_neighbors_on_one_port, planned))
    for check in checks:
        try:
            check()
        except InputError as error:
            yield f"chakram run refuses this: {error}"


def _show(summary: PlanSummary) -> None:
    console = Console()

    def time(raw_ns: int) -> str:
        return format_time(raw_ns // summary.dilation)

    for job in summary.jobs:
        facts = (
            ("trace", f"{job.trace} ({job.producer}), digest {job.digest[:16]}"),
            ("ranks", f"{job.ranks} with {job.nodes} nodes in total"),
            ("programs", f"{job.operations} operations, {job.groups} process groups"),
            ("compute", f"at most {time(job.compute_ns)} per iteration"),
            ("size scale", job.size_scale),
        )
        console.print(facts_table(facts, f"job {job.name}"))
    several = len(summary.jobs) > 1
    rows = Table(
        *(["job"] if several else []),
        "collective",
        # Fold long names with parameters rather than truncate them.
        Column("algorithm", overflow="fold"),
        box=SIMPLE,
        pad_edge=False,
    )
    for name in ("ranks", "size", "count", "messages", "sent"):
        rows.add_column(name, justify="right")
    for line in summary.collectives:
        rows.add_row(
            *([line.job] if several else []),
            line.op,
            line.algorithm or "",
            str(line.group_ranks),
            about_size(line.size_bytes),
            str(line.count),
            str(line.messages),
            about_size(line.bytes_per_rank),
        )
    rows.caption = "per iteration; sent: payload of the busiest rank per collective"
    console.print(rows)
    least = summary.least_iteration_ns
    total = (
        (
            "ports",
            f"{summary.ports} on {_agents(summary)}"
            + (", IPv6" if summary.family == IPV6 else ""),
        ),
        *_divided(summary),
        (
            "queue pairs",
            f"{summary.queue_pairs}, path MTU {summary.path_mtu}, "
            f"bursts of {summary.max_burst_packets}",
        ),
        (
            "traffic",
            f"{_about(summary.payload_bytes)} per iteration, "
            f"{summary.messages} messages",
        ),
        (
            "busiest port",
            f"{_about(summary.busiest_port_bytes)} on the wire per iteration"
            + ("" if least is None else f", at least {time(least)}"),
        ),
        ("iterations", str(summary.iterations)),
        *_dilation(summary),
    )
    console.print(facts_table(total))
    for warning in summary.warnings:
        console.print(f"warning: {warning}", markup=False, highlight=False)


def _divided(summary: PlanSummary) -> list[tuple[str, str]]:
    hosts_of: dict[int, list[str]] = {}
    for host, shards in summary.divided:
        hosts_of.setdefault(shards, []).append(host)
    texts = [
        f"{', '.join(hosts[:_MOST_HOSTS])}"
        + (f" and {more} more" if (more := len(hosts) - _MOST_HOSTS) > 0 else "")
        + f" among {shards} shards"
        + (" each" if len(hosts) > 1 else "")
        for shards, hosts in hosts_of.items()
    ]
    return [("divided ports", "; ".join(texts))] if texts else []


def _dilation(summary: PlanSummary) -> list[tuple[str, str]]:
    if summary.dilation == 1:
        return []
    text = f"{summary.dilation}: a run takes longer than shown here by this factor"
    return [("dilation", text)]


def _agents(summary: PlanSummary) -> str:
    from chakram.fabric.fabric_types.base import SIMULATED_AGENT

    return ", ".join(
        ("this machine" if name == SIMULATED_AGENT else f"agent {name}")
        + f" ({shards} shard{'s' if shards > 1 else ''})"
        for name, shards in summary.agents
    )


def _about(size_bytes: int) -> str:
    """Return a size rounded to three digits, in decimal units like those of rates."""
    return three_digits(size_bytes, (" B", " kB", " MB", " GB", " TB", " PB"))
