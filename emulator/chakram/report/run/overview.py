"""The overview at the top of a run's page: verdict, key numbers, bars and causes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from chakram.analysis.cause_ranking import LEAST_SAVING, CauseClass
from chakram.analysis.lost_time_causes import LEAST_SHARE
from chakram.analysis.run_conclusion import generator_doubt, generator_remedy
from chakram.collectives.ops import CollectiveOp
from chakram.console.number_format import percent_text, time_text, variation_text
from chakram.diagnosis.verified_causes import UNEXPLAINED, Verified
from chakram.foundation.units import about_size
from chakram.records.run_records import is_generator_bound
from chakram.report.page import Answer, Bars, Tile
from chakram.summary.run_summary import COMPLETE

if TYPE_CHECKING:
    from chakram.analysis.cause_ranking import Finding, Verdict
    from chakram.report.run.data import RunData
    from chakram.report.run.rows import ReportRow


UNTESTED = Verified(verdict=None, reason="`chakram why` tests causes")
_RANK = re.compile(r"rank \d+")
_BARS, _CAUSES, _PLACES = 10, 3, 3
_AS_SIMULATED = 0.0005
"""Deviation below which the page reports that a run takes as long as simulated."""


def answer(
    data: RunData, rows: Sequence[ReportRow], verified: Verified = UNTESTED
) -> Answer:
    """Return the summary at the top of a run's page.

    Args:
        data: Data of the run.
        rows: Result rows of the run's collectives.
        verified: Tested causes of lost time. Without them, the page names no fault,
            because time charged to a fault does not prove it.
    """
    charged = _charged(data)
    tested = verified.verdict
    return Answer(
        verdict=Markup(" ").join(_verdict(data, charged, verified)),
        status=data.manifest.status,
        tiles=_tiles(data, rows),
        bars=_bars(data, rows),
        heading="Where time was lost" if tested is None else "What costs time",
        points=(charged if tested is None else _tested(tested))[:_CAUSES],
    )


def _tested(verdict: Verdict) -> list[tuple[Markup, str]]:
    """Return faults and limits of the design, each with the saving from a change."""
    found = []
    for each in (*verdict.faults, *verdict.limits):
        suspect = each.suspect
        is_fault = suspect.kind is CauseClass.FAULT
        saves = "{} less without it" if is_fault else "{} less " + suspect.remedy
        details = [
            "fault" if is_fault else "limit of the design",
            *([suspect.evidence] if suspect.evidence else []),
            *(f"or {rival}" for rival in each.rivals),
            *([suspect.advice] if is_fault and suspect.advice else []),
        ]
        saving = each.saving
        if is_fault and saving.share < LEAST_SAVING and each.previous:
            saves = "{} less without it, relative to the time without the other faults"
            saving = each.after_previous
        text = Markup("<b>{}</b>: {}").format(
            _capitalized(_together(each)), saves.format(saving)
        )
        found.append((text, " · ".join(details)))
    return found


def _together(finding: Finding) -> str:
    """Return a suspect, and the suspects that save time only together with it."""
    return " and ".join(map(str, (finding.suspect, *finding.together_with)))


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _charged(data: RunData) -> list[tuple[Markup, str]]:
    """Return causes charged at least ``LEAST_SHARE`` of the time, with details."""
    why = data.why
    if isinstance(why, str) or not why.time_ns:
        return []
    places: dict[str, list[str]] = {}
    lost_ns: dict[str, int] = {}
    for each in why.causes:
        places.setdefault(each.cause, []).append(each.place)
        lost_ns[each.cause] = lost_ns.get(each.cause, 0) + each.lost_ns
    found = []
    for cause in sorted(lost_ns, key=lambda each: -lost_ns[each]):
        share = lost_ns[cause] / why.time_ns
        if share < LEAST_SHARE:
            break
        mean_ns = lost_ns[cause] / why.iterations / data.dilation
        injected = {each.fault for each in why.causes if each.cause == cause} - {None}
        details = [
            f"{time_text(mean_ns)} of an iteration are charged to it",
            *(f"injected: {fault}" for fault in sorted(map(str, injected))),
        ]
        text = Markup("<b>{} at {}</b>: {} % of the iteration").format(
            cause.capitalize(), _listed(places[cause]), percent_text(share)
        )
        found.append((text, " · ".join(details)))
    return found


def _listed(places: Sequence[str]) -> str:
    """Return places as text, abridged if there are many: ``ranks 6, 2 and 3 more``."""
    shown = places[: _PLACES if len(places) > _PLACES + 1 else _PLACES + 1]
    text = ", ".join(shown)
    if len(shown) > 1 and all(map(_RANK.fullmatch, shown)):
        text = "ranks " + text.replace("rank ", "")
    more = len(places) - len(shown)
    return f"{text} and {more} more" if more else text


def _verdict(
    data: RunData, charged: Sequence[tuple[Markup, str]], verified: Verified
) -> Iterator[Markup]:
    summary = data.summary
    if summary.facts.status != COMPLETE:
        text = "The run is <b>{}</b>, so this page covers a part of it."
        yield Markup(text).format(summary.facts.status)
    if data.end is not None:
        yield Markup("It ended because {}.").format(str(data.end))
    longest = summary.longest
    if longest is None:
        yield Markup("No iteration was measured.")
    else:
        known = sorted(summary.iterations, key=lambda each: -each.mean_ns)
        others = Markup("").join(
            Markup(", of {} <b>{}</b>").format(each.job, time_text(each.mean_ns))
            for each in known
            if each is not longest
        )
        yield Markup("One iteration{} takes <b>{}</b>{}{}.").format(
            f" of {longest.job}" if others else "",
            time_text(longest.mean_ns),
            others,
            _compared(data),
        )
    if is_generator_bound(summary.generator_wait_share):
        yield Markup(
            "The <b>traffic generator</b>, not the network, limited collectives of "
            "the rows that are marked with *."
        )
    if isinstance(data.why, str):
        yield Markup("Where its time went is unknown: {}.").format(_code(data.why))
        return
    if longest is None:
        return
    if verified.verdict is None:
        text = "Whether there was a fault was not tested: {}."
        yield Markup(text).format(_code(verified.reason or ""))
        if charged:
            text = "Most of the lost time is charged to {}."
            yield Markup(text).format(charged[0][0].rpartition(": ")[0])
        yield from _doubt(data)
        return
    before = "" if data.end is None else " before its end"
    for each in verified.verdict.faults[:_CAUSES]:
        text = f"A fault was found{before}: "
        text += "without <b>{}</b>, the iteration takes {} less."
        saving = each.saving
        if saving.share < LEAST_SAVING and each.previous:
            text = "After that, without <b>{}</b>, the remaining time is {} less."
            saving = each.after_previous
        yield Markup(text).format(_together(each), saving)
    if not verified.verdict.faults:
        yield Markup("No fault{} was found.").format(before)
    yield from _doubt(data, verified.verdict)
    if any(note.startswith(UNEXPLAINED) for note in verified.verdict.notes):
        yield Markup("A part of its time is <b>unexplained</b>.")
    for each in verified.verdict.limits[:1]:
        text = "{}, it would take {} less."
        remedy = each.suspect.remedy.replace("that port", each.suspect.place)
        yield Markup(text).format(_capitalized(remedy), each.saving)


def _code(text: str) -> Markup:
    """Return a text in which words between backticks are shown as code."""
    return Markup(re.sub("`(.+?)`", r"<code>\1</code>", str(escape(text))))


def _doubt(data: RunData, verdict: Verdict | None = None) -> Iterator[Markup]:
    """Yield a warning and a remedy if the generator makes the run unreliable."""
    if isinstance(data.why, str) or not (doubt := generator_doubt(data.why, verdict)):
        return
    text = "<b>{}</b> {}"
    yield Markup(text).format(doubt, generator_remedy(data.summary))


def _compared(data: RunData) -> str:
    if data.is_simulated:
        return " in simulation"
    share = data.summary.deviation
    if share is None:
        return ""
    if abs(share) < _AS_SIMULATED:
        return "; its collectives take as long as simulated"
    more = "longer" if share > 0 else "less time"
    return f"; its collectives take {percent_text(abs(share))} % {more} than simulated"


def _tiles(data: RunData, rows: Sequence[ReportRow]) -> list[Tile]:
    summary = data.summary
    longest = summary.longest
    time, n = "", ""
    if longest is not None:
        job = f" of {longest.job}" if len(summary.iterations) > 1 else ""
        n = f"{job}{variation_text(longest.cv)}, n = {longest.iterations}"
        time = time_text(longest.mean_ns)
    largest = max(
        (each for each in rows if each.share is not None),
        key=lambda each: each.row.time_ns * each.row.samples,
        default=None,
    )
    rate = "" if largest is None else f"{percent_text(largest.share)} %"
    total = sum(rank.iteration_ns for rank in summary.ranks)
    exposed = sum(rank.exposed_ns for rank in summary.ranks)
    share = summary.deviation
    again = f"{summary.retransmitted:,}" if summary.is_counted else ""
    return [
        Tile(time, f"iteration{n}", "No iteration was measured."),
        Tile(
            rate,
            "of the line rate: bus bandwidth"
            + ("" if largest is None else f" of {_name(largest)}"),
            "No collective with a bus bandwidth was measured, or ports have no rate.",
        ),
        Tile(
            f"{percent_text(exposed / total)} %" if total else "",
            "exposed communication",
            "No rank completed a measured iteration.",
        ),
        Tile(
            "" if share is None else f"{percent_text(share, sign='+')} %",
            "measured against simulated",
            "This run is itself a simulation."
            if data.is_simulated
            else "The run has no predictions (key predict).",
        ),
        Tile(
            again,
            "packets sent again" + f" of {summary.packets:,}" * bool(again),
            "RDMA NICs sent the packets, and do not count them like Chakram."
            if summary.facts.nics
            else "The run ended before its packets were counted.",
        ),
    ]


def _name(each: ReportRow) -> str:
    """Return the short name of a row, without the row's job."""
    row = each.row
    what = "message" if row.op is CollectiveOp.SEND_RECV else str(row.op)
    return f"{what}, {row.nranks} ranks, {about_size(row.size_bytes)}"


