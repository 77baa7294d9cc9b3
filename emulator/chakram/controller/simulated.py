"""What simulations at every level begin and end with."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from chakram.controller.interrupts import interrupting_signals
from chakram.controller.outcome import RunOutcome
from chakram.controller.planning import ports_needed
from chakram.errors import ChakramError, ConfigError, RunInterrupted
from chakram.observe.manifest import COMPLETE, FAILED
from chakram.observe.run_results import open_run
from chakram.results.run_records import LinkRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chakram.config.experiment import Experiment
    from chakram.controller.job_loading import LoadedJob
    from chakram.fabric.topology import Topology
    from chakram.observe.run_directory import RunDirectory

__all__ = ["ended", "simulated_topology", "simulating"]


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


@contextmanager
def simulating(directory: RunDirectory) -> Iterator[None]:
    """Say in a run directory why a simulation did not come to its end."""
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


def ended(
    directory: RunDirectory,
    topology: Topology,
    link_bytes: Sequence[int],
    **more: Any,
) -> RunOutcome:
    """Write down the end of a simulation that came to it.

    Args:
        directory: Of the run.
        topology: What was simulated.
        link_bytes: What went up and what went down each link, one after the other.
        more: What else ``RunDirectory.finish`` takes.
    """
    uplinks = {link.name for link in topology.uplinks()}
    links = [
        LinkRecord(
            link=link.name,
            kind="uplink" if link.name in uplinks else "host",
            direction=direction,
            bytes_before=0,
            bytes_after=link_bytes[2 * number + side],
        )
        for number, link in enumerate(topology.links)
        for side, direction in enumerate(("up", "down"))
    ]
    directory.finish(COMPLETE, ended=datetime.now(UTC), links=links, **more)
    summary = open_run(directory.path).summary()
    return RunOutcome(directory=directory.path, summary=summary, error=None)
