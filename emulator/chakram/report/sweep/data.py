"""Data of a sweep's page: varied settings, results of cells, and links to runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from chakram.collectives.ops import CollectiveOp
from chakram.config.suite import Cell, text
from chakram.report.blocks import Link
from chakram.summary.bandwidth import coefficient_of_variation
from chakram.summary.run_summary import SIMULATE
from chakram.sweep.folder import collect, read_sweep, reason_of
from chakram.sweep.tables import CellResult, cell_results, longest_iteration

CASE = "case"
"""Name of the axis whose values are the suite's cases."""


class SuiteRun(NamedTuple):
    """Result of one cell in one repetition."""

    cell: Cell
    repetition: int
    document: Mapping[str, Any]
    directory: str

    @property
    def iteration(self) -> Mapping[str, Any] | None:
        """Iteration times of the job that takes longest."""
        return longest_iteration(self.document)

    @property
    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Rows of the results table, without barriers."""
        for row in self.document["results"]:
            if row["collective"] != CollectiveOp.BARRIER:
                yield row


class SuiteData:
    """Data of a sweep's page.

    Args:
        folder: Folder of the sweep.
        out: Path of the page. Links to runs are relative to its folder.
    """

    def __init__(self, folder: Path, out: Path) -> None:
        sweep = read_sweep(folder)
        self.folder = folder
        self.facts = sweep.suite
        self.cells = sweep.cells
        outcomes, missing = collect(sweep.runs, [folder])
        self.planned = len(sweep.runs)
        self.missing = [
            (f"{run.name}, repetition {run.repetition}", reason_of(folder, run))
            for run in missing
        ]
        self.results = cell_results(self.cells, outcomes)
        self.runs = [
            SuiteRun(
                self.cells[number], repetition, each["document"], each["directory"]
            )
            for (number, repetition), each in sorted(outcomes.items())
        ]
        self._out = out.resolve().parent
        matrix = {key: list(map(text, v)) for key, v in sweep.suite["matrix"].items()}
        cases = [each["name"] for each in sweep.suite["cases"]]
        self.axes = {CASE: cases, **matrix} if cases else matrix
        """All values by axis, in the order of the suite."""
        # Omit the section of a key if the last part of the key is unambiguous.
        short = [key.rpartition(".")[2] for key in self.axes]
        self.short = {
            key: name if short.count(name) == 1 else key
            for key, name in zip(self.axes, short, strict=True)
        }

    @property
    def worlds(self) -> list[str]:
        """The worlds in which cells ran, e.g. ``simulate``."""
        return sorted({cell.world for cell in self.cells})

    def seen(self, *letters: str) -> str:
        """Return the observation points for letters of ``OBSERVED``, as text."""
        points = [
            "v" if letter == "c" and world == SIMULATE else letter
            for letter in letters
            for world in self.worlds
        ]
        return ", ".join(f"({letter})" for letter in dict.fromkeys(points))

    def value(self, cell: Cell, axis: str) -> str:
        """Return the cell's value of a varied setting or of the case, as text."""
        return cell.case if axis == CASE else text(cell.values[axis])

    def name(self, cell: Cell, without: Sequence[str] = ()) -> str:
        """Return the cell's values of all varied settings except *without*, as text."""
        several = [axis for axis, values in self.axes.items() if len(values) > 1]
        said = [
            f"{self.short[axis]} {self.value(cell, axis)}"
            for axis in several
            if axis not in without
        ]
        return ", ".join(said) or ("all" if without else cell.name)

    @property
    def work(self) -> list[str]:
        """Axes that change the amount of work, so that times are not comparable."""
        changed = {axis: [axis] for axis in self.axes}
        changed[CASE] = [key for each in self.facts["cases"] for key in each["set"]]
        return [axis for axis in self.axes if any(map(_is_of_work, changed[axis]))]

    def sizes(self) -> list[str]:
        """Return the axes that vary the size of collectives."""
        return [axis for axis in self.axes if axis.rpartition(".")[2] == "size"]

    @property
    def repeated(self) -> dict[int, list[tuple[SuiteRun, float]]]:
        """Runs of each cell with several repetitions, with iteration times in ns."""
        found: dict[int, list[tuple[SuiteRun, float]]] = {}
        for run in self.runs:
            if run.iteration is not None:
                own = found.setdefault(run.cell.number, [])
                own.append((run, run.iteration["mean_ns"]))
        return {number: own for number, own in found.items() if len(own) > 1}

    def link(self, what: str, run: SuiteRun) -> str:
        """Return *what*, with a link to the directory of a run if it exists."""
        found = Path(run.directory)
        moved = self.folder / "runs" / f"{run.cell.number:04d}" / found.name
        place = next((each for each in (moved, found) if each.is_dir()), None)
        if place is None:
            return what
        return Link(what, quote(os.path.relpath(place.resolve(), self._out)))


def _is_of_work(key: str) -> bool:
    """Return whether a setting changes the amount of work."""
    names = ("size", "ranks", "jobs", "iterations", "arrivals")
    return key.split(".")[0].split("[")[0] in names


def change_of(each: CellResult) -> float | None:
    """Return the change of a cell's iteration time relative to its baseline."""
    return each.difference.change if each.difference else None


def spread_of(own: Sequence[tuple[SuiteRun, float]]) -> float:
    """Return the coefficient of variation of a cell's repetitions."""
    return coefficient_of_variation([time for _, time in own])
