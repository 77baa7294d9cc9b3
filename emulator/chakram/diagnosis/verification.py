"""Tests of causes of lost time: simulate a run without each suspect, and compare."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

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
from chakram.analysis.lost_time_causes import GENERATOR_SLOW, Why
from chakram.analysis.simulation_misfit import LATE
from chakram.diagnosis.counterfactual import (
    Case,
    Rerun,
    Variant,
    mean_time,
    recorded_iterations,
    variant_of,
)
from chakram.diagnosis.design_limits import ALL_HOSTS
from chakram.diagnosis.fault_proposals import Hypothesis
from chakram.diagnosis.fault_search import Fit, fit
from chakram.diagnosis.late_host_attribution import latest_on_paths, merged, on_paths
from chakram.diagnosis.simulation_budget import (
    BudgetStopped,
    SimulationBudget,
    expected_s,
)
from chakram.diagnosis.slow_iterations import (
    of_some_iterations,
    outliers,
    slow_iterations,
)
from chakram.diagnosis.suspect_removal import SEEDS, RemovalTimer, has_random_numbers
from chakram.diagnosis.suspects import ADVICE, cases_of
from chakram.diagnosis.verified_causes import BUDGET_S, UNEXPLAINED, Say, Verified
from chakram.foundation.errors import ChakramError, InputError
from chakram.preparation.predictions import EARLY_TIMEOUTS
from chakram.run_directory.manifest import SIMULATE
from chakram.run_directory.reader import RunResults
from chakram.switch.ecmp import AssignedPaths

_WARN_S = 2.0

_POOR_MISFIT = 0.5
"""Misfit of a fitted simulation above which a fitted rate proves no slow link."""

_NO_BETTER = 0.95
"""Share of the misfit without faults above which the faults do not explain the run."""

_CLEAR_SAVING = 2 * LEAST_SAVING
"""Saving that proves a fault even if the error of the simulation is larger.

Simulations with and without a fault have most of their errors in common."""

_NAMED = 6
"""Maximum number of simulated hypotheses in a note."""

_OF_SLOW = 0.6
"""Maximum misfit of slow iterations, as a share of the misfit of all iterations."""

_MUCH_LATE = 2 * LATE
"""Minimum share of late time that is reported even if the run is explained."""


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
        job: The job to explain. None means all jobs.
        budget_s: Limit of the work of all simulations, in seconds of an idle machine.
            If the budget is too short for all suspects, limits of the design are
            skipped first.
        say: Function that receives messages, for example about a long expected
            duration.
    """
    try:
        budget = SimulationBudget(budget_s)
        return Verified(verdict=_verdict(results, why, job, budget, say))
    except (ChakramError, BudgetStopped) as error:
        return Verified(verdict=None, reason=str(error))


def _verdict(
    results: RunResults, why: Why, job: str | None, budget: SimulationBudget, say: Say
) -> Verdict:
    if results.manifest.world != SIMULATE:
        return _of_network(results, why, job, budget, say)
    where = str(results.path)
    base = variant_of(results.manifest, where)
    recorded_ns = recorded_iterations(results, job)
    limit, compared = None, {*recorded_ns}
    if results.incomplete:
        limit, before = _recorded_limit(results)
        compared &= before
    cost_s = expected_s(base, measured=limit)
    _refuse_long(where, "simulating it takes", cost_s, budget.limit_s)
    run = budget.rerun(base, measured=limit)
    again_ns = run.iterations_ns(job)
    if any(again_ns.get(key) != recorded_ns[key] for key in compared):
        raise InputError(
            where,
            "takes a different time when simulated again: another version created it, "
            "or its random numbers do not match its seed",
            "simulate the experiment again",
        )
    cases = _affordable(
        _cases(base, run, results, why, job), where, budget.used_s, budget.limit_s, say
    )
    timer = RemovalTimer(base, run, cases, job, budget, limit)
    verdict = _tested(cases, timer, where)
    if has_random_numbers(base):
        verdict = timer.with_intervals(verdict)
    slow = _outliers(recorded_ns)
    return replace(verdict, notes=(*verdict.notes, *timer.notes, *slow))


