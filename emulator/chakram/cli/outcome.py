"""Shows what a run or a simulation has given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.cli.options import output_width, print_json

if TYPE_CHECKING:
    from chakram.controller.outcome import RunOutcome
    from chakram.results.summary import Summary

__all__ = ["print_table", "show_outcome"]


def show_outcome(outcome: RunOutcome, *, as_json: bool, wide: bool = False) -> None:
    """Print the results of a run; they say where they are kept.

    Raises:
        ChakramError: Why the run is not complete, after its results were shown.
    """
    if as_json:
        from chakram.observe.document import summary_document

        document = {
            "directory": str(outcome.directory),
            "complete": outcome.error is None,
            "error": None if outcome.error is None else str(outcome.error),
            **summary_document(outcome.summary),
        }
        print_json("run", document)
    else:
        print_table(outcome.summary, wide=wide)
    if outcome.error is not None:
        raise outcome.error


def print_table(summary: Summary, *, wide: bool) -> None:
    """Print the table of a run on standard output."""
    from chakram.observe.console import render_table

    print(render_table(summary, width=output_width(wide=wide)))
