"""Options and functions that the verbs of ``chakram trace`` share to read traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.progress import Progress

from chakram.cli.common.escaping_console import Console
from chakram.foundation.errors import ConfigError

if TYPE_CHECKING:
    from chakram.chakra.read.reader_options import ReadOptions
    from chakram.chakra.sets.trace_set import TraceSet


_T = TypeVar("_T")

TracePath = Annotated[
    Path,
    typer.Argument(
        help="Trace set: a folder, archive, prefix, pattern, or one of its files. "
        "Inside an archive: traces.tar.gz/PREFIX."
    ),
]
BytesPerElement = Annotated[
    int | None,
    typer.Option(
        min=1, max=64, help="Bytes per unit of sizes, e.g. 2 or 4 for STAGE traces."
    ),
]
CommGroups = Annotated[
    Path | None, typer.Option(help="Group file, if it is not next to the traces.")
]
Dependencies = Annotated[
    str, typer.Option(help="Edges that order nodes: auto, data, control or both.")
]
Dimensions = Annotated[
    str | None,
    typer.Option(
        metavar="N,N,...",
        help="Ranks along each dimension, e.g. 8,4, for collectives over some "
        "dimensions (involved_dim). Adjacent ranks differ in the first dimension.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]
DropMissing = Annotated[
    bool, typer.Option(help="Ignore dependencies on nodes that are missing.")
]
DurationUnit = Annotated[
    str | None,
    typer.Option(
        help="Length of one unit of a stored duration, e.g. 1ns. Default: 1us."
    ),
]
Kineto = Annotated[
    Path | None,
    typer.Option(
        help="Profiles of PyTorch host traces, if they are not next to the traces: a "
        "folder, archive or prefix."
    ),
]
UnnamedGroup = Annotated[
    list[str] | None,
    typer.Option(
        help="Name or purpose of the process group for operations without a recorded "
        "group, such as gloo operations in PyTorch host traces. For one operation: "
        "all_reduce=dp. Can be repeated."
    ),
]
Uncorrected = Annotated[
    list[str] | None,
    typer.Option(
        help="Turn off this correction of the trace. Each warning about a correction "
        "ends with the correction's name in brackets. Can be repeated."
    ),
]


def _sizes(text: str | None) -> tuple[int, ...]:
    """Parse ``--dimensions``: the number of ranks along each dimension.

    Raises:
        ConfigError: If the text is not a list of positive integers.
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
            f"{text!r} is not a list of numbers of ranks",
            "e.g. 8,4: adjacent ranks differ in the first dimension",
        )
    return tuple(map(int, sizes))


def _unnamed_groups(stated: Iterable[str]) -> dict[str, str]:
    """Parse ``--unnamed-group``: process groups by operation.

    Raises:
        ConfigError: If an operation is unknown, or a group is empty.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Options for reading traces, one per field (see `with_options`)."""

    bytes_per_element: BytesPerElement = None
    comm_groups: CommGroups = None
    dependencies: Dependencies = "auto"
    drop_missing_dependencies: DropMissing = False
    duration_unit: DurationUnit = None
    uncorrected: Uncorrected = None
    kineto: Kineto = None
    unnamed_group: UnnamedGroup = None
    dimensions: Dimensions = None

    def options(self) -> ReadOptions:
        """Return the reader options for these command-line options.

        Raises:
            ConfigError: If an option has an invalid value.
        """
        from chakram.chakra.read.reader_options import (
            CORRECTIONS,
            DependencyPolicy,
            ReadOptions,
        )
        from chakram.chakra.trace_warning import WarningKind
        from chakram.foundation.units import parse_time_unit

        for name in self.uncorrected or ():
            if name not in CORRECTIONS:
                raise ConfigError(
                    "--uncorrected",
                    f"{name!r} is not a correction",
                    f"one of {', '.join(sorted(CORRECTIONS))}",
                )

        if self.dependencies not in list(DependencyPolicy):
            raise ConfigError(
                "--dependencies",
                f"{self.dependencies!r} is not one of {', '.join(DependencyPolicy)}",
            )
        return ReadOptions(
            bytes_per_element=self.bytes_per_element,
            dependencies=DependencyPolicy(self.dependencies),
            drop_missing_dependencies=self.drop_missing_dependencies,
            duration_unit_ns=None
            if self.duration_unit is None
            else parse_time_unit(self.duration_unit, where="--duration-unit"),
            uncorrected=frozenset(map(WarningKind, self.uncorrected or ())),
            unnamed_groups=_unnamed_groups(self.unnamed_group or ()),
            dimensions=_sizes(self.dimensions),
        )

    def load(self, path: Path) -> TraceSet:
        """Return the trace set at *path*."""
        from chakram.chakra.sets.trace_set import load_trace_set

        return self.read(path, load_trace_set)

    def read(self, path: Path, read: Callable[..., _T]) -> _T:
        """Return the result of *read* for the trace set at *path*."""
        options = self.options()
        with reading_bar("reading traces") as on_rank:
            return read(
                path,
                comm_groups=self.comm_groups,
                kineto=self.kineto,
                options=options,
                on_rank=on_rank,
            )


@contextmanager
def reading_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal, and yield its update function (done, all ranks)."""
    console = Console(stderr=True)
    with Progress(
        console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def warning_lines(traces: TraceSet) -> list[str]:
    """Return one line per kind of warning, because most ranks have the same kinds."""
    from chakram.chakra.read.reader_options import CORRECTIONS, merge_warnings

    return [
        f"{'corrected' if kind in CORRECTIONS else 'warning'}: {sentence}"
        for kind, sentence in merge_warnings(traces.warnings).items()
    ]
