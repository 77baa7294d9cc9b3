"""Comparison of times from two sources: measured, simulated or computed.

A *side* has times by quantity: an iteration of a job, one collective, all collectives
of a kind (operation, ranks, size), or messages of a pair of ranks.  A comparison covers
the quantities that both sides have.

A quantity has *samples* in one or more *repetitions* (runs).  Each iteration gives one
sample.  If the iteration has several values, the sample is their mean.  The standard
error is that of the mean of the repetitions, or of the samples if there is one
repetition.  One repetition in virtual time has no error.

A difference is stated in units of its standard error,
``sqrt(error(a)^2 + error(b)^2)``.  With few samples, this number follows Student's t
distribution.  So it is converted to the number of standard errors that is equally
improbable under a normal distribution.  The conversion is Wallace's approximation, with
the degrees of freedom of Welch and Satterthwaite.

A difference of at least 2 standard errors is **significant**.  If m quantities of a
level are compared, the threshold is the normal quantile of 0.0228 / m instead
(Bonferroni).  Without this correction, chance alone would make one in 44 equal
quantities differ.

Sources: Welch, The generalization of Student's problem, Biometrika 34 (1947); Wallace,
Bounds on normal approximations, Ann. Math. Stat. 30 (1959).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose, log1p, sqrt
from statistics import NormalDist, fmean
from typing import Any, NamedTuple

from chakram.analysis.slower_links import Fastest, Pair, slower_links
from chakram.foundation.units import about_size, format_time
from chakram.summary.bandwidth import coefficient_of_variation

STANDARD_ERRORS = 2.0
"""Minimum number of standard errors of a significant difference."""

LEVELS = {
    "iteration": "iterations",
    "part": "critical path: nominal time, and lost time by cause",
    "cause": "lost time by cause and place",
    "size": "collectives by size",
    "instance": "individual collectives",
    "named": "individual collectives",
    "rank": "ranks",
    "pair": "messages by pair of ranks",
    "ports": "messages by pair of ports",
    "fct": "completion times of messages",
}
"""Title of each level of quantities.  Sentences prefer levels that come first."""

_LEAST_APART = 0.01
"""Counters with a smaller relative difference count as equal."""

_ROUNDING = 1e-9
"""Means with a smaller relative difference count as equal. Means of the same samples
can differ by rounding errors, depending on the order of the samples."""

_OF_JOB = ("iteration", "part", "cause", "instance", "pair")
"""Levels whose keys contain a job, directly after the level."""

EXPLAINING = ("part", "cause")
"""Levels that only explain differences in iteration times."""

NOMINAL = "nominal"
"""Key of the part of a critical path's time that is not lost."""

_LEAST_CAUSE = 0.25
"""Minimum share of a difference in iteration time at which a cause is named."""

_INSTEAD = {"named": "instance", "ports": "pair"}
"""Preferred level for each fallback level."""

Key = tuple[Any, ...]
"""A level, followed by the values that identify a quantity in it."""


class Times(NamedTuple):
    """Statistics of a quantity on one side.

    Attributes:
        mean_ns: Mean of all repetitions.
        error_ns: Standard error of the mean. None means unknown, and 0 means exact.
        freedom: Degrees of freedom of the standard error.
        cv: Coefficient of variation of the samples, or None if unknown.
        samples: Number of samples.
        per_iteration: Number of times that the quantity occurs in an iteration.
    """

    mean_ns: float
    error_ns: float | None
    freedom: int
    cv: float | None
    samples: int
    per_iteration: float = 1.0


def times_of(
    repetitions: Sequence[Sequence[float]],
    *,
    exact: bool = False,
    per_iteration: float = 1.0,
) -> Times:
    """Return the statistics of samples in ns, grouped by repetition.

    *exact* means that another repetition would give the same samples, as in virtual
    time.
    """
    means = [fmean(samples) for samples in repetitions]
    every = [value for samples in repetitions for value in samples]
    cv = coefficient_of_variation(every) if len(every) > 1 else None
    values = means if len(means) > 1 else every
    error_ns: float | None = None
    if len(values) > 1:
        mean = fmean(values)
        variance = sum((each - mean) ** 2 for each in values) / (len(values) - 1)
        error_ns = sqrt(variance / len(values))
    if exact and len(means) == 1:
        error_ns = 0.0
    return Times(
        fmean(means), error_ns, max(1, len(values) - 1), cv, len(every), per_iteration
    )


