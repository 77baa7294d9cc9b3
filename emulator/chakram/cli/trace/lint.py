"""``chakram trace lint``: whether a trace set can be replayed."""

from __future__ import annotations

from dataclasses import asdict

import typer

from chakram.cli.options import Json, print_json
from chakram.cli.trace.loading import (
    BytesPerElement,
    CommGroups,
    Dependencies,
    DropMissing,
    DurationUnit,
    Kineto,
    TracePath,
    Uncorrected,
    UnnamedGroup,
    load,
    warning_lines,
)

__all__ = ["lint"]

_PROBLEMS_SHOWN = 50


def lint(
    path: TracePath,
    bytes_per_element: BytesPerElement = None,
    comm_groups: CommGroups = None,
    dependencies: Dependencies = "auto",
    drop_missing_dependencies: DropMissing = False,
    duration_unit: DurationUnit = None,
    uncorrected: Uncorrected = None,
    kineto: Kineto = None,
    unnamed_group: UnnamedGroup = None,
    as_json: Json = False,
) -> None:
    """Check whether a trace set can be replayed.

    The exit code is 2 if it cannot.
    """
    from chakram.chakra.lint import check_across_ranks, check_trace_set

    traces = load(
        path,
        bytes_per_element,
        comm_groups,
        dependencies,
        drop_missing_dependencies,
        duration_unit,
        uncorrected,
        kineto,
        unnamed_group,
    )
    problems = check_trace_set(traces.graphs, traces.groups)
    notes: tuple[str, ...] = ()
    if not problems:
        problems, notes = check_across_ranks(traces.graphs, traces.groups)
    if as_json:
        print_json(
            {
                "name": traces.name,
                "problems": [asdict(problem) for problem in problems],
                "warnings": [asdict(warning) for warning in traces.warnings],
                "notes": notes,
            }
        )
    else:
        for line in warning_lines(traces):
            print(line)
        for note in notes:
            print(f"warning: {note}")
        for problem in problems[:_PROBLEMS_SHOWN]:
            print(f"problem: {problem}")
        if len(problems) > _PROBLEMS_SHOWN:
            print(f"and {len(problems) - _PROBLEMS_SHOWN} more problems (--json)")
        nodes = sum(map(len, traces.graphs.values()))
        print(
            f"{traces.nranks} ranks, {nodes} nodes: {len(problems)} problems, "
            f"{len(traces.warnings) + len(notes)} warnings"
        )
    if problems:
        raise typer.Exit(2)
