"""``chakram export openmetrics``: a run, with times, for Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chakram.cli.export.source import Force, Out, Source, results_of, write
from chakram.cli.options import Json, Overrides, Runs

__all__ = ["openmetrics"]

_STEP = "--step"


def openmetrics(
    source: Source,
    out: Out = Path(),
    step: Annotated[
        str, typer.Option(_STEP, metavar="TIME", help="Time between two samples.")
    ] = "10ms",
    runs: Runs = None,
    overrides: Overrides = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write run.om: the metrics of a run with times, as promtool reads them."""
    from chakram.observe.backfill import openmetrics as lines_of
    from chakram.units import parse_time

    step_ns = parse_time(step, where=_STEP)
    if step_ns < 10**6 or step_ns % 10**6:
        raise typer.BadParameter(
            f"{_STEP} {step}: Prometheus knows whole milliseconds, 1ms at least"
        )
    results = results_of(source, overrides, runs, quiet=as_json)
    text = "".join(lines_of(results, step_ns=step_ns))
    write(out, {"run.om": text.encode()}, force=force, as_json=as_json)