def stated_times(
    mean_ns: float, cv: float | None, samples: int | None, *, exact: bool = False
) -> Times:
    """Return the statistics that a mean and a coefficient of variation imply."""
    one = times_of([[mean_ns]], exact=exact)
    if exact or cv is None or not samples or samples < 2:
        return one._replace(cv=cv, samples=samples or 1)
    # The coefficient uses the population variance, but the error uses the sample
    # variance.
    error_ns = mean_ns * cv / (samples - 1) ** 0.5
    return one._replace(error_ns=error_ns, freedom=samples - 1, cv=cv, samples=samples)


NOTHING = Times(0.0, 0.0, 1, None, 0)
"""Statistics of a quantity, such as a cause, that one of the compared sides lacks."""


class Counter(NamedTuple):
    """A counter value and its unit.

    The unit of a share is ``%``. Any other unit is a noun, or empty.
    """

    value: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison.

    Attributes:
        name: Name that the user gave.
        kind: Type of source, e.g. ``run``.
        times: Statistics by quantity.
        labels: Names of quantities whose key is not readable.
        counters: Counters by name.
        settings: Settings of the run by key.  Empty if unknown.
        notes: Warnings that a reader must see first.
        fastest: The fastest messages by pair of ranks.  Empty if unknown.
        explained: Whether the lost time of each cause is known.  If it is known, a
            cause that is missing cost no time.
    """

    name: str
    kind: str
    times: Mapping[Key, Times]
    labels: Mapping[Key, str] = field(default_factory=dict)
    counters: Mapping[str, Counter] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    fastest: Mapping[Pair, Fastest] = field(default_factory=dict)
    explained: bool = False


class Difference(NamedTuple):
    """One quantity on both sides, and how it differs.

    ``errors`` is the difference in standard errors, converted as the module docstring
    describes.  It is None if a standard error is unknown.  ``significant`` is None if
    the significance is unknown for this reason.
    """

    key: Key
    label: str
    a: Times
    b: Times
    errors: float | None
    significant: bool | None

    @property
    def change(self) -> float | None:
        """Additional time of b, as a share of the time of a."""
        return self.b.mean_ns / self.a.mean_ns - 1 if self.a.mean_ns else None

    @property
    def lost_ns(self) -> float:
        """Additional time of b in an iteration, in ns."""
        return (self.b.mean_ns - self.a.mean_ns) * self.b.per_iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The quantities that two sides have in common, and their differences.

    Attributes:
        a: The first side.
        b: The second side.
        levels: Common quantities by level, largest difference first.
        only: Numbers of quantities that exist only in a and only in b, by level.
        counters: Both values of each counter that differs, by name.
        settings: Both values of each setting that differs, by key.
    """

    a: Side
    b: Side
    levels: Mapping[str, tuple[Difference, ...]]
    only: Mapping[str, tuple[int, int]]
    counters: Mapping[str, tuple[Counter, Counter]]
    settings: Mapping[str, tuple[Any, Any]]

    @property
    def is_simulated(self) -> bool:
        """Whether both sides are simulations."""
        return all("simulation" in side.kind for side in (self.a, self.b))

    @property
    def first(self) -> Difference | None:
        """The difference to report first, or None if none is significant."""
        for level in LEVELS:
            for each in self.levels.get(level, ()):
                if each.significant:
                    return each
        return None


def compare(a: Side, b: Side) -> Comparison:
    """Compare two sides.

    ``levels`` of the result is empty if the sides have no quantity in common.
    """
    theirs = _renamed(a, b)
    levels: dict[str, tuple[Difference, ...]] = {}
    only = {}
    for level in LEVELS:
        mine = {key for key in a.times if key[0] == level}
        others = {key for key in theirs if key[0] == level}
        if level == "size":
            mine, others = _sizes(mine, others)
        if level in EXPLAINING and a.explained and b.explained:
            # A cause that is missing on one side cost no time on that side.
            mine = others = mine | others
        if not mine or not others or _INSTEAD.get(level) in levels:
            continue
        common = mine & others
        only[level] = len(mine) - len(common), len(others) - len(common)
        named = {key[1] for key in common} if level in EXPLAINING else set()
        found = [
            _difference(
                key,
                a.labels.get(key)
                or b.labels.get(theirs.get(key, key))
                or f"{key[1]}: " * (len(named) > 1) + _label(key),
                a.times.get(key, NOTHING),
                b.times.get(theirs.get(key, key), NOTHING),
                len(common),
            )
            for key in common
        ]
        if level in EXPLAINING and not any(
            each.significant for each in levels.get("iteration", ())
        ):
            # If iterations take the same time, lost time only shifted between causes.
            found = [
                each._replace(significant=each.significant and False) for each in found
            ]
        if found:
            found.sort(key=lambda each: (-abs(each.lost_ns), each.label))
            levels[level] = tuple(found)
    counters = {
        name: (a.counters[name], b.counters[name])
        for name in a.counters
        if name in b.counters
        and _apart(a.counters[name], b.counters[name]) > _LEAST_APART
    }
    settings = (
        differing_settings(a.settings, b.settings) if a.settings and b.settings else {}
    )
    return Comparison(
        a=a, b=b, levels=levels, only=only, counters=counters, settings=settings
    )


