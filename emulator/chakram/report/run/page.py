"""The page of a run, written by ``chakram report RUN``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bokeh.models import Range1d

from chakram.analysis.critical_path import Part
from chakram.analysis.run_causes import why_document
from chakram.console.number_format import MISSING
from chakram.console.summary_document import summary_document
from chakram.foundation.units import about_size, format_time
from chakram.report import page, plots
from chakram.report.blocks import Facts, Table
from chakram.report.columns import percentiles
from chakram.report.result_plots import shade
from chakram.report.run import curves, traffic
from chakram.report.run import sections as measured
from chakram.report.run.data import OBSERVED, RunData
from chakram.report.run.rows import ReportRow, line_rates, report_rows
from chakram.report.topology_page import topology_facts

if TYPE_CHECKING:
    from chakram.run_directory.reader import RunResults


_CAUSES_SHOWN, _PLACES_SHOWN = 10, 5
_SHADED = "Shaded red: faults of links; orange: until traffic had recovered."


def run_page(results: RunResults) -> str:
    """Return the page of a run as HTML.

    Raises:
        RunDirectoryError: If the run directory cannot be read.
    """
    data = RunData(results)
    rows = report_rows(data)
    # All plots over time share one axis, so they move together.
    axis = Range1d(0, max(1.0, data.end_ns))
    sections = [
        measured.device(data),
        measured.headline(data, rows),
        measured.generator(data),
        why_section(data),
        curves.bandwidth(data, rows),
        curves.completion_times(data),
        traffic.sessions(data),
        traffic.uplinks(data),
        _with_faults(data, traffic.congestion(data, axis)),
        _with_faults(data, traffic.nic_utilisation(data, axis)),
        measured.rank_times(data),
        measured.top_collectives(data, rows),
        _with_faults(data, measured.gantt(data, Range1d())),
        traffic.slowest_flows(data),
        measured.against_simulation(data, rows),
        _faults(data),
        anomalies(data),
        comparability(data, rows),
        raw_files(results.path),
    ]
    manifest = data.manifest
    return page.render_page(
        title=title_of(data),
        lead=f"{manifest.world}, {manifest.started_at[:16].replace('T', ' ')} UTC, "
        f"{len(data.summary.ranks)} ranks, {manifest.measured} measured iterations "
        f"after {manifest.warmup} of warm-up; run {manifest.run_id}.",
        notes=notes_of(data),
        banners=data.summary.banners,
        sections=sections,
        document=run_document(data, rows),
    )


def title_of(data: RunData) -> str:
    """Return the title of a run."""
    manifest = data.manifest
    kind = "Simulation" if data.is_simulated else "Run"
    return f"{kind} {manifest.name}" + (
        f", case {manifest.case}" if manifest.case else ""
    )


def notes_of(data: RunData) -> list[str]:
    """Return the meaning of observation letters, and the scaling of times and sizes."""
    letters = ("v", "m", "f") if data.is_simulated else ("b", "c", "m", "f")
    points = "; ".join(f"({letter}) {OBSERVED[letter]}" for letter in letters)
    notes = [f"Where values were observed: {points}."]
    if data.dilation > 1:
        notes.append(
            f"Time was stretched by {data.dilation}; times and rates on this page are "
            "those of the fabric without stretching."
        )
    if data.manifest.size_scale != "1":
        notes.append(
            f"Messages have {data.manifest.size_scale} of their size in the trace."
        )
    return notes


def run_document(data: RunData, rows: Sequence[ReportRow]) -> dict[str, Any]:
    """Return the numbers of the page as plain values: those of ``show``, and others."""
    why = data.why
    return {
        **summary_document(data.summary),
        "why": None if isinstance(why, str) else why_document(why),
        "report": {
            "rooflines": [
                {**asdict(each), "ratio": each.ratio} for each in data.rooflines
            ],
            "rows": [
                {
                    "job": each.row.job,
                    "collective": str(each.row.op),
                    "algorithm": each.row.algorithm,
                    "size_bytes": each.row.size_bytes,
                    "fabric_bytes": each.fabric_bytes,
                    "nranks": each.row.nranks,
                    "algo_factor": each.factor,
                    "busbw_bps": each.busbw_bps,
                    "busbw_percentiles_bps": each.percentiles_bps,
                    "line_rate_bps": each.line_rate_bps,
                    "line_rate_share": each.share,
                }
                for each in rows
            ],
            "sessions_bps": {
                op: percentiles(each, traffic.SESSION_PERCENTS)
                for op, each in data.session_rates.items()
            },
        },
    }


@page.section("Why", "c", "m")
def why_section(data: RunData) -> page.Parts:
    """Return causes of lost time, and the parts of the critical path."""
    found = data.why
    if isinstance(found, str):
        yield f"{found}."
        return
    if not found.time_ns:
        yield "the critical paths take no time."
        return

    def mean(time_ns: float) -> str:
        return format_time(time_ns / found.iterations / data.dilation)

    def share(time_ns: float) -> str:
        return f"{100 * time_ns / found.time_ns:.1f}"

    largest = "no charge reaches 3 % of the iterations"
    if found.first is not None:
        largest = f"{found.first}: {share(found.first.lost_ns)} %"
    yield (
        "The critical path of an iteration leads back from its end through everything "
        "that the end waited for. Time on it beyond the nominal time of its parts is "
        "lost. Every lost nanosecond is charged to one cause. A charge shows where "
        "time is lost; chakram why tests how much the run saves without a cause."
    )
    yield Facts(
        rows=(
            ("largest charge", largest),
            ("critical path", f"{mean(found.time_ns)}, mean of {found.iterations}"),
            ("lost on it", f"{mean(found.lost_ns)}, {share(found.lost_ns)} %"),
            ("unknown", f"{100 * found.unknown_share:.1f} % of the path"),
        )
    )
    yield Table(
        title="Causes of lost time",
        header=("cause", "place", "mean per iteration", "% of the iteration"),
        rows=tuple(
            (each.cause, each.place, mean(each.lost_ns), share(each.lost_ns))
            for each in found.causes[:_CAUSES_SHOWN]
        ),
        left=2,
        note=f"{len(found.causes)} causes in total.",
    )
    parts = sorted(found.parts_ns.items(), key=lambda item: -item[1])
    means = {str(k): ns / found.iterations / data.dilation for k, ns in parts if ns}
    drawn = plots.bars(
        {"mean": list(means.values())},
        names=list(means),
        title="Parts of the critical path",
        unit="ns",
        name="path-parts",
    )
    caption = "Means over the measured iterations; the parts sum to the iteration."
    yield page.Plot(figure=drawn, caption=caption)
    for what, lost in (
        ("rank", [(str(rank), lost_ns) for rank, lost_ns in found.by_rank]),
        ("collective or computation", list(found.by_collective)),
    ):
        if lost:
            yield Table(
                title=f"Lost time by {what}",
                header=(what, "mean per iteration", "% of the iteration"),
                rows=tuple(
                    (name, mean(lost_ns), share(lost_ns))
                    for name, lost_ns in lost[:_PLACES_SHOWN]
                ),
            )


@page.section("Faults", "c")
def _faults(data: RunData) -> page.Parts:
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
            f"{link.link} {link.direction}",
            f"down for {format_time(link.down_ns / dilation)}",
        )
        for link in data.summary.links
        if link.down_ns
    ]
    if not rows and not data.faults:
        yield "none was injected."
        return
    if data.faults:
        yield Table(
            title="Injected faults",
            header=(
                *("fault (f)", "began", "ended", "recovered after (m)"),
                "packets (c)",
            ),
            rows=tuple(map(_fault_cells, data.faults)),
            left=1,
            note=(
                "Times are from the start of the first rank. Recovered: the last "
                "session across the link was back at its previous rate."
            ),
        )
    # Cost of recovery from losses.
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
        yield Facts(rows=tuple(rows))


def _fault_cells(fault: Mapping[str, Any]) -> tuple[str, ...]:
    start_ns, end_ns = fault["start_ns"], fault["end_ns"]
    back_ns, packets = fault["recovered_ns"], fault["packets"]
    return (
        fault["fault"],
        *(
            MISSING if at_ns is None else format_time(max(0, at_ns))
            for at_ns in (start_ns, end_ns)
        ),
        MISSING if back_ns is None else format_time(back_ns - end_ns),
        MISSING if packets is None else f"{packets:,}",
    )


def _with_faults(data: RunData, plain: page.Section) -> page.Section:
    """Return a section with the times of faults shaded in its figures over time."""
    lasted: list[tuple[float, float]] = []
    recovering: list[tuple[float, float]] = []
    for each in data.faults:
        if each["start_ns"] is not None:
            end_ns = data.end_ns if each["end_ns"] is None else each["end_ns"]
            lasted.append((each["start_ns"], end_ns))
        if each["recovered_ns"] is not None:
            recovering.append((each["end_ns"], each["recovered_ns"]))
    if not lasted:
        return plain
    blocks: list[page.Block] = []
    for block in plain.blocks:
        if isinstance(block, page.Plot):
            shade(block.figure, lasted, "#d62728")
            shade(block.figure, recovering, "#ff7f0e")
            block = replace(block, caption=f"{block.caption} {_SHADED}".strip())
        blocks.append(block)
    return replace(plain, blocks=tuple(blocks))


@page.section("Anomalies")
def anomalies(data: RunData) -> page.Parts:
    """Return the banners and other anomalies."""
    summary = data.summary
    found = list(summary.banners)
    if summary.unfinished:
        found.append(f"{summary.unfinished} collectives were not finished")
    drops = sum(link.drops or 0 for link in summary.links)
    if drops:
        found.append(f"{drops} packets were dropped in link queues (b)")
    if summary.retransmitted:
        found.append(f"{summary.retransmitted} packets were retransmitted (c)")
    odd = data.manifest.preflight.get("findings", ())
    found += [f"preflight: {each.get('verdict', each)}" for each in odd]
    enumerated = ((str(number), text) for number, text in enumerate(found, 1))
    yield Facts(rows=tuple(enumerated) or (("none", ""),))


@page.section("Comparability", "f")
def comparability(data: RunData, rows: Sequence[ReportRow]) -> page.Parts:
    """Return the values that two runs must have in common to be comparable."""
    manifest = data.manifest
    experiment = manifest.experiment
    places = []
    for job in experiment.get("jobs", ()):
        placement = job.get("placement") or {}
        places.append(
            f"{job.get('name')}: order {placement.get('order')}, pattern "
            f"{placement.get('pattern')}, {placement.get('ranks_per_port')} per port, "
            f"within hosts: {placement.get('same_host')}"
        )
    transport = experiment.get("transport") or {}
    pairs = transport.get("queue_pairs") or {}
    balancing = (
        f"UDP source ports {transport.get('source_ports')}, queue pairs per "
        f"{pairs.get('per')} x {pairs.get('count')}, {pairs.get('split')}; equal-cost "
        "paths by hash"
    )
    collectives = [
        f"{each.name}, S {about_size(each.row.size_bytes)}, N {each.row.nranks}, "
        f"algo_factor {each.factor:.4g}"
        for each in rows[:12]
    ]
    if len(rows) > 12:
        collectives.append(f"and {len(rows) - 12} more")
    traces = (
        f"{job}: {each.get('trace')} (sha256 {str(each.get('sha256'))[:12]})"
        for job, each in manifest.traces.items()
    )
    world = f"{manifest.world}; dilation {manifest.dilation}; sizes x "
    yield "Compare this run only with runs that have the same values here."
    yield Facts(
        rows=(
            ("N", f"{len(data.summary.ranks)} ranks"),
            ("placement", "; ".join(places) or MISSING),
            ("B_acc", line_rates(rows) or "no rate"),
            *topology_facts(data.topology),
            ("collectives", "; ".join(collectives)),
            ("transport", manifest.transport),
            ("load balancing", balancing),
            ("world", world + manifest.size_scale),
            ("traces", "; ".join(traces)),
            ("seed", str(manifest.seed)),
            ("versions", ", ".join(map(" ".join, manifest.versions.items()))),
        )
    )


def raw_files(folder: Path, files: Sequence[Path] | None = None) -> page.Section:
    """Return files of a folder with their digests; by default, all files."""
    rows = []
    for path in sorted(folder.rglob("*")) if files is None else files:
        if path.is_file() and path.suffix not in (".html", ".tmp"):
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = about_size(path.stat().st_size)
            rows.append((str(path.relative_to(folder)), digest, size))
    header = ("file", "SHA-256", "size")
    table = Table(title="Raw files", header=header, rows=tuple(rows), left=2)
    return page.Section(
        title="Raw files",
        text=f"All numbers on this page come from these files of {folder}.",
        blocks=(table,),
    )