def _recorded_limit(
    results: RunResults,
) -> tuple[dict[str, int], set[tuple[str, int]]]:
    """Return the iterations of an incomplete run to simulate, and those to compare.

    The first value is the number of recorded iterations of each job.  The second value
    contains the job and number of each iteration that ended before the last recorded
    iteration of every incomplete job.  In the run, but not in the simulation, packets
    of an unrecorded iteration may have delayed later iterations.
    """
    ends_ns: dict[str, dict[int, int]] = {}
    for each in results.ranks(whole=True):
        of_job = ends_ns.setdefault(each.job, {})
        of_job[each.iteration] = max(each.end_ns, of_job.get(each.iteration, 0))
    manifest = results.manifest
    cut_ns = min(
        (
            of_job[max(of_job)]
            for name, of_job in ends_ns.items()
            if name not in manifest.background_jobs
            and max(of_job) + 1 != manifest.jobs.get(name, {}).get("iterations")
        ),
        default=math.inf,
    )
    limits = {
        name: max(of_job) + 1 - manifest.warmup for name, of_job in ends_ns.items()
    }
    return limits, {
        (name, at)
        for name, of_job in ends_ns.items()
        for at, end_ns in of_job.items()
        if end_ns < cut_ns
    }


def _outliers(recorded_ns: Mapping[tuple[str, int], int]) -> list[str]:
    """Return notes on jobs in which a few iterations take much longer than others."""
    of_job: dict[str, dict[int, int]] = {}
    for (name, iteration), time_ns in recorded_ns.items():
        of_job.setdefault(name, {})[iteration] = time_ns
    return [
        note
        for name, times_ns in of_job.items()
        for note in outliers(times_ns, name if len(of_job) > 1 else "")
    ]


def _tested(cases: Sequence[Case], timer: RemovalTimer, where: str) -> Verdict:
    """Return the causes of a simulated run.

    Raises:
        InputError: If the run cannot be simulated with all its causes.
    """
    if not timer.times_ns(frozenset()):
        raise InputError(
            where,
            "its simulation does not end with some random seeds, or takes no time",
            "raise transport.retry_limit, or ask for charges only: --no-verify",
        )
    found = find_causes([case.suspect for case in cases], timer.times_ns)
    return timer.exactly(found)


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
    """Return the cases that fit the budget, and announce the expected duration."""
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
    results: RunResults, why: Why, job: str | None, budget: SimulationBudget, say: Say
) -> Verdict:
    """Fit a simulation to a run on a network, and test causes in the simulation.

    If no faults explain all iterations, and some iterations take much longer than
    others, only the slow iterations are fitted.
    """
    if results.manifest.nics:
        raise InputError(
            str(results.path),
            "RDMA NICs sent its packets, and their transport is not simulated",
            "compare the counters of the NICs, nics in run.json",
        )
    say("fitting simulations to the measured messages (--no-verify skips this)")
    fitted, verdict = _fitted_verdict(results, why, job, budget)
    slow = slow_iterations(fitted.times_ns)
    # Counted faults, such as losses, may delay any iteration.
    is_counted = any(each.is_counted for each, _ in fitted.found)
    if (
        fitted.is_explained
        or is_counted
        or not slow
        or 3 * budget.left_s < budget.limit_s
    ):
        return verdict
    say("fitting simulations to the slow iterations only")
    misfit = fitted.misfit
    fitted, part = _fitted_verdict(results, why, job, budget, only=slow)
    if fitted.misfit > _OF_SLOW * misfit:
        return verdict
    places = {each.place for each, _ in fitted.found}
    faults = tuple(each for each in part.faults if each.suspect.place in places)
    if not faults:
        return verdict
    return of_some_iterations(replace(part, faults=faults), slow, fitted.times_ns)


