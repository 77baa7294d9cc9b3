"""Simulation of an experiment at the configured level of detail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.execution.outcome import RunOutcome

if TYPE_CHECKING:
    from chakram.execution.request import RunRequest


def simulate_experiment(request: RunRequest) -> RunOutcome:
    """Run all iterations of an experiment in virtual time.

    Raises:
        ConfigError: If the topology of an external fabric is not given.
        ChakramError: If the experiment cannot be planned, or does not end.
    """
    # Import only the module in use, because importing the other takes half a second.
    settings = request.experiment.simulation
    if settings.level == "packet" and settings.cost_model == "chakram":
        from chakram.simulation.packet_level import simulate_experiment as simulate
    else:
        from chakram.simulation.coarse_levels import simulate_at_level as simulate
    return simulate(request)
