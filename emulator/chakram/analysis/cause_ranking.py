"""Rank suspected causes by the time that a run saves without them.

A critical path says where time is felt.  What removing a cause saves is another
question: a second path may be nearly as long, and back-pressure is felt far from its
source.  So each suspect is removed from the run, alone and together with others, and
the run is timed again; this module decides which runs to time and what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

LEAST_SAVING = 0.03
"""The share of the time left that removing a cause must save to be reported."""

_NO_EFFECT = 0.005

_OF_MANY = 0.5
"""What changes many places has to save twice as much as what changes one."""


class CauseClass(StrEnum):
    """What kind of answer a cause is; the two are never mixed in one ranking."""

    FAULT = "fault"
    """Something is broken, or differs from its peers."""
    LIMIT = "limit"
    """The design of the job or of the fabric takes that time."""


_FAULTS = frozenset(
    {
        *("slow link", "dead uplink", "loss", "pause", "slow compute", "late rank"),
        *("hash imbalance", "generator slow"),
    }
)


def class_of(cause: str) -> CauseClass:
    """Return the class of a cause that is charged on a critical path."""
    return CauseClass.FAULT if cause in _FAULTS else CauseClass.LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """Something that may have cost time, and that a simulation can do without.

    Attributes:
        cause: What, e.g. ``slow link``.
        place: Where: a link, a switch, a rank.
        kind: Fault or limit.
        evidence: What is known of it, in a few words.
        advice: What to do, or to look at.
        remedy: What the simulation does instead, in a few words.
        round: Suspects of a later round are judged once those of earlier rounds that
            save time are removed.
        is_of_many: Whether the remedy changes many places at once.  A single place that
            saves half as much says more, and comes first.
    """

    cause: str
    place: str
    kind: CauseClass = CauseClass.FAULT
    evidence: str = ""
    advice: str = ""
    remedy: str = ""
    round: int = 0
    is_of_many: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Share of the time of the iterations that is saved, negative if lost.

    Attributes:
        share: Of this run.
        low: The least with other random numbers; *share* if there are none.
        high: The most.
    """

    share: float
    low: float
    high: float

    @property
    def is_certain(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A cause whose removal saves time.

    Attributes:
        suspect: The cause.
        saving: What the run saves without it alone, or without all of them if it acts
            together with others.
        after_previous: What it saves of the time that is left once the findings before
            it are removed.
        together_with: Other suspects without which its removal saves little: only
            all of them together save *after_previous*.
        rivals: Other suspects that explain the run as well.
    """

    suspect: Suspect
    saving: Saving
    after_previous: Saving
    together_with: tuple[Suspect, ...] = ()
    rivals: tuple[Suspect, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the time of a run was lost by, tested by removing it.

    Attributes:
        faults: Causes of class fault, the largest saving first.
        limits: Causes of class limit, the largest saving first, but see
            ``Suspect.is_of_many``.
        excluded: Suspects whose removal saves less than ``LEAST_SAVING``.
        joint: What the run saves without all faults; None if there are none.
        simulations: How many runs were timed.
        notes: What else is to be known: what a simulation could not explain.
    """

    faults: tuple[Finding, ...] = ()
    limits: tuple[Finding, ...] = ()
    excluded: tuple[Suspect, ...] = ()
    joint: Saving | None = None
    simulations: int = 0
    notes: tuple[str, ...] = ()


Times = Callable[[frozenset[int]], int | None]
"""Time of the run in ns without the suspects of these indexes.

None: the run without them does not end, or cannot be simulated.
"""


def find_causes(suspects: Sequence[Suspect], times_ns: Times) -> Verdict:
    """Return which suspects cost time, by removing them.

    Faults are removed greedily, the one that saves most first, until the next saves
    less than ``LEAST_SAVING``.  Where none saves anything alone, all are removed, and
    put back one by one if that costs nothing: what is left acts jointly.

    Raises:
        ValueError: If the run with all suspects in place has no time.
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
    )


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings in the order of their savings; see ``Suspect.is_of_many``.

    Those that save little alone, for others hide them, stay in their order, at the end.
    """

    def weight(finding: Finding) -> float:
        share = finding.saving.share
        if share < LEAST_SAVING:
            return 0.0
        return share * (_OF_MANY if finding.suspect.is_of_many else 1)

    return tuple(sorted(findings, key=weight, reverse=True))


class _Search:
    """Times runs, each once."""

    def __init__(self, suspects: Sequence[Suspect], times_ns: Times) -> None:
        self._suspects = suspects
        self._measure = times_ns
        self._known: dict[frozenset[int], int | None] = {}
        if not self._times(frozenset()):
            raise ValueError("the run itself has no time")

    @property
    def simulations(self) -> int:
        """How many runs were timed."""
        return len(self._known)

    def _times(self, removed: frozenset[int]) -> int | None:
        if removed not in self._known:
            self._known[removed] = self._measure(removed)
        return self._known[removed]

    def saving(
        self, removed: frozenset[int], already: frozenset[int] = frozenset()
    ) -> Saving:
        """Return what removing saves, of the time before.

        Args:
            removed: What is removed.
            already: What of that had been removed before.
        """
        before, after = self._times(already), self._times(removed)
        # A run that does not end takes longer than any that does.
        share = float(bool(after)) - float(bool(before))
        if before and after:
            share = (before - after) / before
        return Saving(share=share, low=share, high=share)

    def faults(
        self, members: Sequence[int], removed: frozenset[int]
    ) -> tuple[list[Finding], frozenset[int]]:
        """Return what of *members* costs time, and all that is removed after that."""
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
                )
            )
            removed |= {best}
            left.remove(best)
        if len(left) > 1:
            joint = self._joint(left, removed)
            together = self.saving(removed | joint, already=removed)
            if len(joint) > 1 and self._counts(together):
                first, *others = sorted(joint)
                findings.append(
                    Finding(
                        suspect=self._suspects[first],
                        saving=self.saving(joint),
                        after_previous=together,
                        together_with=tuple(self._suspects[each] for each in others),
                    )
                )
                removed |= joint
        return findings, removed

    @staticmethod
    def _counts(saving: Saving) -> bool:
        return saving.share >= LEAST_SAVING and saving.is_certain

    def _joint(self, left: Sequence[int], removed: frozenset[int]) -> frozenset[int]:
        """Return the suspects of *left* that cost time only together."""
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
        """Return what changing each limit of the design saves, the most first."""
        found = []
        for index, suspect in enumerate(self._suspects):
            if suspect.kind is CauseClass.LIMIT:
                saving = self.saving(frozenset({index}))
                if self._counts(saving):
                    found.append(
                        Finding(suspect=suspect, saving=saving, after_previous=saving)
                    )
        return ranked(found)
