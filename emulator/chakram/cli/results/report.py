"""``chakram report`` and ``chakram timeline``: HTML reports, and Perfetto timelines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chakram.cli.common.options import Force, Json, RunPath, print_json, say


def report(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Run directories, folders of run directories, or the folder of one "
            "sweep. Several runs are shown side by side.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("report.html"),
    bmwg: Annotated[
        bool,
        typer.Option(
            "--bmwg", help="Use the eight sections of the BMWG drafts on AI fabrics."
        ),
    ] = False,
    figures: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Also write every figure to this folder, as SVG and PNG. Needs "
            "Chromium.",
        ),
    ] = None,
    no_verify: Annotated[
        bool,
        typer.Option(
            "--no-verify", help="Do not test the causes of lost time by simulation."
        ),
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write an HTML report of one run, several runs, or a sweep.

    The report is one self-contained file.
    """
    from chakram.chakra.write.atomic_file import new_file, refuse_existing
    from chakram.diagnosis.verified_causes import BUDGET_S
    from chakram.run_directory.reader import open_run, runs_in
    from chakram.sweep.sweep_marker import is_sweep

    sweeps = [each for each in directories if is_sweep(each)]
    if not sweeps:
        directories = [run for each in directories for run in runs_in(each)]
    if bmwg and (len(directories) > 1 or sweeps):
        raise typer.BadParameter("--bmwg needs exactly one run")
    if sweeps and len(directories) > 1:
        raise typer.BadParameter(f"{sweeps[0]} is a sweep: give no other folder")
    refuse_existing(out, force=force)
    if sweeps:
        from chakram.report.sweep.page import suite_page

        page = suite_page(directories[0], out)
    elif len(directories) > 1:
        from chakram.report.compare_page import MOST_RUNS, compare_page

        if len(directories) > MOST_RUNS:
            raise typer.BadParameter(f"at most {MOST_RUNS} runs fit side by side")
        page = compare_page([open_run(directory) for directory in directories])
    elif bmwg:
        from chakram.report.bmwg_page import bmwg_page

        page = bmwg_page(open_run(directories[0]))
    else:
        from chakram.report.run.page import run_page

        budget_s = 0.0 if no_verify else BUDGET_S
        page = run_page(open_run(directories[0]), budget_s=budget_s, say=say)
    with new_file(out, force=force) as file:
        file.write(page.encode())
    drawn: list[Path] = []
    if figures is not None:
        from chakram.report.chromium_figures import export_figures

        drawn = export_figures(page, figures)
    if as_json:
        print_json("report", {"written": str(out), "figures": list(map(str, drawn))})
        return
    print(f"wrote {out}")
    if figures is not None:
        print(f"wrote {len(drawn)} figures to {figures}")


def timeline(
    directory: RunPath,
    out: Annotated[
        Path, typer.Option(help="File to write; compressed if its name ends in .gz.")
    ] = Path("timeline.json.gz"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a timeline of a run for ui.perfetto.dev."""
    from chakram.chakra.write.atomic_file import new_file
    from chakram.report.perfetto_timeline import write_timeline
    from chakram.report.run.data import RunData
    from chakram.run_directory.reader import open_run

    results = open_run(directory)
    data = RunData(results)
    with new_file(out, force=force) as file:
        counts = write_timeline(data, file.write)
    if as_json:
        document = {"written": str(out), "events": counts}
        print_json("timeline", {**document, "incomplete": results.incomplete})
        return
    if results.incomplete:
        print(f"note: {results.incomplete}")
    events = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    print(f"wrote {out}: {events}")
