"""``chakram trace show``: what a trace set holds."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from chakram.cli.options import Json, print_json
from chakram.cli.sizes import about_size
from chakram.cli.trace.loading import (
    BytesPerElement,
    CommGroups,
    Dependencies,
    DropMissing,
    TracePath,
    load,
    warning_lines,
)
from chakram.units import format_time

__all__ = ["show"]


def show(
    path: TracePath,
    bytes_per_element: BytesPerElement = None,
    comm_groups: CommGroups = None,
    dependencies: Dependencies = "auto",
    drop_missing_dependencies: DropMissing = False,
    as_json: Json = False,
) -> None:
    """Show what a trace set holds: ranks, nodes, groups, traffic."""
    from chakram.chakra.summary import summarize

    traces = load(
        path, bytes_per_element, comm_groups, dependencies, drop_missing_dependencies
    )
    summary = summarize(traces.graphs, traces.groups)
    if as_json:
        print_json(
            {
                "name": traces.name,
                "producer": traces.producer,
                "schema": traces.schema,
                "digest": traces.digest,
                "ranks": traces.nranks,
                "groups": {name: g.ranks for name, g in traces.groups.items()},
                "warnings": [asdict(warning) for warning in traces.warnings],
                **asdict(summary),
            }
        )
        return
    console = Console()
    facts = Table(box=None, show_header=False)
    for name, value in (
        ("trace set", traces.name),
        ("producer", f"{traces.producer} (schema {traces.schema})"),
        ("digest", traces.digest[:16]),
        ("ranks", str(traces.nranks)),
        ("process groups", str(len(traces.groups))),
        (
            "nodes",
            ", ".join(f"{n} {kind}" for kind, n in summary.nodes_by_kind.items()),
        ),
        ("nodes per rank", f"{summary.min_rank_nodes} to {summary.max_rank_nodes}"),
        ("stated durations", f"{format_time(summary.max_rank_duration_ns)} at most"),
        ("operations", f"{summary.num_ops:.3g}"),
    ):
        facts.add_row(name, value)
    console.print(facts)
    rows = Table(
        "communication", "ranks", "groups", "nodes", "smallest", "largest", "all"
    )
    for column in rows.columns[1:]:
        column.justify = "right"
    for row in summary.communication:
        rows.add_row(
            row.what,
            "" if row.group_ranks is None else str(row.group_ranks),
            str(row.groups),
            str(row.nodes),
            about_size(row.min_bytes),
            about_size(row.max_bytes),
            about_size(row.total_bytes),
        )
    console.print(rows)
    for line in warning_lines(traces):
        console.print(line, markup=False, highlight=False)
