"""``chakram show``: print the results of a finished run or preflight."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from chakram.cli.common.fast_arrow_import import import_arrow_only
from chakram.cli.common.options import Json, Wide, print_json
from chakram.cli.common.outcome import print_results
from chakram.cli.preflight import show_preflight
from chakram.foundation.errors import DamagedRun


def show(
    directory: Annotated[
        Path, typer.Argument(metavar="RUN", help="Run directory, e.g. runs/20260131...")
    ],
    wide: Wide = False,
    as_json: Json = False,
    queue_pairs: Annotated[
        bool,
        typer.Option(
            "--queue-pairs", help="Print the counters of every queue pair as CSV."
        ),
    ] = False,
    ports: Annotated[
        bool, typer.Option("--ports", help="Print the counters of every port as CSV.")
    ] = False,
    preflight: Annotated[
        bool,
        typer.Option(
            "--preflight", help="Print the findings of the preflight before the run."
        ),
    ] = False,
) -> None:
    """Print the results of a finished run or preflight.

    If a preflight ended the run, the results are those of the preflight.
    """
    import_arrow_only()
    from chakram.console.summary_document import summary_document
    from chakram.run_directory.manifest import ended_by_preflight
    from chakram.run_directory.reader import open_run

    if queue_pairs + ports + preflight > 1:
        raise typer.BadParameter("use only one of --queue-pairs, --ports, --preflight")
    alone = _is_preflight(directory)
    if alone and (queue_pairs or ports):
        raise typer.BadParameter("a preflight has neither queue pairs nor ports")
    if alone or preflight:
        _show_preflight(directory, as_json=as_json)
        return
    results = open_run(directory)
    if queue_pairs or ports:
        table = results.queue_pair_metrics() if queue_pairs else results.port_metrics()
        if not table.num_columns:
            raise DamagedRun(
                str(directory),
                "has no table of its queue pairs",
                "queue_pair_ends.parquet is missing"
                if "queue_pair_ends.parquet" in results.missing()
                else "the run ended before it had a plan, or its version has no table",
            )
        if as_json:
            kind = "queue_pairs" if queue_pairs else "ports"
            print_json(kind.replace("_", "-"), {kind: table.to_pylist()})
        else:
            from pyarrow.csv import write_csv

            write_csv(table, sys.stdout.buffer)
        if table["data_frames_tx"].null_count == table.num_rows:
            typer.echo(
                "chakram: note: all counters are empty: the run ended before any of "
                "its queue pairs was used",
                err=True,
            )
        return
    summary = results.summary()
    if not as_json and ended_by_preflight(results.manifest) and not summary.rows:
        # The result table would have no rows, but the preflight has results.
        for banner in summary.banners[:1]:
            print(f"!! {banner}")
        _show_preflight(directory, as_json=False)
        return
    if as_json:
        print_json("run", summary_document(summary))
    else:
        print_results(summary, results, wide=wide)


def _show_preflight(directory: Path, *, as_json: bool) -> None:
    from chakram.run_directory.preflight_files import read_preflight

    report, dilation = read_preflight(directory)
    show_preflight(report, directory, dilation=dilation, as_json=as_json)


def _is_preflight(directory: Path) -> bool:
    """Return whether the directory belongs to a separate preflight, not to a run."""
    from chakram.run_directory.manifest import MANIFEST, PREFLIGHT
    from chakram.run_directory.plan_document import PLAN

    # The function that opens the directory reports access errors.
    there = [
        os.path.exists(directory / name)
        for name in (f"{PREFLIGHT}.json", MANIFEST, PLAN)
    ]
    return there == [True, False, False]
