"""Simulations of a run with assumed faults, summarized like the measured run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import fmean

from chakram.analysis.simulation_misfit import (
    Message,
    Observed,
    intact,
    misfit,
    observed,
)
from chakram.diagnosis.counterfactual import (
    Assumption,
    Limit,
    Rerun,
    Variant,
    recorded_iterations,
)
from chakram.diagnosis.run_evidence import (
    Messages,
    measured_messages,
    simulated_messages,
)
from chakram.diagnosis.simulation_budget import SimulationBudget
from chakram.foundation.errors import ChakramError
from chakram.foundation.grouping import grouped
from chakram.roce.constants import NEVER
from chakram.run_directory.reader import RunResults

_SEEDS = 3
"""Number of seeds for a simulation with random losses."""

_ITERATIONS = 3


@dataclass(frozen=True, slots=True)
class Halves:
    """Observations of all iterations, and of the halves for fitting and for judging."""

    whole: Observed
    fitted: Observed
    judged: Observed


class SimulatedRuns:
    """Measurements of a run, and simulations of the run in the same form.

    Attributes:
        measured: The measured iterations.
        count: Number of measured iterations of the run.
        few: Number of iterations to simulate if no fault makes iterations differ.  All
            iterations if jobs overlap only in some of them.
        measured_ns: Mean time of a measured iteration of a job, over all jobs.
        times_ns: Time of each iteration in ns, summed over all jobs, by iteration
            number.  Empty if jobs have different numbers of iterations.
        is_intact: Whether only messages without retransmissions are compared.
        simulations: Number of simulations so far.

    Args:
        results: Results of the run.
        job: The job to compare. None means all jobs.
        base: The unchanged run.
        budget: Budget of the simulations.
        until_s: Used budget above which ``attempt`` gives up.
        only: Numbers of the iterations to compare. None means all.
    """

    def __init__(
        self,
        results: RunResults,
        job: str | None,
        *,
        base: Variant,
        budget: SimulationBudget,
        until_s: float,
        only: Collection[int] | None = None,
    ) -> None:
        self._job = job
        self._budget = budget
        self._until_s = until_s
        self._records = measured_messages(results, job)
        own_ns = self._records[1]
        has_all_jobs = len({*map(len, own_ns.values())}) == 1
        self.times_ns = {at: sum(each) for at, each in own_ns.items() if has_all_jobs}
        numbers = sorted(at for at in own_ns if only is None or at in only)
        self.measured_ns = fmean(each for at in numbers for each in own_ns[at])
        self._numbers = numbers[::2], numbers[1::2] or numbers
        self._spreads: dict[tuple[bool, tuple[Assumption, ...]], float] = {}
        self.simulations = 1
        self.select(is_intact=False)
        warmup = base.experiment.iterations.warmup
        self.count = 1 + max(map(max, self._numbers)) - warmup
        self.few = min(self.count, _ITERATIONS)
        self._of_jobs: dict[str, int] | None = None
        if not _always_meet(base):
            self.few = self.count
            of_jobs = grouped(recorded_iterations(results, None))
            self._of_jobs = {name: 1 + max(at) - warmup for name, at in of_jobs.items()}

    def select(self, *, is_intact: bool) -> None:
        """Select the messages to compare: all, or those without retransmissions."""
        self.is_intact = is_intact
        halves = self._numbers
        numbers = sorted({*halves[0], *halves[1]})
        self.measured = Halves(
            *(self._observed(*self._records, each) for each in (numbers, *halves))
        )

    def _observed(
        self,
        flows: Mapping[int, Sequence[Message]],
        times_ns: Mapping[int, Sequence[int]],
        numbers: Iterable[int],
    ) -> Observed:
        chosen = [each for each in numbers if each in times_ns]
        own = [flow for each in chosen for flow in flows.get(each, ())]
        if self.is_intact:
            return intact(own)
        jobs = max(len(times_ns[each]) for each in chosen)
        return observed(own, [sum(times_ns[each]) // jobs for each in chosen])

    def iterations(self, variant: Variant) -> Limit:
        """Return the number of measured iterations to simulate."""
        if self._of_jobs is not None:
            return self._of_jobs
        return self.count if is_timed(variant.assumed) else self.few

    def simulated(self, variant: Variant) -> tuple[Rerun, Halves]:
        """Simulate a variant of the run.

        Raises:
            ChakramError: If the simulation does not end.
        """
        measured = self.iterations(variant)
        run = self._budget.rerun(variant, measured=measured)
        flows, times_ns = simulated_messages(run, self._job)
        if is_timed(variant.assumed) or self._of_jobs is not None:
            fitted, judged = (
                self._observed(flows, times_ns, each) for each in self._numbers
            )
            whole = self._observed(flows, times_ns, times_ns)
            return run, Halves(whole, fitted, judged)
        if is_random(variant.assumed):
            for more_flows, more_ns in self._repeated(variant, measured):
                last = 1 + max(times_ns)
                flows |= {last + number: each for number, each in more_flows.items()}
                times_ns |= {last + number: each for number, each in more_ns.items()}
        shown = self._observed(flows, times_ns, times_ns)
        return run, Halves(shown, shown, shown)

    def spread(self, variant: Variant) -> float:
        """Return the misfit between simulations that differ only in their seed."""
        if not is_random(variant.assumed):
            return 0.0
        key = self.is_intact, variant.assumed
        if key not in self._spreads:
            shown = [
                self._observed(flows, times_ns, times_ns)
                for flows, times_ns in self._repeated(
                    variant, self._of_jobs or self.count
                )
            ]
            self._spreads[key] = misfit(*shown) if len(shown) > 1 else 0.0
        return self._spreads[key]

    def _repeated(self, variant: Variant, measured: Limit) -> Iterator[Messages]:
        """Yield the messages of simulations with other seeds, if they end."""
        seed = variant.experiment.seed
        for each in range(seed + 1, seed + _SEEDS):
            with suppress(ChakramError):
                changed = replace(variant, seed=each)
                again = self._budget.rerun(changed, measured=measured)
                yield simulated_messages(again, self._job)

    def attempt(self, variant: Variant, assumed: Sequence[Assumption]) -> Halves | None:
        """Simulate a variant with more faults.  Return None if the simulation fails.

        The method also returns None if the budget is used up.
        """
        if self._budget.used_s > self._until_s:
            return None
        self.simulations += 1
        changed = replace(variant, assumed=(*variant.assumed, *assumed))
        try:
            return self.simulated(changed)[1]
        except ChakramError:
            return None


def is_timed(assumed: Iterable[Assumption]) -> bool:
    """Return whether a fault begins or ends during the run."""
    return any(each.at_ns or each.until_ns != NEVER for each in assumed)


def is_random(assumed: Iterable[Assumption]) -> bool:
    """Return whether the seed decides what a fault affects."""
    return any(each.probability for each in assumed)


def _always_meet(base: Variant) -> bool:
    """Return whether the same jobs run concurrently all the time."""
    jobs = base.experiment.jobs
    if base.alone is not None or len(jobs) == 1:
        return True
    return base.experiment.arrivals is None and not any(
        job.start_ns or not (job.repeat is None or job.is_background) for job in jobs
    )
