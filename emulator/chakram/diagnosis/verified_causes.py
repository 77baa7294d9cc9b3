"""Results of testing causes, for reports that also work without such results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chakram.analysis.cause_ranking import Verdict

Say = Callable[[str], None]
"""Function that shows a message."""

BUDGET_S = 60.0
"""Default budget for testing the causes of a run, in seconds of an idle core."""

UNEXPLAINED = "part of the difference is unexplained"
"""Beginning of the note about a run on a network that no simulation fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The tested causes of a run, or the reason why they are untested.

    Attributes:
        verdict: The causes, or None if they could not be tested.
        reason: Sentence that states why the causes were not tested, or None.
    """

    verdict: Verdict | None
    reason: str | None = None
