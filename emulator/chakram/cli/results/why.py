"""``chakram why``: explain where a run lost time."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chakram.cli.common.fast_arrow_import import import_arrow_only
from chakram.cli.common.options import Json, RunPath, print_json, say
from chakram.foundation.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from chakram.analysis.cause_ranking import Finding, Verdict
    from chakram.analysis.lost_time_causes import Why
    from chakram.run_directory.reader import RunResults


_CAUSES = 4
_PARTS = 5
_PLACES = 3
_OVERLAP = 0.02
"""Minimum difference to print between a fault's saving alone and after others."""


def why(
    run: RunPath,
    other: Annotated[
        Path | None,
        typer.Argument(
            metavar="OTHER",
            help="Second run. Explain why it takes longer than RUN, by causes that "
            "RUN does not have.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="COLLECTIVE",
            help="Explain the time until this collective completes instead of the "
            "whole iteration. Give its name or group#k.",
        ),
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="JOB", help="Explain only this job.")
    ] = None,
    no_verify: Annotated[
        bool,
        typer.Option(
            "--no-verify",
            help="Print only the times charged along the critical path. Do not "
            "test the possible causes by simulation.",
        ),
    ] = False,
    budget_s: Annotated[
        float,
        typer.Option(
            "--budget",
            metavar="SECONDS",
            min=0,
            help="Limit on the work of simulations that test causes, in seconds of an "
            "idle core. The load of this machine does not change the result.",
        ),
    ] = 60.0,
    as_json: Json = False,
) -> None:
    """Explain where a run lost time: causes, links and ranks."""
    import_arrow_only()
    from chakram.analysis.run_causes import why_difference, why_document
    from chakram.analysis.run_conclusion import generator_doubt, generator_remedy
    from chakram.run_directory.reader import open_run

    if other is not None:
        both = [open_run(each) for each in (run, other)]
        dilation = _same_dilation(*both)
        sides = [_explained(each, until, job, budget_s, no_verify) for each in both]
        doubts = [generator_doubt(found, tested) for found, tested, _ in sides]
        notes = _unlike(*both) + [
            f"{name}: {each}" for name, each in zip("AB", doubts, strict=True) if each
        ]
        document = {**why_difference(sides[0], sides[1]), "notes": notes}
        if as_json:
            print_json("why-difference", document)
        else:
            print("\n".join(_difference_lines(document, dilation=dilation)))
        return
    results = open_run(run)
    end = None
    if results.incomplete:
        from chakram.diagnosis.early_end import early_end

        end = early_end(results)
    if end is not None and not as_json:
        print(f"End: {end}")
    explained = _explained(results, until, job, budget_s, no_verify)
    doubt = generator_doubt(*explained[:2])
    if doubt is not None:
        doubt = f"{doubt} {generator_remedy(results.summary())}"
    if as_json:
        document = {
            "incomplete": results.incomplete,
            "end": None if end is None else asdict(end),
            **why_document(*explained),
            "doubt": doubt,
        }
        print_json("why", document)
        return
    if results.incomplete:
        print(f"!! {results.incomplete}; only iterations that all ranks finished:")
    lines = _lines(
        *explained,
        dilation=results.manifest.dilation,
        is_whole=not results.incomplete,
        doubt=doubt,
    )
    print("\n".join(lines))


def _explained(
    results: RunResults,
    until: str | None,
    job: str | None,
    budget_s: float,
    no_verify: bool,
) -> tuple[Why, Verdict | None, str | None]:
    from chakram.analysis.run_causes import why_of

    found = why_of(results, until=until, job=job)
    if no_verify:
        return found, None, "--no-verify"
    if until is not None:
        return found, None, "--until explains a part of the iteration"
    from chakram.diagnosis.verification import verify

    verified = verify(results, found, job=job, budget_s=budget_s, say=say)
    return found, verified.verdict, verified.reason


def _same_dilation(first: RunResults, second: RunResults) -> int:
    """Return the common dilation of two runs, whose times are to be subtracted.

    Raises:
        InputError: If the dilations differ.
    """
    dilation, other = first.manifest.dilation, second.manifest.dilation
    if dilation != other:
        raise InputError(
            str(second.path),
            f"is dilated by {other}, but {first.path} by {dilation}",
            "use chakram compare, which compares undilated times",
        )
    return dilation


def _unlike(first: RunResults, second: RunResults) -> list[str]:
    """Return notes on differences between two runs that no fault explains."""
    a, b = first.manifest, second.manifest
    differ = [
        name
        for name, is_equal in (
            ("traces", a.traces == b.traces),
            ("fabrics", a.fabric == b.fabric),
        )
        if not is_equal
    ]
    if not differ:
        return []
    return [
        f"the runs have different {' and '.join(differ)}, which explains the change or "
        "a part of it"
    ]


