"""Ranking of suspected causes by how much shorter a run would be without them.

A critical path shows where a delay appears, but not how much time removing its cause
saves.  A second path may be nearly as long, and back-pressure appears far from its
source.  So the caller simulates the run without single suspects, and without several
suspects at once.  This module decides which suspects to remove in each simulation, and
ranks them by the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, floor

LEAST_SAVING = 0.03
"""Minimum saving of a reported cause, as a share of the remaining time."""

_NO_EFFECT = 0.005
_NARROW = 0.001


class CauseClass(StrEnum):
    """Class of a cause.  Each class is ranked separately."""

    FAULT = "fault"
    """A component is broken, or differs from its peers."""
    LIMIT = "limit"
    """The design of the job or of the fabric requires this time."""


_FAULTS = frozenset(
    {
        *("slow link", "dead uplink", "loss", "pause", "slow compute", "late rank"),
        *("hash imbalance", "generator slow", "other traffic"),
    }
)


def class_of(cause: str) -> CauseClass:
    """Return the class of a cause that is charged on a critical path."""
    return CauseClass.FAULT if cause in _FAULTS else CauseClass.LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A possible cause of lost time that a simulation can remove.

    Attributes:
        cause: Type of cause, e.g. ``slow link``.
        place: A link, a switch or a rank.
        kind: Class of the cause: fault or limit.
        evidence: Evidence for the cause, in a few words.
        advice: Suggested change or check.
        remedy: Change that the simulation makes, in a few words.
        round: Round in which the suspect is tested.  Causes found in earlier rounds
            stay removed.
        weight: Weight of the saving in rankings.  It is lower for remedies that change
            many places at once or that are hard to apply, because they are less
            informative.
    """

    cause: str
    place: str
    kind: CauseClass = CauseClass.FAULT
    evidence: str = ""
    advice: str = ""
    remedy: str = ""
    round: int = 0
    weight: float = 1.0

    def __str__(self) -> str:
        return f"{self.cause} at {self.place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Share of the iterations' time that removing suspects saves.

    The share is negative if the removal costs time.

    Attributes:
        share: Saving in this run.
        low: Lower bound over other random seeds.  Without randomness, equal to *share*.
        high: Upper bound over other random seeds.  Without randomness, equal to
            *share*.
    """

    share: float
    low: float
    high: float

    @property
    def is_certain(self) -> bool:
        """Whether the interval from *low* to *high* excludes zero."""
        return self.low > 0

    def __str__(self) -> str:
        share = f"{100 * self.share:.1f} %"
        if self.high - self.low < _NARROW:
            return share
        return f"{share} ({floor(100 * self.low)} to {ceil(100 * self.high)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A cause whose removal saves time.

    Attributes:
        suspect: The cause.
        saving: Saving from the removal of *suspect* alone.  If several suspects act
            jointly, it is the saving from the removal of all of them.
        after_previous: Share of the remaining time that the same removal saves after
            all of *previous* are removed.
        previous: Faults that the search found and removed before *suspect*.
        together_with: Other suspects that act jointly with *suspect*.  Only the removal
            of *suspect* and all of these suspects saves *after_previous*.
        rivals: Other suspects that explain the run equally well.
    """

    suspect: Suspect
    saving: Saving
    after_previous: Saving
    together_with: tuple[Suspect, ...] = ()
    rivals: tuple[Suspect, ...] = ()
    previous: tuple[Suspect, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Causes of a run's lost time, tested by removing them.

    Attributes:
        faults: Causes of class fault, in the order of ``ranked``.
        limits: Causes of class limit, in the order of ``ranked``.
        excluded: Suspects that are not part of any finding.
        joint: Saving if all faults are removed, or None if there are none.
        simulations: Number of runs that were timed.
        notes: Additional notes, for example on time that no simulation explains.
    """

    faults: tuple[Finding, ...] = ()
    limits: tuple[Finding, ...] = ()
    excluded: tuple[Suspect, ...] = ()
    joint: Saving | None = None
    simulations: int = 0
    notes: tuple[str, ...] = ()


Times = Callable[[frozenset[int]], int | None]
"""Function that simulates a run without some suspects and returns its time in ns.

The argument is the set of indexes of the removed suspects.  The function returns None
if the run without them does not end or cannot be simulated.
"""


def find_causes(suspects: Sequence[Suspect], times_ns: Times) -> Verdict:
    """Find the suspects that cost time by removing them from the run.

    Faults are removed greedily: each step removes the fault that saves most.  The
    greedy steps stop when the next fault saves less than ``LEAST_SAVING``.  Then the
    remaining faults are removed together.  If this saves time, each fault that costs no
    time is restored.  The faults that stay removed act jointly.

    Raises:
        ValueError: If the time of the run without any removal is 0 or unknown.
    """
    search = _Search(suspects, times_ns)
    rounds = sorted({each.round for each in suspects})
    removed: frozenset[int] = frozenset()
    findings: list[Finding] = []
    for number in rounds:
        members = [
            index
            for index, each in enumerate(suspects)
            if each.round == number and each.kind is CauseClass.FAULT
        ]
        found, removed = search.faults(members, removed)
        findings += found
    limits = search.limits()
    named = {
        suspect
        for each in (*findings, *limits)
        for suspect in (each.suspect, *each.together_with)
    }
    return Verdict(
        faults=ranked(findings),
        limits=limits,
        excluded=tuple(each for each in suspects if each not in named),
        joint=search.saving(removed) if removed else None,
        simulations=search.simulations,
        notes=search.overlapping(removed),
    )


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by saving times the weight of the suspect, largest first.

    Findings that save little alone, because others mask them, come last in their
    original order.
    """

    def weight(finding: Finding) -> float:
        share = finding.saving.share
        if share < LEAST_SAVING:
            return 0.0
        return share * finding.suspect.weight

    return tuple(sorted(findings, key=weight, reverse=True))


class _Search:
    """Search for causes that caches the time of each simulated run."""

    def __init__(self, suspects: Sequence[Suspect], times_ns: Times) -> None:
        self._suspects = suspects
        self._measure = times_ns
        self._known: dict[frozenset[int], int | None] = {}
        if not self._times(frozenset()):
            raise ValueError("the run itself has no time")

    @property
    def simulations(self) -> int:
        """Number of runs that were timed."""
        return len(self._known)

    def _times(self, removed: frozenset[int]) -> int | None:
        if removed not in self._known:
            self._known[removed] = self._measure(removed)
        return self._known[removed]

    def saving(
        self, removed: frozenset[int], already: frozenset[int] = frozenset()
    ) -> Saving:
        """Return the saving of a removal, relative to the time before the removal.

        Args:
            removed: Indexes of all removed suspects.
            already: Indexes of the suspects that are removed in the run to compare
                with.
        """
        before, after = self._times(already), self._times(removed)
        # A run that does not end counts as longer than any run that ends.
        share = float(bool(after)) - float(bool(before))
        if before and after:
            share = (before - after) / before
        return Saving(share=share, low=share, high=share)

    def faults(
        self, members: Sequence[int], removed: frozenset[int]
    ) -> tuple[list[Finding], frozenset[int]]:
        """Return the findings among *members*, and all suspects removed so far."""
        findings: list[Finding] = []
        left = [each for each in members if each not in removed]
        while left:
            savings = {
                each: self.saving(removed | {each}, already=removed) for each in left
            }
            best = max(left, key=lambda each: (savings[each].share, -each))
            if not self._counts(savings[best]):
                break
            findings.append(
                Finding(
                    suspect=self._suspects[best],
                    saving=self.saving(frozenset({best})),
                    after_previous=savings[best],
                    previous=self._named(sorted(removed)),
                )
            )
            removed |= {best}
            left.remove(best)
        if len(left) > 1:
            joint = self._joint(left, removed)
            together = self.saving(removed | joint, already=removed)
            if len(joint) > 1 and self._counts(together):
                own = {each: self.saving(frozenset({each})).share for each in joint}
                first, *others = sorted(joint, key=lambda each: (-own[each], each))
                findings.append(
                    Finding(
                        suspect=self._suspects[first],
                        saving=self.saving(joint),
                        after_previous=together,
                        together_with=self._named(others),
                        previous=self._named(sorted(removed)),
                    )
                )
                removed |= joint
        return findings, removed

    def overlapping(self, removed: frozenset[int]) -> tuple[str, ...]:
        """Return notes on faults whose savings are part of the savings of *removed*."""
        if not removed:
            return ()
        alone = {
            suspect: self.saving(frozenset({index}))
            for index, suspect in enumerate(self._suspects)
            if suspect.kind is CauseClass.FAULT
            and index not in removed
            and self._known.get(frozenset({index}))
        }
        return tuple(
            f"{suspect} alone saves {saving}, but little once the faults above are "
            "repaired"
            for suspect, saving in alone.items()
            if self._counts(saving)
        )

    def _named(self, indexes: Iterable[int]) -> tuple[Suspect, ...]:
        return tuple(self._suspects[each] for each in indexes)

    @staticmethod
    def _counts(saving: Saving) -> bool:
        return saving.share >= LEAST_SAVING and saving.is_certain

    def _joint(self, left: Sequence[int], removed: frozenset[int]) -> frozenset[int]:
        """Return the suspects among *left* that cost time only jointly."""
        chosen = frozenset(left)
        if not self._counts(self.saving(removed | chosen, already=removed)):
            return frozenset()
        for each in left:
            fewer = chosen - {each}
            cost = self.saving(removed | chosen, already=removed | fewer)
            if cost.share <= _NO_EFFECT:
                chosen = fewer
        return chosen

    def limits(self) -> tuple[Finding, ...]:
        """Return the savings from changing each limit of the design, largest first."""
        found = []
        for index, suspect in enumerate(self._suspects):
            if suspect.kind is CauseClass.LIMIT:
                saving = self.saving(frozenset({index}))
                if self._counts(saving):
                    found.append(
                        Finding(suspect=suspect, saving=saving, after_previous=saving)
                    )
        return ranked(found)
