"""``chakram certs``: create certificates for a controller and its agents."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Annotated

import typer

from chakram.cli.common.options import Json, print_json
from chakram.foundation.errors import ConfigError

_AUTHORITY_KEY = "ca.key"


def certs(
    experiment: Annotated[
        Path | None,
        typer.Argument(
            metavar="[EXPERIMENT.yaml]",
            help="Experiment file. Each host of its external fabric gets a "
            "certificate.",
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="Folder to write to. An existing certificate authority in this "
            "folder signs the new certificates."
        ),
    ] = Path("certs"),
    agent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=ADDRESS[,ADDRESS]",
            help="Name and addresses of an agent. Can be repeated.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create certificates for a controller and its agents."""
    from chakram.control.certificates import make_certificates

    agents = {} if experiment is None else _agents_of(experiment)
    for text in agent or ():
        name, equals, addresses = text.partition("=")
        if not equals or not addresses:
            raise ConfigError(
                f"--agent {text}",
                "has no address",
                "e.g. --agent h1=192.0.2.11",
            )
        agents[name] = addresses.split(",")
    if not agents:
        raise ConfigError(
            "chakram certs",
            "no agent is named",
            "give an experiment with an external fabric, or --agent h1=192.0.2.11",
        )
    written = make_certificates(out, agents)
    warning = _why_unsafe(out)
    if warning is not None:
        print(f"chakram: warning: {warning}", file=sys.stderr)
    key = out / _AUTHORITY_KEY
    if as_json:
        document = {
            "written": [str(path) for path in written],
            "authority_key": str(key),
            "agents": agents,
            "warnings": [] if warning is None else [warning],
        }
        print_json("certificates", document)
        return
    for path in written:
        print(path)
    print(f"keep {key} here; each agent needs ca.pem and its own two files")


def _why_unsafe(folder: Path) -> str | None:
    """Return the reason why other users could replace files in *folder*, or None."""
    for each in (resolved := folder.resolve(), *resolved.parents):
        mode = each.stat().st_mode
        # In a folder with the sticky bit, only owners can remove files.
        if mode & (stat.S_IWOTH | stat.S_IWGRP) and (
            each == resolved or not mode & stat.S_ISVTX
        ):
            who = "every user" if mode & stat.S_IWOTH else "its group"
            return (
                f"{each}: {who} can write to this folder and replace the certificates "
                f"(chmod go-w {each}, or choose another --out)"
            )
    return None


def _agents_of(path: Path) -> dict[str, list[str]]:
    """Return the addresses of an experiment's agents on remote hosts, by agent name."""
    from chakram.config.experiment import load_experiment

    fabric = load_experiment(path).fabric
    agents = fabric.agent_addresses()
    if agents is None:
        raise ConfigError(
            f"{path}: fabric.kind",
            f"{fabric.kind!r} needs no certificates",
            "only kind: external has agents on other machines",
        )
    return agents