def _fitted_verdict(
    results: RunResults,
    why: Why,
    job: str | None,
    budget: SimulationBudget,
    only: Collection[int] | None = None,
) -> tuple[Fit, Verdict]:
    before_s, limit_s = budget.used_s, budget.left_s
    charges = {
        each.place: each.share for each in why.causes if each.cause == GENERATOR_SLOW
    }
    fitted = fit(results, job=job, budget=budget, only=only)
    fitted = replace(fitted, found=tuple(merged(fitted.found, fitted.late, charges)))
    base, run = fitted.variant, fitted.run
    simulated_ns = mean_time(run.iterations_ns(job))
    unexplained = 1 - simulated_ns / max(1.0, fitted.measured_ns)
    notes = [
        "misfit of the simulated times (0 is perfect): "
        f"{fitted.null_misfit:.3f} without faults, "
        + (f"{fitted.misfit:.3f} with the fitted ones, " if fitted.found else "")
        + f"of which noise may be {fitted.noise:.3f}"
    ]
    generator = _generator(fitted, charges, unexplained)
    unfitted = [generator, _rare_loss(fitted, why, unexplained)]
    if not fitted.is_explained and not any(unfitted):
        notes.append(f"{UNEXPLAINED}; also simulated: {_tried(fitted)}")
        notes += [
            each for each in results.manifest.banners if each.startswith(EARLY_TIMEOUTS)
        ]
    notes += _outliers(recorded_iterations(results, job))
    own = [_fitted_case(found, why) for found, _ in fitted.found]
    is_random = has_random_numbers(base)
    cost_s = (budget.used_s - before_s) / max(1, fitted.simulations)
    cost_s *= SEEDS if is_random else 1
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
    if cost_s * (len(own) + len(others)) > limit_s:
        others = [case for case in others if case.suspect.kind is CauseClass.FAULT]
    cases = [*own, *others]
    timer = RemovalTimer(
        base, run, cases, job, budget, fitted.measured, averages=is_random
    )
    verdict = _tested(cases, timer, str(results.path))
    rivals = {
        case.suspect: tuple(_suspect_of(each, why) for each in alike)
        for case, (_, alike) in zip(own, fitted.found, strict=True)
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
        }
        | {
            case.suspect
            for case in others
            if case.suspect.cause == "hash imbalance"
            and isinstance(run.ecmp, AssignedPaths)
        },
        error=error,
        least=least,
        noise=fitted.noise,
        is_poor=not fitted.is_explained
        and (fitted.is_delayed or fitted.misfit > _POOR_MISFIT),
        is_no_better=not fitted.is_explained
        and fitted.misfit > _NO_BETTER * fitted.null_misfit,
    )
    notes += _other_notes(own, verdict, unproven)
    are_all_proven = not (unproven or any(unfitted))
    return fitted, replace(
        verdict,
        joint=verdict.joint if are_all_proven else None,
        faults=ranked([*proven, *filter(None, unfitted)]),
        limits=verdict.limits if fitted.is_explained else (),
        excluded=(*verdict.excluded, *(each.suspect for each in unproven)),
        notes=(*notes, *verdict.notes, *timer.notes),
    )


def _other_notes(
    own: Iterable[Case], verdict: Verdict, unproven: Iterable[Finding]
) -> list[str]:
    """Return notes on fitted faults that cost little, and on unproven faults."""
    costly = {
        suspect
        for each in verdict.faults
        for suspect in (each.suspect, *each.together_with)
    }
    return [
        *(
            f"{case.suspect} ({case.suspect.evidence}) costs less than "
            f"{LEAST_SAVING:.0%} of the time"
            for case in own
            if case.suspect not in costly
        ),
        *(
            f"{each.suspect} would save {each.saving.share:.1%}, but that is within "
            "the error of the simulation"
            for each in unproven
            if max(each.saving.share, each.after_previous.share) >= LEAST_SAVING
        ),
    ]


def _tried(fitted: Fit) -> str:
    """Return the hypotheses that were simulated, abridged if there are many."""
    found = {str(each) for each, _ in fitted.found}
    tried = [each for each in fitted.tried if each not in found]
    if not tried:
        return "nothing else, because the records suggest no other cause"
    named = ", ".join(tried[:_NAMED])
    more = len(tried) - _NAMED
    return f"{named} and {more} more" if more > 0 else named


