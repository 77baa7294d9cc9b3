"""Diagnosis of a run on a network by fitting simulated faults to measurements.

The search ignores the faults that the experiment declares.  The null hypothesis is a
simulation without any fault.  If the run does not fit that simulation, the search
derives hypotheses from the records: slow links, links that lose packets, links without
traffic, paused ports and late hosts.

If the records do not give a parameter of a hypothesis, the search fits the parameter to
half of the measured iterations.  It tests that hypothesis on the other half.  It tests
other hypotheses on all iterations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from chakram.analysis.counter_evidence import node_of
from chakram.analysis.simulation_misfit import (
    late_hosts,
    misfit,
)
from chakram.diagnosis.counterfactual import (
    Assumption,
    Limit,
    Rerun,
    Variant,
    without_declared_faults,
)
from chakram.diagnosis.fault_proposals import (
    CANDIDATES,
    DELAYS_NS,
    Found,
    Hypothesis,
    Proposals,
)
from chakram.diagnosis.host_delay_fit import fitted_host_delay
from chakram.diagnosis.late_host_attribution import attributed, late_receiver
from chakram.diagnosis.parameter_fit import ParameterFit
from chakram.diagnosis.run_evidence import (
    generator_waits,
    is_generator_bound,
    without_core,
)
from chakram.diagnosis.simulated_runs import Halves, SimulatedRuns, is_random
from chakram.diagnosis.simulation_budget import SimulationBudget
from chakram.diagnosis.unknown_hash_paths import counted_paths
from chakram.diagnosis.verified_causes import BUDGET_S
from chakram.foundation.errors import ChakramError, InputError

if TYPE_CHECKING:
    from chakram.run_directory.reader import RunResults

_LEAST_MISFIT = 0.06
"""Maximum misfit of a simulation that explains a run."""

_BETTER = 0.6
"""Maximum misfit of an accepted hypothesis, as a share of the misfit without it."""

_COUNTED = 0.9
"""Maximum relative misfit of an accepted fault that counters prove."""

_SURER = 0.4
"""Maximum relative misfit of an accepted hypothesis if hosts delayed collectives."""

_AS_GOOD = 1.5
"""Hypotheses whose misfits differ by less than this factor are equivalent."""

_RESOLVED = 0.01
"""Error of the fit.  Misfits with a smaller difference are also equivalent."""

_OF_SEARCH = 0.5
"""Share of the fitting budget after which the search suspects no additional ports."""

_AS_FINE = 2.0
"""Maximum misfit for additional bisection steps, relative to the smallest misfit."""

_AROUND = 0.7
"""Minimum rate of a two-way fault, relative to the fitted one-way rate."""

_TWO_WAY = 4
"""Number of links to simulate as slow both ways if one-way faults do not suffice."""

_BOTH = 0.6
"""Maximum misfit of a two-way fault, relative to the one-way fault."""

_OF_BUDGET = 0.6
"""Share of the budget for fitting.  The rest is for testing savings."""

_OF_PATHS = frozenset({"dead uplink", "hash imbalance"})
"""Faults that change paths.  Byte counters of links can prove such faults."""

_SAME_BYTES = 0.02
_FEWER_BYTES = 0.25
"""Maximum share of bytes on other links than simulated: absolute, and relative to a
simulation without the fault."""

_MOST_FAULTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Result of fitting simulated faults to a run.

    Attributes:
        variant: The run with the faults that were found, and without the declared
            faults.
        run: Simulation of that variant.
        found: Faults, each with other hypotheses that explain the run equally well.
        null_misfit: Misfit of the simulation without any fault.
        misfit: Misfit of the simulation with the faults that were found.
        noise: Misfit to expect from random numbers and late hosts.
        tried: Descriptions of the hypotheses that were simulated.
        simulations: Number of simulations.
        measured: Number of measured iterations in each simulation.
        measured_ns: Mean time of a measured iteration of a job, over all jobs.
        times_ns: Time of each measured iteration in ns, summed over all jobs, by
            iteration number.  Empty if jobs have different numbers of iterations.
        late: Share of the time for which the data plane was late, by late host.
        unfitted: A loss that counters prove, but that does not improve the fit, if any.
        is_delayed: Whether round trips take longer than a window, so that delays of
            hosts may have limited the rate.
    """

    variant: Variant
    run: Rerun
    found: tuple[tuple[Hypothesis, tuple[Hypothesis, ...]], ...]
    null_misfit: float
    misfit: float
    noise: float
    tried: tuple[str, ...]
    simulations: int
    measured: Limit
    measured_ns: float
    times_ns: Mapping[int, int]
    late: Mapping[str, float]
    unfitted: Hypothesis | None = None
    is_delayed: bool = False

    @property
    def is_explained(self) -> bool:
        """Whether the simulation fits the measured run."""
        return self.misfit <= max(_LEAST_MISFIT, 2 * self.noise)


