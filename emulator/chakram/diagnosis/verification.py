"""Tests of causes of lost time: simulate a run without each suspect, and compare."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from chakram.analysis.cause_ranking import (
    LEAST_SAVING,
    CauseClass,
    Finding,
    Saving,
    Suspect,
    Verdict,
    find_causes,
    ranked,
)
from chakram.analysis.charged_causes import Why
from chakram.analysis.simulation_misfit import LATE
from chakram.diagnosis.counterfactual import (
    Case,
    Change,
    Rerun,
    Variant,
    mean_time,
    recorded_iterations,
    rerun,
    variant_of,
)
from chakram.diagnosis.design_limits import ALL_HOSTS
from chakram.diagnosis.fault_proposals import Hypothesis
from chakram.diagnosis.fault_search import Fit, fit
from chakram.diagnosis.suspects import ADVICE, cases_of
from chakram.foundation.errors import ChakramError, InputError
from chakram.run_directory.manifest import SIMULATE
from chakram.run_directory.reader import RunResults

if TYPE_CHECKING:
    Say = Callable[[str], None]

SEEDS, MORE_SEEDS = 8, 24
"""Number of seeds to simulate at first, and if a cause is still uncertain."""

BUDGET_S = 60.0
"""Default time limit for testing the causes of a run, in seconds."""

_WARN_S = 2.0

_POOR_MISFIT = 0.5
"""Misfit of a fitted simulation above which a fitted rate proves no slow link."""

_MUCH_LATE = 2 * LATE
"""Share of the time by which hosts are late, reported even if the run is explained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The tested causes of a run, or the reason why they are untested.

    Attributes:
        verdict: The causes, or None if they could not be tested.
        reason: Sentence that states why the causes were not tested, or None.
    """

    verdict: Verdict | None
    reason: str | None = None


def verify(
    results: RunResults,
    why: Why,
    *,
    job: str | None = None,
    budget_s: float = BUDGET_S,
    say: Say = lambda _: None,
) -> Verified:
    """Simulate a run without each suspect.

    Args:
        results: Results of the run.
        why: Critical paths of the run.
        job: The job to explain.  None: all jobs.
        budget_s: Approximate time limit for all simulations, in seconds.  If it is too
            short for all suspects, limits of the design are skipped first.
        say: Receives messages, for example the expected duration if it is long.
    """
    try:
        return Verified(verdict=_verdict(results, why, job, budget_s, say))
    except ChakramError as error:
        return Verified(verdict=None, reason=str(error))


def _verdict(
    results: RunResults, why: Why, job: str | None, budget_s: float, say: Say
) -> Verdict:
    if results.manifest.world != SIMULATE:
        return _of_network(results, why, job, budget_s, say)
    where = str(results.path)
    _refuse_long(where, "simulating it took", _recorded_s(results), budget_s)
    base = variant_of(results.manifest, where)
    watch = _Watch()
    recorded_ns = recorded_iterations(results, job)
    # For an interrupted run, simulate only as many iterations as were recorded.
    limit = len({each for _, each in recorded_ns}) if results.incomplete else None
    run = rerun(base, measured=limit)
    cost_s = watch.elapsed_s()
    again_ns = run.iterations_ns(job)
    if any(again_ns.get(key) != time_ns for key, time_ns in recorded_ns.items()):
        raise InputError(
            where,
            "takes a different time when simulated again: another version created it, "
            "or its random numbers do not match its seed",
            "simulate the experiment again",
        )
    cases = _affordable(
        _cases(base, run, results, why, job), where, cost_s, budget_s, say
    )
    timer = _Timer(base, run, cases, job, watch.at(budget_s), limit)
    verdict = timer.exactly(
        find_causes([case.suspect for case in cases], timer.times_ns)
    )
    if has_random_numbers(base):
        verdict = timer.with_intervals(verdict)
    return replace(verdict, notes=timer.notes)


def _recorded_s(results: RunResults) -> float:
    """Return how long the recorded simulation took, in seconds."""
    manifest = results.manifest
    if manifest.ended_at is None:
        return 0.0
    ended = datetime.fromisoformat(manifest.ended_at)
    return (ended - datetime.fromisoformat(manifest.started_at)).total_seconds()


def _refuse_long(where: str, what: str, cost_s: float, budget_s: float) -> None:
    if cost_s > budget_s:
        raise InputError(
            where,
            f"{what} about {cost_s:.0f} s, more than the {budget_s:.0f} s allowed",
            f"chakram why --budget {math.ceil(2 * cost_s)}",
        )


def _cases(
    base: Variant, run: Rerun, results: RunResults, why: Why, job: str | None
) -> list[Case]:
    return cases_of(
        base,
        run,
        links=results.links(),
        charged=why.causes,
        time_ns=mean_time(run.iterations_ns(job)),
        job=job,
    )


def _affordable(
    cases: list[Case], where: str, cost_s: float, budget_s: float, say: Say
) -> list[Case]:
    """Return the cases that fit the time limit, and announce the expected duration."""
    if cost_s * len(cases) > budget_s:
        cases = [case for case in cases if case.suspect.kind is CauseClass.FAULT]
        say(
            "limits of the design are not tested, because that takes longer than "
            "--budget"
        )
    expected_s = cost_s * len(cases)
    _refuse_long(where, f"testing {len(cases)} causes takes", expected_s, budget_s)
    if expected_s > _WARN_S:
        say(
            f"testing {len(cases)} possible causes by simulation, about "
            f"{expected_s:.0f} s (--no-verify skips this)"
        )
    return cases


def _of_network(
    results: RunResults, why: Why, job: str | None, budget_s: float, say: Say
) -> Verdict:
    """Fit a simulation to a run on a network, and test causes in the simulation."""
    say("fitting simulations to the measured messages (--no-verify skips this)")
    watch = _Watch()
    fitted = fit(results, job=job, budget_s=budget_s)
    base, run = fitted.variant, fitted.run
    simulated_ns = mean_time(run.iterations_ns(job))
    unexplained = 1 - simulated_ns / fitted.measured_ns
    notes = [
        f"the misfit without faults is {fitted.null_misfit:.3f}, "
        + (f"with these faults {fitted.misfit:.3f}, " if fitted.found else "")
        + f"and the noise is {fitted.noise:.3f}"
    ]
    generator = _generator(fitted, why, unexplained)
    if not fitted.is_explained and generator is None:
        notes.append(
            "part of the difference is unexplained; also simulated: "
            + (
                ", ".join(fitted.tried)
                or "nothing, because the records suggest no cause"
            )
        )
    own = [_fitted_case(found, why) for found, _ in fitted.found]
    is_random = has_random_numbers(base)
    cost_s = (
        watch.elapsed_s() / max(1, fitted.simulations) * (SEEDS if is_random else 1)
    )
    named = {
        (each.cause, each.place)
        for found, rivals in fitted.found
        for each in (found, *rivals)
    }
    others = [
        case
        for case in _cases(base, run, results, why, job)
        if (case.suspect.cause, case.suspect.place) not in named
    ]
    if cost_s * (len(own) + len(others)) > budget_s:
        others = [case for case in others if case.suspect.kind is CauseClass.FAULT]
    cases = [*own, *others]
    timer = _Timer(
        base, run, cases, job, watch.at(budget_s), fitted.measured, averages=is_random
    )
    verdict = timer.exactly(
        find_causes([case.suspect for case in cases], timer.times_ns)
    )
    rivals = {
        case.suspect: tuple(_suspect_of(each, why) for each in others)
        for case, (_, others) in zip(own, fitted.found, strict=True)
    }
    # A simulation without the cause may have the same error as the fit.
    error = max(abs(unexplained), fitted.misfit)
    least = abs(unexplained)
    if is_random:
        # Random numbers cause most of the difference from a single run.
        verdict, least = timer.with_intervals(verdict), 0.0
    proven, unproven = separate(
        verdict.faults,
        rivals=rivals,
        fitted={
            case.suspect
            for case, (found, _) in zip(own, fitted.found, strict=True)
            if found.span is not None
        },
        error=error,
        least=least,
        noise=fitted.noise,
        is_poor=not fitted.is_explained and fitted.misfit > _POOR_MISFIT,
    )
    notes += [
        f"{each.suspect.cause} at {each.suspect.place} would save "
        f"{each.saving.share:.1%}, but that is within the error of the simulation"
        for each in unproven
    ]
    faults = list(proven)
    if generator is not None:
        faults.append(generator)
    return replace(
        verdict,
        faults=ranked(faults),
        limits=verdict.limits if fitted.is_explained else (),
        excluded=(*verdict.excluded, *(each.suspect for each in unproven)),
        notes=(*notes, *timer.notes),
    )


def separate(
    findings: Iterable[Finding],
    *,
    rivals: Mapping[Suspect, tuple[Suspect, ...]],
    fitted: Collection[Suspect],
    error: float,
    least: float,
    noise: float,
    is_poor: bool = False,
) -> tuple[list[Finding], list[Finding]]:
    """Return the faults that are proven, with their ranges, and those that are not.

    Args:
        findings: Faults of the fitted simulation, with their savings.
        rivals: Other explanations, by the suspects of the fit.
        fitted: Suspects whose rate was fitted.
        error: Error of the fitted simulation, as a share of the time.
        least: Share of the time that the fitted simulation does not explain.
        noise: Share of the time for which hosts were late.
        is_poor: Whether the fitted simulation differs much from the run.
    """
    proven: list[Finding] = []
    unproven: list[Finding] = []
    for finding in findings:
        share = finding.saving.share
        saving = _with_error(finding.saving, error * (1 - share))
        is_late = finding.suspect.cause == "generator slow"
        if is_late:
            # Without this cause, the other hosts would still be late.
            saving = replace(saving, low=max(0.0, saving.low - noise))
        then = finding.after_previous.share
        if finding.suspect not in rivals:
            is_proven = max(share, then) > least
        elif finding.suspect in fitted and not is_late:
            is_proven = not is_poor and max(saving.low, then - error) > 0
        else:
            # Counters prove the fault, or the lateness of the host.
            is_proven = True
        found = replace(finding, saving=saving, rivals=rivals.get(finding.suspect, ()))
        (proven if is_proven else unproven).append(found)
    return proven, unproven


def _with_error(saving: Saving, error: float) -> Saving:
    """Widen the interval of a saving to at least *error* on both sides."""
    low, high = saving.share - error, saving.share + error
    return replace(saving, low=min(saving.low, low), high=max(saving.high, high))


def _suspect_of(hypothesis: Hypothesis, why: Why) -> Suspect:
    declared = next(
        (each.fault for each in why.causes if each.place == hypothesis.place), None
    )
    evidence = hypothesis.evidence
    if declared is not None:
        evidence += f" (declared: {declared})"
    return Suspect(
        cause=hypothesis.cause,
        place=hypothesis.place,
        evidence=evidence,
        advice=ADVICE[hypothesis.cause],
        remedy="simulated without it",
    )


def _fitted_case(hypothesis: Hypothesis, why: Why) -> Case:
    def change(of: Variant) -> Variant:
        left = tuple(each for each in of.assumed if each not in hypothesis.assumed)
        return replace(of, assumed=left)

    return Case(suspect=_suspect_of(hypothesis, why), change=change)


def _generator(fitted: Fit, why: Why, unexplained: float) -> Finding | None:
    """Return a finding about late hosts that no other finding explains, or None."""
    named = {each.place for each, _ in fitted.found}
    late = {host: share for host, share in fitted.late.items() if host not in named}
    if not late:
        # No host was later than the others.
        charged = sum(
            each.share
            for each in why.causes
            if each.cause == "generator slow" and each.place not in named
        )
        least = _MUCH_LATE if fitted.is_explained else LATE
        late = {ALL_HOSTS: charged} if charged >= least else {}
    share = min(max(late.values(), default=0.0), unexplained)
    if share < LEAST_SAVING:
        return None
    first, *others = late
    saving = Saving(share=share, low=0.0, high=unexplained)
    return Finding(
        suspect=Suspect(
            cause="generator slow",
            place=first,
            evidence=f"data plane late for {late[first]:.0%} of the time",
            advice=ADVICE["generator slow"],
        ),
        saving=saving,
        after_previous=saving,
        rivals=tuple(
            Suspect(cause="generator slow", place=each)
            for each in others
            if late[each] > late[first] / 2
        ),
    )


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
            each.at_ns or each.when is not None or each.duration_ns is not None
            for each in faults.links
        )
        or faults.packets
        or faults.drop
        or any(each.probability or each.at_ns for each in variant.assumed)
        or any(job.repeat is not None or job.start_ns for job in experiment.jobs)
        or experiment.arrivals is not None
    )


class _Watch:
    def __init__(self) -> None:
        self._begin_s = time.monotonic()

    def elapsed_s(self) -> float:
        return time.monotonic() - self._begin_s

    def at(self, elapsed_s: float) -> float:
        """Return the value of ``time.monotonic`` after *elapsed_s* seconds."""
        return self._begin_s + elapsed_s


class _Timer:
    """Timer of simulations of a run without some of its suspects.

    If all iterations are alike, the timer simulates only the first measured iteration
    until a suspect is confirmed.  *limit* is the number of iterations to simulate, if
    not all.  If *averages* is set, times are means over ``SEEDS`` seeds, because the
    random numbers of the run are unknown.  After *until_s*, the timer tests no further
    suspect and simulates no unnecessary seed.
    """

    def __init__(
        self,
        base: Variant,
        run: Rerun,
        cases: Sequence[Case],
        job: str | None,
        until_s: float,
        limit: int | None = None,
        *,
        averages: bool = False,
    ) -> None:
        self._base = base
        self._averages = averages
        self._until_s = until_s
        self._limit = limit
        self._cases = cases
        self._job = job
        self._whole = self._of_interest(run.iterations_ns(job))
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

    def _of_interest(
        self, times_ns: dict[tuple[str, int], int]
    ) -> dict[tuple[str, int], int]:
        """Omit background jobs, which repeat until the others end."""
        background = {
            job.name for job in self._base.experiment.jobs if job.is_background
        }
        kept = {key: each for key, each in times_ns.items() if key[0] not in background}
        return kept or times_ns

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
        if time.monotonic() > self._until_s:
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
            times_ns = rerun(variant, measured=chosen).iterations_ns(self._job)
        except ChakramError:
            return None
        own = {self._cases[index].job for index in removed} - {None}
        if own:
            # This simulation has only one job, so use the unchanged times of the
            # others.
            whole = self._whole if measured is None else self._first
            times_ns = {**whole, **times_ns}
        return mean_time(self._of_interest(times_ns))

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
        named = (finding.suspect, *finding.together_with)
        return frozenset(
            at for at, case in enumerate(self._cases) if case.suspect in named
        )

    def with_intervals(self, verdict: Verdict) -> Verdict:
        """Return a verdict without findings that save no time with other seeds."""
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
            limits=tuple(
                sure
                for each in verdict.limits
                if (sure := self._with_interval(each)).saving.is_certain
            ),
            excluded=tuple(unsure),
        )

    def _with_interval(self, finding: Finding) -> Finding:
        removed = self._removed(finding)
        for count in (SEEDS, MORE_SEEDS):
            saving = self._of_seeds(removed, finding.saving.share, count)
            if saving is None or saving.is_certain or time.monotonic() > self._until_s:
                break
        return finding if saving is None else replace(finding, saving=saving)

    def _of_seeds(
        self, removed: frozenset[int], share: float, count: int
    ) -> Saving | None:
        """Return a saving with the interval of its median over other seeds."""
        samples = sorted(
            1 - without / whole
            for number in range(count)
            if (whole := self._seeded(frozenset(), number))
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