def separate(
    findings: Iterable[Finding],
    *,
    rivals: Mapping[Suspect, tuple[Suspect, ...]],
    fitted: Collection[Suspect],
    error: float,
    least: float,
    noise: float,
    is_poor: bool = False,
    is_no_better: bool = False,
) -> tuple[list[Finding], list[Finding]]:
    """Return the proven and the unproven faults, with the error ranges of savings.

    Args:
        findings: Faults of the fitted simulation, with their savings.
        rivals: Other explanations, by the suspects of the fit.
        fitted: Suspects whose rate, or whose flows' paths, were fitted.
        error: Error of the fitted simulation, as a share of the time.
        least: Share of the time that the fitted simulation does not explain.
        noise: Share of the time for which hosts were late.
        is_poor: Whether the fitted simulation differs much from the run.
        is_no_better: Whether the fitted simulation differs from the run as much as a
            simulation without faults.
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
        if finding.suspect in fitted and not is_late:
            is_proven = not is_poor and max(saving.low, then - error) > 0
        elif finding.suspect not in rivals:
            is_proven = max(share, then) > least and (
                saving.low > 0 or max(share, then) >= _CLEAR_SAVING
            )
        else:
            # Counters prove the fault, or the lateness of the host, but not the lost
            # time.
            is_clear = max(share, then) >= _CLEAR_SAVING and not is_no_better
            is_proven = is_late or saving.low > 0 or is_clear
        after = finding.after_previous
        found = replace(
            finding,
            saving=saving,
            after_previous=_with_error(after, error * (1 - after.share))
            if finding.previous
            else saving,
            rivals=rivals.get(finding.suspect, ()),
        )
        (proven if is_proven else unproven).append(found)
    # A fault that saves time only after the removal of an unproven fault is unproven,
    # too.
    doubtful = {each.suspect for each in unproven}
    masked = [
        each
        for each in proven
        if each.saving.share < LEAST_SAVING and not doubtful.isdisjoint(each.previous)
    ]
    return [each for each in proven if each not in masked], [*unproven, *masked]


def _with_error(saving: Saving, error: float) -> Saving:
    """Widen the interval of a saving to at least *error* on both sides."""
    low, high = saving.share - error, min(1.0, saving.share + error)
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
        advice=_advice(hypothesis),
        remedy="simulated without it",
    )


def _advice(hypothesis: Hypothesis) -> str:
    kind = hypothesis.assumed[0].kind
    if kind == "host delay" and hypothesis.place == ALL_HOSTS:
        return "raise transport.window, or use lower rates"
    if kind == "avoided":
        return "compare the routes of this switch with those of its peers"
    return ADVICE[hypothesis.cause]


def _fitted_case(hypothesis: Hypothesis, why: Why) -> Case:
    def change(of: Variant) -> Variant:
        left = tuple(each for each in of.assumed if each not in hypothesis.assumed)
        return replace(of, assumed=left)

    return Case(suspect=_suspect_of(hypothesis, why), change=change)


def _generator(
    fitted: Fit, charges: Mapping[str, float], unexplained: float
) -> Finding | None:
    """Return a finding about late hosts that no other finding explains, or None."""
    named = {each.place for found, rivals in fitted.found for each in (found, *rivals)}
    late = {host: share for host, share in fitted.late.items() if host not in named}
    charges = {host: share for host, share in charges.items() if host not in named}
    charged = sum(charges.values())
    rivals = []
    if late:
        first, *others = late
        share = late[first]
        rivals = [each for each in others if late[each] > share / 2]
        evidence = f"data plane late for {share:.0%} of the time"
    elif ALL_HOSTS not in named and charged >= (
        _MUCH_LATE if fitted.is_explained else LATE
    ):
        # No host was late for much longer than the others.
        first, share = latest_on_paths(charges) or ALL_HOSTS, charged
        rivals = [] if first == ALL_HOSTS else [ALL_HOSTS]
        evidence = on_paths(charges.get(first, charged))
    else:
        return None
    share = min(share, unexplained)
    if share < LEAST_SAVING:
        return None
    saving = Saving(share=share, low=0.0, high=unexplained)
    return Finding(
        suspect=Suspect(
            cause="generator slow",
            place=first,
            evidence=evidence,
            advice=ADVICE["generator slow"],
        ),
        saving=saving,
        after_previous=saving,
        rivals=tuple(Suspect(cause="generator slow", place=each) for each in rivals),
    )


def _rare_loss(fitted: Fit, why: Why, unexplained: float) -> Finding | None:
    """Return a finding about losses that are too rare to fit, or None.

    Counters prove the losses, and the critical paths contain the waits for
    retransmissions.
    """
    loss = fitted.unfitted
    if loss is None:
        return None
    places = {each.place for each in (loss, *loss.alike)}
    charged = [each for each in why.causes if each.cause == "loss"]
    share = sum(each.share for each in charged if each.place in places)
    if share < LEAST_SAVING:
        return None
    saving = Saving(share=share, low=0.0, high=max(share, unexplained))
    return Finding(
        suspect=_suspect_of(loss, why),
        saving=saving,
        after_previous=saving,
        rivals=tuple(_suspect_of(each, why) for each in loss.alike),
    )
