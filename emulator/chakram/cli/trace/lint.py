"""``chakram trace lint``: check whether a trace set can be replayed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from chakram.cli.common.dataclass_options import with_options
from chakram.cli.common.options import Json, ReadingDask, ReadingJobs, print_json
from chakram.cli.trace.loading import Reading, TracePath
from chakram.console.number_format import counted_text
from chakram.foundation.errors import InputError

if TYPE_CHECKING:
    from chakram.chakra.lint.lint_trace_set import Finding


_OF_A_RULE_SHOWN = 10
"""Maximum number of different problems that are printed per rule."""
_WORDS = {"correction": "corrected"}
"""First word of an output line, if it differs from the name of the severity."""


@with_options("reading", Reading)
def lint(
    path: TracePath,
    reading: Reading,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also exit with code 2 for warnings.")
    ] = False,
    jobs: ReadingJobs = 1,
    dask: ReadingDask = None,
    as_json: Json = False,
) -> None:
    """Check whether a trace set can be replayed.

    The checks find causes of hangs, failures and misleading results of a replay. The
    exit code is 2 if the set cannot be replayed.
    """
    from chakram.chakra.lint.lint_trace_set import lint_trace_set
    from chakram.chakra.lint.rule_table import Severity
    from chakram.preparation.workers import readers

    with readers(jobs, dask) as workers:
        report = reading.read(path, partial(lint_trace_set, workers=workers))
    problems = report.of(Severity.PROBLEM)
    warnings = report.of(Severity.WARNING)
    corrections = report.of(Severity.CORRECTION)
    # Keep the order, so that corrections of a rank are next to its warnings.
    others = report.of(Severity.WARNING, Severity.CORRECTION)
    if as_json:
        print_json(
            "trace-lint",
            {
                "name": report.name,
                "ranks": report.ranks,
                "nodes": report.nodes,
                "findings": [asdict(each) for each in (*problems, *others)],
            },
        )
    else:
        for line in _merged(others, _same_oddity):
            print(line)
        for line in _problem_lines(problems):
            print(line)
        ranks = counted_text(report.ranks, "rank")
        about = f"{ranks}, {counted_text(report.nodes, 'node')}"
        counts = [
            counted_text(len(problems), "problem"),
            counted_text(len(warnings), "warning"),
            *([counted_text(len(corrections), "correction")] if corrections else ()),
        ]
        print(f"{about if report.ranks else 'not read'}: {', '.join(counts)}")
    if problems or (strict and warnings):
        raise typer.Exit(InputError.exit_code)


def _same_oddity(finding: Finding) -> Hashable:
    # Ranks mostly have the same anomalies, but each group has a separate line.
    of_group = finding.rank is None or finding.where.startswith("process group ")
    place = finding.where if of_group else None
    return finding.rule, finding.severity, place


def _problem_lines(problems: list[Finding]) -> Iterator[str]:
    """Yield one line per group of equal problems, up to a limit per rule."""
    by_rule: dict[str, list[Finding]] = {}
    for each in problems:
        by_rule.setdefault(each.rule, []).append(each)
    for rule, broken in by_rule.items():
        merged = _merged(broken, lambda each: (each.rule, each.found, each.remedy))
        yield from merged[:_OF_A_RULE_SHOWN]
        if len(merged) > _OF_A_RULE_SHOWN:
            more = len(merged) - _OF_A_RULE_SHOWN
            yield f"problem: and {more} more of this rule (see --json) [{rule}]"


def _merged(findings: list[Finding], alike: Callable[[Finding], Hashable]) -> list[str]:
    """Return one line per group of equal findings: the first one and the count."""
    from chakram.chakra.lint.rule_table import Severity
    from chakram.chakra.read.reader_options import counted_name

    together: dict[Hashable, list[Finding]] = {}
    for finding in findings:
        together.setdefault(alike(finding), []).append(finding)
    lines: list[str] = []
    for first, *others in together.values():
        name = counted_name(
            first.rule,
            count=sum(each.count for each in (first, *others)),
            ranks=1 + len({each.rank for each in others} - {first.rank, None}),
        )
        word = _WORDS.get(first.severity, first.severity)
        # A correction needs no action.
        corrected = first.severity is Severity.CORRECTION
        remedy = "" if corrected else f" ({first.remedy})"
        lines.append(f"{word}: {first.where}: {first.found}{remedy} {name}")
    return lines
