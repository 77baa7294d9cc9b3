"""Fit of a delay of all hosts to a run whose round trips take longer than a window.

Real hosts take time to receive and acknowledge packets.  If a window is smaller than
the data that fits into a round trip, all messages take longer than simulated.  Without
this delay, the search for faults would attribute that time to the links.
"""

from __future__ import annotations

from math import exp, log
from statistics import median

from chakram.analysis.simulation_misfit import misfit
from chakram.diagnosis.counterfactual import Assumption, Variant
from chakram.diagnosis.design_limits import ALL_HOSTS
from chakram.diagnosis.fault_proposals import Hypothesis
from chakram.diagnosis.simulated_runs import Halves, SimulatedRuns
from chakram.foundation.units import format_time
from chakram.preparation.host_delay_predictions import may_stall

_LEAST_EXCESS = 0.06
"""Minimum median log ratio of measured and simulated times of pairs of ranks."""

_LEAST_DELAY = 1 / 256
"""Minimum delay of a host to simulate, as a share of the median round trip."""

_STEPS = 9


def fitted_host_delay(
    runs: SimulatedRuns, null: Variant, round_trip_ns: int
) -> Hypothesis | None:
    """Return the delay of all hosts that fits the median pair of ranks.

    Args:
        runs: Measurements and simulations of the run.
        null: The run without faults.
        round_trip_ns: Upper bound of the median measured round trip, or 0 if unknown.

    Returns:
        The delay as a hypothesis.  None if the delay cannot matter, because windows
        cover the round trips or messages take no longer than simulated.
    """
    run, shown = runs.simulated(null)
    if _excess(runs, shown) <= _LEAST_EXCESS or not may_stall(
        run.plan, run.topology, [round_trip_ns]
    ):
        return None
    low, high = log(_LEAST_DELAY * round_trip_ns), log(round_trip_ns)
    best = None
    for _ in range(_STEPS):
        delay_ns = round(exp((low + high) / 2))
        assumed = Assumption(kind="host delay", port="", delay_ns=delay_ns)
        delayed = runs.attempt(null, (assumed,))
        # If the simulation does not end, the actual delay is shorter.
        if delayed is None or _excess(runs, delayed) < 0:
            high = log(delay_ns)
        else:
            low = log(delay_ns)
        if delayed is not None:
            best = Hypothesis(
                cause="generator slow",
                place=ALL_HOSTS,
                assumed=(assumed,),
                evidence="a window is smaller than what fits into a round trip, as "
                "hosts delay all they send and receive by about "
                + format_time(delay_ns / null.experiment.dilation),
                misfit=misfit(runs.measured.whole, delayed.whole),
            )
    return best


def _excess(runs: SimulatedRuns, shown: Halves) -> float:
    """Return the median over pairs of ranks of log(measured / simulated time)."""
    simulated_ns = shown.whole.flow_ns
    ratios = [
        log(time_ns / simulated_ns[pair])
        for pair, time_ns in runs.measured.whole.flow_ns.items()
        if time_ns and simulated_ns.get(pair)
    ]
    return median(ratios) if ratios else 0.0
