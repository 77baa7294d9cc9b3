"""The page of a run in the eight sections of BMWG's drafts on AI fabrics.

Source: individual Internet-Drafts of BMWG on benchmarking AI fabrics (terminology,
training and inference), versions -05.  They allow no verdict, so there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chakram.observe.number_format import MISSING, percent_text
from chakram.observe.queue_exports import pause_events
from chakram.observe.report.blocks import Facts, Table
from chakram.observe.report.columns import percentiles
from chakram.observe.report.links_over_time import links_over_time
from chakram.observe.report.page import Section, render_page
from chakram.observe.report.run_curves import completion_times
from chakram.observe.report.run_data import RunData
from chakram.observe.report.run_page import (
    anomalies,
    comparability,
    notes_of,
    raw_files,
    run_document,
    title_of,
)
from chakram.observe.report.run_rows import (
    BUSBW_PERCENTS,
    ReportRow,
    report_rows,
    time_or_missing,
)
from chakram.observe.report.run_sections import clocks_text, device
from chakram.observe.report.topology_page import topology_facts
from chakram.units import about_size, format_rate, format_time

if TYPE_CHECKING:
    from chakram.observe.run_results import RunResults


_TRIAL_NS, _WARMUP_NS, _ITERATIONS, _CV = 60 * 10**9, 10 * 10**9, 100, 0.05


def bmwg_page(results: RunResults) -> str:
    """Return the page as HTML.

    Raises:
        RunDirectoryError: If its directory cannot be read.
    """
    data = RunData(results)
    rows = report_rows(data)
    drawn = device(data)
    sections = [
        Section(
            title="1. Identification of the device under test",
            observed=data.seen("f"),
            blocks=(drawn.blocks[0],),
        ),
        Section(
            title="2. Topology",
            text=drawn.text,
            observed=drawn.observed,
            blocks=drawn.blocks[1:]
            or (Facts(rows=tuple(topology_facts(data.topology))),),
        ),
        _configuration(data, rows),
        _hosts(data),
        *_results(data, rows),
        _numbered(6, anomalies(data)),
        _repeatability(data, rows),
        _numbered(8, comparability(data, rows)),
        raw_files(results.path),
    ]
    return render_page(
        title=f"{title_of(data)}: BMWG report",
        lead="In the order of the drafts -05. They set no limits, and this page holds "
        "no verdict.",
        notes=notes_of(data),
        banners=data.summary.banners,
        sections=sections,
        document=run_document(data, rows),
    )


def _numbered(number: int, section: Section) -> Section:
    return Section(
        title=f"{number}. {section.title}",
        text=section.text,
        observed=section.observed,
        blocks=section.blocks or (Facts(rows=(("", section.text),)),),
    )


def deviations(data: RunData, rows: Sequence[ReportRow]) -> list[tuple[str, str]]:
    """Return what the drafts ask for and this run does not have, with what it has."""
    manifest = data.manifest
    spans: dict[bool, tuple[int, int]] = {}
    for rank in data.ranks:
        first, last = spans.get(rank.measured, (rank.start_ns, rank.end_ns))
        spans[rank.measured] = min(first, rank.start_ns), max(last, rank.end_ns)
    times_ns = {
        measured: (last - first) / data.dilation
        for measured, (first, last) in spans.items()
    }
    least = min((each.row.samples for each in rows), default=0)
    found = []
    if times_ns.get(True, 0) < _TRIAL_NS:
        took = format_time(times_ns.get(True, 0))
        found.append(("trial of 60 s at least", f"measured for {took}"))
    if times_ns.get(False, 0) < _WARMUP_NS:
        took = format_time(times_ns.get(False, 0))
        found.append(("warm-up of 10 s at least", f"warm-up of {took}"))
    if least < _ITERATIONS:
        found.append(
            ("100 iterations at least", f"the row with fewest has {least} collectives")
        )
    found.append(("20 repetitions, pooled", "one run"))
    found.append(
        (
            "observation point (a), a test instrument",
            "none: Chakram is an endpoint; values are of (b), (c) or (v)",
        )
    )
    if data.is_simulated:
        found.append(("a device under test", "simulated switches, in virtual time"))
    else:
        if manifest.world != "external":
            found.append(
                (
                    "a device under test",
                    f"the kernel of this machine ({manifest.world})",
                )
            )
        health = data.summary.generator
        late_ns = None if health is None else health.pacing_error_p99_ns
        found.append(
            (
                "time stamps to 100 ns, rates to 0.1 %",
                f"software: clocks {clocks_text(data)}; pacing error P99 "
                f"{time_or_missing(late_ns)}",
            )
        )
    if data.dilation > 1:
        found.append(("real time", f"stretched by {data.dilation}, and divided by it"))
    if manifest.size_scale != "1":
        found.append(("sizes of the workload", f"scaled by {manifest.size_scale}"))
    unseen = "health of the device"
    if isinstance(links_over_time(data), str):
        unseen = f"pause events, queue depths, {unseen}"
    found.append((unseen, "not in the records of this run: read it from the device"))
    sizes = len({each.row.size_bytes for each in rows})
    found.append(
        ("matrix of sizes and N", f"{sizes} sizes of the trace that was replayed")
    )
    return found


def _configuration(data: RunData, rows: Sequence[ReportRow]) -> Section:
    manifest = data.manifest
    orders = sorted({str(job.get("order")) for job in manifest.jobs.values()})
    facts = Facts(
        rows=(
            ("experiment", manifest.name),
            (
                "workload",
                "; ".join(
                    f"{job}: {each.get('trace')}, made by {each.get('producer')}"
                    for job, each in manifest.traces.items()
                )
                or MISSING,
            ),
            ("iterations", f"{manifest.measured} after {manifest.warmup} of warm-up"),
            ("transport", manifest.transport),
            (
                "barriers",
                f"between iterations: {manifest.sync}; those of the trace: replayed",
            ),
            ("driven by", f"the trace's {', '.join(orders) or 'dependencies'}"),
            ("stragglers", "those of the trace and of the endpoints; none is modelled"),
            (
                "generator",
                f"Chakram {manifest.versions.get('chakram', MISSING)}, software",
            ),
        )
    )
    table = Table(
        title="Deviations from the drafts",
        header=("the drafts want", "this run has"),
        rows=tuple(deviations(data, rows)),
        left=2,
    )
    return Section(
        title="3. Test configuration", observed=data.seen("f"), blocks=(facts, table)
    )


def _hosts(data: RunData) -> Section:
    host, manifest = data.manifest.host, data.manifest
    return Section(
        title="4. Host configuration",
        text="Of the controller's machine"
        + (
            "."
            if manifest.world != "external"
            else "; hosts of agents are not recorded."
        ),
        blocks=(
            Facts(
                rows=(
                    (
                        "CPU",
                        f"{host.get('cpu_model')}, {host.get('usable_cores')} cores",
                    ),
                    ("memory", about_size(host.get("memory_bytes") or 0)),
                    (
                        "socket buffers",
                        f"receive {host.get('rmem_max_bytes')} B, send "
                        f"{host.get('wmem_max_bytes')} B at most",
                    ),
                    ("kernel", manifest.versions.get("kernel", MISSING)),
                    ("Python", manifest.versions.get("python", MISSING)),
                    ("accelerators", "none: compute is a delay"),
                )
            ),
        ),
    )


def _results(data: RunData, rows: Sequence[ReportRow]) -> list[Section]:
    cells = []
    for each in rows:
        tail = each.percentiles_bps
        if tail is None or each.busbw_bps is None:
            continue
        cells.append(
            (
                str(each.row.op),
                each.row.algorithm,
                about_size(each.row.size_bytes),
                about_size(round(each.fabric_bytes)),
                str(each.row.nranks),
                f"{each.factor:.4g}",
                *(f"{value / 1e9:.4g}" for value in (each.busbw_bps, *tail)),
                percent_text(each.share),
            )
        )
    facts = []
    for roofline in data.rooflines:
        ratio = MISSING if roofline.ratio is None else f"{roofline.ratio:.3f}"
        facts += [
            (
                f"JCT of {roofline.job}",
                f"{format_time(roofline.iteration_ns)} per iteration",
            ),
            (
                "JCT ratio",
                f"{ratio} (compute {format_time(roofline.compute_ns)}, communication "
                f"at line rate {format_time(roofline.communication_ns)})",
            ),
        ]
    for job in dict.fromkeys(rank.job for rank in data.summary.ranks):
        ranks = [rank for rank in data.summary.ranks if rank.job == job]
        communication = sum(rank.communication_ns for rank in ranks)
        exposed = sum(rank.exposed_ns for rank in ranks)
        if communication:
            share = percent_text(1 - exposed / communication)
            facts.append((f"overlap fraction of {job}", f"{share} %"))
    summary = data.summary
    # Without the counters of queue pairs, packets are those of measured iterations:
    # neither the time nor the drops of the whole run belong to them.
    is_whole = summary.traffic is not None and data.end_ns
    drops = sum(link.drops or 0 for link in summary.links)
    facts += [
        ("ECN ratio", _part(summary.marked, summary.packets)),
        (
            "retransmissions",
            f"{summary.retransmitted} packets, "
            f"{summary.retransmitted / (data.end_ns / 1e9):.3g} per second"
            if is_whole
            else f"{summary.retransmitted} packets of measured iterations",
        ),
        (
            "drops",
            MISSING
            if not summary.links or any(link.drops is None for link in summary.links)
            else f"{drops} packets {data.seen('b')}, "
            f"{1e6 * drops / max(1, summary.packets):.3g} ppm"
            if is_whole
            else f"{drops} packets {data.seen('b')}",
        ),
        *_switches(data),
        (
            "link balance",
            MISSING
            if summary.uplinks is None
            else f"MMR {summary.uplinks.max_over_mean:.3f}, JFI "
            f"{summary.uplinks.jain:.4f} {data.seen('b')}",
        ),
    ]
    rates = sorted({rate for each in rows if (rate := each.line_rate_bps)})
    facts.append(
        (
            "B_acc",
            ", ".join(map(format_rate, rates)) + " of layer 2" if rates else MISSING,
        )
    )
    section = Section(
        title="5. Results",
        observed=data.seen("c"),
        blocks=(
            Facts(rows=tuple(facts)),
            Table(
                title="Bus bandwidth per accelerator, Gb/s",
                header=(
                    *("collective", "algorithm (verified)", "S", "S_fabric", "N"),
                    *("algo_factor", "mean"),
                    *(f"P{percent:02}" for percent in BUSBW_PERCENTS),
                    "% of B_acc",
                ),
                rows=tuple(cells),
                left=2,
                note="Verified: schedules are executed symbolically, ours in tests, "
                "others before they run. Mean: of the mean time. Percentiles: nearest "
                "rank, of the bus bandwidths of single collectives; P01 is the slow "
                "end.",
            ),
        ),
    )
    flows = completion_times(data)
    return [section, flows] if flows.blocks else [section]


def _switches(data: RunData) -> list[tuple[str, str]]:
    """Return pauses and queues of the fabric, where samples of its links say."""
    links = links_over_time(data)
    if isinstance(links, str):
        return [("PFC pause events, queues", f"{MISSING}: {links}")]
    events = sum(each.pauses for each in pause_events(data.results))
    rested_ns = sum(link.paused_ns or 0 for link in data.summary.links) / data.dilation
    hosts = {
        link.port
        for link in data.summary.links
        if (link.kind, link.direction) == ("host", "up")
    }
    highest = links.queue_max_bytes.max(axis=1)
    highest[[port in hosts for port in links.ports]] = 0
    at = int(highest.argmax())
    p95 = percentiles(links.queue_max_bytes[at], (95,))[0]
    return [
        (
            "PFC pause events of non-zero quanta",
            f"{events} {data.seen('b')}, {format_time(rested_ns)} in all, over ports "
            "and classes; of several between two samples one counts",
        ),
        (
            "longest queue of a switch",
            f"{about_size(int(highest[at]))} at {links.ports[at]} {data.seen('b')}, "
            f"P95 over time {about_size(round(p95))}",
        ),
    ]


def _repeatability(data: RunData, rows: Sequence[ReportRow]) -> Section:
    cells = [
        (
            f"JCT of {each.job}",
            str(each.iterations),
            format_time(each.mean_ns),
            percent_text(each.cv),
        )
        for each in data.summary.iterations
    ]
    cells += [
        (
            f"{each.name}, {about_size(each.row.size_bytes)}, N {each.row.nranks}",
            str(each.row.samples),
            format_time(each.row.time_ns),
            percent_text(each.row.cv),
        )
        for each in rows
    ]
    return Section(
        title="7. Repeatability",
        observed=data.seen("c"),
        blocks=(
            Table(
                title="7. Repeatability",
                header=("what", "n", "mean", "CV %"),
                rows=tuple(cells),
                note=f"The drafts name a CV of {100 * _CV:.0f} % as an illustration; "
                "within one run, not of repeated runs.",
            ),
        ),
    )


def _part(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3f} % of data packets" if whole else MISSING
