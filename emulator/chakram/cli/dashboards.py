"""``chakram dashboards``: export Grafana dashboards and Prometheus rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chakram.cli.common.options import Json, print_json
from chakram.cli.common.packaged_files import copy_files, files_below, packaged

app = typer.Typer(
    name="dashboards",
    help="Export Grafana dashboards and Prometheus rules.",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """Keep ``export`` as a subcommand, although it is the only one."""


@app.command()
def export(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder for the files.")
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Replace existing files.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write dashboards, rules and a Prometheus configuration."""
    rules = packaged("dashboards/rules/chakram.yaml")
    settings = packaged("deploy/prometheus/prometheus.yml")
    written = copy_files(
        files_below("dashboards/grafana", folder / "grafana")
        | {folder / "rules" / rules.name: rules, folder / settings.name: settings},
        force=force,
    )
    if as_json:
        print_json("dashboards-written", {"written": written})
        return
    print("\n".join(f"wrote {path}" for path in written))
    print(
        f"""
1. Prometheus: prometheus --config.file={folder}/prometheus.yml
   With your own configuration: copy {folder}/rules next to it, and add
   rule_files: [rules/*.yaml] and the job `chakram` of {folder}/prometheus.yml.
2. Grafana: Dashboards, New, Import. Upload each file of {folder}/grafana, and choose
   the data source. Set its scrape interval to that of Prometheus (1s).
3. Serve the metrics of a run: chakram run EXPERIMENT.yaml --metrics 127.0.0.1:9464"""
    )
