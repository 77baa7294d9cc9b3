"""``chakram show``: the results of a run that was, as it printed them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chakram.cli.options import Json, print_json

__all__ = ["show"]


def show(
    directory: Annotated[
        Path, typer.Argument(metavar="RUN", help="Run directory, e.g. runs/20260131...")
    ],
    as_json: Json = False,
) -> None:
    """Print the results of a run that was."""
    from chakram.observe.console import render_table
    from chakram.observe.document import summary_document
    from chakram.observe.run_results import open_run

    summary = open_run(directory).summary()
    if as_json:
        print_json(summary_document(summary))
    else:
        print(render_table(summary))
