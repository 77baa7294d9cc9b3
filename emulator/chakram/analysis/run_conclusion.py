"""Conclusion of a run in sentences: iteration times, deviations and causes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chakram.analysis.cause_ranking import CauseClass, class_of
from chakram.analysis.lost_time_causes import GENERATOR_SLOW, LEAST_SHARE
from chakram.console.number_format import percent_text, time_text
from chakram.foundation.text_escaping import one_line
from chakram.summary.result_warnings import remedy_sentence
from chakram.summary.run_summary import SIMULATE

if TYPE_CHECKING:
    from chakram.analysis.cause_ranking import Verdict
    from chakram.analysis.lost_time_causes import Why
    from chakram.summary.run_summary import Summary

CAUSES = 3
"""Maximum number of causes that the conclusion names."""

_OF_GENERATOR, _DISTORTED = 0.1, 0.5
"""Minimum shares of the time at which the traffic generator makes a run unreliable.

The first share applies to the time that is charged to the traffic generator. The second
share also includes the time for which the generator's part is unknown."""


def answer_lines(
    summary: Summary,
    why: Why | None,
    *,
    injected: Sequence[str] = (),
    verdict: Verdict | None = None,
    written: Sequence[str] = (),
) -> list[str]:
    """Return the conclusion as lines of one sentence, to print below the table.

    Args:
        summary: Summary of the run.
        why: Breakdown of the run's time, or None if it is unknown.
        injected: Faults that the experiment injected, in words.
        verdict: Tested causes of the run, if any.
        written: Sentences about files that were written.
    """
    faults = [*_found(verdict), *_injected(why, injected)]
    lines = [*_times(summary), *faults]
    if why is not None:
        lines += filter(
            None,
            [
                _causes(why, has_fault=bool(faults), is_tested=verdict is not None),
                generator_doubt(why, verdict),
            ],
        )
    lines += written
    return [f"# {one_line(line)}" for line in lines]


def generator_doubt(why: Why, verdict: Verdict | None = None) -> str | None:
    """Return a warning if the generator makes a run unreliable, or None.

    Args:
        why: Breakdown of the run's time.
        verdict: Tested causes of the run, if any.
    """
    share, distorted = why.generator_share, why.distorted_share
    if share < _OF_GENERATOR and share + distorted < _DISTORTED:
        return None
    parts = f"took {percent_text(share)} % of the time"
    if distorted >= LEAST_SHARE:
        parts += f" and distorted another {percent_text(distorted)} %"
    faults = () if verdict is None else verdict.faults
    is_named = any(each.suspect.cause != GENERATOR_SLOW for each in faults)
    return (
        f"The traffic generator {parts}, so this run says little "
        f"{'else ' if is_named else ''}about the network, and may hide its faults."
    )


def generator_remedy(summary: Summary) -> str:
    """Return what to change so that the generator delays a run less."""
    advice = "Use lower rates, more dilation, or more agents or cores."
    known = summary.keeping_up
    if known is None:
        return advice
    exact = f"{remedy_sentence(known, summary.facts)}."
    # Without a known rate, a slower fabric may not help.
    return exact if known.port_rate_bps is None else f"{advice} {exact}"


def _times(summary: Summary) -> list[str]:
    facts = summary.facts
    lines = []
    is_one = len(summary.iterations) == 1
    for each in summary.iterations:
        subject = "An iteration" if is_one else f"An iteration of {each.job}"
        took = "would take" if facts.world == SIMULATE else "took"
        lines.append(f"{subject} {took} {time_text(each.mean_ns)}{_exposed(summary)}.")
    deviation = summary.deviation
    if deviation is not None:
        share = percent_text(abs(deviation))
        more = "more" if deviation > 0 else "less"
        lines.append(
            "Its collectives took as long as simulated."
            if share == "0.0"
            else f"Its collectives took {share} % {more} time than simulated."
        )
    longest = summary.longest
    if facts.dilation > 1 and facts.world != SIMULATE and longest is not None:
        subject = "an iteration" if is_one else f"an iteration of {longest.job}"
        lines.append(
            f"Time was stretched {facts.dilation} times: on this machine {subject} "
            f"took {time_text(longest.mean_ns * facts.dilation)}."
        )
    return lines


def _exposed(summary: Summary) -> str:
    """Return the share of exposed communication, if all ranks run one job."""
    total_ns = sum(rank.iteration_ns for rank in summary.ranks)
    if len(summary.iterations) != 1 or not total_ns:
        return ""
    exposed_ns = sum(rank.exposed_ns for rank in summary.ranks)
    return f", {percent_text(exposed_ns / total_ns)} % of it exposed communication"


def _found(verdict: Verdict | None) -> list[str]:
    """Return a sentence about each fault that was found."""
    return [
        f"A fault was found: without {each.suspect}, an iteration takes {each.saving} "
        "less."
        for each in (() if verdict is None else verdict.faults[:CAUSES])
    ]


def _injected(why: Why | None, injected: Sequence[str]) -> list[str]:
    """Return a sentence about the faults that the experiment injected."""
    if not injected:
        return []
    more = len(injected) - CAUSES
    listed = "; ".join(injected[:CAUSES]) + f"; and {more} more" * (more > 0)
    share = sum(each.share for each in (why.causes if why else ()) if each.fault)
    charged = f", with {percent_text(share)} % of the time charged to its place"
    return [f"Injected fault: {listed}{charged * (share >= LEAST_SHARE)}."]


def _causes(why: Why, *, has_fault: bool, is_tested: bool) -> str:
    """Return a sentence about possible faults, then about the largest design limits.

    Possible faults are not named, because time charged to a fault does not prove it.

    Args:
        why: Where the run spent its time.
        has_fault: Whether a fault is known already.
        is_tested: Whether the causes were tested.
    """
    large = [each for each in why.causes if each.share >= LEAST_SHARE]
    if not large:
        return "Nothing cost the run much time."
    unnamed = [each for each in large if each.fault is None]
    limits = [each for each in unnamed if class_of(each.cause) is CauseClass.LIMIT]
    possible = sum(
        each.share
        for each in unnamed
        if each not in limits and each.cause != GENERATOR_SLOW
    )
    named = ", ".join(
        f"{each} ({percent_text(each.share)} %)" for each in limits[:CAUSES]
    )
    sentences = []
    if possible and not is_tested:
        share = percent_text(possible)
        sentences.append(f"{share} % of the time is charged to possible faults.")
    if named and (possible or has_fault):
        sentences.append(f"Limits of the design: {named}.")
    elif named:
        lost = f"Most of the lost time is charged to {named}, which proves no fault."
        sentences.append(lost)
    if not is_tested:
        sentences.append("`chakram why` tests causes, faults included.")
    return " ".join(sentences)
