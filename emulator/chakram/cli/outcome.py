"""Shows what a run or a simulation has given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.cli.options import print_json

if TYPE_CHECKING:
    from chakram.controller.shell import RunOutcome

__all__ = ["show_outcome"]


def show_outcome(outcome: RunOutcome, *, as_json: bool) -> None:
    """Print the results of a run; they say where they are kept.

    Raises:
        ChakramError: Why the run is not complete, after its results were shown.
    """
    if as_json:
        from chakram.observe.document import summary_document

        summary = outcome.summary
        document = {
            "directory": str(outcome.directory),
            "complete": outcome.error is None,
            "error": None if outcome.error is None else str(outcome.error),
            **(summary_document(summary) if summary is not None else {}),
        }
        print_json("run", document)
    else:
        print(outcome.table)
    if outcome.error is not None:
        raise outcome.error
