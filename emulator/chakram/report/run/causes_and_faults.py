"""Sections of a run's page about lost time and faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from chakram.analysis.critical_path import Part
from chakram.console.number_format import MISSING
from chakram.foundation.units import format_time
from chakram.report import page, plots
from chakram.report.blocks import facts, table
from chakram.report.palette import ORANGE, RED

if TYPE_CHECKING:
    from chakram.report.run.data import RunData


_CAUSES_SHOWN, _PLACES_SHOWN = 10, 5
_SHADED = "Shaded red: faults of links; orange: until traffic had recovered."


@page.section("Causes of lost time", "c", "m")
def why_section(data: RunData) -> page.Parts:
    """Return the section of causes of lost time and parts of the critical path."""
    found = data.why
    if isinstance(found, str):
        raise page.Absent(f"{found}.")
    if not found.time_ns:
        yield "the critical paths take no time."
        return

    def mean(time_ns: float) -> str:
        return format_time(time_ns / found.iterations / data.dilation)

    def share(time_ns: float) -> str:
        return f"{100 * time_ns / found.time_ns:.1f}"

    yield (
        "On an iteration's critical path, time beyond the nominal time of each part "
        "is lost. It is charged to one cause. Repairs may save less: chakram why tests "
        "that."
    )
    which = f" of jobs {', '.join(found.jobs)}" if len(found.jobs) > 1 else ""
    yield facts(
        ("critical path", f"{mean(found.time_ns)}, mean of {found.iterations}{which}"),
        ("lost on it", f"{mean(found.lost_ns)}, {share(found.lost_ns)} %"),
        ("unknown", f"{100 * found.unknown_share:.1f} % of the path"),
    )
    times = "mean per iteration | % of the iteration"
    yield table(
        "Causes",
        f"cause | place | {times}",
        (
            (each.cause, each.place, mean(each.lost_ns), share(each.lost_ns))
            for each in found.causes
        ),
        left=2,
        limit=_CAUSES_SHOWN,
    )
    parts = sorted(found.parts_ns.items(), key=lambda item: -item[1])
    means = {str(k): ns / found.iterations / data.dilation for k, ns in parts if ns}
    look: dict[str, Any] = {"unit": "ns", "name": "path-parts"}
    drawn = plots.bars(
        {"mean": list(means.values())},
        names=list(means),
        title="Parts of the critical path",
        **look,
    )
    caption = "Means over the measured iterations; the parts sum to the iteration."
    yield page.Plot(figure=drawn, caption=caption)
    for what, lost in (
        ("rank", [(str(rank), lost_ns) for rank, lost_ns in found.by_rank]),
        ("collective or computation", list(found.by_collective)),
    ):
        if lost:
            rows = ((name, mean(lost_ns), share(lost_ns)) for name, lost_ns in lost)
            title = f"Lost time by {what}"
            yield table(title, f"{what} | {times}", rows, limit=_PLACES_SHOWN)


@page.section("Faults", "c")
def faults(data: RunData) -> page.Parts:
    """Return the section of injected faults and the cost of recovery from losses."""
    manifest, dilation = data.manifest, data.dilation
    rows = [
        (f"{what}: {kind}", f"{n} packets")
        for what, counts in (
            ("injected", manifest.injected),
            ("rejected", manifest.invalid),
        )
        for kind, n in counts.items()
        if n
    ]
    rows += [
        (
            f"{each.link} {each.direction}",
            f"down for {format_time(each.down_ns)}",
        )
        for each in data.summary.links
        if each.down_ns
    ]
    if not rows and not data.faults:
        raise page.Absent("none was injected.")
    if data.faults:
        yield table(
            "Injected faults",
            "fault (f) | began | ended | recovered after (m) | packets (c)",
            map(_fault_cells, data.faults),
            note="Times are from the start of the first rank. Recovered: the last "
            "session across the link was back at its previous rate.",
        )
    traffic, why = data.summary.traffic, data.why
    if traffic is not None:
        again = (
            f"{traffic.retransmitted} packets: {traffic.for_nak} after a NAK, "
            f"{traffic.for_timeout} after a timeout, {traffic.for_rnr} because the "
            "receiver was not ready"
        )
        rows.append(("retransmitted", again))
    if not isinstance(why, str) and why.iterations:
        repair_ns = why.parts_ns.get(Part.REPAIR, 0) / why.iterations / dilation
        took = f"{format_time(repair_ns)} of an iteration, mean (m)"
        rows.append(("recovery on the critical path", took))
    if rows:
        yield facts(*rows)


def _fault_cells(fault: Mapping[str, Any]) -> tuple[str, ...]:
    start_ns, end_ns = fault["start_ns"], fault["end_ns"]
    back_ns, packets = fault["recovered_ns"], fault["packets"]
    has_both = back_ns is not None and end_ns is not None
    return (
        fault["fault"],
        *(
            MISSING if at_ns is None else format_time(max(0, at_ns))
            for at_ns in (start_ns, end_ns)
        ),
        format_time(back_ns - end_ns) if has_both else MISSING,
        MISSING if packets is None else f"{packets:,}",
    )


def with_faults(data: RunData, plain: page.Section) -> page.Section:
    """Shade the times of faults in a section's figures over time."""
    lasted: list[tuple[float, float]] = []
    recovering: list[tuple[float, float]] = []
    for each in data.faults:
        if each["start_ns"] is not None:
            end_ns = data.end_ns if each["end_ns"] is None else each["end_ns"]
            lasted.append((each["start_ns"], end_ns))
        if each["recovered_ns"] is not None and each["end_ns"] is not None:
            recovering.append((each["end_ns"], each["recovered_ns"]))
    if not lasted:
        return plain
    blocks: list[page.Block] = []
    for block in plain.blocks:
        if isinstance(block, page.Plot):
            plots.shade(block.figure, lasted, RED)
            plots.shade(block.figure, recovering, ORANGE)
            block = replace(block, caption=f"{block.caption} {_SHADED}".strip())
        blocks.append(block)
    return replace(plain, blocks=tuple(blocks))
