"""``chakram completion``: scripts that complete commands in a shell."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    """Shells with a completion script."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(
    context: typer.Context,
    shell: Annotated[Shell, typer.Argument(help="Shell that you use.")],
) -> None:
    """Print a script that completes commands in your shell."""
    from typer.completion import shell_complete

    register_shells()
    command = context.find_root().command
    raise typer.Exit(
        shell_complete(
            command, {}, "chakram", "_CHAKRAM_COMPLETE", f"source_{shell.value}"
        )
    )


def register_shells() -> None:
    """Register the shells that Typer supports.

    Typer registers them only if its own completion options are enabled.
    """
    from typer.completion import get_completion_inspect_parameters

    get_completion_inspect_parameters()
