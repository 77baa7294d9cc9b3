"""The folder of a sweep, with its suite and the results of its cells.

- ``suite.json`` contains the suite and its cells.
- ``cells/NUMBER-REPETITION.json`` is the result of a cell, with the digest of its
  inputs. An interrupted sweep uses these files to resume.
- ``runs`` contains the run directories.
- ``claims.lock`` is the file for locks on running cells, so that several sweeps can
  share a folder.

Results do not depend on when or where a cell ran. So tables are the same for any
distribution of cells over processes and machines.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import TypeAdapter

from chakram.config.suite import Cell, Plan, Suite
from chakram.console.summary_document import check_run_document
from chakram.foundation.bounded_reading import parse_json
from chakram.foundation.errors import DamagedRun, ResultsError, RunDirectoryError
from chakram.foundation.platform_support import module_or_none
from chakram.foundation.write_errors import explained_writes
from chakram.sweep.sweep_marker import SUITE

COMPLETE = "complete"

Outcome = dict[str, Any]
"""Result of a cell as plain data, which ``chakram.sweep.runner`` describes."""

fcntl = module_or_none("fcntl")
_LOCKS = "claims.lock"
_MOST_REPETITIONS = 2**20
_FABRICS = 2**50
"""Position of the lock bytes of fabrics, beyond the lock bytes of all cells."""


class CellRun(NamedTuple):
    """All information that a process needs to run a cell."""

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
    """The suite of a sweep folder.

    Attributes:
        suite: The suite file's keys, with all defaults.
        cells: Cells of the suite, in order.
        runs: One entry for each repetition of each cell.
    """

    suite: Mapping[str, Any]
    cells: tuple[Cell, ...]
    runs: tuple[CellRun, ...]


_CELLS = TypeAdapter(tuple[Cell, ...])
_RUNS = TypeAdapter(tuple[CellRun, ...])
_COUNTS = (
    "packets",
    "retransmitted_packets",
    "ecn_marked_packets",
    "unfinished_collectives",
)
"""Keys of a cell's document whose values tables add up over repetitions.  Counts of
packets are null if NICs send them."""


RESULT_FIELDS = {
    "collective": "collective",
    "algorithm": "algorithm",
    "nranks": "nranks",
    "size_bytes": "size",
    "samples": "samples",
    "time_ns": "time_ns",
    "min_ns": "min_ns",
    "p99_ns": "p99_ns",
    "max_ns": "max_ns",
    "cv": "cv",
    "bound_share": "bound_share",
    "alone_share": "alone_share",
    "packets": "packets",
    "retransmitted_packets": "retransmitted_packets",
    "ecn_marked_packets": "ecn_marked_packets",
    "generator_bound": "generator_bound",
}
"""Columns of a row of the tables, with the names of their fields in a result."""

_NUMBER_OR_NONE = int | float | None
_OF_BLOCK = {"alg_bw": _NUMBER_OR_NONE, "bus_bw": _NUMBER_OR_NONE, "nwrong": int | None}
"""Keys of ``out_of_place`` of a result, with their types."""


def cell_runs(plan: Plan, folder: Path) -> list[CellRun]:
    """Return all repetitions of all cells, in the order in which to run them."""
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


def write_sweep(folder: Path, plan: Plan, runs: Sequence[CellRun]) -> None:
    """Write the suite and its cells to ``suite.json``.

    Raises:
        RunDirectoryError: If the file cannot be written.
    """
    document = {
        "suite": plan.suite.model_dump(mode="json", by_alias=True),
        "cells": [asdict(cell) for cell in plan.cells],
        "runs": [run._asdict() for run in runs],
    }
    _write(folder / SUITE, document)


def read_sweep(folder: Path) -> Sweep:
    """Return the suite of a sweep folder.

    Raises:
        RunDirectoryError: If the folder is not a sweep folder.
    """
    path = folder / SUITE
    try:
        document = parse_json(path.read_bytes(), str(path), error=ResultsError)
        cells = _CELLS.validate_python(document["cells"])
        runs = _RUNS.validate_python(
            [tuple(CellRun(**each)) for each in document["runs"]]
        )
        if [cell.number for cell in cells] != list(range(len(cells))):
            raise ValueError("cells are not in order")
        for number in (
            *(cell.baseline for cell in cells if cell.baseline is not None),
            *(run.number for run in runs),
        ):
            if not 0 <= number < len(cells):
                raise ValueError(f"there is no cell {number}")
        suite = Suite.model_validate(document["suite"])
        for cell in cells:
            if lacking := {*suite.matrix} - {*cell.values}:
                raise ValueError(f"cell {cell.number} has no {min(lacking)}")
        filled = suite.model_dump(mode="json", by_alias=True)
        return Sweep(suite=filled, cells=cells, runs=runs)
    except OSError as error:
        raise RunDirectoryError(
            str(path), f"cannot be read: {error.strerror}"
        ) from error
    except (ValueError, TypeError, KeyError, ResultsError) as error:
        raise DamagedRun(
            str(path), "is damaged: a sweep did not write it like this",
            "run the same command again to replace it",
        ) from error  # fmt: skip


def _path(folder: Path, run: CellRun) -> Path:
    return folder / "cells" / f"{run.number:04d}-{run.repetition}.json"


def _read(folder: Path, run: CellRun) -> Outcome | None:
    """Return the stored result of a cell, or None if there is none for its inputs."""
    try:
        path = _path(folder, run)
        outcome = parse_json(path.read_bytes(), str(path), error=ResultsError)
    except (OSError, ResultsError):
        return None
    if isinstance(outcome, dict) and outcome.get("digest") == run.digest:
        return outcome
    return None


def kept_outcome(folder: Path, run: CellRun) -> Outcome | None:
    """Return the complete result of a cell, or None if there is none for its inputs."""
    outcome = _read(folder, run)
    if (
        outcome is not None
        and outcome.get("status") == COMPLETE
        and isinstance(outcome.get("document"), dict)
        and isinstance(outcome.get("directory"), str | None)
        and _is_whole(outcome["document"], str(_path(folder, run)))
    ):
        return outcome
    return None


def _is_whole(document: Mapping[str, Any], source: str) -> bool:
    """Return whether the document of a cell has all keys that tables need."""
    try:
        check_run_document(document, source)
    except ResultsError:
        return False
    for result in document["results"]:
        block = result.get("out_of_place")
        if not isinstance(block, dict) or not {*RESULT_FIELDS.values()} <= {*result}:
            return False
        if not all(isinstance(block.get(k, ""), kind) for k, kind in _OF_BLOCK.items()):
            return False
    rate = document.get("average_bus_bandwidth", "")
    bound = document.get("generator_bound", "")
    return (
        all(isinstance(document.get(name, ""), int | None) for name in _COUNTS)
        and isinstance(rate, int | float | None)
        and isinstance(bound, dict | None)
        and (not bound or {type(bound.get(x)) for x in ("of", "collectives")} == {int})
    )


def reason_of(folder: Path, run: CellRun) -> str:
    """Return the reason why a cell has no result."""
    outcome = _read(folder, run)
    if outcome is None:
        return "not run"
    return str(outcome.get("reason") or "its file is damaged; run the sweep again")


def outcome_of_other(
    folder: Path, run: CellRun, *, before: int | None
) -> Outcome | None:
    """Return the result of a cell that another sweep has run, or None if there is none.

    Args:
        folder: The folder of the sweep.
        run: The cell.
        before: ``outcome_version`` at the time when another sweep was running the cell.
            A failure with that version is outdated.
    """
    outcome = kept_outcome(folder, run)
    if outcome is None and outcome_version(folder, run) != before:
        outcome = _read(folder, run)
    if outcome is not None and outcome.get("interrupted"):
        return None
    return outcome


def outcome_version(folder: Path, run: CellRun) -> int | None:
    """Return a number that changes when the result of a cell is written."""
    try:
        return _path(folder, run).stat().st_mtime_ns
    except OSError:
        return None


class CellClaims:
    """Claims of this process on cells in a folder that several sweeps may share.

    A claim is a lock on one byte of a file (``fcntl``). The kernel or a file server
    releases the lock when the process ends for any reason. Child processes do not
    inherit the lock. On systems and file systems without such locks, every claim
    succeeds.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = open(folder / _LOCKS, "ab")  # noqa: SIM115 - see __exit__
        except OSError as error:
            raise RunDirectoryError(
                str(folder / _LOCKS), f"cannot be written: {error.strerror}"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def claim(self, run: CellRun, *, wait: bool = False) -> bool:
        """Claim a cell, or return False if another process runs it."""
        return self._lock(_byte(run), wait=wait)

    def release(self, run: CellRun) -> None:
        """Release a cell after its result is stored."""
        self._unlock(_byte(run))

    def claim_fabric(self, *, on_this_machine: bool, wait: bool = False) -> bool:
        """Claim the fabric, because concurrent runs would disturb each other."""
        return self._lock(_fabric_byte(on_this_machine=on_this_machine), wait=wait)

    def release_fabric(self, *, on_this_machine: bool) -> None:
        """Release the fabric."""
        self._unlock(_fabric_byte(on_this_machine=on_this_machine))

    def _lock(self, byte: int, *, wait: bool) -> bool:
        if fcntl is None:
            return True
        how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        try:
            fcntl.lockf(self._file, how, 1, byte)
        except OSError as error:
            return error.errno not in (errno.EACCES, errno.EAGAIN)
        return True

    def _unlock(self, byte: int) -> None:
        if fcntl is None:
            return
        with suppress(OSError):
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)


