"""Budget for the simulations of a diagnosis, counted in simulated work.

The verdict of a diagnosis must not depend on the load of this machine.  So the budget
counts events and messages of simulations.  They are converted to the seconds that they
take on one core of 2.6 GHz with compiled modules.  The clock only stops a diagnosis
that takes much longer than its budget.  Such a diagnosis has no verdict at all.
"""

from __future__ import annotations

import time

from chakram.diagnosis.counterfactual import (
    Limit,
    Rerun,
    Variant,
    limited,
    planned,
    rerun,
)
from chakram.records.row_layout import FLOW_FIELDS
from chakram.simulation.expected_cost import cost_of_packets

_EVENT_S = 400e-9
_MESSAGE_S = 15e-6
_SIMULATION_S = 0.02

_EMERGENCY, _LEAST_EMERGENCY_S = 5, 60
"""Multiple of the budget after which a diagnosis stops, and minimum time in s."""


class BudgetStopped(Exception):
    """The simulations took much longer than their work explains.

    This is not a ``ChakramError``, because a diagnosis continues after a
    ``ChakramError`` in a single simulation.
    """


class SimulationBudget:
    """Budget for simulations that counts the work of each simulation.

    Attributes:
        limit_s: The budget, in seconds of an idle machine.
        used_s: Work of all simulations so far.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.used_s = self._largest_s = 0.0
        self._began_s = time.monotonic()

    @property
    def left_s(self) -> float:
        """Work that the budget still allows, in seconds of an idle machine."""
        return self.limit_s - self.used_s

    def rerun(self, variant: Variant, *, measured: Limit | None = None) -> Rerun:
        """Simulate a variant.

        A variant that does not end counts as much as the largest simulation so far.

        Raises:
            ChakramError: As for :func:`rerun`.
            BudgetStopped: If the simulations so far took much too long.
        """
        stop_s = max(_LEAST_EMERGENCY_S, _EMERGENCY * self.limit_s)
        passed_s = time.monotonic() - self._began_s
        if passed_s > stop_s:
            raise BudgetStopped(
                f"unproven: stopped after {passed_s:.0f} s, because this machine is "
                "busy, or has no compiled modules (a larger --budget waits longer)"
            )
        cost_s = self._largest_s
        try:
            run = rerun(variant, measured=measured)
            messages = len(run.result.records.flows) // len(FLOW_FIELDS)
            cost_s = (
                _SIMULATION_S + _EVENT_S * run.result.events + _MESSAGE_S * messages
            )
        finally:
            self.used_s += cost_s
            self._largest_s = max(self._largest_s, cost_s)
        return run


def expected_s(variant: Variant, *, measured: Limit | None = None) -> float:
    """Return the expected work of ``rerun`` with the same arguments.

    Raises:
        ChakramError: If the variant cannot be planned.
    """
    ready = planned(variant)
    plan = ready.plan if measured is None else limited(ready.plan, measured)
    return cost_of_packets(plan, ready.topology).time_ns / 1e9
