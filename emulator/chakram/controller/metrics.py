"""Keeps the metrics of a run up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from chakram.config.experiment import Experiment
    from chakram.control.client import AgentClient
    from chakram.controller.reporting import Reference
    from chakram.core.plan import Plan
    from chakram.core.resolve import CollectiveRecord


class LiveMetrics(Protocol):
    """Who is told the numbers of a run while it goes."""

    def run_started(self, experiment: Experiment, *, run_id: str) -> None:
        """A run has begun."""

    def phase_changed(self, phase: str) -> None:
        """The run is in another phase."""

    def agents_connected(self, clients: Mapping[str, AgentClient]) -> None:
        """All agents are connected."""

    def predicted(self, plan: Plan, reference: Reference) -> None:
        """What the collectives should take is known."""

    def iterations_done(self, iterations: int) -> None:
        """All ranks have done so many iterations."""

    def collectives_completed(self, records: Iterable[CollectiveRecord]) -> None:
        """Collectives have been done by all of their ranks."""

    def counters_arrived(self, agent: str, values: Sequence[int]) -> None:
        """An agent has sent its counters."""

    def samples_dropped(self) -> int:
        """Return how many records were lost on the way."""

    def run_ended(self, status: str) -> None:
        """The run is over."""
