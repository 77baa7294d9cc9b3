"""``chakram why``: what a run's time was lost by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chakram.cli.options import Json, print_json

if TYPE_CHECKING:
    from chakram.results.causes import Why


_CAUSES = 4
_PARTS = 5
_PLACES = 3


def why(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="COLLECTIVE",
            help="Explain the time until this collective has ended, by its name or as "
            "group#k, not the whole iteration.",
        ),
    ] = None,
    job: Annotated[
        str | None, typer.Option("--job", metavar="JOB", help="Of this job alone.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what a run lost its time by: cause, place, rank."""
    from chakram.observe.run_results import open_run
    from chakram.observe.why import why_document, why_of

    results = open_run(run)
    found = why_of(results, until=until, job=job)
    if as_json:
        print_json("why", why_document(found))
        return
    print("\n".join(_lines(found, dilation=results.manifest.dilation)))


def _lines(why: Why, *, dilation: int) -> list[str]:
    """Return ten lines at most."""
    from chakram.observe.number_format import time_text

    def time(time_ns: int) -> str:
        mean_ns = time_ns // max(1, why.iterations)
        return f"{time_text(mean_ns // dilation)} us"

    def share(time_ns: int) -> str:
        return f"{100 * time_ns / why.time_ns:.1f} %" if why.time_ns else "0 %"

    first = why.first
    lines = [
        "First cause: no single cause"
        if first is None
        else f"First cause: {first}: {share(first.lost_ns)}",
        f"Iteration: {time(why.time_ns)} (mean of {why.iterations}), of which "
        f"{time(why.lost_ns)} ({share(why.lost_ns)}) lost on the critical path",
    ]
    lines += [
        f"  {share(each.lost_ns):>7}  {time(each.lost_ns)}  {each}"
        for each in why.causes[:_CAUSES]
    ]
    parts = sorted(why.parts_ns.items(), key=lambda item: -item[1])[:_PARTS]
    lines.append(
        "Path: " + ", ".join(f"{part} {share(time_ns)}" for part, time_ns in parts)
    )
    if why.by_rank:
        lines.append(
            "Lost by rank: "
            + ", ".join(f"{rank} {share(ns)}" for rank, ns in why.by_rank[:_PLACES])
        )
        lines.append(
            "Lost in: "
            + ", ".join(
                f"{what} {share(ns)}" for what, ns in why.by_collective[:_PLACES]
            )
        )
    lines.append(f"Unknown: {100 * why.unknown_share:.1f} % of the path")
    return lines
