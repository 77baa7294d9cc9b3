"""Simulations of a run without some of its suspects, and their times."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from chakram.analysis.cause_ranking import (
    LEAST_SAVING,
    Finding,
    Saving,
    Suspect,
    Verdict,
    find_causes,
)
from chakram.diagnosis.counterfactual import (
    Case,
    Change,
    Limit,
    Rerun,
    Variant,
    mean_time,
)
from chakram.diagnosis.simulation_budget import SimulationBudget
from chakram.foundation.errors import ChakramError

SEEDS, MORE_SEEDS = 8, 24
"""Number of seeds to simulate first, and number for causes that stay uncertain."""


def has_random_numbers(variant: Variant) -> bool:
    """Return whether the seed of a simulation affects more than its paths."""
    experiment = variant.experiment
    faults = experiment.faults
    links = experiment.fabric.to_topology(experiment.fabric.nports)
    marks = links is not None and any(
        link.ecn is not None and link.ecn.probability > 0 for link in links.links
    )
    return bool(
        any(each.probability for each in variant.assumed)
        or faults.drop
        or faults.packets
        or any(each.probability for each in faults.links)
        or (marks and experiment.transport.ecn != "off")
    )


def _are_alike(variant: Variant) -> bool:
    """Return whether no fault or setting makes iterations differ."""
    experiment = variant.experiment
    faults = experiment.faults
    return not (
        any(
            each.at_ns
            or each.when is not None
            or each.duration_ns is not None
            or each.probability
            for each in faults.links
        )
        or faults.packets
        or faults.drop
        or any(each.probability or each.at_ns for each in variant.assumed)
        or any(job.repeat is not None or job.start_ns for job in experiment.jobs)
        or experiment.arrivals is not None
    )


class RemovalTimer:
    """Measures the simulated time of a run without some of its suspects.

    If all iterations are alike, the timer simulates only the first measured iteration
    until a suspect is confirmed.  *limit* is the number of iterations to simulate, or
    None for all.  If *averages* is set, times are means over ``SEEDS`` seeds, because
    the random numbers of the run are unknown.  If *budget* is used up, the timer tests
    no further suspect and simulates no unnecessary seed.
    """

    def __init__(
        self,
        base: Variant,
        run: Rerun,
        cases: Sequence[Case],
        job: str | None,
        budget: SimulationBudget,
        limit: Limit | None = None,
        *,
        averages: bool = False,
    ) -> None:
        self._base = base
        self._averages = averages
        self._budget = budget
        self._limit = limit
        self._cases = cases
        self._job = job
        self._whole = run.iterations_ns(job)
        self._of_seed: dict[tuple[frozenset[int], int], int | None] = {}
        self._skipped = 0
        self._measured = 1 if _are_alike(base) else None
        if self._measured is not None:
            first = min(iteration for _, iteration in self._whole)
            self._first = {
                key: each for key, each in self._whole.items() if key[1] == first
            }
        else:
            self._first = self._whole

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence about skipped simulations, if any."""
        if not self._skipped:
            return ()
        return (
            f"--budget is used up: {self._skipped} simulations without single causes "
            "were skipped, so their results are unknown",
        )

    def times_ns(self, removed: frozenset[int]) -> int | None:
        """Return the mean time of an iteration in ns, as ``Times`` specifies."""
        if not removed and not self._averages:
            return mean_time(self._first)
        if removed and self._budget.left_s < 0:
            self._skipped += 1
            return None
        if self._averages:
            times_ns = [self._seeded(removed, number) for number in range(SEEDS)]
            known_ns = [each for each in times_ns if each is not None]
            return sum(known_ns) // SEEDS if len(known_ns) == SEEDS else None
        return self._time_ns(removed, measured=self._measured)

    def _time_ns(
        self,
        removed: frozenset[int],
        *,
        seed: int | None = None,
        measured: int | None = None,
    ) -> int | None:
        cases = [self._cases[index] for index in sorted(removed)]
        changes = [[case.change for case in cases]]
        if any(case.other_change for case in cases):
            changes.append([case.other_change or case.change for case in cases])
        times_ns = [self._changed_ns(removed, each, seed, measured) for each in changes]
        known_ns = [each for each in times_ns if each is not None]
        return max(known_ns) if len(known_ns) == len(changes) else None

    def _changed_ns(
        self,
        removed: frozenset[int],
        changes: Sequence[Change],
        seed: int | None,
        measured: int | None,
    ) -> int | None:
        variant = replace(self._base, seed=seed)
        try:
            for change in changes:
                variant = change(variant)
            chosen = measured or self._limit
            run = self._budget.rerun(variant, measured=chosen)
            times_ns = run.iterations_ns(self._job)
        except ChakramError:
            return None
        own = {self._cases[index].job for index in removed} - {None}
        if own:
            # This simulation has only one job, so use the unchanged times of the other
            # jobs.
            whole = self._whole if measured is None else self._first
            times_ns = {**whole, **times_ns}
        return mean_time(times_ns)

    def exactly(self, verdict: Verdict) -> Verdict:
        """Return a verdict with savings over the whole run instead of one iteration."""
        named = {
            suspect
            for each in (*verdict.faults, *verdict.limits)
            for suspect in (each.suspect, *each.together_with)
        }
        chosen = [at for at, case in enumerate(self._cases) if case.suspect in named]
        if self._measured is None or not chosen:
            return verdict

        def times_ns(removed: frozenset[int]) -> int | None:
            if not removed:
                return mean_time(self._whole)
            return self._time_ns(frozenset(chosen[each] for each in removed))

        whole = find_causes([self._cases[at].suspect for at in chosen], times_ns)
        return replace(
            whole,
            excluded=(*verdict.excluded, *whole.excluded),
            simulations=verdict.simulations + whole.simulations,
            notes=verdict.notes,
        )

    def _removed(self, finding: Finding) -> frozenset[int]:
        """Return the indexes of the suspects of a finding."""
        return self._indexes((finding.suspect, *finding.together_with))

    def _indexes(self, suspects: Collection[Suspect]) -> frozenset[int]:
        return frozenset(
            at for at, case in enumerate(self._cases) if case.suspect in suspects
        )

    def with_intervals(self, verdict: Verdict) -> Verdict:
        """Return a verdict without findings that save no time with other seeds.

        A masked fault and the faults that mask it are kept if removing the masked fault
        saves time after the removal of the other faults.
        """
        faults = [self._with_interval(finding) for finding in verdict.faults]
        kept = {each.suspect for each in faults if each.saving.is_certain}
        for each in faults:
            if each.suspect not in kept and self._saves_after_others(each):
                kept |= {each.suspect, *each.previous}
        unsure = [each for each in faults if each.suspect not in kept]
        return replace(
            verdict,
            faults=tuple(each for each in faults if each.suspect in kept),
            limits=tuple(
                sure
                for each in verdict.limits
                if (sure := self._with_interval(each)).saving.is_certain
            ),
            excluded=(*verdict.excluded, *(each.suspect for each in unsure)),
            notes=(
                *verdict.notes,
                *(
                    f"{each.suspect} would save {each.saving}, but with other random "
                    "numbers perhaps nothing"
                    for each in unsure
                    if each.saving.share >= LEAST_SAVING
                ),
            ),
        )

    def _saves_after_others(self, finding: Finding) -> bool:
        """Return whether a fault's removal saves time without its masking faults."""
        share = finding.after_previous.share
        if share <= finding.saving.share:
            return False
        others = self._indexes(finding.previous)
        removed = others | self._removed(finding)
        saving = self._of_seeds(removed, share, SEEDS, others)
        return saving is None or saving.is_certain

    def _with_interval(self, finding: Finding) -> Finding:
        removed = self._removed(finding)
        for count in (SEEDS, MORE_SEEDS):
            saving = self._of_seeds(removed, finding.saving.share, count)
            if saving is None or saving.is_certain or self._budget.left_s < 0:
                break
        if saving is None:
            return finding
        after = finding.after_previous if finding.previous else saving
        return replace(finding, saving=saving, after_previous=after)

    def _of_seeds(
        self,
        removed: frozenset[int],
        share: float,
        count: int,
        before: frozenset[int] = frozenset(),
    ) -> Saving | None:
        """Return a saving with the confidence interval of the median over other seeds.

        The suspects *before* are removed from both runs that are compared.
        """
        samples = sorted(
            1 - without / whole
            for number in range(count)
            if self._budget.left_s > 0
            if (whole := self._seeded(before, number))
            and (without := self._seeded(removed, number))
        )
        if len(samples) < SEEDS:
            return None
        # These order statistics are about two standard deviations from the median.
        cut = max(1, int(len(samples) / 2 - math.sqrt(len(samples))))
        return Saving(
            share=share,
            low=min(share, samples[cut]),
            high=max(share, samples[-1 - cut]),
        )

    def _seeded(self, removed: frozenset[int], number: int) -> int | None:
        if (removed, number) not in self._of_seed:
            seed = self._base.experiment.seed + 1 + number
            self._of_seed[removed, number] = self._time_ns(removed, seed=seed)
        return self._of_seed[removed, number]
