"""The suite file: one experiment in many cells."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from chakram.config.experiment import load_experiment
from chakram.foundation.errors import ConfigError
from chakram.settings.quantities import Model, Name, Whole
from chakram.settings.yaml_document import read_document, read_model

_MOST_CELLS = 10_000
WORLD = "world"
WORLDS = ("simulate", "run")

_SHORT = {
    "ranks": "jobs[0].trace.ranks",
    "size": "jobs[0].trace.size",
    "algorithm": "collectives.all_reduce",
    "queue_pairs": "transport.queue_pairs.count",
    "congestion_control": "transport.congestion_control",
}
"""What is asked for so often that it has a name of its own."""

_ALL = "all"
"""The one case of a suite that names none."""


class Case(Model):
    """A named set of settings; the matrix is run for each."""

    name: Name
    """What it is called in tables."""
    settings: dict[str, Any] = Field(default_factory=dict, alias="set")
    """Settings by key, as --set writes them."""


class Suite(Model):
    """One experiment, over which cases and a matrix of settings go."""

    version: Literal[1]
    """Version of this form of file."""
    name: Name
    """Name of the suite."""
    base: Path
    """Experiment file; relative to the suite."""
    world: Literal["simulate", "run"] = "simulate"
    """Where cells run that do not say it: in virtual time, or on their fabric."""
    cases: tuple[Case, ...] = Field(default=(), max_length=1000)
    """Named sets of settings."""
    matrix: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """Values by key; every combination is a cell of each case."""
    baseline: dict[str, Any] = Field(default_factory=dict)
    """What cells are compared with: the cell with these values, or the first one; case
    names a case."""
    repetitions: Whole = Field(default=1, ge=1, le=1000)
    """How often; all cells once before any comes again. Each time all cells, simulated
    and run, have the next seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One combination of settings.

    Attributes:
        number: From 0, in the order of the file.
        case: Name of its case; empty without cases.
        values: By key of the matrix, as the file has them.
        world: Where it runs.
        overrides: What ``--set`` would say, in its order.
        baseline: Number of the cell that it is compared with; None: it is one.
        seed: Of its experiment.
    """

    number: int
    case: str
    values: Mapping[str, Any]
    world: str
    overrides: Mapping[str, str]
    baseline: int | None
    seed: int = 0

    @property
    def name(self) -> str:
        """What tells it from the others, for people."""
        said = [f"{key}={text(value)}" for key, value in self.values.items()]
        return " ".join([*([self.case] if self.case else []), *said]) or "base"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A suite and all its cells, each of which was checked."""

    suite: Suite
    base: Path
    base_digest: str
    cells: tuple[Cell, ...]

    def overrides(self, cell: Cell, repetition: int) -> dict[str, str]:
        """Return what ``--set`` would say in a repetition, in its order.

        A repetition has a seed of its own, the same in both worlds: paths, placements,
        made-up traffic and random faults of a simulation are those of its run.
        """
        return {**cell.overrides, "seed": str(cell.seed + repetition)}

    def digest(self, cell: Cell, repetition: int) -> str:
        """Return what a result must have been made of to be this cell's."""
        made_of = [
            self.base_digest, cell.world, self.overrides(cell, repetition), repetition,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()

    def turns(self) -> list[tuple[Cell, int]]:
        """Return all cells in all repetitions, in the order in which they run.

        Every other repetition goes backwards, so that a drift of the machine is no
        difference between first and last cells.
        """
        return [
            (cell, repetition)
            for repetition in range(self.suite.repetitions)
            for cell in (self.cells if repetition % 2 == 0 else self.cells[::-1])
        ]


def text(value: Any) -> str:
    """Return a value as a table shows it."""
    return value if isinstance(value, str) else json.dumps(value)


def load_suite(path: Path) -> Plan:
    """Return the suite in the file at *path*, with all its cells.

    Raises:
        ConfigError: If it is wrong, or the experiment of a cell is.
    """
    suite = read_model(path, Suite)
    base = suite.base if suite.base.is_absolute() else path.parent / suite.base
    document = read_document(base)
    for key, values in suite.matrix.items():
        if not values:
            raise ConfigError(f"{path}: matrix.{key}", "has no values", "e.g. [1, 2]")
        if len({json.dumps(value) for value in values}) < len(values):
            raise ConfigError(f"{path}: matrix.{key}", "has a value twice")
    for place, case in enumerate(suite.cases):
        if case.name in [other.name for other in suite.cases[:place]]:
            raise ConfigError(f"{path}: cases[{place}].name", "is another's, too")
    cells = _cells(suite, document.data, str(path))
    checked: list[Cell] = []
    for cell in cells:
        try:
            experiment = load_experiment(base, overrides=cell.overrides)
        except ConfigError as error:
            if not cell.overrides:
                raise
            raise ConfigError(
                f"{path}: cell {cell.name}: {error.where}", error.found, error.hint
            ) from error
        checked.append(replace(cell, seed=experiment.seed))
    digest = hashlib.sha256(base.read_bytes()).hexdigest()
    return Plan(suite=suite, base=base, base_digest=digest, cells=tuple(checked))


def _cells(suite: Suite, base: dict[str, Any], source: str) -> tuple[Cell, ...]:
    cases = suite.cases or (Case(name=_ALL),)
    count = len(cases)
    for each in suite.matrix.values():
        count *= len(each)
    if count > _MOST_CELLS:
        raise ConfigError(
            f"{source}: matrix", f"is {count} cells", f"at most {_MOST_CELLS}"
        )
    found: list[Cell] = []
    place_of: dict[str, int] = {}
    for case in cases:
        for combination in itertools.product(*suite.matrix.values()):
            values = dict(zip(suite.matrix, combination, strict=True))
            settings = {**case.settings, **values}
            world = settings.pop(WORLD, suite.world)
            if world not in WORLDS:
                raise ConfigError(
                    f"{source}: {WORLD}",
                    f"{text(world)!r} is not known",
                    "simulate, run",
                )
            place_of[_place(case.name, values)] = len(found)
            found.append(
                Cell(
                    number=len(found),
                    case=case.name if suite.cases else "",
                    values=values,
                    world=str(world),
                    overrides={
                        _long(key, base): json.dumps(value)
                        for key, value in settings.items()
                    },
                    baseline=None,
                )
            )
    _check_baseline(suite, source)
    return tuple(_with_baseline(cell, suite, place_of) for cell in found)


def _place(case: str, values: Mapping[str, Any]) -> str:
    return json.dumps([case, values])


def _with_baseline(cell: Cell, suite: Suite, place_of: Mapping[str, int]) -> Cell:
    """Return a cell that knows what it is compared with."""
    stated = dict(suite.baseline)
    if not stated:
        number = 0
    else:
        case = stated.pop("case", cell.case or _ALL)
        number = place_of[_place(case, {**cell.values, **stated})]
    return replace(cell, baseline=None if number == cell.number else number)


def _check_baseline(suite: Suite, source: str) -> None:
    for key, value in suite.baseline.items():
        known = (
            [case.name for case in suite.cases]
            if key == "case"
            else list(suite.matrix.get(key, ()))
        )
        if value not in known:
            raise ConfigError(
                f"{source}: baseline.{key}",
                f"{text(value)!r} is no value of the suite",
                f"one of {', '.join(map(text, known))}"
                if known
                else f"keys are case, {', '.join(suite.matrix)}",
            )


def _long(key: str, base: dict[str, Any]) -> str:
    """Return the key of the experiment file that a key of a suite stands for."""
    short = _SHORT.get(key, key)
    if key != "size":
        return short
    try:
        streams = base["jobs"][0]["trace"]["streams"]
    except (KeyError, IndexError, TypeError):
        return short
    entry = "[0]" if isinstance(streams, list) else ""
    return f"jobs[0].trace.streams{entry}.size"
