"""Predictions for a run, made before it starts and again with its hosts' delays."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.execution.separate_process import apart
from chakram.foundation.errors import ChakramError
from chakram.foundation.units import format_time
from chakram.predict.routing import PathFinder
from chakram.preparation.expected_duration import computing_ns, duration_note
from chakram.preparation.host_delay_predictions import (
    as_range,
    differs,
    may_stall,
    times_with_host_delays,
)
from chakram.preparation.idle_faults import idle_faults
from chakram.preparation.predictions import (
    FEW_EVENTS,
    alone_events,
    alone_times,
    medians,
    path_draws,
    simulate_draws,
)
from chakram.preparation.schedule_bounds import bounds, fair_times
from chakram.records.named_rows import OperationTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chakram.config.experiment import Experiment
    from chakram.execution.interrupts import Interrupts
    from chakram.execution.observer import Progress
    from chakram.fabric.fabric_types.base import World
    from chakram.metrics.state import MetricsState
    from chakram.plan.plan import Plan
    from chakram.preparation.run_description import Reference
    from chakram.records.run_records import CollectiveKey
    from chakram.topology.topology import Topology


@dataclass(slots=True, eq=False)
class RunPredictions:
    """Computes the reference times of a run, and exports them as metrics.

    Attributes:
        experiment: Experiment of the run.
        reference: Object that receives the times.
        metrics: Metrics that receive the times by source.
        progress: Progress display that shows what is simulated.
        run_ns: Simulated time of the run, or None if it is not simulated.
    """

    experiment: Experiment
    reference: Reference
    metrics: MetricsState
    progress: Progress
    run_ns: int | None = None

    async def predict(self, plan: Plan, world: World) -> None:
        """Predict the times of the run that the experiment requests.

        Raises:
            RunFailed: If a simulated run without faults does not end.
        """
        reference, topology = self.reference, world.topology
        if topology is None:
            return
        if world.ecmp is not None:
            reference.ways = PathFinder(plan, topology, world.ecmp)
        wanted = self.experiment.predict
        if "bound" in wanted:
            least = await asyncio.to_thread(bounds, plan, topology)
            reference.bounds.update(least.times_ns)
            reference.ceilings.update(least.ceilings_ns)
            reference.flow_bound = least.of_message
            reference.fair_times = fair_times(plan, topology)
        has_switches = self.experiment.fabric.has_switches
        seed = self.experiment.seed
        how = plan, topology, seed, self.experiment.fabric.switching(seed)
        if "alone" in wanted and has_switches:
            self.progress.phase("simulating collectives alone")
            few = alone_events(plan, topology) <= FEW_EVENTS
            alone = await (asyncio.to_thread if few else apart)(alone_times, *how)
            reference.alone.update(alone.times_ns)
            reference.notes += alone.notes
        if "simulate" in wanted and has_switches:
            self.progress.phase("simulating")
            reference.predictions, notes, self.run_ns = await apart(
                simulate_draws,
                plan,
                topology,
                seed,
                path_draws(self.experiment.fabric, topology, seed, known=world.ecmp),
                self.experiment.faults,
            )
            reference.notes += notes
            for note in notes:
                self.progress.note(note)
        self._show(
            plan,
            bound=reference.bounds,
            alone=reference.alone,
            **medians(reference.predictions),
        )

    async def announce(self, plan: Plan, topology: Topology | None) -> None:
        """Show the expected duration of a long run, and faults without effect.

        Args:
            plan: Plan of the run.
            topology: Topology of the fabric, or None if unknown.
        """
        if topology is not None:
            idle = await asyncio.to_thread(idle_faults, self.experiment, plan, topology)
            self.reference.notes += idle
            for text in idle:
                self.progress.note(text)
        compute_ns = computing_ns(plan)
        run_ns = compute_ns if self.run_ns is None else self.run_ns
        self.progress.expect(run_ns)
        if note := duration_note(run_ns, compute_ns, dilation=self.experiment.dilation):
            self.progress.note(note)

    async def add_host_delays(
        self,
        plan: Plan,
        world: World,
        round_trips_ns: Mapping[str, float],
        interrupts: Interrupts,
    ) -> None:
        """Turn simulated times into ranges if host delays may exhaust the window.

        The measurements are complete, so an interrupt ends this simulation only.

        Args:
            plan: Plan of the run.
            world: The fabric on which the plan ran.
            round_trips_ns: Medians of measured round trips, by agent.
            interrupts: Interrupts of the run.
        """
        undelayed, topology = self.reference.predictions, world.topology
        if topology is None or not undelayed:
            return
        if not may_stall(plan, topology, round_trips_ns.values()):
            return
        self.progress.phase("simulating with the delays of the hosts")
        seed = self.experiment.seed
        simulation = asyncio.create_task(
            apart(
                times_with_host_delays,
                plan,
                topology,
                seed,
                path_draws(self.experiment.fabric, topology, seed, known=world.ecmp),
                self.experiment.faults,
                round_trips_ns,
            )
        )
        interrupts.listener = simulation.cancel
        try:
            await asyncio.wait([simulation])
        finally:
            interrupts.listener = None
            simulation.cancel()
        # If this simulation fails, keep the first prediction.
        with suppress(ChakramError, asyncio.CancelledError):
            delay_ns, delayed = simulation.result()
            if delayed and differs(undelayed, delayed):
                self.reference.predictions = as_range(undelayed, delayed)
                self._show(plan, **medians(self.reference.predictions))
                self.reference.notes += (
                    "simulated times are ranges: hosts delay packets by about "
                    f"{format_time(delay_ns / self.experiment.dilation)}, which is "
                    "long for this window; raise transport.window",
                )

    def _show(self, plan: Plan, **times_ns: dict[CollectiveKey, int]) -> None:
        identities = OperationTable(plan).identities
        for source, each in times_ns.items():
            self.metrics.set_predictions(source, each, identities)
