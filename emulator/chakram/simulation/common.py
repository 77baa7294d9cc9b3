"""What simulations at every level begin and end with."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from chakram.execution.interrupts import interrupting_signals
from chakram.execution.outcome import RunOutcome
from chakram.foundation.errors import ChakramError, ConfigError, RunInterrupted
from chakram.preparation.link_records import directions_of
from chakram.preparation.planning import ports_needed
from chakram.run_directory.manifest import COMPLETE, FAILED
from chakram.run_directory.reader import open_run

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.preparation.job_loading import LoadedJob
    from chakram.run_directory.writer import RunDirectory
    from chakram.topology.topology import Topology


def simulated_topology(experiment: Experiment, jobs: Sequence[LoadedJob]) -> Topology:
    """Return the fabric to simulate.

    Raises:
        ConfigError: If nobody told the topology of an external fabric.
    """
    topology = experiment.fabric.to_topology(ports_needed(jobs))
    if topology is None:
        raise ConfigError(
            "fabric.topology",
            "is not given, so there is nothing to simulate",
            "describe the fabric under test: topology and links",
        )
    return topology


_GARBAGE_THRESHOLDS = 100_000, 10, 1 << 30
"""No full collection: of gigabytes it takes seconds in which no signal is handled."""


@contextmanager
def simulating(directory: RunDirectory) -> Iterator[None]:
    """Say in a run directory why a simulation did not come to its end."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
    try:
        with interrupting_signals():
            yield
    except ChakramError as error:
        directory.finish(FAILED, ended=datetime.now(UTC), reason=str(error))
        raise
    except KeyboardInterrupt as interrupt:
        stopped = RunInterrupted("simulation", f"interrupted by {interrupt}")
        directory.finish(FAILED, ended=datetime.now(UTC), reason=str(stopped))
        raise stopped from None
    finally:
        gc.set_threshold(*thresholds)


def ended(
    directory: RunDirectory,
    topology: Topology,
    link_bytes: Sequence[int],
    counted: Mapping[str, Mapping[str, int]] | None = None,
    **more: Any,
) -> RunOutcome:
    """Write down the end of a simulation that came to it.

    Args:
        directory: Of the run.
        topology: What was simulated.
        link_bytes: What went up and what went down each link, one after the other.
        counted: By what else of a ``LinkRecord`` was counted, that by port; ports that
            are not named have counted none.
        more: What else ``RunDirectory.finish`` takes.
    """
    links = []
    for each, carried in zip(directions_of(topology), link_bytes, strict=True):
        more_counts: dict[str, Any] = {
            name: found.get(each.port or "", 0)
            for name, found in (counted or {}).items()
        }
        links.append(replace(each, bytes_after=carried, **more_counts))
    directory.finish(COMPLETE, ended=datetime.now(UTC), links=links, **more)
    summary = open_run(directory.path).summary()
    return RunOutcome(directory=directory.path, summary=summary, error=None)
