"""``chakram interference``, and ``--interference`` of ``run`` and ``simulate``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chakram.cli.common.options import Json, json_text
from chakram.cli.common.outcome import print_table
from chakram.foundation.errors import ConfigError, DamagedRun
from chakram.foundation.units import about_size, format_time
from chakram.foundation.write_errors import explained_writes

if TYPE_CHECKING:
    from chakram.analysis.interference import Factor, JobInterference
    from chakram.config.experiment import Experiment
    from chakram.execution.outcome import RunOutcome


LEAST_OVERLAP = 0.9
"""Minimum share of a job's time with other jobs running that needs no note."""

_WIDTH = 110
"""Width of output to a file or pipe, in columns."""

FILE = "interference.json"
"""Name of the result file in the run directory of all jobs."""

Alone = Annotated[
    str | None,
    typer.Option(
        metavar="JOB",
        help="Run only this job, on the ports that it uses when all jobs run.",
    ),
]
Interference = Annotated[
    bool,
    typer.Option(
        "--interference",
        help="Run every job alone, then all jobs together. Report how much longer "
        "each job takes.",
    ),
]


def interference(
    together: Annotated[
        Path,
        typer.Argument(metavar="TOGETHER", help="Directory of the run with all jobs."),
    ],
    alone: Annotated[
        list[Path],
        typer.Argument(
            metavar="ALONE...", help="Run directories in which one job ran alone."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Compare jobs that shared a fabric with each job alone."""
    from chakram.run_directory.reader import open_run

    directories: dict[str, Path] = {}
    for path in alone:
        results = open_run(path)
        jobs = {record.job for record in results.ranks(whole=True)}
        if not jobs and results.incomplete:
            raise DamagedRun(str(path), "has no complete iteration", results.incomplete)
        if len(jobs) != 1:
            raise DamagedRun(
                str(path),
                f"is a run of {len(jobs)} jobs",
                "run a job alone with `chakram run --alone JOB`",
            )
        directories[jobs.pop()] = path
    _show(together, directories, as_json=as_json, with_banners=True)


def run_apart_and_together(
    experiment: Experiment,
    run_one: Callable[[str | None], RunOutcome],
    *,
    as_json: bool,
    wide: bool,
) -> None:
    """Run each job alone, then all together, and print how they slow each other down.

    Args:
        experiment: The experiment with the jobs.
        run_one: Function that runs the named job alone, or all if the name is None.
        as_json: Print JSON instead of tables.
        wide: Print every column of the table.

    Raises:
        ChakramError: If a run is incomplete.
    """
    names = [job.name for job in experiment.jobs]
    if len(names) < 2:
        raise ConfigError(
            "jobs", "there is only one", "--interference needs at least two"
        )
    directories: dict[str, Path] = {}
    for name in names:
        outcome = run_one(name)
        if outcome.error is not None:
            raise outcome.error
        directories[name] = outcome.directory
    outcome = run_one(None)
    if outcome.error is not None:
        raise outcome.error
    if not as_json:
        print_table(outcome.summary, wide=wide)
    # The table already shows the banners of the run.
    _show(outcome.directory, directories, as_json=as_json, with_banners=False)


def _show(
    together: Path,
    alone: Mapping[str, Path],
    *,
    as_json: bool,
    with_banners: bool,
) -> None:
    from chakram.analysis.interference import interference as compared
    from chakram.run_directory.reader import open_run

    results = open_run(together)
    measurements = results.measurements()
    found = compared(
        measurements,
        {job: open_run(path).measurements() for job, path in alone.items()},
        endless=[
            name
            for name, job in results.manifest.jobs.items()
            if job.get("iterations", 0) is None
        ],
    )
    banners, notes = measurements.facts.banners, _notes(found)
    document = {
        "together": str(together),
        "alone": {job: str(path) for job, path in alone.items()},
        "jobs": [asdict(job) for job in found],
        "notes": [*banners, *notes],
    }
    text = json_text("interference", document)
    with explained_writes(together / FILE):
        (together / FILE).write_text(text + "\n", encoding="utf-8")
    if as_json:
        print(text)
    else:
        _print(found, [*banners, *notes] if with_banners else notes)


def _notes(found: Sequence[JobInterference]) -> list[str]:
    """Return the notes to print above the factors."""
    from chakram.records.run_records import is_generator_bound

    notes = []
    for job in found:
        if is_generator_bound(job.wait_share):
            notes.append(
                f"GENERATOR-BOUND: job {job.job}: {job.bound} of {job.verdicts} "
                "collectives waited for the traffic generator; factors marked * do not "
                "measure the network"
            )
        if job.overlap < LEAST_OVERLAP:
            notes.append(
                f"job {job.job}: other jobs ran for only {100 * job.overlap:.0f} % of "
                "its time; repeat: until_others_end keeps them running"
            )
    return notes


def _print(found: Sequence[JobInterference], notes: Sequence[str]) -> None:
    from rich.box import SIMPLE
    from rich.table import Column

    from chakram.cli.common.escaping_console import Console, Table

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH)
    for note in notes:
        console.print(f"!! {note}", highlight=False, soft_wrap=True)
    table = Table(Column("interference", overflow="fold"), box=SIMPLE, pad_edge=False)
    for name in ("size", "alone", "together", "factor", "p99 factor", "n"):
        table.add_column(name, justify="right", no_wrap=True)
    for job in found:
        share = f"{100 * job.overlap:.0f} %"
        what = f"job {job.job}: iteration, {share} of it with other jobs"
        table.add_row(what, "", *_cells(job.factor, is_bound=bool(job.bound)))
        for each in job.collectives:
            table.add_row(
                f"  {each.op} {each.algorithm}, {each.nranks} ranks",
                about_size(each.size_bytes),
                *_cells(each.factor, is_bound=bool(each.bound)),
            )
    table.caption = (
        "factor: mean time together / mean time alone, with its standard error"
    )
    console.print(table)


def _cells(factor: Factor, *, is_bound: bool) -> tuple[str, ...]:
    mark = " *" if is_bound else ""
    return (
        format_time(factor.alone_ns),
        format_time(factor.together_ns),
        f"{factor.factor:.3f} \u00b1 {factor.spread:.3f}{mark}",
        f"{factor.p99_factor:.3f}",
        f"{factor.alone_samples}/{factor.together_samples}",
    )
