"""``chakram preflight``: test the fabric of an experiment before a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chakram.cli.common import options
from chakram.cli.common.dataclass_options import with_options
from chakram.cli.common.launch_options import Launching
from chakram.cli.common.progress import run_request
from chakram.foundation.coroutines import run_coroutine
from chakram.foundation.platform_support import require_linux

if TYPE_CHECKING:
    from chakram.preflight.report import PreflightReport


@with_options("launching", Launching, "tolerate")
def preflight(
    experiment: options.ExperimentPath,
    runs: options.Runs = None,
    lab: Annotated[
        str | None,
        typer.Option(
            help="Use this running lab (see `fabric up`). If no such lab exists, this "
            "is the name prefix for the lab that the preflight creates."
        ),
    ] = None,
    hosts: options.Hosts = None,
    *,
    launching: Launching,
    overrides: options.Overrides = None,
    as_json: options.Json = False,
) -> None:
    """Test the fabric between every pair of ports.

    The tests cover path MTU, DSCP, ECN, latency and rate. The exit code is 5 if the
    fabric does not meet the requirements of the experiment.
    """
    require_linux("chakram preflight")
    launch = launching.options()
    settings, text = options.read_experiment(
        experiment, overrides, hosts=hosts, launching=launch, lab=lab
    )
    from chakram.execution.preflight_run import preflight_experiment

    with run_request(
        settings, text, runs=runs, quiet=as_json, launch=launch
    ) as request:
        outcome = run_coroutine(preflight_experiment(request))
    show_preflight(
        outcome.report, outcome.folder, dilation=settings.dilation, as_json=as_json
    )
    if not outcome.report.passed:
        from chakram.foundation.errors import PreflightFailed

        raise typer.Exit(PreflightFailed.exit_code)


def show_preflight(
    report: PreflightReport, folder: Path, *, dilation: int, as_json: bool
) -> None:
    """Print the findings of a preflight, and the folder that contains them."""
    if as_json:
        from chakram.run_directory.preflight_files import preflight_document

        options.print_json(
            "preflight",
            {
                "directory": str(folder),
                "dilation": dilation,
                **preflight_document(report),
            },
        )
        return
    from chakram.cli.common.preflight_tables import print_report

    if dilation != 1:
        print(
            f"TIME DILATED by {dilation}: rates and times are raw values "
            "of the dilated fabric"
        )
    print_report(report)
    print(f"results: {folder}")
