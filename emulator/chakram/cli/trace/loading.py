"""What the verbs of ``chakram trace`` share: how a trace set is named and read."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from chakram.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from chakram.chakra.read.options import ReadOptions
    from chakram.chakra.sets.trace_set import TraceSet

__all__ = [
    "BytesPerElement",
    "CommGroups",
    "Dependencies",
    "Dimensions",
    "DropMissing",
    "DurationUnit",
    "Force",
    "Kineto",
    "TracePath",
    "Uncorrected",
    "UnnamedGroup",
    "load",
    "read_options",
    "reading_bar",
    "warning_lines",
]

TracePath = Annotated[
    Path,
    typer.Argument(
        help="Folder, archive, prefix, pattern, or one of the files; inside an "
        "archive: traces.tar.gz/PREFIX."
    ),
]
BytesPerElement = Annotated[
    int | None,
    typer.Option(
        min=1, max=64, help="What one unit of a stored size is worth (STAGE: 2 or 4)."
    ),
]
CommGroups = Annotated[
    Path | None, typer.Option(help="Group file, if not beside the traces.")
]
Dependencies = Annotated[
    str, typer.Option(help="Edges that order nodes: auto, data, control or both.")
]
Dimensions = Annotated[
    str | None,
    typer.Option(
        metavar="N,N,...",
        help="Ranks along each dimension, the one in which neighbours differ first, "
        "e.g. 8,4: for collectives of some dimensions (involved_dim).",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
DropMissing = Annotated[
    bool, typer.Option(help="Go on where a dependency names a node that is missing.")
]
DurationUnit = Annotated[
    str | None,
    typer.Option(
        help="What one unit of a stored duration is worth, e.g. 1ns; by default 1us."
    ),
]
Kineto = Annotated[
    Path | None,
    typer.Option(
        help="Profiles of PyTorch host traces, if not found beside them: folder, "
        "archive or prefix."
    ),
]
UnnamedGroup = Annotated[
    list[str] | None,
    typer.Option(
        help="Process group of operations that name none (gloo's, in PyTorch host "
        "traces), by name or purpose; or of one kind: all_reduce=dp. May be given "
        "several times."
    ),
]
Uncorrected = Annotated[
    list[str] | None,
    typer.Option(
        help="A correction not to make, by the name that stands in brackets behind "
        "it; may be given several times."
    ),
]


def read_options(
    bytes_per_element: int | None,
    dependencies: str,
    drop_missing_dependencies: bool,
    duration_unit: str | None,
    uncorrected: list[str] | None,
    unnamed_group: list[str] | None,
    dimensions: str | None = None,
) -> ReadOptions:
    """Return how the options of a verb say to read.

    Raises:
        ConfigError: If one of them has no such value.
    """
    from chakram.chakra.read.options import (
        CORRECTIONS,
        DependencyPolicy,
        ReadOptions,
        WarningKind,
    )
    from chakram.units import parse_time

    for name in uncorrected or ():
        if name not in CORRECTIONS:
            raise ConfigError(
                "--uncorrected",
                f"{name!r} is no correction",
                f"{', '.join(sorted(CORRECTIONS))} are",
            )

    if dependencies not in list(DependencyPolicy):
        raise ConfigError(
            "--dependencies",
            f"{dependencies!r} is none of {', '.join(DependencyPolicy)}",
        )
    return ReadOptions(
        bytes_per_element=bytes_per_element,
        dependencies=DependencyPolicy(dependencies),
        drop_missing_dependencies=drop_missing_dependencies,
        duration_unit_ns=None
        if duration_unit is None
        else parse_time(duration_unit, where="--duration-unit"),
        uncorrected=frozenset(map(WarningKind, uncorrected or ())),
        unnamed_groups=_unnamed_groups(unnamed_group or ()),
        dimensions=_sizes(dimensions),
    )


def _sizes(text: str | None) -> tuple[int, ...]:
    """Return the numbers of ranks along dimensions.

    Raises:
        ConfigError: If the text is not a list of them.
    """
    if text is None:
        return ()
    sizes = [part.strip() for part in text.split(",")]
    if not all(
        size.isascii() and size.isdecimal() and len(size) <= 9 and int(size)
        for size in sizes
    ):
        raise ConfigError(
            "--dimensions",
            f"{text!r} is no list of numbers of ranks",
            "e.g. 8,4: the dimension in which neighbours differ first",
        )
    return tuple(map(int, sizes))


def _unnamed_groups(stated: Iterable[str]) -> dict[str, str]:
    """Return process groups by operation.

    Raises:
        ConfigError: If there is no such operation.
    """
    from chakram.collectives.groups import ANY_OPERATION
    from chakram.config.jobs import UNNAMED_OPERATIONS

    groups: dict[str, str] = {}
    for text in stated:
        operation, equals, group = text.partition("=")
        if not equals:
            operation, group = ANY_OPERATION, text
        if operation not in UNNAMED_OPERATIONS or not group:
            raise ConfigError(
                "--unnamed-group",
                f"{text!r} is neither a group nor OPERATION=GROUP",
                f"operations are {', '.join(UNNAMED_OPERATIONS)}",
            )
        groups[operation] = group
    return groups


def load(
    path: Path,
    bytes_per_element: int | None,
    comm_groups: Path | None,
    dependencies: str,
    drop_missing_dependencies: bool,
    duration_unit: str | None = None,
    uncorrected: list[str] | None = None,
    kineto: Path | None = None,
    unnamed_group: list[str] | None = None,
    dimensions: str | None = None,
) -> TraceSet:
    """Return the trace set that the options of a verb name."""
    from chakram.chakra.sets.trace_set import load_trace_set

    options = read_options(
        bytes_per_element,
        dependencies,
        drop_missing_dependencies,
        duration_unit,
        uncorrected,
        unnamed_group,
        dimensions,
    )
    with reading_bar("reading traces") as on_rank:
        return load_trace_set(
            path,
            comm_groups=comm_groups,
            kineto=kineto,
            options=options,
            on_rank=on_rank,
        )


@contextmanager
def reading_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal; give what tells it (ranks done, ranks in all)."""
    console = Console(stderr=True)
    with Progress(
        console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def warning_lines(traces: TraceSet) -> list[str]:
    """Return a line for every kind of warning: ranks are mostly odd alike."""
    from chakram.chakra.read.options import CORRECTIONS, merge_warnings

    return [
        f"{'corrected' if kind in CORRECTIONS else 'warning'}: {sentence}"
        for kind, sentence in merge_warnings(traces.warnings).items()
    ]
