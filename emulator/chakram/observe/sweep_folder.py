"""The folder of a sweep: what was to be run, and what each cell gave.

``suite.json`` says the suite and its cells; ``cells/NUMBER-REPETITION.json`` is the
result of a cell, with the digest of what it was made of, so that a sweep goes on where
it was cut; ``runs`` its run directories.  Results hold nothing of when or where a cell
ran, so that tables are the same however cells were spread over processes and machines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from chakram.config.suite import Cell, Plan
from chakram.errors import RunDirectoryError

COMPLETE = "complete"

Outcome = dict[str, Any]
"""What a cell gave, as plain data: see ``chakram.controller.sweep``."""

_SUITE = "suite.json"


class CellRun(NamedTuple):
    """All that a process needs to run a cell."""

    number: int
    repetition: int
    name: str
    world: str
    base: str
    overrides: tuple[tuple[str, str], ...]
    digest: str
    runs: str
    lab: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What a folder says of its suite.

    Attributes:
        suite: The suite file's keys, with all defaults.
        cells: Its cells, in their order.
        runs: Each of them in each repetition.
    """

    suite: Mapping[str, Any]
    cells: tuple[Cell, ...]
    runs: tuple[CellRun, ...]


def cell_runs(plan: Plan, folder: Path) -> list[CellRun]:
    """Return what is to be run, in its order."""
    runs = []
    for cell, repetition in plan.turns():
        runs.append(
            CellRun(
                number=cell.number,
                repetition=repetition,
                name=cell.name,
                world=cell.world,
                base=str(plan.base.resolve()),
                overrides=tuple(plan.overrides(cell, repetition).items()),
                digest=plan.digest(cell, repetition),
                runs=str(folder / "runs" / f"{cell.number:04d}"),
            )
        )
    return runs


def is_sweep(folder: Path) -> bool:
    """Tell whether a folder is that of a sweep."""
    return (folder / _SUITE).is_file()


def write_sweep(folder: Path, plan: Plan, runs: Sequence[CellRun]) -> None:
    """Write down what is run, for whoever reads the folder.

    Raises:
        RunDirectoryError: If it cannot be written.
    """
    document = {
        "suite": plan.suite.model_dump(mode="json", by_alias=True),
        "cells": [asdict(cell) for cell in plan.cells],
        "runs": [run._asdict() for run in runs],
    }
    _write(folder / _SUITE, document)


def read_sweep(folder: Path) -> Sweep:
    """Return what is to be found in a folder.

    Raises:
        RunDirectoryError: If it is not that of a sweep.
    """
    path = folder / _SUITE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Sweep(
            suite=dict(document["suite"]),
            cells=tuple(Cell(**each) for each in document["cells"]),
            runs=tuple(CellRun(**each) for each in document["runs"]),
        )
    except OSError as error:
        raise RunDirectoryError(
            str(path), f"cannot be read: {error.strerror}"
        ) from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RunDirectoryError(
            str(path), "is damaged: it is not what a sweep writes there",
            "the command that made it writes it again",
        ) from error  # fmt: skip


def _path(folder: Path, run: CellRun) -> Path:
    return folder / "cells" / f"{run.number:04d}-{run.repetition}.json"


def _read(folder: Path, run: CellRun) -> Outcome | None:
    """Return what is kept of a cell, None where nothing is that is its own."""
    try:
        outcome = json.loads(_path(folder, run).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if isinstance(outcome, dict) and outcome.get("digest") == run.digest:
        return outcome
    return None


def kept_outcome(folder: Path, run: CellRun) -> Outcome | None:
    """Return the result of a cell, None where there is none that is its own."""
    outcome = _read(folder, run)
    if (
        outcome is not None
        and outcome.get("status") == COMPLETE
        and isinstance(outcome.get("document"), dict)
    ):
        return outcome
    return None


def reason_of(folder: Path, run: CellRun) -> str:
    """Return why a cell has no result."""
    outcome = _read(folder, run)
    return "not run" if outcome is None else str(outcome.get("reason"))


def keep_outcome(folder: Path, run: CellRun, outcome: Mapping[str, Any]) -> None:
    """Keep the result of a cell.

    Raises:
        RunDirectoryError: If it cannot be written.
    """
    _write(_path(folder, run), outcome)


def _write(path: Path, document: Mapping[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(document), encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise RunDirectoryError(
            str(path), f"cannot be written: {error.strerror}"
        ) from error


def collect(
    runs: Sequence[CellRun], folders: Sequence[Path]
) -> tuple[dict[tuple[int, int], Outcome], list[CellRun]]:
    """Return the results by cell and repetition, and what has none yet."""
    found: dict[tuple[int, int], Outcome] = {}
    missing = []
    for run in runs:
        outcomes = [kept for folder in folders if (kept := kept_outcome(folder, run))]
        if outcomes:
            found[run.number, run.repetition] = outcomes[0]
        else:
            missing.append(run)
    return found, missing