def differing_settings(
    a: Mapping[str, Any], b: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ, by key.

    A list that is empty on one side differs as a whole.  The result then contains the
    members of the other side's list, without empty settings.
    """
    a, b = dict(a), dict(b)
    for one, other in ((a, b), (b, a)):
        for key in [key for key, value in one.items() if value in ([], ())]:
            inside = [name for name in other if name.startswith(f"{key}[")]
            if inside:
                members: dict[str, dict[str, Any]] = {}
                for name in inside:
                    place, _, last = name.removeprefix(f"{key}[").partition("]")
                    value = other.pop(name)
                    if value not in (None, [], ()):
                        members.setdefault(place, {})[last.lstrip(".")] = value
                other[key] = list(members.values())
    return {
        key: (a.get(key), b.get(key))
        for key in sorted({*a, *b})
        if a.get(key) != b.get(key)
    }


def _renamed(a: Side, b: Side) -> dict[Key, Key]:
    """Map a's quantity keys to b's keys, even if their only jobs differ in name."""
    names = [{key[1] for key in side.times if key[0] in _OF_JOB} for side in (a, b)]
    if any(len(each) != 1 for each in names):
        return {key: key for key in b.times}
    (job,) = names[0]
    return {
        (key[0], job, *key[2:]) if key[0] in _OF_JOB else key: key for key in b.times
    }


def _sizes(mine: set[Key], others: set[Key]) -> tuple[set[Key], set[Key]]:
    """Return the quantities of level ``size`` to compare: by job, or over all jobs.

    They are compared by job if there are several jobs and both sides have a quantity of
    the same job.
    """
    of_jobs = {key for key in mine | others if _job_of_collective(key)}
    if len({*map(_job_of_collective, of_jobs)}) > 1 and mine & others & of_jobs:
        return mine & of_jobs, others & of_jobs
    return mine - of_jobs, others - of_jobs


def _job_of_collective(key: Key) -> str | None:
    """Return the job of a quantity of collectives, or None if it covers all jobs."""
    match key:
        case ("size", _, _, _, job) | ("instance", job, _, _):
            return str(job)
        case _:
            return None


def _difference(key: Key, label: str, a: Times, b: Times, compared: int) -> Difference:
    apart_ns = b.mean_ns - a.mean_ns
    if isclose(a.mean_ns, b.mean_ns, rel_tol=_ROUNDING):
        apart_ns = 0.0
    if a.error_ns is None or b.error_ns is None:
        return Difference(key, label, a, b, None, None if apart_ns else False)
    error_ns = sqrt(a.error_ns**2 + b.error_ns**2)
    if not error_ns:
        infinite = float("inf") if apart_ns else 0.0
        return Difference(key, label, a, b, infinite, bool(apart_ns))
    freedom = error_ns**4 / (a.error_ns**4 / a.freedom + b.error_ns**4 / b.freedom)
    student = abs(apart_ns) / error_ns
    errors = (
        (8 * freedom + 1)
        / (8 * freedom + 3)
        * sqrt(freedom * log1p(student**2 / freedom))
    )
    tail = (1 - NormalDist().cdf(STANDARD_ERRORS)) / compared
    return Difference(key, label, a, b, errors, errors >= -NormalDist().inv_cdf(tail))


def _label(key: Key) -> str:
    match key:
        case ("size", op, nranks, size_bytes):
            return f"{op} of {about_size(size_bytes)}, {nranks} ranks"
        case ("size", *kind, job):
            return f"{job}: {_label(('size', *kind))}"
        case ("iteration", job):
            return f"iteration of {job}" if job else "iteration"
        case ("instance", job, group, k):
            return f"{job}: collective {k} of group {group}"
        case ("named", name, place):
            return f"{name} (no. {place})"
        case ("pair", job, src, dst, size_bytes):
            return f"{job}: {src} > {dst}, {about_size(size_bytes)}"
        case ("ports", src, dst, size_bytes):
            return f"port {src} > {dst}, {about_size(size_bytes)}"
        case ("part", _, "nominal"):
            return "nominal time of the critical path"
        case ("part", _, cause):
            return str(cause)
        case ("cause", _, cause, place):
            return f"{cause} at {place}" if place else str(cause)
        case ("fct", percent):
            return f"FCT p{percent}"
        case _:
            return " ".join(map(str, key))


def change_text(difference: Difference) -> str:
    """Describe how much longer or shorter a quantity takes on side b."""
    change = difference.change
    times = f"{format_time(difference.b.mean_ns)} against " + format_time(
        difference.a.mean_ns
    )
    if change is None:
        return f"takes {times}"
    if change >= 9:
        return f"takes {change + 1:.0f} times as long ({times})"
    word = "longer" if change > 0 else "less"
    share = f"{abs(change):.1%}" if abs(change) >= 0.001 else f"{abs(change):.2g} times"
    return f"takes {share.replace('%', ' %')} {word} ({times})"


_CHARGED = "is charged to"
_CORRECTED = "standard errors, corrected for the number of samples"


def sentences(found: Comparison) -> list[str]:
    """Summarize a comparison in sentences, the most important difference first."""
    every = [each for level in found.levels.values() for each in level]
    if not every:
        return [
            "Nothing can be compared: the two sides have no collective, pair of ranks "
            "or size in common."
        ]
    first = found.first
    if first is None:
        return [_no_difference(every)]
    told = [f"{first.label[0].upper()}{first.label[1:]} {change_text(first)} in B"]
    if first.errors is not None and first.errors < 1e6:
        told[0] += f", a difference of {first.errors:.1f} {_CORRECTED}"
    where = _where(found, first)
    told[0] = f"{_equal_iterations(found)}{told[0]}{where}."
    links = [] if found.is_simulated else _proven_links(found)
    told += links
    if _CHARGED in where and not links:
        told.append(
            "A charge shows where time was lost; its cause is unproven. `chakram why A "
            "B` tests it."
        )
    reasons = _reasons(found)
    return [*told, *reasons]


def _proven_links(found: Comparison) -> list[str]:
    """Return a sentence about the links that are slower on each side."""
    if not found.first or found.first.key[0] != "iteration":
        return []
    told = []
    for name, faster, slower in (("B", found.a, found.b), ("A", found.b, found.a)):
        links = slower_links(faster.fastest, slower.fastest)
        if links:
            told.append(
                f"Proven by the fastest messages: slower in {name} is "
                f"{'; '.join(map(str, links))}. Those of {links[0].other_pairs} other "
                "pairs take about the same time."
            )
    return told


def _equal_iterations(found: Comparison) -> str:
    """Return a sentence if iterations do not differ significantly, or an empty text."""
    iterations = found.levels.get("iteration", ())
    if not iterations or any(each.significant for each in iterations):
        return ""
    first = iterations[0]
    label = f"{first.label[0].upper()}{first.label[1:]}"
    return f"{label} {change_text(first)} in B, which is not significant. "


def _no_difference(every: Sequence[Difference]) -> str:
    unknown = [each for each in every if each.significant is None]
    compared = f"{len(every)} quantities compared"
    if unknown:
        most = max(unknown, key=lambda each: abs(each.change or 0))
        return (
            f"No significant difference can be shown: {len(unknown)} of {compared} "
            f"were measured once; the largest: {most.label} {change_text(most)} in B "
            "(repeat the measurement to find out whether this is chance)."
        )
    told = (
        f"No significant difference: {compared}, none differs by {STANDARD_ERRORS:.0f} "
        "standard errors or more beyond chance"
    )
    first = every[0]
    if first.errors:
        told += (
            f" ({first.label} {change_text(first)} in B: {first.errors:.1f} "
            f"{_CORRECTED})"
        )
    return f"{told}."


def _where(found: Comparison, first: Difference) -> str:
    """Explain a difference in iteration time by a cause, or else by a collective."""
    if first.key[0] != "iteration":
        return ""
    of_job = [
        each for each in found.levels.get("part", ()) if each.key[1] == first.key[1]
    ]
    parts = [
        each
        for each in of_job
        if each.significant and each.lost_ns / first.lost_ns >= _LEAST_CAUSE
    ]
    if parts:
        told = _from_part(found, parts[0])
        if parts[0].lost_ns / first.lost_ns > 1:
            told += _opposing_part(of_job, parts[0])
        return told
    for level in ("size", "instance", "named"):
        parts = [
            each
            for each in found.levels.get(level, ())
            if each.significant
            and each.lost_ns * first.lost_ns > 0
            and _job_of_collective(each.key) in (None, first.key[1])
        ]
        if parts:
            most = parts[0]
            sign = "+" if most.lost_ns > 0 else "-"
            return (
                f"; the collective that differs most is {most.label}: "
                f"{sign}{format_time(abs(most.lost_ns))}, summed over an iteration"
            )
    return ""


def _from_part(found: Comparison, part: Difference) -> str:
    """Explain a difference by a part of the critical path, and name its place."""
    apart = format_time(abs(part.lost_ns))
    more = "more" if part.lost_ns > 0 else "less"
    _, job, cause = part.key
    if cause == NOMINAL:
        return (
            f"; {apart} is {more} nominal time, which is the time of the critical path "
            "without delays"
        )
    told = f"; on the critical path, {apart} {more} {_CHARGED} {cause}"
    # Name the place with the largest share of the difference, even if that share is not
    # significant.
    places = [
        (share, each)
        for each in found.levels.get("cause", ())
        if each.key[1:3] == (job, cause)
        and ((share := each.lost_ns / part.lost_ns) > 0.5 or each.significant)
    ]
    share, most = max(places, key=lambda each: each[0], default=(0.0, part))
    if share > 0.99:
        return f"{told} at {most.key[3]}"
    if share > 0:
        told += f", most at {most.key[3]} ({format_time(abs(most.lost_ns))})"
    return told


def _opposing_part(parts: Sequence[Difference], part: Difference) -> str:
    """Describe the largest difference in the opposite direction."""
    for each in parts:
        if each.lost_ns * part.lost_ns < 0 and abs(each.lost_ns) >= 1:
            apart = format_time(abs(each.lost_ns))
            more = "more" if each.lost_ns > 0 else "less"
            cause = each.key[2]
            where = "is nominal time" if cause == NOMINAL else f"{_CHARGED} {cause}"
            return f", while {apart} {more} {where}"
    return ""


def _reasons(found: Comparison) -> list[str]:
    """Return sentences about differing counters and settings, as possible reasons."""
    told = []
    if found.counters:
        listed = [
            f"{name} {_counted(before)} -> {_counted(after)}"
            for name, (before, after) in sorted(
                found.counters.items(), key=lambda item: -_apart(*item[1])
            )[:4]
        ]
        told.append(f"Counters that differ most, A -> B: {'; '.join(listed)}.")
    if found.settings:
        listed = [
            f"{key} {setting_text(before)} -> {setting_text(after)}"
            for key, (before, after) in list(found.settings.items())[:4]
        ]
        more = len(found.settings) - len(listed)
        tail = f"; and {more} more (chakram diff)" if more else ""
        told.append(f"Settings that differ, A -> B: {'; '.join(listed)}{tail}.")
    elif found.a.settings and found.b.settings:
        told.append("The settings are the same.")
    return told


def _apart(before: Counter, after: Counter) -> float:
    """Return the difference of two counters as a share of the larger value."""
    largest = max(abs(before.value), abs(after.value))
    return abs(after.value - before.value) / largest if largest else 0.0


def _counted(counter: Counter) -> str:
    if counter.unit == "%":
        return f"{100 * counter.value:.3g} %"
    value = counter.value
    text = f"{value:.0f}" if value >= 1000 else f"{value:.4g}"
    return f"{text}{' ' if counter.unit else ''}{counter.unit}"


def setting_text(value: Any) -> str:
    """Return the value of a setting as text for a sentence."""
    if value is None:
        return "not set"
    if isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
        return "; ".join(
            ", ".join(f"{key} {each}" for key, each in member.items())
            for member in value
        )
    return str(value)
