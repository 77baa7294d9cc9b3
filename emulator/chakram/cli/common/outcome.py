"""Print the results of a run or simulation."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.cli.common.options import output_width, print_json, sentence_width

if TYPE_CHECKING:
    from chakram.analysis.cause_ranking import Verdict
    from chakram.execution.outcome import RunOutcome
    from chakram.formats.astra_sim import ComparedTimes
    from chakram.run_directory.reader import RunResults
    from chakram.summary.run_summary import Summary

REPORT = "report.html"
"""Name of the report in a run directory."""


def show_outcome(
    outcome: RunOutcome,
    *,
    as_json: bool,
    wide: bool = False,
    report: bool = False,
    against: tuple[Path, Sequence[ComparedTimes]] | None = None,
) -> None:
    """Print the results of a run, the run directory and a conclusion in words.

    Args:
        outcome: Outcome of the run.
        as_json: Print one JSON document instead.
        wide: Print all columns.
        report: Also write an HTML report into the run directory.
        against: A result file of another simulator, and the comparison with it.

    Raises:
        ChakramError: If the run is incomplete. Its results are printed first.
    """
    page, verdict = _write_report(outcome.directory) if report else (None, None)
    if as_json:
        from chakram.console.summary_document import summary_document

        document = {
            "directory": str(outcome.directory),
            "complete": outcome.error is None,
            "error": None if outcome.error is None else str(outcome.error),
            **summary_document(outcome.summary),
        }
        if page is not None:
            document["report"] = str(page)
        if against is not None:
            rows = [
                {**each._asdict(), "deviation": each.deviation} for each in against[1]
            ]
            document["against"] = {"file": str(against[0]), "rows": rows}
        print_json("run", document)
    else:
        print_results(outcome.summary, outcome.results, wide=wide, verdict=verdict)
        if against is not None:
            _print_against(*against, width=output_width(wide=wide))
    if outcome.error is not None:
        raise outcome.error


def _write_report(directory: Path) -> tuple[Path, Verdict | None]:
    """Write the HTML report of a run. Return its path, and the tested causes."""
    from chakram.diagnosis.verified_causes import BUDGET_S
    from chakram.report.run.page import page_and_causes
    from chakram.run_directory.reader import open_run

    path = directory / REPORT

    def say(text: str) -> None:
        # Omit the hint, which names an option of `chakram report`.
        print(text.partition(" (--")[0], file=sys.stderr, flush=True)

    page, verified = page_and_causes(open_run(directory), budget_s=BUDGET_S, say=say)
    path.write_text(page, encoding="utf-8")
    return path, verified.verdict


def _print_against(
    path: Path, found: Sequence[ComparedTimes], *, width: int | None
) -> None:
    """Print simulated values next to the values of another simulator."""
    from chakram.console.text_table import Column, fitted

    print(f"# compared with {path}")
    heading, rows = fitted(
        [
            Column(heading="what"),
            Column(heading="simulated", unit="(us)"),
            Column(heading="other", unit="(us)"),
            Column(heading="dev", unit="(%)"),
        ],
        [
            (
                each.what,
                f"{each.own_ns / 1000:.3f}",
                f"{each.other_ns / 1000:.3f}",
                "N/A" if each.deviation is None else f"{100 * each.deviation:+.1f}",
            )
            for each in found
        ],
        width=width,
    )
    for line in heading:
        print(f"#{line}")
    for line in rows:
        print(f" {line}")


def print_results(
    summary: Summary,
    results: RunResults,
    *,
    wide: bool,
    verdict: Verdict | None = None,
) -> None:
    """Print the result table of a run, and the conclusion in words."""
    from chakram.analysis.run_causes import injected_faults, quick_why
    from chakram.analysis.run_conclusion import answer_lines
    from chakram.summary.run_summary import COMPLETE

    print_table(summary, wide=wide)
    page = results.path / REPORT
    answer = answer_lines(
        summary,
        quick_why(results) if summary.facts.status == COMPLETE else None,
        injected=injected_faults(results),
        verdict=verdict,
        written=[f"Report: {page}"] if page.exists() else [],
    )
    if answer:
        _print_lines(["#", *answer], wide=wide)


def print_table(summary: Summary, *, wide: bool) -> None:
    """Print the result table of a run on standard output."""
    from chakram.console.collective_tables import render_table

    table = render_table(summary, width=output_width(wide=wide))
    _print_lines(table.splitlines(), wide=wide)


def _print_lines(lines: Iterable[str], *, wide: bool) -> None:
    """Print lines, and wrap the sentences among them."""
    from chakram.console.collective_tables import wrapped

    width = sentence_width(wide=wide)
    for line in lines:
        print("\n".join(wrapped(line, width)))