def _difference_lines(document: Mapping[str, Any], *, dilation: int) -> list[str]:
    from chakram.console.number_format import time_text

    def change(time_ns: float) -> str:
        return f"{'+' if time_ns >= 0 else ''}{time_text(time_ns / dilation)}"

    longer_ns, whole_ns = document["difference_ns"], document["a_ns"]
    if not document["verified"]:
        return [f"Not tested by simulation: {document['not_verified']}"]
    lines = [
        f"The iteration time changes by {change(longer_ns)} "
        f"({longer_ns / max(1, whole_ns):+.1%}) from {time_text(whole_ns / dilation)}"
    ]
    lines += [
        f"  {change(each['time_ns']):>10}  {each['cause']} at {each['place']}"
        + (f": {each['evidence']}" if each["evidence"] else "")
        for each in document["causes"]
    ]
    lines.append(f"  {change(document['unexplained_ns']):>10}  not explained")
    return [*lines, *(f"Note: {note}" for note in document["notes"])]


def _lines(
    why: Why,
    verdict: Verdict | None,
    reason: str | None,
    *,
    dilation: int,
    is_whole: bool,
    doubt: str | None = None,
) -> list[str]:
    """Return the lines to print: the causes, then the times that support them."""
    from chakram.console.number_format import time_text

    def time(time_ns: float) -> str:
        mean_ns = int(time_ns) // max(1, why.iterations)
        return time_text(mean_ns // dilation)

    def share(time_ns: int) -> str:
        return f"{100 * time_ns / why.time_ns:.1f} %" if why.time_ns else "0 %"

    lines = []
    if verdict is None:
        lines += _untested(why, reason, share)
    else:
        lines += _tested(verdict, "" if is_whole else " before the run ended")
    if doubt is not None:
        lines.insert(1, f"!! {doubt}")
    which = f" of jobs {', '.join(why.jobs)}" if len(why.jobs) > 1 else ""
    lines += [
        f"Iteration: {time(why.time_ns)} (mean of {why.iterations}{which}), of which "
        f"{time(why.lost_ns)} ({share(why.lost_ns)}) lost on the critical path",
        "Charges, which show where it was lost, not what a repair saves:",
    ]
    lines += [
        f"  {share(each.lost_ns):>7}  {time(each.lost_ns):>8}  {each}"
        for each in why.causes[:_CAUSES]
    ]
    parts = sorted(why.parts_ns.items(), key=lambda item: -item[1])[:_PARTS]
    lines.append(
        "Path: " + ", ".join(f"{part} {share(time_ns)}" for part, time_ns in parts)
    )
    if why.by_rank:
        lines.append(
            "Lost by rank: "
            + ", ".join(f"{rank} {share(ns)}" for rank, ns in why.by_rank[:_PLACES])
        )
        lines.append(
            "Lost in: "
            + ", ".join(
                f"{what} {share(ns)}" for what, ns in why.by_collective[:_PLACES]
            )
        )
    lines.append(f"Unknown: {100 * why.unknown_share:.1f} % of the path")
    return lines


def _untested(why: Why, reason: str | None, share: Callable[[int], str]) -> list[str]:
    first = why.first
    return [
        "First cause: no single cause"
        if first is None
        else f"First cause: {first}: {share(first.lost_ns)}",
        f"Not tested by simulation: {reason}",
    ]


def _tested(verdict: Verdict, when: str) -> list[str]:
    if not verdict.faults:
        lines = [f"Fault{when}: none found"]
    else:
        first = verdict.faults[0]
        without = "all of them" if first.together_with else "it"
        lines = [
            f"{'Faults' if first.together_with else 'Fault'}{when}: "
            f"{_together(first)}; "
            f"without {without} the iteration takes {first.saving} less"
        ]
        lines += [line for each in verdict.faults for line in _fault_lines(each)]
        if verdict.joint is not None and len(verdict.faults) > 1:
            lines.append(f"  {verdict.joint!s:>7}  all of these faults together")
    lines += [f"Note: {note}" for note in verdict.notes]
    if verdict.limits:
        lines.append("Design limits, and what the iteration would save without each:")
        lines += [
            f"  {each.saving!s:>7}  {each.suspect}: {each.suspect.remedy}"
            for each in sorted(
                verdict.limits[:_CAUSES], key=lambda each: -each.saving.share
            )
        ]
    return lines


def _fault_lines(finding: Finding) -> list[str]:
    suspect = finding.suspect
    is_masked = finding.previous and finding.saving.share <= 0
    text = f"  {'masked' if is_masked else finding.saving!s:>7}  {_together(finding)}"
    if suspect.evidence:
        text += f": {suspect.evidence}"
    lines = [text]
    if finding.rivals:
        names = " or ".join(map(str, finding.rivals))
        lines.append(f"           It may instead be {names}.")
    if finding.together_with:
        lines.append("           Each of them alone saves little.")
    then = finding.after_previous.share
    if finding.previous and abs(then - finding.saving.share) > _OVERLAP:
        others = " and ".join(map(str, finding.previous[:_PLACES]))
        more = len(finding.previous) - _PLACES
        others += f" and {more} more" if more > 0 else ""
        lines.append(
            f"           Without {others}, it takes {100 * then:.1f} % of the "
            "remaining time."
        )
    if suspect.advice:
        lines.append(f"           To do: {suspect.advice}.")
    return lines


def _together(finding: Finding) -> str:
    """Return the cause, and the causes with which it acts jointly."""
    return " and ".join(map(str, (finding.suspect, *finding.together_with)))
