"""``chakram certs``: certificates for controllers and agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from chakram.errors import ConfigError

__all__ = ["certs"]


def certs(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where they go; made if missing.")
    ],
    agent: Annotated[
        list[str] | None,
        typer.Option(
            "--agent",
            metavar="NAME=ADDR[,ADDR...]",
            help="An agent, with the addresses or host names to connect to.",
        ),
    ] = None,
    days: Annotated[
        int, typer.Option(min=1, max=3650, help="How long they are valid.")
    ] = 825,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of text.")
    ] = False,
) -> None:
    """Make an authority, a certificate for the controller and one per agent.

    An authority that is in DIR already signs the new ones.
    """
    from chakram.control.certificates import make_certificates

    written = make_certificates(folder, parse_agents(agent or []), days=days)
    if as_json:
        print(json.dumps({"written": [str(path) for path in written]}, indent=2))
        return
    for path in written:
        print(path)
    print(
        "copy ca.pem and an agent's NAME.pem and NAME.key to its host; "
        "ca.key stays here"
    )


def parse_agents(texts: list[str]) -> dict[str, list[str]]:
    """Return addresses by name from texts such as ``h1=192.0.2.11,h1.example``.

    Raises:
        ConfigError: If a text has another form or a name comes twice.
    """
    agents: dict[str, list[str]] = {}
    for text in texts:
        name, equals, addresses = text.partition("=")
        if not equals or not name or not addresses:
            raise ConfigError(
                f"--agent {text}", "it is not NAME=ADDR", "e.g. --agent h1=192.0.2.11"
            )
        if name in agents:
            raise ConfigError(f"--agent {text}", f"{name} comes twice")
        agents[name] = addresses.split(",")
    return agents