def _byte(run: CellRun) -> int:
    return run.number * _MOST_REPETITIONS + run.repetition


def _fabric_byte(*, on_this_machine: bool) -> int:
    """Return the lock byte of this machine, or the common byte of all other fabrics."""
    if not on_this_machine:
        return _FABRICS
    return _FABRICS + 1 + zlib.crc32(platform.node().encode())


def keep_outcome(folder: Path, run: CellRun, outcome: Mapping[str, Any]) -> None:
    """Store the result of a cell.

    Raises:
        RunDirectoryError: If the file cannot be written.
    """
    _write(_path(folder, run), outcome)


def _write(path: Path, document: Mapping[str, Any]) -> None:
    with explained_writes(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(document), encoding="utf-8")
        os.replace(temporary, path)


def collect(
    runs: Sequence[CellRun], folders: Sequence[Path]
) -> tuple[dict[tuple[int, int], Outcome], list[CellRun]]:
    """Return the results by cell and repetition, and the cells without a result."""
    found: dict[tuple[int, int], Outcome] = {}
    missing = []
    for run in runs:
        outcomes = [kept for folder in folders if (kept := kept_outcome(folder, run))]
        if outcomes:
            found[run.number, run.repetition] = outcomes[0]
        else:
            missing.append(run)
    return found, missing
