"""Test what a run lost time by: simulate it without each suspect, and compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chakram.controller.counterfactual import (
    Rerun,
    Variant,
    mean_time,
    rerun,
    variant_of,
)
from chakram.controller.suspects import Case, cases_of
from chakram.errors import ChakramError, InputError
from chakram.observe.manifest import SIMULATE
from chakram.results.verdict import (
    LEAST_SAVING,
    Finding,
    Saving,
    Verdict,
    find_causes,
)

if TYPE_CHECKING:
    from chakram.observe.run_results import RunResults
    from chakram.results.causes import Why

    Say = Callable[[str], None]

SEEDS = 8
"""Repetitions with other random numbers, where a run has any."""

_WARN_S = 2.0
_FEW_SAMPLES = 3
"""Where none of so many samples saves anything, the others are not simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The tested causes of a run, or why there are none.

    Attributes:
        verdict: The causes; None: they could not be tested.
        reason: Why not, in a sentence; None: they were.
    """

    verdict: Verdict | None
    reason: str | None = None


def verify(
    results: RunResults,
    why: Why,
    *,
    job: str | None = None,
    say: Say = lambda _: None,
) -> Verified:
    """Simulate a run in virtual time without each suspect.

    Args:
        results: Of the run.
        why: Its critical path.
        job: The job that is explained; None: all.
        say: Told what it is going to cost, where that is long.
    """
    try:
        return Verified(verdict=_verdict(results, why, job, say))
    except ChakramError as error:
        return Verified(verdict=None, reason=str(error))


def _verdict(results: RunResults, why: Why, job: str | None, say: Say) -> Verdict:
    where = str(results.path)
    if results.manifest.world != SIMULATE:
        raise InputError(where, "is no simulation", "its causes are fitted instead")
    base = variant_of(results.manifest, where)
    watch = _Watch()
    run = rerun(base)
    cost_s = watch.elapsed_s()
    again_ns = run.iterations_ns(job)
    recorded_ns = recorded_iterations(results, job)
    if again_ns != recorded_ns:
        raise InputError(
            where,
            "takes another time when it is simulated again: it was made by another "
            "version, or its random numbers are not those of its seed",
            "simulate the experiment again",
        )
    cases = cases_of(
        base,
        run,
        links=results.links(),
        charged=why.causes,
        time_ns=mean_time(again_ns),
        job=job,
    )
    expected_s = cost_s * sum(case.samples for case in cases)
    if expected_s > _WARN_S:
        say(
            f"testing {len(cases)} possible causes by simulation, about "
            f"{expected_s:.0f} s (--no-verify leaves it out)"
        )
    timer = _Timer(base, run, cases, job)
    verdict = timer.exactly(
        find_causes([case.suspect for case in cases], timer.times_ns)
    )
    if has_random_numbers(base):
        verdict = timer.with_intervals(verdict)
    return verdict


def recorded_iterations(
    results: RunResults, job: str | None
) -> dict[tuple[str, int], int]:
    """Return by job and measured iteration its first start to its last end, in ns."""
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    for row in results.ranks():
        if row.measured and job in (None, row.job):
            key = row.job, row.iteration
            start_ns, end_ns = spans.get(key, (row.start_ns, row.end_ns))
            spans[key] = min(start_ns, row.start_ns), max(end_ns, row.end_ns)
    return {key: end_ns - start_ns for key, (start_ns, end_ns) in spans.items()}


def has_random_numbers(variant: Variant) -> bool:
    """Tell whether a simulation depends on its seed in more than its paths."""
    experiment = variant.experiment
    faults = experiment.faults
    links = experiment.fabric.to_topology(experiment.fabric.nports)
    marks = links is not None and any(
        link.ecn is not None and link.ecn.probability > 0 for link in links.links
    )
    return bool(
        faults.drop
        or faults.packets
        or any(each.probability for each in faults.links)
        or (marks and experiment.transport.ecn != "off")
    )


def _are_alike(variant: Variant) -> bool:
    """Tell whether nothing happens in one iteration that does not in another."""
    experiment = variant.experiment
    faults = experiment.faults
    return not (
        any(
            each.at_ns or each.when is not None or each.duration_ns is not None
            for each in faults.links
        )
        or faults.packets
        or faults.drop
        or any(job.repeat is not None or job.start_ns for job in experiment.jobs)
        or experiment.arrivals is not None
    )


class _Watch:
    def __init__(self) -> None:
        self._begin_s = time.monotonic()

    def elapsed_s(self) -> float:
        return time.monotonic() - self._begin_s


class _Timer:
    """Times a run without some of its suspects.

    Until a suspect is confirmed, only the first measured iteration is simulated where
    all are alike.
    """

    def __init__(
        self, base: Variant, run: Rerun, cases: Sequence[Case], job: str | None
    ) -> None:
        self._base = base
        self._cases = cases
        self._job = job
        self._whole = self._of_interest(run.iterations_ns(job))
        self._seeded: dict[frozenset[int], list[int]] = {}
        self._measured = 1 if _are_alike(base) else None
        if self._measured is not None:
            first = min(iteration for _, iteration in self._whole)
            self._first = {
                key: each for key, each in self._whole.items() if key[1] == first
            }
        else:
            self._first = self._whole

    def _of_interest(
        self, times_ns: dict[tuple[str, int], int]
    ) -> dict[tuple[str, int], int]:
        """Leave out jobs that repeat until the others end."""
        background = {
            job.name for job in self._base.experiment.jobs if job.is_background
        }
        kept = {key: each for key, each in times_ns.items() if key[0] not in background}
        return kept or times_ns

    def times_ns(self, removed: frozenset[int]) -> list[int] | None:
        """Return the mean iteration of every sample, in ns; see ``Times``."""
        whole_ns = mean_time(self._first)
        if not removed:
            return [whole_ns]
        samples = max(self._cases[index].samples for index in removed)
        found: list[int] = []
        for sample in range(samples):
            time_ns = self._time_ns(removed, sample, measured=self._measured)
            if time_ns is None:
                return None
            found.append(time_ns)
            if (
                len(found) == _FEW_SAMPLES
                and min(found) > (1 - LEAST_SAVING) * whole_ns
            ):
                break
        return found

    def _time_ns(
        self,
        removed: frozenset[int],
        sample: int,
        *,
        seed: int | None = None,
        measured: int | None = None,
    ) -> int | None:
        variant = replace(self._base, seed=seed)
        try:
            for index in sorted(removed):
                variant = self._cases[index].change(variant, sample)
            times_ns = rerun(variant, measured=measured).iterations_ns(self._job)
        except ChakramError:
            return None
        own = {self._cases[index].job for index in removed} - {None}
        if own:
            # The other jobs are gone: theirs stay what they were.
            whole = self._whole if measured is None else self._first
            times_ns = {**whole, **times_ns}
        return mean_time(self._of_interest(times_ns))

    def exactly(self, verdict: Verdict) -> Verdict:
        """Return a verdict with what the whole run saves without each cause."""
        if self._measured is None:
            return verdict
        faults = tuple(map(self._exact, verdict.faults))
        limits = tuple(map(self._exact, verdict.limits))
        small = [each for each in limits if each.saving.share < LEAST_SAVING]
        return replace(
            verdict,
            faults=faults,
            limits=tuple(each for each in limits if each not in small),
            excluded=(*verdict.excluded, *(each.suspect for each in small)),
        )

    def _exact(self, finding: Finding) -> Finding:
        index = self._index(finding)
        if self._cases[index].samples > 1:
            return finding
        time_ns = self._time_ns(frozenset({index}), 0)
        if time_ns is None:
            return finding
        share = 1 - time_ns / mean_time(self._whole)
        return replace(finding, saving=Saving(share=share, low=share, high=share))

    def _index(self, finding: Finding) -> int:
        return next(
            at for at, case in enumerate(self._cases) if case.suspect is finding.suspect
        )

    def with_intervals(self, verdict: Verdict) -> Verdict:
        """Return a verdict whose findings hold for other random numbers, too."""
        faults, unsure = [], list(verdict.excluded)
        for finding in verdict.faults:
            sure = self._with_interval(finding)
            if (
                sure.saving.is_certain
                or sure.together_with
                or (sure.after_previous.share > sure.saving.share)
            ):
                faults.append(sure)
            else:
                unsure.append(finding.suspect)
        return replace(
            verdict,
            faults=tuple(faults),
            limits=tuple(map(self._with_interval, verdict.limits)),
            excluded=tuple(unsure),
        )

    def _with_interval(self, finding: Finding) -> Finding:
        index = self._index(finding)
        if self._cases[index].samples > 1:
            return finding
        before = self._of_seeds(frozenset())
        after = self._of_seeds(frozenset({index}))
        samples = sorted(
            1 - without / whole
            for whole, without in zip(before, after, strict=True)
            if whole and without
        )
        if len(samples) < SEEDS - 1:
            return finding
        share = finding.saving.share
        return replace(
            finding,
            saving=Saving(
                share=share,
                low=min(share, samples[0]),
                high=max(share, samples[-1]),
            ),
        )

    def _of_seeds(self, removed: frozenset[int]) -> list[int]:
        if removed not in self._seeded:
            seed = self._base.experiment.seed
            self._seeded[removed] = [
                self._time_ns(removed, 0, seed=seed + 1 + at) or 0
                for at in range(SEEDS - 1)
            ]
        return self._seeded[removed]
