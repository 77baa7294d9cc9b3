"""``chakram run``: replay an experiment on its fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from chakram.cli.common import options
from chakram.cli.common.coroutines import run_coroutine
from chakram.cli.common.outcome import show_outcome
from chakram.cli.common.progress import run_request
from chakram.cli.interference import Alone, Interference, run_apart_and_together
from chakram.foundation.platform_support import require_linux

if TYPE_CHECKING:
    from chakram.execution.outcome import RunOutcome


def run(
    experiment: options.ExperimentPath,
    runs: options.Runs = None,
    lab: Annotated[
        str | None,
        typer.Option(
            help="Use this running lab (see `fabric up`). If no such lab exists, the "
            "name prefix for the lab the run creates."
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
    launch: options.Launch = None,
    listen: options.Listen = "",
    agent: options.AgentCommand = None,
    launcher_option: options.LauncherOptions = None,
    lease: options.Lease = "10min",
    tolerate: options.Tolerate = 0,
    overrides: options.Overrides = None,
    resources: options.Resources = None,
    end_with_parent: options.EndWithParent = 0,
    interval: options.Interval = 1.0,
    report: options.Report = False,
    wide: options.Wide = False,
    as_json: options.Json = False,
) -> None:
    """Replay an experiment on its fabric."""
    require_linux("chakram run")
    options.end_with_parent(end_with_parent)
    launching = options.launch_options(
        launch,
        listen=listen,
        agent=agent,
        options=launcher_option,
        lease=lease,
        tolerate=tolerate,
    )
    settings, text = options.read_experiment(
        experiment,
        overrides,
        hosts=hosts,
        launching=launching,
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
            launch=launching,
        ) as request:
            return run_coroutine(run_tolerantly(request, tolerate))

    if interference:
        run_apart_and_together(settings, run_one, as_json=as_json, wide=wide)
    else:
        show_outcome(run_one(alone), as_json=as_json, wide=wide, report=report)
