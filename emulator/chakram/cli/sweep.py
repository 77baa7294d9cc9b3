"""``chakram sweep``: run parameter sweeps, with all results in one table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chakram.cli.common import options
from chakram.cli.common.dataclass_options import with_options
from chakram.cli.common.launch_options import Launching
from chakram.foundation.errors import ConfigError, RunFailed
from chakram.foundation.platform_support import require_linux

if TYPE_CHECKING:
    from chakram.config.suite import Plan
    from chakram.launch.launched_agents import LaunchOptions
    from chakram.sweep.folder import CellRun, Outcome
    from chakram.sweep.tables import CellResult


@with_options("launching", Launching)
def sweep(
    suite: Annotated[Path, typer.Argument(metavar="SUITE.yaml", help="Suite file.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder for the results. Default: sweeps/NAME."
        ),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option("--jobs", "-j", min=1, help="Number of parallel simulations."),
    ] = 1,
    part: Annotated[
        str | None,
        typer.Option(
            "--shard", metavar="I/N", help="Run only the cells in part I of N."
        ),
    ] = None,
    merge: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER",
            help="Merge the results in this folder instead of running cells. Can be "
            "repeated.",
        ),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Simulate on the workers of this Dask scheduler."
        ),
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="List the cells, and run nothing.")
    ] = False,
    *,
    launching: Launching,
    wide: options.Wide = False,
    as_json: options.Json = False,
) -> None:
    """Run a parameter sweep, or resume an interrupted sweep.

    The exit code is 4 if a cell failed. Run the same command again to retry failed
    cells.
    """
    from chakram.config.suite import load_suite
    from chakram.sweep import folder as sweep_folder
    from chakram.sweep.runner import shard

    launch = launching.options()
    plan = load_suite(suite)
    folder = out or Path("sweeps") / plan.suite.name
    runs = sweep_folder.cell_runs(plan, folder)
    chosen = runs if part is None else shard(runs, *_part(part))
    if listed:
        _list(chosen, as_json=as_json)
        return
    _check_worlds(() if merge else chosen, launch)
    failed: list[tuple[CellRun, str]] = []
    sweep_folder.write_sweep(folder, plan, runs)
    if not merge:
        failed = _run(
            chosen, folder, jobs=jobs, dask=dask, launch=launch, quiet=as_json
        )
    outcomes, missing = sweep_folder.collect(runs, [*(merge or ()), folder])
    if merge and missing:
        raise _incomplete(merge, missing, len(runs))
    if not merge and part is not None and missing:
        # A merge reports the results of all shards.
        if as_json:
            _document(plan.suite.name, folder, [], [], missing, failed)
        else:
            print(
                f"shard {part}: {len(chosen) - len(failed)} of {len(chosen)} cells in "
                f"{folder}; when all shards are done: chakram sweep {suite} --merge ..."
            )
    else:
        results, paths = _written(plan, folder, outcomes)
        # A merged folder is a complete sweep, for example for `chakram report`.
        for run in runs if merge else ():
            sweep_folder.keep_outcome(folder, run, outcomes[run.number, run.repetition])
        if as_json:
            _document(plan.suite.name, folder, results, paths, missing, failed)
        else:
            _print(
                results, list(plan.suite.matrix), width=options.output_width(wide=wide)
            )
            for path in paths:
                print(f"# {path}")
            if missing:
                print(f"# {len(missing)} of {len(runs)} cells have no result")
    if failed:
        run, reason = failed[0]
        raise RunFailed(
            f"sweep {plan.suite.name}",
            f"{len(failed)} cells failed, the first: {run.name}: {reason}",
            "run the same command again to retry them",
        )


def _check_worlds(chosen: Sequence[CellRun], launch: LaunchOptions | None) -> None:
    """Refuse fabric runs on other systems than Linux, and --launch without them."""
    if any(run.world != "simulate" for run in chosen):
        require_linux("chakram sweep with world: run")
    elif launch is not None:
        raise ConfigError(
            f"--launch {launch.kind}",
            "has no effect, because this command runs no cell on a fabric",
            "leave it out",
        )


def _run(
    chosen: Sequence[CellRun],
    folder: Path,
    *,
    jobs: int,
    dask: str | None,
    launch: LaunchOptions | None,
    quiet: bool,
) -> list[tuple[CellRun, str]]:
    """Run the cells without a result, and return failed cells with the reasons."""
    from chakram.sweep.folder import collect
    from chakram.sweep.runner import run_cells

    failed: list[tuple[CellRun, str]] = []
    done, left = collect(chosen, [folder])
    count = len(done)

    def note(text: str) -> None:
        if not quiet:
            typer.echo(text, err=True)

    if done and left:
        note(f"{len(done)} of {len(chosen)} cells already have results")

    def tell(run: CellRun, outcome: Outcome) -> None:
        nonlocal count
        count += 1
        if outcome["status"] != "complete":
            failed.append((run, outcome["reason"]))
        reason = "" if outcome["reason"] is None else f": {outcome['reason']}"
        note(
            f"{count}/{len(chosen)} {run.name} repetition {run.repetition}: "
            f"{outcome['status']}{reason}"
        )

    run_cells(chosen, folder, jobs=jobs, dask=dask, launch=launch, tell=tell, note=note)
    return failed


def _incomplete(
    merge: Sequence[Path], missing: Sequence[CellRun], nruns: int
) -> ConfigError:
    names = ", ".join(
        f"{each.name} repetition {each.repetition}" for each in missing[:3]
    )
    return ConfigError(
        f"--merge {' '.join(map(str, merge))}",
        f"{len(missing)} of {nruns} results are missing: {names}"
        + (" and more" if len(missing) > 3 else ""),
        "run their shards, with the same suite, experiment and version of Chakram",
    )


def _written(
    plan: Plan, folder: Path, outcomes: Mapping[tuple[int, int], Outcome]
) -> tuple[list[CellResult], list[Path]]:
    """Write the result rows. Return the results of all cells, and the written files."""
    from chakram.sweep.tables import cell_results, rows, write_rows

    results = cell_results(plan.cells, outcomes)
    return results, write_rows(folder, rows(plan.cells, outcomes))


def _part(text: str) -> tuple[int, int]:
    index, slash, count = text.partition("/")
    numbers = slash and index.isdecimal() and count.isdecimal() and len(text) < 16
    # Slurm and Kubernetes number tasks from 0, so users have to add 1.
    if numbers and 1 <= int(index) <= int(count):
        return int(index), int(count)
    raise ConfigError(f"--shard {text}", "is not I/N with I from 1 to N", "e.g. 1/4")


def _list(runs: Sequence[CellRun], *, as_json: bool) -> None:
    if as_json:
        cells = [
            {
                "cell": run.number,
                "repetition": run.repetition,
                "name": run.name,
                "world": run.world,
                "set": dict(run.overrides),
            }
            for run in runs
        ]
        options.print_json("sweep-cells", {"cells": cells})
        return
    for run in runs:
        print(f"{run.number:4d}  {run.repetition:2d}  {run.world:<8}  {run.name}")


def _print(
    results: Sequence[CellResult], keys: Sequence[str], *, width: int | None
) -> None:
    from chakram.config.suite import text
    from chakram.console import number_format
    from chakram.console.text_table import Column

    if not results:
        print("# no cell has a result")
        return
    has_cases = any(each.cell.case for each in results)
    columns = [
        *([Column(heading="case")] if has_cases else []),
        *(Column(heading=key.rpartition(".")[2]) for key in keys),
        Column(heading="reps", order=4),
        Column(heading="iteration"),
        Column(heading="+-", order=3),
        Column(heading="busbw", unit="(GB/s)", order=1),
        Column(heading="change", unit="(%)"),
        Column(heading="errors", order=2),
        Column(heading="resent", unit="(%)", order=5),
        Column(heading="marked", unit="(%)", order=5),
        Column(heading="gen.bound", unit="(%)", order=6),
    ]
    cells = []
    for each in results:
        times, difference = each.iteration, each.difference
        cells.append(
            [
                *([each.cell.case] if has_cases else []),
                *(text(each.cell.values[key]) for key in keys),
                str(each.repetitions),
                number_format.time_text(times.mean_ns if times else None),
                number_format.time_text(times.error_ns if times else None),
                number_format.MISSING if each.bus_bw is None else f"{each.bus_bw:.4f}",
                _change(each),
                ""
                if difference is None
                else number_format.errors_text(difference.errors),
                number_format.percent_text(each.retransmitted_share),
                number_format.percent_text(each.marked_share),
                number_format.percent_text(each.generator_bound_share),
            ]
        )
    options.print_columns(columns, cells, width=width)
    if any(each.difference is not None for each in results):
        print(
            "# change: of the iteration time from its baseline; in parentheses: not "
            "significant"
        )


def _change(result: CellResult) -> str:
    from chakram.console.number_format import percent_text

    if result.difference is None:
        return "base" if result.cell.baseline is None else "N/A"
    change = percent_text(result.difference.change, sign="+")
    return change if result.difference.significant else f"({change})"


def _document(
    name: str,
    folder: Path,
    results: Sequence[CellResult],
    paths: Sequence[Path],
    missing: Sequence[CellRun],
    failed: Sequence[tuple[CellRun, str]],
) -> None:
    from chakram.sweep.tables import cell_document

    options.print_json(
        "sweep",
        {
            "suite": name,
            "folder": os.fspath(folder),
            "files": [os.fspath(path) for path in paths],
            "cells": [cell_document(each) for each in results],
            "missing": len(missing),
            "failed": [
                {"cell": run.number, "repetition": run.repetition, "reason": reason}
                for run, reason in failed
            ],
        },
    )
