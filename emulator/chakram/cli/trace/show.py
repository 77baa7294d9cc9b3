"""``chakram trace show``: the content of a trace set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chakram.cli.common.dataclass_options import with_options
from chakram.cli.common.options import Json, print_json
from chakram.cli.trace import loading

if TYPE_CHECKING:
    from chakram.chakra.sets.trace_set import TraceSet
    from chakram.chakra.summary.summary import TraceSummary


@with_options("reading", loading.Reading)
def show(
    path: loading.TracePath,
    reading: loading.Reading,
    html: Annotated[
        Path | None,
        typer.Option(help="Also write a self-contained HTML page with plots."),
    ] = None,
    force: loading.Force = False,
    as_json: Json = False,
) -> None:
    """Show the ranks, nodes, groups and traffic of a trace set.

    Traffic is computed with the default algorithms of an experiment.
    """
    traces = reading.load(path)
    unit = reading.bytes_per_element
    summary = _summary(traces)
    if html is not None:
        _write_page(html, traces, summary, unit, force=force)
    if as_json:
        from chakram.report.trace.document import trace_document

        print_json(
            "trace",
            trace_document(traces, summary, bytes_per_element=unit),
        )
        return
    from chakram.cli.trace.summary_tables import print_summary

    print_summary(traces, summary, bytes_per_element=unit)
    if html is not None:
        print(f"wrote {html}")


def _summary(traces: TraceSet) -> TraceSummary:
    from chakram.chakra.summary.summary import summarize

    with loading.reading_bar("summarizing") as on_rank:
        return summarize(traces.graphs, traces.groups, on_rank=on_rank)


def _write_page(
    path: Path,
    traces: TraceSet,
    summary: TraceSummary,
    bytes_per_element: int | None,
    *,
    force: bool,
) -> None:
    from chakram.chakra.write.atomic_file import new_file
    from chakram.report.trace.page import trace_page

    page = trace_page(traces, summary, bytes_per_element=bytes_per_element)
    with new_file(path, force=force) as file:
        file.write(page.encode())
