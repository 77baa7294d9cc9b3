"""Simulates an experiment at the level that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram.controller.outcome import RunOutcome
    from chakram.controller.request import RunRequest


def simulate_experiment(request: RunRequest) -> RunOutcome:
    """Run an experiment in virtual time, all its iterations.

    Raises:
        ConfigError: If nobody told the topology of an external fabric.
        ChakramError: If the experiment cannot be planned, or does not end.
    """
    # Half of what the one imports, and half a second, the other does without.
    settings = request.experiment.simulation
    if settings.level == "packet" and settings.cost_model == "chakram":
        from chakram.controller.simulation import simulate_experiment as simulate
    else:
        from chakram.controller.level_simulation import simulate_at_level as simulate
    return simulate(request)
