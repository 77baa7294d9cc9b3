"""Simulated times of designs, and their diagnoses."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chakram.cli import main
from chakram.config.experiment import parse_experiment
from chakram.foundation.errors import ChakramError
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.preparation.link_fault_times import LinkFaults, simulated_with
from chakram.preparation.link_records import directions_of
from chakram.preparation.resolved_run import load_run
from chakram.records.row_layout import (
    FLOW_FIELDS,
    ITERATION_FIELDS,
    FlowRow,
    IterationRow,
)
from chakram.simulation.common import simulated_topology

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.diagnosis.design import Design

_PACKETS = FlowRow._fields.index("packets")
_SENT_AGAIN = FlowRow._fields.index("retransmitted")


@dataclass(frozen=True, kw_only=True)
class LinkUse:
    """Counters of one direction of a link in a simulation."""

    bytes: int
    drops: int
    equal_cost: str | None
    port: str


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Times of a simulation.

    Attributes:
        mean_ns: Mean time of a measured iteration of a job, over all jobs.
        of_job_ns: By job, the mean time of its measured iterations.
        packets: Data packets that were sent.
        sent_again: Data packets that were sent again.
        links: By name and direction, e.g. ``h0-leaf0 up``, what links did.
    """

    mean_ns: float
    of_job_ns: dict[str, float]
    packets: int
    sent_again: int
    links: dict[str, LinkUse]


class CannotSimulate(Exception):
    """A design that the product refuses, or whose simulation does not end."""


class Simulations:
    """Simulates designs in a folder; ``count`` is their number.

    They leave no run directory: that would take as long again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.count = 0

    def __call__(self, design: Design) -> Measured:
        """Return the simulated times of a design.

        Raises:
            CannotSimulate: If it is refused, or does not end.
        """
        self.count += 1
        place = self._folder / "measured"
        place.mkdir(parents=True, exist_ok=True)
        try:
            return _measured(design, place)
        except ChakramError as error:
            raise CannotSimulate(str(error)) from None
        finally:
            shutil.rmtree(place, ignore_errors=True)


def _measured(design: Design, folder: Path) -> Measured:
    text = json.dumps(design.experiment(folder))
    experiment = parse_experiment(text)
    resolved = load_run(experiment)
    topology = simulated_topology(resolved)
    plan = resolved.plan(experiment.fabric.simulated_ports(topology), "draw")
    switching = experiment.fabric.switching(experiment.seed)
    settings = experiment.faults.links
    result = simulated_with(
        LinkFaults(settings, topology),
        settings,
        plan,
        lambda faults: simulate_plan(
            plan,
            topology,
            seed=experiment.seed,
            switching=switching,
            faults=faults,
        ),
    )
    job_of = [rank.program.job for rank in plan.ranks()]
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    rows = rows_of(result.records.iterations, len(ITERATION_FIELDS))
    for row in map(IterationRow._make, rows):
        key = job_of[row.rank], row.iteration
        start_ns, end_ns = spans.get(key, (row.start_ns, row.end_ns))
        spans[key] = min(start_ns, row.start_ns), max(end_ns, row.end_ns)
    times: dict[str, list[int]] = {}
    for (job, _), (start_ns, end_ns) in spans.items():
        times.setdefault(job, []).append(end_ns - start_ns)
    every = [each for found in times.values() for each in found]
    flows = result.records.flows
    return Measured(
        mean_ns=sum(every) / len(every),
        of_job_ns={job: sum(found) / len(found) for job, found in times.items()},
        packets=sum(flows[_PACKETS :: len(FLOW_FIELDS)]),
        sent_again=sum(flows[_SENT_AGAIN :: len(FLOW_FIELDS)]),
        links={
            f"{each.link} {each.direction}": LinkUse(
                bytes=result.link_bytes.get(each.port or "", 0),
                drops=result.drops.get(each.port or "", 0),
                equal_cost=each.equal_cost,
                port=each.port or "",
            )
            for each in directions_of(topology)
        },
    )


def rows_of(numbers: Sequence[int], width: int) -> Iterator[tuple[int, ...]]:
    """Yield the rows of a table of numbers."""
    for start in range(0, len(numbers), width):
        yield tuple(numbers[start : start + width])


def explained(design: Design, folder: Path, *arguments: str) -> dict[str, Any]:
    """Return the output of ``chakram why --json`` for a simulation in *folder*.

    Raises:
        CannotSimulate: If one of the two commands fails.
    """
    path = design.write(folder)
    runs = folder / "runs"
    command("simulate", str(path), "--runs", str(runs))
    (run,) = runs.iterdir()
    document = json.loads(command("why", str(run), "--json", *arguments))
    (folder / "why.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    assert isinstance(document, dict)
    return document


def command(*arguments: str) -> str:
    """Return the output of a command.

    Raises:
        CannotSimulate: If it fails.
    """
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main(list(arguments))
    if code:
        lines = errors.getvalue().strip().splitlines() or [""]
        raise CannotSimulate(f"{arguments[0]} ended with {code}: {lines[-1]}")
    return output.getvalue()
