"""Options that several verbs have, and what they read the same way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chakram.errors import ConfigError

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment

__all__ = [
    "ExperimentPath",
    "Json",
    "Overrides",
    "PlanFile",
    "Runs",
    "print_json",
    "read_experiment",
]

ExperimentPath = Annotated[
    Path, typer.Argument(metavar="EXPERIMENT.yaml", help="Experiment file.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace a value of the file; may be repeated, e.g. "
        "--set iterations.measured=3 --set seed=2.",
    ),
]
Runs = Annotated[
    Path | None,
    typer.Option("--runs", help="Folder of run directories, instead of the file's."),
]
PlanFile = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        metavar="FILE",
        help="Take the programs from a saved plan (`chakram plan --save`), "
        "not from the traces.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def read_experiment(
    path: Path, overrides: list[str] | None, **named: str | None
) -> tuple[Experiment, str]:
    """Return the experiment in a file, and its text for the record.

    Args:
        path: The file.
        overrides: What ``--set`` says.
        named: By key of the file, what an option of that name says.

    Raises:
        ConfigError: If the file or an override is wrong.
    """
    from chakram.config.experiment import load_experiment

    values: dict[str, str] = {}
    for override in overrides or ():
        key, equals, value = override.partition("=")
        if not equals or not key:
            raise ConfigError(
                f"--set {override}", "is not KEY=VALUE", "e.g. iterations.measured=3"
            )
        values[key.strip()] = value
    options = {key: f"--{key} {value}" for key, value in named.items() if value}
    values |= {key: value for key, value in named.items() if value is not None}
    experiment = load_experiment(path, overrides=values, options=options)
    text = path.read_text(encoding="utf-8")
    # The file alone would not tell what was run.
    changes = [f"# --set {key}={value}\n" for key, value in values.items()]
    return experiment, "".join([*changes, text])


def print_json(document: object) -> None:
    """Print what ``--json`` promises, on standard output."""
    print(json.dumps(document, indent=2))
