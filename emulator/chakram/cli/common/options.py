"""Options that several verbs have, and what they read the same way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chakram.foundation.errors import ConfigError

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.console.text_table import Column


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
Interval = Annotated[
    float,
    typer.Option(
        "--interval",
        "-i",
        metavar="SECONDS",
        min=0,
        max=3600,
        help="Time between lines of progress on stderr, as of iperf3; 0: none.",
    ),
]
Wide = Annotated[
    bool, typer.Option("--wide", help="Print every column, however wide the table.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def overrides_of(overrides: Sequence[str] | None) -> dict[str, str]:
    """Return what ``--set`` says: values by key.

    Raises:
        ConfigError: If one is not KEY=VALUE.
    """
    values: dict[str, str] = {}
    for override in overrides or ():
        key, equals, value = override.partition("=")
        if not equals or not key:
            raise ConfigError(
                f"--set {override}", "is not KEY=VALUE", "e.g. iterations.measured=3"
            )
        # What was said last holds, also over what it is a part of.
        values.pop(key.strip(), None)
        values[key.strip()] = value
    return values


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

    values = overrides_of(overrides)
    options = {key: f"--{key} {value}" for key, value in named.items() if value}
    values |= {key: value for key, value in named.items() if value is not None}
    experiment = load_experiment(path, overrides=values, options=options)
    text = path.read_text(encoding="utf-8")
    # The file alone would not tell what was run.
    changes = [f"# --set {key}={value}\n" for key, value in values.items()]
    return experiment, "".join([*changes, text])


PIPE_WIDTH = 120
"""Columns of characters where nobody knows how many there are."""


def output_width(*, wide: bool) -> int | None:
    """Return how wide tables on standard output may be; None: any width."""
    return None if wide else shutil.get_terminal_size((PIPE_WIDTH, 24)).columns


def print_columns(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int | None
) -> None:
    """Print a table as ``fitted`` makes it; lines of its heading begin with ``#``."""
    from chakram.console.text_table import fitted

    heading, lines = fitted(columns, rows, width=width)
    for line in (*(f"#{each[1:]}" for each in heading), *lines):
        print(line.rstrip())


DOCUMENTS = dict.fromkeys(
    (
        "algorithm",
        "algorithms",
        "astra-collective",
        "bench",
        "certificates",
        "comparison",
        "dcqcn",
        "diff",
        "doctor",
        "experiment-written",
        "experiments",
        "exported",
        "fabric",
        "fabric-section",
        "gate",
        "interference",
        "lab",
        "labs",
        "labs-ended",
        "plan",
        "ports",
        "preflight",
        "queue-pairs",
        "report",
        "run",
        "runs",
        "timeline",
        "sweep",
        "sweep-cells",
        "trace",
        "trace-cut",
        "trace-lint",
        "trace-messages",
        "trace-synth",
        "trace-written",
        "validation",
        "why-difference",
    ),
    1,
) | {"why": 2}
"""What ``--json`` prints, each with its version: it grows when a key goes or changes
its meaning, not when one is added.  docs/reference/command-line.md describes them."""


def json_text(kind: str, document: Mapping[str, Any]) -> str:
    """Return a document of ``--json``; its first key says which and in which version.

    Raises:
        KeyError: If nobody has declared such a document.
    """
    schema = f"chakram.{kind}/{DOCUMENTS[kind]}"
    return json.dumps({"schema": schema, **document}, indent=2)


def print_json(kind: str, document: Mapping[str, Any]) -> None:
    """Print what ``--json`` promises, on standard output."""
    print(json_text(kind, document))
