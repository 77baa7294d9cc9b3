"""What all kinds of export share: what is exported, where to, and what is told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chakram.cli.options import print_json, read_experiment
from chakram.cli.progress import ProgressReporter
from chakram.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from chakram.observe.run_results import RunResults

__all__ = ["Force", "Out", "Source", "refuse", "results_of", "write"]

Source = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|EXPERIMENT",
        help="Run directory, or an experiment file, which is simulated first.",
    ),
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write to.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]


def results_of(
    source: Path, overrides: list[str] | None, runs: Path | None, *, quiet: bool
) -> RunResults:
    """Return a run's results, or those of an experiment's simulation."""
    from chakram.observe.run_results import open_run

    if source.is_dir():
        if overrides:
            raise ConfigError(
                f"--set {overrides[0]}", f"{source} is a run, and over", "leave it out"
            )
        return open_run(source)
    settings, text = read_experiment(source, overrides)
    from chakram.controller.request import RunRequest
    from chakram.controller.virtual_time import simulate_experiment

    with ProgressReporter(quiet=quiet) as progress:
        request = RunRequest(
            experiment=settings,
            text=text,
            runs_directory=runs or settings.runs,
            progress=progress,
        )
        outcome = simulate_experiment(request)
    if outcome.error is not None:
        raise outcome.error
    return open_run(outcome.directory)


def refuse(out: Path, names: Iterable[str], *, force: bool) -> None:
    """Refuse to write any of some files where one of them is there already."""
    from chakram.chakra.write.new_file import refuse_existing

    for name in names:
        refuse_existing(out / name, force=force)


def write(
    out: Path,
    files: Mapping[str, bytes],
    *,
    force: bool,
    as_json: bool,
    notes: Sequence[str] = (),
    also: Sequence[Path] = (),
) -> None:
    """Write files into a folder, and tell of them, and of those *also* written."""
    from chakram.chakra.write.new_file import new_file

    refuse(out, files, force=force)
    for name, data in files.items():
        with new_file(out / name, force=force) as file:
            file.write(data)
    written = [*map(str, also), *(str(out / name) for name in files)]
    if as_json:
        print_json("exported", {"written": written, "notes": list(notes)})
        return
    for note in notes:
        typer.echo(f"note: {note}")
    typer.echo(f"wrote {', '.join(written)}")
