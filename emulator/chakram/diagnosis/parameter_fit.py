"""Fit of the parameter of a hypothesis: a rate, a probability or a delay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import exp, log

from chakram.analysis.simulation_misfit import misfit, takes_longer
from chakram.diagnosis.counterfactual import Assumption, Variant
from chakram.diagnosis.fault_proposals import LOSSES, Hypothesis
from chakram.diagnosis.simulated_runs import Halves, SimulatedRuns
from chakram.foundation.units import format_rate, format_time
from chakram.records.run_records import LinkRecord

_TWICE = 2

_STEPS = 6
_MORE_STEPS = 3
"""Number of additional bisection steps for hypotheses that may fit best."""


class ParameterFit:
    """Fit of hypotheses to a run.

    Attributes:
        tried: Descriptions of the hypotheses that were simulated.

    Args:
        runs: Measurements and simulations of the run.
        links: Link directions, by the egress port where each direction begins.
        dilation: Factor by which the run stretched time.
    """

    def __init__(
        self, runs: SimulatedRuns, links: Mapping[str, LinkRecord], dilation: int
    ) -> None:
        self._runs = runs
        self._links = links
        self._dilation = dilation
        self.tried: list[str] = []

    def fitted(self, variant: Variant, what: Hypothesis) -> Hypothesis | None:
        """Return a fault with its best parameter, or None if no simulation ends."""
        self.tried.append(str(what))
        if what.span is not None:
            return self._bisected(variant, what, _STEPS)
        shown = self._runs.attempt(variant, what.assumed)
        if shown is None:
            return None
        found = self.judged(what, shown)
        seen = self._runs.measured.whole.resent_share
        if what.cause != "loss" or seen < _TWICE * shown.whole.resent_share:
            return found
        # The counted loss rate causes too few retransmissions in the simulation.  Fit
        # the rate to the measured retransmissions instead.
        more = self._bisected(variant, replace(what, span=LOSSES), _STEPS)
        if more is None:
            return found
        return replace(more, span=None, evidence=what.evidence)

    def finer(self, variant: Variant, best: Hypothesis) -> Hypothesis:
        """Return the fault with a more exact parameter, or unchanged if it has none."""
        if best.span is None:
            return best
        found = self._bisected(variant, best, _MORE_STEPS)
        return found if found is not None and found.fitted <= best.fitted else best

    def _bisected(
        self, variant: Variant, what: Hypothesis, steps: int
    ) -> Hypothesis | None:
        assert what.span is not None
        low, high = what.span
        kind = what.assumed[0].kind
        is_slow = kind == "degrade"
        best: Hypothesis | None = None
        measured = self._runs.measured.fitted
        for _ in range(steps):
            middle = exp((log(low) + log(high)) / 2)
            assumed = tuple(self._at(each, middle) for each in what.assumed)
            shown = self._runs.attempt(variant, assumed)
            # If the simulation does not end, the actual fault is less severe.
            is_too_bad = True
            if shown is not None:
                found = self.judged(replace(what, assumed=assumed), shown)
                if best is None or found.fitted < best.fitted:
                    best = found
                is_too_bad = (
                    takes_longer(shown.fitted, measured)
                    if kind != "loss"
                    else shown.fitted.resent_share > measured.resent_share
                )
            if is_too_bad == is_slow:
                low = middle
            else:
                high = middle
        if best is None:
            return None
        evidence = f"fits the measured messages best: about {self._text(best)}"
        return replace(best, span=(low, high), evidence=evidence)

    def _text(self, what: Hypothesis) -> str:
        """Return the fitted parameter of a hypothesis as text."""
        assumed = what.assumed[0]
        if assumed.kind == "degrade":
            return format_rate((assumed.rate_bps or 0) * self._dilation)
        if assumed.kind == "delay":
            delay_ns = assumed.delay_ns / self._dilation
            return f"{format_time(2 * delay_ns)} more per round trip"
        return f"{assumed.probability:.2%} of the packets"

    def _at(self, assumed: Assumption, value: float) -> Assumption:
        if assumed.kind == "delay":
            return replace(assumed, delay_ns=round(value))
        if assumed.kind != "degrade":
            return replace(assumed, probability=value)
        rate_bps = self._links[assumed.port].rate_bps or 0
        return replace(assumed, rate_bps=max(1000, round(value * rate_bps)))

    def judged(self, what: Hypothesis, shown: Halves) -> Hypothesis:
        """Return the fault with the misfits of its simulation."""
        if what.span is None:
            whole = misfit(self._runs.measured.whole, shown.whole)
            return replace(what, misfit=whole, fitted=whole)
        fitted = misfit(self._runs.measured.fitted, shown.fitted)
        return replace(
            what, misfit=misfit(self._runs.measured.judged, shown.judged), fitted=fitted
        )
