"""The suite file: a parameter sweep over one experiment."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from chakram import __version__
from chakram.config.experiment import load_experiment
from chakram.foundation.errors import ConfigError
from chakram.settings.field_types import Model, Name, Whole
from chakram.settings.yaml_document import read_document, read_model

_MOST_CELLS = 10_000
WORLD = "world"
WORLDS = ("simulate", "run")

SHORT_KEYS = {
    "ranks": "jobs[0].trace.ranks",
    "size": "jobs[0].trace.size",
    "algorithm": "collectives.all_reduce",
    "queue_pairs": "transport.queue_pairs.count",
    "congestion_control": "transport.congestion_control",
}
"""Short names of frequently used keys."""

_ALL = "all"
"""Name of the single case in a suite without cases."""


class Case(Model):
    """A named set of settings, combined with every cell of the matrix."""

    name: Name
    """Name of the case in tables."""
    settings: dict[str, Any] = Field(default_factory=dict, alias="set")
    """Settings by key, as in --set."""


class Suite(Model):
    """A parameter sweep: one experiment, with cases and a matrix of settings."""

    version: Literal[1]
    """Version of the file format."""
    name: Name
    """Name of the suite."""
    base: Path
    """Experiment file, relative to the suite file."""
    world: Literal["simulate", "run"] = "simulate"
    """Where cells run by default. simulate: in virtual time; run: on their fabric."""
    cases: tuple[Case, ...] = Field(default=(), max_length=1000)
    """Named sets of settings."""
    matrix: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """Values by key. Every combination of values is a cell, in each case."""
    baseline: dict[str, Any] = Field(default_factory=dict)
    """Values that select the baseline of a cell. The baseline has the cell's own values
    for all other keys. The key case selects a case. Default: the first cell is the
    baseline of all cells."""
    repetitions: Whole = Field(default=1, ge=1, le=1000)
    """Number of repetitions. All cells run once before the next repetition starts. Each
    repetition uses the next seed, both in simulations and in runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One combination of settings.

    Attributes:
        number: Index from 0, in the order of the file.
        case: Name of the case; empty in a suite without cases.
        values: Values by key of the matrix, as in the file.
        world: Where the cell runs: ``simulate`` or ``run``.
        overrides: Arguments of ``--set``, in order.
        baseline: Number of the cell to compare with; None if this cell is a baseline
            itself.
        seed: Seed of the experiment.
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
        """Display name that identifies the cell within its suite."""
        said = [f"{key}={text(value)}" for key, value in self.values.items()]
        return " ".join([*([self.case] if self.case else []), *said]) or "base"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A suite with all its cells, already checked."""

    suite: Suite
    base: Path
    base_digest: str
    cells: tuple[Cell, ...]

    def overrides(self, cell: Cell, repetition: int) -> dict[str, str]:
        """Return the arguments of ``--set`` for a cell in one repetition, in order.

        Each repetition has its own seed, which is the same for simulations and runs. A
        simulation therefore has the same paths, placements and random faults as its
        run. Synthetic traces have other seeds, which are the same in all repetitions.
        """
        return {**cell.overrides, "seed": str(cell.seed + repetition)}

    def digest(self, cell: Cell, repetition: int) -> str:
        """Return a digest of all inputs of a cell, to match stored results.

        Another version of Chakram may give other results, so the version is an input,
        too.
        """
        made_of = [
            __version__, self.base_digest, cell.world,
            self.overrides(cell, repetition), repetition,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()

    def turns(self) -> list[tuple[Cell, int]]:
        """Return all cells in all repetitions, in the order in which they run.

        Every second repetition runs in reverse order. A gradual change of the machine's
        speed therefore does not appear as a difference between cells.
        """
        return [
            (cell, repetition)
            for repetition in range(self.suite.repetitions)
            for cell in (self.cells if repetition % 2 == 0 else self.cells[::-1])
        ]


def text(value: Any) -> str:
    """Return a value as text for tables."""
    return value if isinstance(value, str) else json.dumps(value)


def load_suite(path: Path) -> Plan:
    """Load the suite in the file at *path*, with all its cells.

    Raises:
        ConfigError: If the suite or the experiment of a cell is invalid.
    """
    keys = read_document(path, hint=None).data
    if "jobs" in keys and "base" not in keys:
        raise ConfigError(
            str(path), "is an experiment", "write a suite with it as base"
        )
    suite = read_model(path, Suite)
    base = suite.base if suite.base.is_absolute() else path.parent / suite.base
    document = read_document(base)
    for key, values in suite.matrix.items():
        if not values:
            raise ConfigError(f"{path}: matrix.{key}", "has no values", "e.g. [1, 2]")
        if len({json.dumps(value) for value in values}) < len(values):
            raise ConfigError(f"{path}: matrix.{key}", "lists a value twice")
    for place, case in enumerate(suite.cases):
        if case.name in [other.name for other in suite.cases[:place]]:
            raise ConfigError(
                f"{path}: cases[{place}].name", "is already the name of another case"
            )
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
            f"{source}: matrix", f"has {count} cells", f"use at most {_MOST_CELLS}"
        )
    found: list[Cell] = []
    place_of: dict[str, int] = {}
    for case in cases:
        long_keys = _long_keys((*case.settings, *suite.matrix), base, source)
        for combination in itertools.product(*suite.matrix.values()):
            values = dict(zip(suite.matrix, combination, strict=True))
            settings = {**case.settings, **values}
            world = settings.pop(WORLD, suite.world)
            if world not in WORLDS:
                raise ConfigError(
                    f"{source}: {WORLD}",
                    f"{text(world)!r} is not known",
                    "known: simulate, run",
                )
            place_of[_place(case.name, values)] = len(found)
            found.append(
                Cell(
                    number=len(found),
                    case=case.name if suite.cases else "",
                    values=values,
                    world=str(world),
                    overrides={
                        long_keys[key]: json.dumps(value)
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
    """Return a cell with the number of its baseline cell."""
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
        # In Python, 1 equals 1.0 and true, but cells are found by their JSON.
        if json.dumps(value) not in map(json.dumps, known):
            raise ConfigError(
                f"{source}: baseline.{key}",
                f"{text(value)!r} is not a value of the suite",
                f"use one of {', '.join(map(text, known))}"
                if known
                else f"known keys: case, {', '.join(suite.matrix)}",
            )


def _long_keys(
    keys: Sequence[str], base: dict[str, Any], source: str
) -> dict[str, str]:
    """Return the keys of the experiment file that the keys of a cell set."""
    long_keys: dict[str, str] = {}
    key_of: dict[str, str] = {}
    for key in keys:
        long = long_keys[key] = _long(key, base, source)
        if long in key_of:
            raise ConfigError(
                f"{source}: {key}",
                f"sets the same as {key_of[long]}",
                "remove one of them from matrix or cases",
            )
        key_of[long] = key
    return long_keys


def _long(key: str, base: dict[str, Any], source: str) -> str:
    """Expand a key of a suite to a key of the experiment file."""
    short = SHORT_KEYS.get(key, key)
    if key != "size":
        return short
    try:
        streams = base["jobs"][0]["trace"]["streams"]
        first = streams[0] if isinstance(streams, list) else streams
    except (KeyError, IndexError, TypeError):
        return short
    place = f"jobs[0].trace.streams{'[0]' * isinstance(streams, list)}"
    for other in ("sizes", "splits"):
        if isinstance(first, dict) and first.get(other):
            raise ConfigError(
                f"{source}: {key}",
                f"has no effect, because the first job has {place}.{other}",
                f"vary {place}.{other} instead",
            )
    return f"{place}.size"
