"""Start and end of simulations, common to all levels."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from chakram.execution.outcome import RunOutcome
from chakram.execution.signals import interrupting_signals
from chakram.foundation.errors import ChakramError, ConfigError, RunInterrupted
from chakram.predict.simulator.run_plan import UnfinishedSimulation
from chakram.preparation.link_records import directions_of
from chakram.records.run_records import SIMULATED
from chakram.run_directory.manifest import COMPLETE, FAILED
from chakram.run_directory.reader import open_run
from chakram.run_directory.writer import RunDirectory
from chakram.topology.topology import PortRef, Topology

if TYPE_CHECKING:
    from chakram.preparation.resolved_run import ResolvedRun


def simulated_topology(resolved: ResolvedRun) -> Topology:
    """Return the fabric to simulate.

    Raises:
        ConfigError: If the topology of an external fabric is not given.
    """
    topology = resolved.topology()
    if topology is None:
        raise ConfigError(
            "fabric.topology",
            "is not given, so there is nothing to simulate",
            "describe the fabric under test: topology and links",
        )
    return topology


_LEAST_GARBAGE_THRESHOLD = 100_000
_NO_FULL_COLLECTIONS = 10, 1 << 30
"""Thresholds that disable full garbage collections, because these block signal handlers
for seconds on large heaps."""


@contextmanager
def simulating(directory: RunDirectory) -> Iterator[None]:
    """Context manager that records why a simulation did not complete."""
    thresholds = gc.get_threshold()
    # A lower threshold than that of the command would start a collection at once.
    least = max(thresholds[0], _LEAST_GARBAGE_THRESHOLD)
    gc.set_threshold(least, *_NO_FULL_COLLECTIONS)
    try:
        with interrupting_signals():
            yield
    except UnfinishedSimulation:
        raise  # the caller records what has completed
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
    groups: Mapping[PortRef, str] | None = None,
    status: str = COMPLETE,
    **more: Any,
) -> RunOutcome:
    """Record the end of a simulation.

    Args:
        directory: The run directory.
        topology: The simulated topology.
        link_bytes: Bytes up and bytes down of each link, in the order of the links.
        counted: Additional counters by field of ``LinkRecord``, then by port. A missing
            port counts as 0.
        groups: The result of ``topology.equal_cost()``, if it is known.
        status: Status of the run.
        more: Additional arguments of ``RunDirectory.finish``.
    """
    links = []
    for each, carried in zip(directions_of(topology, groups), link_bytes, strict=True):
        more_counts: dict[str, Any] = {
            name: found.get(each.port or "", 0)
            for name, found in (counted or {}).items()
        }
        links.append(
            replace(each, bytes_after=carried, observed=SIMULATED, **more_counts)
        )
    directory.finish(status, ended=datetime.now(UTC), links=links, **more)
    results = open_run(directory.path)
    return RunOutcome(results=results, summary=results.summary(), error=None)
