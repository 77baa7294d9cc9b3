"""``chakram run``: replay an experiment on its fabric."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chakram.cli.common import options
from chakram.cli.common.dataclass_options import with_options
from chakram.cli.common.launch_options import Launching
from chakram.cli.common.outcome import show_outcome
from chakram.cli.common.progress import run_request
from chakram.cli.interference import Alone, Interference, run_apart_and_together
from chakram.foundation.coroutines import run_coroutine
from chakram.foundation.platform_support import require_linux

if TYPE_CHECKING:
    from chakram.execution.outcome import RunOutcome


@with_options("launching", Launching)
def run(
    experiment: options.ExperimentPath,
    runs: options.Runs = None,
    lab: Annotated[
        str | None,
        typer.Option(
            help="Use this running lab (see `fabric up`). If no such lab exists, this "
            "is the name prefix for the lab that the run creates."
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Serve metrics at this address, e.g. 127.0.0.1:9464.",
        ),
    ] = None,
    plan: options.PlanFile = None,
    alone: Alone = None,
    interference: Interference = False,
    hosts: options.Hosts = None,
    *,
    launching: Launching,
    overrides: options.Overrides = None,
    resources: options.Resources = None,
    end_with_parent: options.EndWithParent = 0,
    jobs_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with the names of the jobs that may begin iterations. You can "
            "change it during the run.",
        ),
    ] = None,
    interval: options.Interval = 1.0,
    report: options.Report = False,
    wide: options.Wide = False,
    as_json: options.Json = False,
) -> None:
    """Replay an experiment on its fabric."""
    require_linux("chakram run")
    options.end_with_parent(end_with_parent)
    launch = launching.options()
    settings, text = options.read_experiment(
        experiment,
        overrides,
        hosts=hosts,
        launching=launch,
        resources=resources,
        lab=lab,
        metrics=metrics,
    )

    def run_one(job: str | None) -> RunOutcome:
        from chakram.execution.absent_hosts import run_tolerantly

        with run_request(
            settings,
            text,
            runs=runs,
            quiet=as_json,
            interval_ns=round(interval * 1e9),
            plan_file=plan,
            alone=job,
            launch=launch,
            jobs_file=jobs_file,
        ) as request:
            return run_coroutine(run_tolerantly(request, launching.tolerate))

    if interference:
        run_apart_and_together(settings, run_one, as_json=as_json, wide=wide)
    else:
        show_outcome(run_one(alone), as_json=as_json, wide=wide, report=report)
