"""``chakram runs``: list the runs in a folder, one line each."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chakram.cli.common.fast_arrow_import import import_arrow_only
from chakram.cli.common.options import Json, print_json

if TYPE_CHECKING:
    from chakram.run_directory.run_list import ListedRun


_HEADINGS = (
    "started (UTC)",
    "name",
    "world",
    "status",
    "ranks",
    "iterations",
    "p50 time",
    "busbw (GB/s)",
    "resent %",
    "directory",
)
_NUMBERS = frozenset(range(4, 9))
"""Indices of the columns that are aligned to the right."""


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of run directories.")
    ] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List past runs."""
    import_arrow_only()
    from chakram.run_directory.run_list import list_runs

    found, unreadable = list_runs(folder)
    if as_json:
        print_json(
            "runs",
            {
                "runs": [_document(each) for each in found],
                "unreadable": [
                    {"directory": error.where, "reason": error.found}
                    for error in unreadable
                ],
            },
        )
        return
    if found:
        print("\n".join(_table([_HEADINGS, *map(_cells, found)])))
    else:
        print(f"there are no runs in {folder}")
    for each in found:
        if each.problem is not None:
            typer.echo(f"chakram: note: {each.directory}: {each.problem}", err=True)
    for error in unreadable:
        typer.echo(f"chakram: note: skipped: {error}", err=True)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number in _NUMBERS else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _cells(run: ListedRun) -> tuple[str, ...]:
    from chakram.console.number_format import MISSING, percent_text, time_text

    manifest, figures = run.manifest, run.figures
    busbw = figures.busbw
    return (
        manifest.started_at.partition("+")[0].replace("T", " "),
        manifest.name + (f" ({manifest.case})" if manifest.case else ""),
        manifest.world,
        manifest.status,
        str(figures.ranks),
        str(figures.iterations),
        time_text(figures.iteration_ns),
        MISSING if busbw is None else f"{busbw / 1e9:.4g}",
        percent_text(figures.retransmitted_share),
        str(run.directory),
    )


_OF_MANIFEST = (
    "run_id",
    "name",
    "case",
    "world",
    "status",
    "reason",
    "started_at",
    "ended_at",
    "dilation",
)


def _document(run: ListedRun) -> dict[str, object]:
    manifest = run.manifest
    figures = asdict(run.figures)
    busbw = figures.pop("busbw")
    return {
        "directory": str(run.directory),
        **{name: getattr(manifest, name) for name in _OF_MANIFEST},
        **figures,
        "bus_bw": None if busbw is None else busbw / 1e9,
        "problem": run.problem,
    }