def fit(
    results: RunResults,
    *,
    job: str | None = None,
    budget: SimulationBudget | None = None,
    only: Collection[int] | None = None,
) -> Fit:
    """Find the faults that explain a run on a network.

    Args:
        results: Results of the run.
        only: Numbers of the iterations to explain. None means all.
        job: The job to explain. None means all jobs.
        budget: Budget of the diagnosis.  A share of it is for simulating hypotheses.
            None means a budget of ``BUDGET_S``.

    Raises:
        InputError: If the experiment or its traces cannot be read.
        ChakramError: If the run cannot be simulated without faults.
    """
    return _Search(results, job, budget or SimulationBudget(BUDGET_S), only).fit()


class _Search:
    def __init__(
        self,
        results: RunResults,
        job: str | None,
        budget: SimulationBudget,
        only: Collection[int] | None,
    ) -> None:
        self._budget = budget
        fitting_s = _OF_BUDGET * budget.left_s
        self._until_s = budget.used_s + fitting_s
        self._search_until_s = budget.used_s + _OF_SEARCH * fitting_s
        self._null = without_declared_faults(results)
        self._runs = SimulatedRuns(
            results,
            job,
            base=self._null,
            budget=budget,
            until_s=self._until_s,
            only=only,
        )
        self._waits = generator_waits(results)
        self._noise = median(self._waits.values()) if self._waits else 0.0
        self._late = late_hosts(self._waits)
        self._is_late = is_generator_bound(results)
        self._coreless = without_core(results)
        self._round_trip_ns = max(
            (
                each.round_trip.p50_ns or 0
                for each in results.manifest.generator.values()
            ),
            default=0,
        )
        run, shown = self._runs.simulated(self._null)
        for variant in counted_paths(results, self._null, run):
            if self._budget.used_s > self._search_until_s:
                break
            try:
                other_run, other = self._runs.simulated(variant)
            except ChakramError:
                continue  # the run does not end on these paths
            if self._null.ecmp is None or self._misfit(other) < self._misfit(shown):
                self._null, run, shown = variant, other_run, other
        if shown.whole.iteration_ns <= 0:
            raise InputError(
                str(results.path),
                "its simulation takes no time, because ports have no rate",
                "set a rate of the ports, or ask for charges only: --no-verify",
            )
        self._null_misfit = self._misfit(shown)
        # Queues that overflow without a fault also overflow in the simulation.
        overflow = sum(run.result.drops.values()) * self._runs.count / self._runs.few
        self._proposals = Proposals(
            results,
            run,
            late=self._late,
            iterations=self._runs.count,
            overflow=overflow,
        )
        self._links = self._proposals.links
        self._counters = self._proposals.counters
        self._fit_of = ParameterFit(
            self._runs, self._links, self._null.experiment.dilation
        )
        self._unfitted: Hypothesis | None = None

    def fit(self) -> Fit:
        delayed = fitted_host_delay(self._runs, self._null, self._round_trip_ns)
        found, variant = self._found_with(delayed)
        if is_random(variant.assumed):
            # Random losses mask slow links, except in messages without losses.
            self._runs.select(is_intact=True)
            found, variant = self._searched(variant, found)
            self._runs.select(is_intact=False)
        run, shown = self._runs.simulated(variant)
        return Fit(
            variant=variant,
            run=run,
            found=tuple(found),
            null_misfit=self._null_misfit,
            misfit=self._misfit(shown),
            noise=max(self._noise, self._runs.spread(variant)),
            tried=tuple(dict.fromkeys(self._fit_of.tried)),
            simulations=self._runs.simulations,
            measured=self._runs.iterations(variant),
            measured_ns=self._runs.measured_ns,
            times_ns=self._runs.times_ns,
            late=self._late,
            unfitted=None if found else self._unfitted,
            is_delayed=delayed is not None,
        )

    def _found_with(self, delayed: Hypothesis | None) -> tuple[list[Found], Variant]:
        """Return the faults of the run, and the variant of the run with these faults.

        Several slow links together may imitate a delay of all hosts.  So an explanation
        without the delay is preferred only if it does not need more faults.

        Args:
            delayed: The delay of all hosts.  It is a fault if the run fits better with
                it.
        """
        if delayed is None:
            return self._searched(self._null, [])
        until_s = self._until_s
        self._until_s = (self._budget.used_s + until_s) / 2
        start = replace(self._null, assumed=delayed.assumed)
        found, variant = self._searched(start, [(delayed, ())])
        self._until_s = until_s
        others, other = self._searched(self._null, [])
        misfits = [
            self._misfit(self._runs.simulated(each)[1]) for each in (variant, other)
        ]
        limit = max(_AS_GOOD * min(misfits), min(misfits) + _RESOLVED)
        is_rival = len(found) == len(others) == 1 and max(misfits) <= limit
        if misfits[1] < misfits[0] and len(others) <= len(found):
            return (_with_rival(others, delayed) if is_rival else others), other
        return (_with_rival(found, others[0][0]) if is_rival else found), variant

    def _searched(
        self, variant: Variant, found: list[Found]
    ) -> tuple[list[Found], Variant]:
        """Add faults that improve the fit.

        Return all faults, and the variant of the run with these faults.
        """
        run, shown = self._runs.simulated(variant)
        while len(found) < _MOST_FAULTS and self._budget.used_s < self._until_s:
            now = self._misfit(shown)
            noise = max(self._noise, self._runs.spread(variant))
            is_near = now <= max(_LEAST_MISFIT, 2 * noise)
            if is_near and not any(each.is_counted for each, _ in found):
                break
            # Counters prove these faults, regardless of other faults.
            stages = (
                [] if self._runs.is_intact else [self._proposals.counted(variant, run)]
            )
            measured = self._runs.measured.fitted
            stages.append(
                self._proposals.pauses(measured.iteration_ns)
                if is_near
                else self._proposals.slower(run, measured, shown.fitted)
            )
            best = None
            for proposed in stages:
                hypotheses = self._hypotheses(variant, proposed)
                best = _best(
                    [
                        each
                        for each in hypotheses
                        if self._is_better(each, variant, shown)
                    ]
                )
                if best is not None:
                    break
                # A rare loss may not improve the fit, because the seed decides which
                # messages it delays.
                losses = (each for each in hypotheses if each.cause == "loss")
                self._unfitted = next(losses, self._unfitted)
            if best is None:
                break
            limit = max(_AS_GOOD * best.misfit, best.misfit + _RESOLVED)
            rivals = best.alike or tuple(
                each
                for each in hypotheses
                if each.misfit <= limit
                and each.place != best.place
                and not (each.cause == best.cause and _ports(best) < _ports(each))
            )
            if best.cause == "slow link":
                best, rivals = self._or_delayed(variant, best, rivals)
            if best.cause == "slow link":
                best = attributed(best, self._ends(best), self._waits)
            variant = replace(variant, assumed=(*variant.assumed, *best.assumed))
            without_ns = shown.fitted.iteration_ns
            run, shown = self._runs.simulated(variant)
            if best.cause == "slow link":
                rivals += late_receiver(
                    best,
                    self._ends(best),
                    self._waits if self._is_late else {},
                    self._coreless,
                    1 - without_ns / shown.fitted.iteration_ns,
                )
            found = [*found, (best, rivals)]
        return found, variant

    def _or_delayed(
        self, variant: Variant, slow: Hypothesis, rivals: tuple[Hypothesis, ...]
    ) -> tuple[Hypothesis, tuple[Hypothesis, ...]]:
        """Return a delay of the slow link if the delay fits much better.

        If the delay fits about equally well, it becomes a rival.

        Both faults slow messages that wait for a window, but only a delay slows short
        messages.
        """
        port = slow.assumed[0].port
        what = replace(
            slow,
            cause="delay",
            place=self._links[port].link,
            assumed=(Assumption(kind="delay", port=port),),
            span=DELAYS_NS,
        )
        delayed = self._fit_of.fitted(variant, what)
        if delayed is None or self._budget.used_s > self._until_s:
            return slow, rivals
        delayed = self._fit_of.finer(variant, delayed)
        if delayed.misfit < _BOTH * slow.misfit - _RESOLVED:
            return delayed, ()
        limit = max(_AS_GOOD * slow.misfit, slow.misfit + _RESOLVED)
        return slow, (*rivals, delayed) if delayed.misfit <= limit else rivals

    def _is_better(self, best: Hypothesis, variant: Variant, shown: Halves) -> bool:
        now = self._misfit(shown)
        if best.is_counted and best.cause != "pause":
            # Counters prove this fault.  Unlike a pause, it is not the effect of
            # another fault.
            changed = replace(variant, assumed=(*variant.assumed, *best.assumed))
            limit = now + self._runs.spread(changed)
            return best.misfit < limit or self._fits_bytes(best, variant)
        if best.span is None:
            return best.misfit <= _COUNTED * now
        better = _SURER if self._is_late else _BETTER
        if best.misfit > better * self._judge(shown):
            return False
        return not self._runs.is_intact or self._fits_all(best, variant)

    def _fits_bytes(self, best: Hypothesis, variant: Variant) -> bool:
        """Return whether links carried the bytes that a simulated fault predicts.

        A simulation of many small messages may predict wrong times although the paths
        are correct.
        """
        if best.cause not in _OF_PATHS:
            return False
        changed = replace(variant, assumed=(*variant.assumed, *best.assumed))
        before, after = (
            self._counters.misfit_of_bytes(
                self._runs.simulated(each)[0].result.link_bytes
            )
            for each in (variant, changed)
        )
        return after <= _SAME_BYTES and after < _FEWER_BYTES * before

    def _fits_all(self, best: Hypothesis, variant: Variant) -> bool:
        """Return whether the fault fits all messages, not only those without losses."""
        self._runs.select(is_intact=False)
        changed = replace(variant, assumed=(*variant.assumed, *best.assumed))
        before, after = (
            self._misfit(self._runs.simulated(each)[1]) for each in (variant, changed)
        )
        limit = before + self._runs.spread(variant)
        self._runs.select(is_intact=True)
        return after <= limit

    def _misfit(self, shown: Halves) -> float:
        return misfit(self._runs.measured.whole, shown.whole)

    def _judge(self, shown: Halves) -> float:
        return misfit(self._runs.measured.judged, shown.judged)

    def _hypotheses(
        self, variant: Variant, proposed: Iterable[Hypothesis]
    ) -> list[Hypothesis]:
        # A slow host link delays the data of both directions alike, so exclude both.
        taken = {each.port for each in variant.assumed}
        taken |= {
            other
            for each in variant.assumed
            if each.kind == "degrade" and self._links[each.port].kind == "host"
            if (other := self._counters.other_end(each.port))
        }
        enough = max(_LEAST_MISFIT, 2 * self._noise)
        hypotheses: list[Hypothesis] = []
        left = [each for each in proposed if not taken & _ports(each)]
        tried = 0
        while left:
            if tried and not tried % CANDIDATES and self._is_found(hypotheses, enough):
                break
            tried += 1
            fitted = self._fit_of.fitted(variant, left.pop(0))
            hypotheses += [] if fitted is None else [fitted]
        best = _best(hypotheses)
        if best is None or best.span is None:
            return hypotheses
        near = _AS_FINE * best.fitted + _RESOLVED
        hypotheses = [
            self._fit_of.finer(variant, each) if each.fitted <= near else each
            for each in hypotheses
        ]
        hypotheses += self._in_series(variant, hypotheses, left)
        return self._with_two_way(variant, hypotheses, taken, enough)

    def _in_series(
        self,
        variant: Variant,
        hypotheses: Sequence[Hypothesis],
        left: Iterable[Hypothesis],
    ) -> list[Hypothesis]:
        """Fit other links with exactly the same messages as the best slow link.

        If the same messages cross several links, it makes no difference which of these
        links is slow.
        """
        best = min(hypotheses, key=lambda each: each.fitted)
        rate_bps = best.assumed[0].rate_bps
        found = []
        for each in left:
            if each.pairs and each.pairs == best.pairs and rate_bps:
                own = replace(each.assumed[0], rate_bps=rate_bps)
                shown = self._runs.attempt(variant, (own,))
                self._fit_of.tried.append(str(each))
                if shown is not None:
                    same = replace(best, place=each.place, assumed=(own,))
                    found.append(self._fit_of.judged(same, shown))
        return found

    def _with_two_way(
        self,
        variant: Variant,
        hypotheses: list[Hypothesis],
        taken: set[str],
        enough: float,
    ) -> list[Hypothesis]:
        """Prefer one fault in both directions of a link if it explains much more.

        This method simulates two-way faults of all links whose one-way faults fit
        equally well, and of several more links if none of these faults explains the
        run.
        """
        ranking = sorted(hypotheses, key=lambda each: each.fitted)
        best = ranking[0]
        links = {self._links[each.assumed[0].port].link: each for each in ranking[::-1]}
        chosen = sorted(links.values(), key=lambda each: each.fitted)
        likely = [
            each
            for each in chosen[:_TWO_WAY]
            if best.fitted > enough or each.fitted <= best.fitted + _RESOLVED
        ]
        found = [
            self._fit_of.finer(variant, both)
            for each in likely
            if (both := self._two_way(variant, each, taken)) is not None
            and both.misfit < _BOTH * best.misfit - _RESOLVED
        ]
        others = [
            each
            for each in hypotheses
            if not any(_ports(each) <= _ports(both) for both in found)
        ]
        return [*found, *others]

    def _two_way(
        self, variant: Variant, one_way: Hypothesis, taken: set[str]
    ) -> Hypothesis | None:
        """Return a fitted fault that slows both directions of a link, or None."""
        other = self._counters.other_end(one_way.assumed[0].port)
        rate_bps = one_way.assumed[0].rate_bps
        if other is None or other in taken or not rate_bps:
            return None
        share = rate_bps / (self._links[other].rate_bps or rate_bps)
        both = replace(
            one_way,
            place=self._links[other].link,
            assumed=(*one_way.assumed, replace(one_way.assumed[0], port=other)),
            span=(_AROUND * share, min(0.97, share / _AROUND)),
        )
        return self._fit_of.fitted(variant, both)

    def _is_found(self, hypotheses: Sequence[Hypothesis], enough: float) -> bool:
        """Return whether a hypothesis explains the run, or the budget is used up."""
        return (
            self._budget.used_s > self._search_until_s
            or min((each.fitted for each in hypotheses), default=1.0) <= enough
        )

    def _ends(self, slow: Hypothesis) -> set[str]:
        """Return the nodes at the ends of a slow link."""
        name = self._links[slow.assumed[0].port].link
        return {
            node_of(port) for port, each in self._links.items() if each.link == name
        }


def _with_rival(found: Sequence[Found], rival: Hypothesis) -> list[Found]:
    """Return the faults, with *rival* as another explanation for the first fault."""
    (best, rivals), *more = found
    return [(best, (*rivals, rival)), *more]


def _ports(what: Hypothesis) -> frozenset[str]:
    return frozenset(each.port for each in what.assumed)


def _best(hypotheses: Sequence[Hypothesis]) -> Hypothesis | None:
    """Return the best hypothesis.  Among equivalent ones, prefer fewer ports."""
    if not hypotheses:
        return None
    limit = min(each.fitted for each in hypotheses) + _RESOLVED
    alike = [each for each in hypotheses if each.fitted <= limit]
    return min(alike, key=lambda each: (len(_ports(each)), each.fitted))
