"""Options shared by several verbs, and the parsing of their values."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chakram.foundation.errors import ConfigError

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.console.text_table import Column
    from chakram.fabric.inventory.port_choice import Prefix
    from chakram.launch.launched_agents import LaunchOptions


ExperimentPath = Annotated[
    Path, typer.Argument(metavar="EXPERIMENT.yaml", help="Experiment file.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace a value of the experiment file, e.g. "
        "--set iterations.measured=3. Can be repeated.",
    ),
]
Hosts = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Inventory file of an external fabric, instead of fabric.hosts.",
    ),
]
Runs = Annotated[
    Path | None,
    typer.Option(
        help="Folder for run directories, instead of the folder in the experiment."
    ),
]
Resources = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Do not trust the experiment: it may use only files in this folder, with "
        "paths relative to the folder, and no Python code.",
    ),
]
EndWithParent = Annotated[
    int,
    typer.Option(
        metavar="PID",
        help="Interrupt the run when its parent process PID ends.",
    ),
]
PlanFile = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        metavar="FILE",
        help="Read the programs from a saved plan (`chakram plan --save`) instead "
        "of the traces.",
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
        help="Time between progress lines on stderr, as in iperf3, or 0 for none.",
    ),
]
ReadingJobs = Annotated[
    int,
    typer.Option("--jobs", "-j", min=1, help="Number of processes that read traces."),
]
ReadingDask = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS",
        help="Read traces on the workers of this Dask scheduler.",
    ),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
Wide = Annotated[
    bool,
    typer.Option("--wide", help="Print all columns, even if they exceed the width."),
]
Report = Annotated[
    bool,
    typer.Option("--report", help="Also write an HTML report into the run directory."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def overrides_of(overrides: Sequence[str] | None) -> dict[str, str]:
    """Return the values of ``--set`` by key.

    Raises:
        ConfigError: If a value is not KEY=VALUE.
    """
    values: dict[str, str] = {}
    for override in overrides or ():
        key, equals, value = override.partition("=")
        if not equals or not key:
            raise ConfigError(
                f"--set {override}", "is not KEY=VALUE", "e.g. iterations.measured=3"
            )
        # A repeated key moves to the end, so that it also overrides keys that contain
        # it.
        values.pop(key.strip(), None)
        values[key.strip()] = value
    return values


def read_experiment(
    path: Path,
    overrides: list[str] | None,
    *,
    hosts: Path | None = None,
    launching: LaunchOptions | None = None,
    resources: Path | None = None,
    **named: str | None,
) -> tuple[Experiment, str]:
    """Return the experiment in a file, and the text to save with the run.

    Args:
        path: Path of the experiment file.
        overrides: The values of ``--set``.
        hosts: Inventory file, instead of ``fabric.hosts``.
        launching: Options for starting agents. In a Slurm job, hosts outside the
            allocation are left out.
        resources: Folder with the files that the experiment may name. None means no
            limit.
        named: Values of options, by the key of the file that each option sets.

    Raises:
        ConfigError: If the file or an override is invalid.
    """
    from chakram.config.experiment import load_experiment
    from chakram.settings.yaml_document import recorded_changes

    values = overrides_of(overrides)
    options = {key: f"--{key} {value}" for key, value in named.items() if value}
    values |= {key: value for key, value in named.items() if value is not None}
    if hosts is not None:
        if not values.keys() & {"fabric", "fabric.kind"}:
            _refuse_fabric_without_hosts(path, hosts)
        values["fabric.hosts"] = json.dumps(str(hosts.absolute()))
        options["fabric.hosts"] = f"--hosts {hosts}"
    experiment = load_experiment(
        path, overrides=values, options=options, confined_to=resources
    )
    if launching is not None:
        experiment = launching.on_allocated_hosts(experiment)
    text = path.read_text(encoding="utf-8")
    # Without the changes, the text would not describe the run.
    return experiment, recorded_changes(values) + text


def _refuse_fabric_without_hosts(path: Path, hosts: Path) -> None:
    """Refuse ``--hosts`` for an experiment whose fabric has no real hosts.

    Raises:
        ConfigError: If the fabric has no real hosts, or the file cannot be read.
    """
    from chakram.settings.yaml_document import read_document

    fabric = read_document(path).data.get("fabric")
    kind = fabric.get("kind") if isinstance(fabric, dict) else None
    if isinstance(kind, str) and kind != "external":
        raise ConfigError(
            f"--hosts {hosts}",
            f"the fabric of {path} is of kind {kind[:40]}, which has no hosts",
            "use fabric.kind: external, as in configs/external.yaml",
        )


def end_with_parent(pid: int) -> None:
    """Interrupt this process when its parent, process *pid*, ends."""
    if not pid:
        return
    import signal

    from chakram.fabric.process_control import die_with_parent

    die_with_parent(pid, signal_number=signal.SIGTERM)


def prefixes_of(option: str, texts: Sequence[str]) -> list[Prefix]:
    """Return the address prefixes in the values of an option.

    Raises:
        ConfigError: If a prefix is not valid.
    """
    from pydantic_core import PydanticCustomError

    from chakram.settings.addresses import prefix

    try:
        return [prefix(text) for text in texts]
    except PydanticCustomError as error:
        found = error.context or {}
        raise ConfigError(option, found["found"], found["hint"]) from None


def say(text: str) -> None:
    """Print a message about the progress of a verb on standard error."""
    print(text, file=sys.stderr, flush=True)


PIPE_WIDTH = 120
"""Width in characters if the output is not a terminal."""


def output_width(*, wide: bool) -> int | None:
    """Return the maximum width of tables on standard output, or None if unlimited."""
    return None if wide else shutil.get_terminal_size((PIPE_WIDTH, 24)).columns


def sentence_width(*, wide: bool) -> int | None:
    """Return the width at which sentences wrap: the terminal's, or None elsewhere."""
    return output_width(wide=wide) if sys.stdout.isatty() else None


def print_columns(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int | None
) -> None:
    """Print a table as ``fitted`` formats it, with ``#`` before heading lines."""
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
        "bug-report",
        "certificates",
        "comparison",
        "dashboards-written",
        "dcqcn",
        "diff",
        "doctor",
        "examples-written",
        "experiment-written",
        "experiments",
        "exported",
        "fabric",
        "fabric-section",
        "gate",
        "hosts",
        "hosts-checked",
        "hosts-pushed",
        "interference",
        "inventory",
        "lab",
        "labs",
        "labs-ended",
        "launch",
        "logs",
        "nic",
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
"""Documents that ``--json`` prints, with their versions.

A version increases if a key is removed or changes its meaning, not if a key is added.
docs/reference/command-line.md describes the documents."""


def json_text(kind: str, document: Mapping[str, Any]) -> str:
    """Return a document of ``--json``, whose first key gives its kind and version.

    Raises:
        KeyError: If ``DOCUMENTS`` does not list the kind.
    """
    schema = f"chakram.{kind}/{DOCUMENTS[kind]}"
    return json.dumps({"schema": schema, **document}, indent=2)


def print_json(kind: str, document: Mapping[str, Any]) -> None:
    """Print a document of ``--json`` on standard output."""
    print(json_text(kind, document))
