"""Report page of a run, in the eight sections that the BMWG drafts require.

Source: the individual BMWG Internet-Drafts on benchmarking AI fabrics (terminology,
training and inference), versions -05. The drafts do not allow a verdict, so the page
has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from chakram.console.number_format import MISSING, percent_text
from chakram.foundation.errors import ResultsError
from chakram.foundation.units import about_size, format_time
from chakram.report.blocks import facts, table
from chakram.report.column_arithmetic import percentiles
from chakram.report.page import Parts, Section, render_page, section
from chakram.report.run import rows as run_rows
from chakram.report.run.bandwidth_and_fct import completion_times
from chakram.report.run.data import RunData
from chakram.report.run.links_over_time import links_over_time
from chakram.report.run.page import (
    comparability,
    lead_of,
    raw_files,
    run_document,
    title_of,
    warnings_of,
)
from chakram.report.run.sections import clocks_text, device
from chakram.report.topology_page import topology_facts
from chakram.run_directory.record_exports import pause_events

if TYPE_CHECKING:
    from chakram.run_directory.reader import RunResults


_TRIAL_NS, _WARMUP_NS, _ITERATIONS, _CV = 60 * 10**9, 10 * 10**9, 100, 0.05


def bmwg_page(results: RunResults) -> str:
    """Return the page as HTML.

    Raises:
        RunDirectoryError: If the run directory cannot be read.
    """
    data = RunData(results)
    rows = run_rows.report_rows(data)
    drawn = device(data)
    known = facts(*topology_facts(data.topology))
    found = warnings_of(data) or ["none"]
    anomalies = facts(*((str(number), text) for number, text in enumerate(found, 1)))
    groups = [
        Section(
            title="1. Identification of the device under test",
            observed=data.seen("f"),
            blocks=drawn.blocks[:1],
        ),
        replace(drawn, title="2. Topology", blocks=drawn.blocks[1:] or (known,)),
        _configuration(data, rows),
        _hosts(data),
        _results(data, rows),
        *(flows for flows in (completion_times(data),) if flows.blocks),
        Section(title="6. Anomalies", blocks=(anomalies,)),
        _repeatability(data, rows),
        replace(comparability(data, rows), title="8. Comparability"),
        raw_files(results.path),
    ]
    return render_page(
        title=f"{title_of(data)}: BMWG report",
        lead=f"In the order of the drafts -05, without a verdict · {lead_of(data)}",
        groups=groups,
        document=run_document(data, rows),
        letters="vmf" if data.is_simulated else "bcmf",
    )


def deviations(
    data: RunData, rows: Sequence[run_rows.ReportRow]
) -> list[tuple[str, str]]:
    """Return the draft requirements that the run misses, each with what the run did."""
    manifest = data.manifest
    found = []
    for measured, least_ns, wanted, did in (
        (True, _TRIAL_NS, "trial of at least 60 s", "measured for"),
        (False, _WARMUP_NS, "warm-up of at least 10 s", "warm-up of"),
    ):
        ranks = [rank for rank in data.ranks if rank.measured == measured]
        first_ns = min((rank.start_ns for rank in ranks), default=0)
        last_ns = max((rank.end_ns for rank in ranks), default=0)
        took_ns = (last_ns - first_ns) / data.dilation
        if took_ns < least_ns:
            found.append((wanted, f"{did} {format_time(took_ns)}"))
    least = min((each.row.samples for each in rows), default=0)
    if least < _ITERATIONS:
        fewest = f"{least} collectives in the row with the fewest"
        found.append(("at least 100 iterations", fewest))
    instrument = "none: Chakram is an endpoint; values come from (b), (c) or (v)"
    found += [
        ("20 repetitions, pooled", "one run"),
        ("observation point (a), a test instrument", instrument),
    ]
    if data.is_simulated:
        found.append(("a device under test", "simulated switches, in virtual time"))
    else:
        if manifest.world != "external":
            kernel = f"the kernel of this machine ({manifest.world})"
            found.append(("a device under test", kernel))
        health = data.summary.generator
        late_ns = None if health is None else health.pacing_error_p99_ns
        stamps = f"software: clocks {clocks_text(data)}; pacing error P99 "
        stamps += run_rows.time_or_missing(late_ns)
        found.append(("time stamps to 100 ns, rates to 0.1 %", stamps))
    if data.dilation > 1:
        found.append(
            ("real time", f"stretched by {data.dilation}; values are divided by it")
        )
    if manifest.size_scale != "1":
        found.append(("sizes of the workload", f"scaled by {manifest.size_scale}"))
    unseen = "health of the device"
    if isinstance(links_over_time(data), str):
        unseen = f"pause events, queue depths, {unseen}"
    sizes = len({each.row.size_bytes for each in rows})
    return [
        *found,
        (unseen, "not in the records of this run: read it from the device"),
        ("matrix of sizes and N", f"{sizes} sizes in the replayed trace"),
    ]


@section("3. Test configuration", "f")
def _configuration(data: RunData, rows: Sequence[run_rows.ReportRow]) -> Parts:
    manifest = data.manifest
    orders = sorted({str(job.get("order")) for job in manifest.jobs.values()})
    traces = [
        f"{job}: {each.get('trace')}, produced by {each.get('producer')}"
        for job, each in manifest.traces.items()
    ]
    version = manifest.versions.get("chakram", MISSING)
    barriers = f"between iterations: {manifest.sync}; those of the trace: replayed"
    yield facts(
        ("experiment", manifest.name),
        ("workload", "; ".join(traces) or MISSING),
        ("iterations", f"{manifest.measured} after {manifest.warmup} of warm-up"),
        ("transport", manifest.transport),
        ("barriers", barriers),
        ("driven by", f"the trace's {', '.join(orders) or 'dependencies'}"),
        ("stragglers", "those of the trace and of the endpoints; none is modeled"),
        ("generator", f"Chakram {version}, software"),
    )
    unmet = deviations(data, rows)
    header = "required by the drafts | this run"
    yield table("Deviations from the drafts", header, unmet, left=2)


@section("4. Host configuration")
def _hosts(data: RunData) -> Parts:
    host, manifest = data.manifest.host, data.manifest
    others = "; hosts of agents are not recorded" * (manifest.world == "external")
    yield f"Data of the controller's machine{others}."

    def known(name: str, unit: str = "") -> str:
        value = host.get(name)
        return MISSING if value is None else f"{value}{unit}"

    memory_bytes = host.get("memory_bytes")
    buffers = (
        f"receive at most {known('rmem_max_bytes', ' B')}, send at most "
        f"{known('wmem_max_bytes', ' B')}"
    )
    yield facts(
        ("CPU", f"{known('cpu_model')}, {known('usable_cores')} cores"),
        ("memory", about_size(memory_bytes) if memory_bytes else MISSING),
        ("socket buffers", buffers),
        ("kernel", manifest.versions.get("kernel", MISSING)),
        ("Python", manifest.versions.get("python", MISSING)),
        ("accelerators", "none: compute is a delay"),
    )


@section("5. Results", "c")
def _results(data: RunData, rows: Sequence[run_rows.ReportRow]) -> Parts:
    found = []
    for roofline in data.rooflines:
        took = f"{format_time(roofline.iteration_ns)} per iteration"
        ratio = MISSING if roofline.ratio is None else f"{roofline.ratio:.3f}"
        ratio += (
            f" (compute {format_time(roofline.compute_ns)}, communication "
            f"at line rate {format_time(roofline.communication_ns)})"
        )
        found += [(f"JCT of {roofline.job}", took), ("JCT ratio", ratio)]
    for job in dict.fromkeys(rank.job for rank in data.summary.ranks):
        ranks = [rank for rank in data.summary.ranks if rank.job == job]
        communication = sum(rank.communication_ns for rank in ranks)
        exposed = sum(rank.exposed_ns for rank in ranks)
        if communication:
            share = percent_text(1 - exposed / communication)
            found.append((f"overlap fraction of {job}", f"{share} %"))
    summary = data.summary
    # The packet counts cover only measured iterations if there are no queue pair
    # counters. Do not relate them to the time or the drops of the whole run then.
    is_whole = summary.traffic is not None and data.end_ns
    seen = data.seen("b")
    marks = again = drops = balance = MISSING
    if summary.packets:
        marks = f"{100 * summary.marked / summary.packets:.3f} % of data packets"
    if not summary.facts.nics:
        again = f"{summary.retransmitted} packets"
        if is_whole:
            again += f", {summary.retransmitted / (data.end_ns / 1e9):.3g} per second"
        else:
            again += " of measured iterations"
    if summary.links and all(link.drops is not None for link in summary.links):
        dropped = sum(link.drops or 0 for link in summary.links)
        drops = f"{dropped} packets {seen}"
        if is_whole:
            drops += f", {1e6 * dropped / max(1, summary.packets):.3g} ppm"
    if summary.uplinks is not None:
        balance = f"MMR {summary.uplinks.max_over_mean:.3f}, JFI "
        balance += f"{summary.uplinks.jain:.4f} {seen}"
    rates = run_rows.line_rates(rows)
    yield facts(
        *(*found, ("ECN ratio", marks), ("retransmissions", again), ("drops", drops)),
        *(*_switches(data), ("link balance", balance)),
        ("B_acc", f"{rates} of layer 2" if rates else MISSING),
    )
    names = " | ".join(f"P{percent:02}" for percent in run_rows.BUSBW_PERCENTS)
    yield table(
        "Bus bandwidth per accelerator, Gb/s",
        "collective | algorithm (verified) | S | S_fabric | N | algo_factor | mean | "
        f"{names} | % of B_acc",
        (
            (
                str(each.row.op),
                each.row.algorithm,
                *each.cells()[:4],
                *(f"{v / 1e9:.4g}" for v in (each.busbw_bps, *each.percentiles_bps)),
                percent_text(each.share),
            )
            for each in rows
            if each.percentiles_bps is not None and each.busbw_bps is not None
        ),
        left=2,
        note="Verified: schedules are executed symbolically, built-in ones in tests, "
        "others before they run. Mean: bus bandwidth of the mean time. Percentiles: "
        "nearest rank over the bus bandwidths of single collectives; P01 is the slow "
        "end.",
    )


def _switches(data: RunData) -> list[tuple[str, str]]:
    """Return pauses and queues of the fabric, from link samples."""
    links = links_over_time(data)
    if isinstance(links, str):
        return [("PFC pause events, queues", f"{MISSING}: {links}")]
    if "paused_ns" in links.counted:
        pauses = _pauses(data)
    elif "pauses" in links.counted:
        frames = sum(link.pauses or 0 for link in data.summary.links)
        pauses = f"{frames} frames {data.seen('b')}, which include those of zero quanta"
    else:
        pauses = f"{MISSING}: the switches do not report them"
    hosts = {
        link.port
        for link in data.summary.links
        if (link.kind, link.direction) == ("host", "up")
    }
    highest = links.queue_max_bytes.max(axis=1)
    highest[[port in hosts for port in links.ports]] = 0
    at = int(highest.argmax())
    p95 = percentiles(links.queue_max_bytes[at], (95,))[0]
    longest = (
        f"{about_size(int(highest[at]))} at {links.ports[at]} {data.seen('b')}, "
        f"P95 over time {about_size(round(p95))}"
    )
    if "queue_max_bytes" not in links.counted:
        longest = f"{MISSING}: the switches do not report it"
    return [
        ("PFC pause events with non-zero quanta", pauses),
        ("longest queue of a switch", longest),
    ]


def _pauses(data: RunData) -> str:
    """Return the number of pauses and their total time, as text."""
    try:
        events = sum(each.pauses for each in pause_events(data.results))
    except ResultsError as error:
        return f"{MISSING}: the run {error.found}"
    rested_ns = sum(link.paused_ns or 0 for link in data.summary.links)
    return (
        f"{events} {data.seen('b')}, {format_time(rested_ns)} in total over "
        "ports and classes; several between two samples count as one"
    )


@section("7. Repeatability", "c")
def _repeatability(data: RunData, rows: Sequence[run_rows.ReportRow]) -> Parts:
    cells = [
        (f"JCT of {each.job}", each.iterations, each.mean_ns, each.cv)
        for each in data.summary.iterations
    ]
    for each in rows:
        row = each.row
        what = f"{each.name}, {about_size(row.size_bytes)}, N {row.nranks}"
        cells.append((what, row.samples, row.time_ns, row.cv))
    yield table(
        "7. Repeatability",
        "what | n | mean | CV %",
        (
            (what, str(count), format_time(mean_ns), percent_text(cv))
            for what, count, mean_ns, cv in cells
        ),
        note=f"The drafts give a CV of {100 * _CV:.0f} % as an illustration. These are "
        "CVs within one run, not over repeated runs.",
    )
