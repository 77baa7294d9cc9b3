"""Faults that affect only some iterations of a run on a network."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from statistics import fmean, median

from chakram.analysis.cause_ranking import Finding, Saving, Verdict

_AS_SLOW = 0.9
_FASTER = 0.85
"""Minimum time of slow iterations, and maximum time of fast ones.

Both are relative to the slowest iteration.
"""

_FEWEST = 3
_NAMED = 8
_COMPARED, _LONG = 5, 1.5
"""Minimum number of iterations in which to look for outliers.

The second value is the minimum time of an outlier, relative to the median.
"""


def slow_iterations(times_ns: Mapping[int, int]) -> frozenset[int]:
    """Return the numbers of the iterations that take much longer than others.

    The result is empty if all iterations take about the same time.

    Args:
        times_ns: Time of each iteration, by its number.
    """
    slowest_ns = max(times_ns.values(), default=0)
    if len(times_ns) < _FEWEST or min(times_ns.values()) > _FASTER * slowest_ns:
        return frozenset()
    return frozenset(
        at for at, time_ns in times_ns.items() if time_ns >= _AS_SLOW * slowest_ns
    )


def outliers(times_ns: Mapping[int, int], job: str = "") -> list[str]:
    """Return a note if a few iterations take much longer than the others.

    Args:
        times_ns: Time of each iteration, by its number.
        job: Name of the job, for runs with several jobs.
    """
    if len(times_ns) < _COMPARED:
        return []
    usual_ns = median(times_ns.values())
    slow = [at for at, time_ns in times_ns.items() if time_ns > _LONG * usual_ns]
    if not slow or len(slow) > len(times_ns) / 4:
        return []
    ratio = max(times_ns.values()) / usual_ns
    of_job = f" of job {job}" if job else ""
    return [
        f"{_named(slow, len(times_ns))}{of_job} took up to {ratio:.1f} times the median"
    ]


def of_some_iterations(
    verdict: Verdict, slow: Collection[int], times_ns: Mapping[int, int]
) -> Verdict:
    """Convert a verdict about slow iterations to a verdict about all iterations.

    Savings become shares of the time of all iterations.  Their upper bounds also
    include the time by which other iterations exceed the fast ones.  Limits of the
    design are dropped, because slow iterations have different limits.

    If the other iterations lose over half as much time as the slow ones, the faults
    probably affect all iterations.  The savings then count the lost time of all
    iterations.  Only their lower bounds still come from the slow iterations.

    Args:
        verdict: The verdict about the slow iterations.
        slow: Numbers of the slow iterations.
        times_ns: Time of each iteration, by its number.
    """
    whole_ns = sum(times_ns.values())
    share = sum(times_ns[at] for at in slow) / whole_ns
    limit_ns = min(times_ns.values()) / _FASTER
    usual_ns = fmean(each for each in times_ns.values() if each <= limit_ns)
    most = sum(max(0.0, each - usual_ns) for each in times_ns.values()) / whole_ns

    slow_ns = fmean(times_ns[at] for at in slow)
    others_ns = fmean(each for at, each in times_ns.items() if at not in slow)
    lost_ns = slow_ns * max((each.saving.share for each in verdict.faults), default=0)
    is_everywhere = slow_ns - others_ns < lost_ns / 2

    def scaled(saving: Saving) -> Saving:
        own = saving.share * share
        if is_everywhere:
            without_ns = slow_ns * (1 - saving.share)
            lost = (max(0.0, each - without_ns) for each in times_ns.values())
            own = sum(lost) / whole_ns
        return Saving(
            share=own,
            low=min(own, saving.low * share),
            high=min(1.0, max(own, saving.high * share, most)),
        )

    def of_all(finding: Finding) -> Finding:
        where = "fitted to" if is_everywhere else "in"
        which = f"{where} {_named(slow, len(times_ns), ' only')}"
        evidence = f"{finding.suspect.evidence}; {which}"
        return replace(
            finding,
            suspect=replace(finding.suspect, evidence=evidence),
            saving=scaled(finding.saving),
            after_previous=scaled(finding.after_previous),
        )

    return replace(
        verdict,
        faults=tuple(map(of_all, verdict.faults)),
        limits=(),
        joint=None if verdict.joint is None else scaled(verdict.joint),
    )


def _named(slow: Collection[int], count: int, only: str = "") -> str:
    numbers = ", ".join(map(str, sorted(slow)[:_NAMED]))
    more = ", ..." if len(slow) > _NAMED else ""
    return f"{len(slow)} of {count} iterations{only} ({numbers}{more})"
