"""``chakram logs``: print the logs of a run's agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chakram.cli.common.options import Json, print_json
from chakram.foundation.errors import ConfigError


def logs(
    directory: Annotated[
        Path, typer.Argument(metavar="RUN", help="Run directory, e.g. runs/20260131...")
    ],
    host: Annotated[
        str | None,
        typer.Argument(help="Host or launcher. Default: all hosts and launchers."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the logs of a run's agents."""
    from chakram.run_directory.agent_logs import agent_logs

    found = agent_logs(directory)
    if host is not None:
        if host not in found:
            known = ", ".join(found) or "no log at all"
            raise ConfigError(
                f"{directory}: {host}", "has no log", f"this run has: {known}"
            )
        found = {host: found[host]}
    if as_json:
        print_json("logs", {"logs": found})
        return
    if not found:
        typer.echo("chakram: note: no agent of this run wrote a log", err=True)
    for name, text in found.items():
        for line in text.splitlines():
            print(f"{name}: {line}")
