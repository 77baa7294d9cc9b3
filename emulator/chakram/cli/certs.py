"""``chakram certs``: certificates for a controller and its agents."""

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
            help="Make one for every host of its external fabric.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder to write to; an authority there signs again.")
    ] = Path("certs"),
    agent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=ADDRESS[,ADDRESS]",
            help="An agent and what controllers reach it by; may be repeated.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make certificates for a controller and its agents."""
    from chakram.control.certificates import make_certificates

    agents = {} if experiment is None else _agents_of(experiment)
    for text in agent or ():
        name, equals, addresses = text.partition("=")
        if not equals or not addresses:
            raise ConfigError(
                f"--agent {text}",
                "does not say what the agent is reached by",
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
    print(f"{key} stays here; agents need ca.pem and their own two files")


def _why_unsafe(folder: Path) -> str | None:
    """Return who else may put other keys in the place of these, None if nobody may."""
    for each in (resolved := folder.resolve(), *resolved.parents):
        mode = each.stat().st_mode
        # Of a folder with the sticky bit only owners remove what is in it.
        if mode & (stat.S_IWOTH | stat.S_IWGRP) and (
            each == resolved or not mode & stat.S_ISVTX
        ):
            who = "everybody" if mode & stat.S_IWOTH else "its group"
            return (
                f"{each}: {who} may write there, and so put certificates of their own "
                f"in place of these (chmod go-w {each}, or choose another --out)"
            )
    return None


def _agents_of(path: Path) -> dict[str, list[str]]:
    """Return the hosts of an experiment that are reached over the network."""
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