def _bars(data: RunData, rows: Sequence[ReportRow]) -> Bars | None:
    own = "simulated" if data.is_simulated else "measured"
    ordered = sorted(rows, key=lambda each: -each.row.time_ns * each.row.samples)
    shown = ordered[:_BARS]
    names = [_name(each) for each in shown]
    jobs = len({each.row.job for each in shown}) > 1
    found = []
    for each, name in zip(shown, names, strict=True):
        row = each.row
        if names.count(name) > 1:
            name = f"{row.algorithm} {name}"
        model = row.predictions.get("simulate")
        times = row.time_ns, model.time_ns if model else None, row.bound_ns
        found.append((f"{row.job}: {name}" if jobs else name, times))
    series = (own, "simulated", "bound")
    kept = [at for at in range(3) if any(times[at] for _, times in found)]
    note = f"The {_BARS} of {len(rows)} kinds with the largest total time."
    if not kept:
        return None  # no collective took any time
    *others, last = (series[at] for at in kept)
    compared = " and ".join([", ".join(others), last] if others else [last])
    return Bars(
        title=f"{compared.capitalize()} time of each collective",
        series=[series[at] for at in kept],
        rows=[(name, [times[at] for at in kept]) for name, times in found],
        text=time_text,
        note=note if len(rows) > _BARS else "",
        colors=[(1 if data.is_simulated else 0, 1, 7)[at] for at in kept],
    )
