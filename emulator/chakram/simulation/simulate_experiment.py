"""Simulates an experiment at the level that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram.execution.outcome import RunOutcome
    from chakram.execution.request import RunRequest


def simulate_experiment(request: RunRequest) -> RunOutcome:
    """Run an experiment in virtual time, all its iterations.

    Raises:
        ConfigError: If nobody told the topology of an external fabric.
        ChakramError: If the experiment cannot be planned, or does not end.
    """
    # Half of what the one imports, and half a second, the other does without.
    settings = request.experiment.simulation
    if settings.level == "packet" and settings.cost_model == "chakram":
        from chakram.simulation.packet_level import simulate_experiment as simulate
    else:
        from chakram.simulation.coarse_levels import simulate_at_level as simulate
    return simulate(request)
