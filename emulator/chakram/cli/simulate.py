"""``chakram simulate``: replay an experiment in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chakram.cli.common import options
from chakram.cli.common.fast_arrow_import import import_arrow_only
from chakram.cli.common.outcome import show_outcome
from chakram.cli.common.progress import run_request
from chakram.cli.interference import Alone, Interference, run_apart_and_together

if TYPE_CHECKING:
    from chakram.execution.outcome import RunOutcome


def simulate(
    experiment: options.ExperimentPath,
    runs: options.Runs = None,
    plan: options.PlanFile = None,
    alone: Alone = None,
    interference: Interference = False,
    hosts: options.Hosts = None,
    overrides: options.Overrides = None,
    resources: options.Resources = None,
    end_with_parent: options.EndWithParent = 0,
    level: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="Level of detail: packet, message or flow. The last two are for "
            "thousands of ranks.",
        ),
    ] = None,
    cost_model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Cost model: chakram or astra-sim-ns3; at level message also "
            "astra-sim-aware or astra-sim-unaware.",
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Compare with another simulator: an ASTRA-sim log, or an fct.txt "
            "file from ns-3.",
        ),
    ] = None,
    report: options.Report = False,
    wide: options.Wide = False,
    as_json: options.Json = False,
) -> None:
    """Replay an experiment in virtual time, without a network."""
    options.end_with_parent(end_with_parent)
    settings, text = options.read_experiment(
        experiment,
        overrides,
        hosts=hosts,
        launching=None,
        resources=resources,
        **{"simulation.level": level, "simulation.cost_model": cost_model},
    )
    if not report:  # the report has figures, whose library needs numpy
        import_arrow_only()
    from chakram.simulation.simulate_experiment import simulate_experiment

    def run_one(job: str | None) -> RunOutcome:
        with run_request(
            settings, text, runs=runs, quiet=as_json, plan_file=plan, alone=job
        ) as request:
            return simulate_experiment(request)

    if interference:
        run_apart_and_together(settings, run_one, as_json=as_json, wide=wide)
        return
    outcome = run_one(alone)
    others = None
    if against is not None:
        from chakram.analysis.simulator_output_match import match_file

        others = (against, match_file(against, outcome.directory))
    show_outcome(outcome, as_json=as_json, wide=wide, report=report, against=others)
