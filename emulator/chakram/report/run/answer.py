"""The answer of a run's page: verdict, key numbers, bars and causes of lost time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from chakram.analysis.cause_ranking import CauseClass, class_of
from chakram.analysis.charged_causes import LEAST_SHARE
from chakram.collectives.ops import CollectiveOp
from chakram.console.number_format import percent_text, time_text
from chakram.diagnosis.suspects import ADVICE
from chakram.foundation.units import about_size
from chakram.records.run_records import is_generator_bound
from chakram.report.page import Answer, Bars, Tile
from chakram.summary.run_summary import COMPLETE

if TYPE_CHECKING:
    from chakram.report.run.data import RunData
    from chakram.report.run.rows import ReportRow


_BARS, _CAUSES, _PLACES = 10, 3, 3
_AS_SIMULATED = 0.0005
"""Deviation below which the page reports that a run takes as long as simulated."""


def answer(data: RunData, rows: Sequence[ReportRow]) -> Answer:
    """Return the summary at the top of a run's page."""
    causes = _causes(data)
    return Answer(
        verdict=Markup(" ").join(_verdict(data, causes)),
        status=data.manifest.status,
        tiles=_tiles(data, rows),
        bars=_bars(data, rows),
        heading="Where time was lost",
        points=[
            (
                Markup("<b>{} at {}</b>: {} % of the iteration").format(
                    cause.capitalize(), place, percent_text(share)
                ),
                details,
            )
            for cause, place, share, details in causes[:_CAUSES]
        ],
    )


def _causes(data: RunData) -> list[tuple[str, str, float, str]]:
    """Return causes of at least ``LEAST_SHARE``, with places, share and details."""
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
        mean_ns = lost_ns[cause] / why.iterations / data.dilation
        is_fault = class_of(cause) is CauseClass.FAULT
        injected = {each.fault for each in why.causes if each.cause == cause} - {None}
        details = [
            "fault" if is_fault else "limit of the design",
            f"{time_text(mean_ns)} of an iteration",
            *(f"injected: {fault}" for fault in sorted(map(str, injected))),
            *([ADVICE[cause]] if cause in ADVICE else []),
        ]
        share = lost_ns[cause] / why.time_ns
        if share < LEAST_SHARE:
            break
        found.append((cause, _listed(places[cause]), share, " · ".join(details)))
    return found


def _listed(places: Sequence[str]) -> str:
    """Return places as text, abridged if there are many: ``ranks 6, 2 and 3 more``."""
    shown = places[: _PLACES if len(places) > _PLACES + 1 else _PLACES + 1]
    text = ", ".join(shown)
    if len(shown) > 1 and all(each.startswith("rank ") for each in shown):
        text = "ranks " + text.replace("rank ", "")
    more = len(places) - len(shown)
    return f"{text} and {more} more" if more else text


def _verdict(
    data: RunData, causes: Sequence[tuple[str, str, float, str]]
) -> Iterator[Markup]:
    summary = data.summary
    if summary.facts.status != COMPLETE:
        text = "The run is <b>{}</b>, so this page covers a part of it."
        yield Markup(text).format(summary.facts.status)
    longest = max(summary.iterations, key=lambda each: each.mean_ns, default=None)
    if longest is None:
        yield Markup("No iteration was measured.")
    else:
        known = sorted(summary.iterations, key=lambda each: -each.mean_ns)
        text = " of {} <b>{}</b>" if len(known) > 1 else " <b>{1}</b>"
        times = Markup(",").join(
            Markup(text).format(each.job, time_text(each.mean_ns)) for each in known
        )
        yield Markup("One iteration takes{}{}.").format(times, _compared(data))
    if is_generator_bound(summary.generator_wait_share):
        yield Markup(
            "The <b>traffic generator</b>, not the network, limited these times."
        )
    if isinstance(data.why, str):
        yield Markup("Where its time went is unknown: {}.").format(data.why)
        return
    faults = [each for each in causes if class_of(each[0]) is CauseClass.FAULT]
    for cause, place, share, _ in faults:
        text = "A fault was found: <b>{} at {}</b> takes {} % of the iteration."
        yield Markup(text).format(cause, place, percent_text(share))
    if not faults and longest is not None:
        yield Markup("No fault was found on its critical path.")
    if causes and causes[0] not in faults:
        text = "Most of the lost time is charged to <b>{}</b> at {}."
        yield Markup(text).format(*causes[0][:2])


def _compared(data: RunData) -> str:
    if data.is_simulated:
        return " in simulation"
    share = data.summary.deviation
    if share is None:
        return ""
    if abs(share) < _AS_SIMULATED:
        return "; its collectives take as long as simulated"
    more = "longer" if share > 0 else "shorter"
    return f"; its collectives take {percent_text(abs(share))} % {more} than simulated"


def _tiles(data: RunData, rows: Sequence[ReportRow]) -> list[Tile]:
    summary = data.summary
    longest = max(summary.iterations, key=lambda each: each.mean_ns, default=None)
    time, n = "", ""
    if longest is not None:
        job = f" of {longest.job}" if len(summary.iterations) > 1 else ""
        n = f"{job}, CV {percent_text(longest.cv)} %, n = {longest.iterations}"
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
            "The run ended before its packets were counted.",
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
        colours=[(1 if data.is_simulated else 0, 1, 7)[at] for at in kept],
    )
