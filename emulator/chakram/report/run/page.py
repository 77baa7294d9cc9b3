"""The report page of one run, as ``chakram report RUN`` writes it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bokeh.models import Range1d

from chakram.analysis.run_causes import why_document
from chakram.console.number_format import MISSING, counted_text
from chakram.console.summary_document import summary_document
from chakram.diagnosis.verified_causes import Say, Verified
from chakram.foundation.units import about_size
from chakram.report import page
from chakram.report.blocks import facts, table
from chakram.report.column_arithmetic import percentiles
from chakram.report.run import bandwidth_and_fct, sections, traffic
from chakram.report.run.causes_and_faults import faults, why_section, with_faults
from chakram.report.run.data import RunData
from chakram.report.run.overview import UNTESTED, answer
from chakram.report.run.rows import ReportRow, line_rates, report_rows
from chakram.report.run.source_ports import source_ports
from chakram.report.run.timeline import gantt
from chakram.report.topology_page import topology_facts

if TYPE_CHECKING:
    from chakram.run_directory.reader import RunResults

_MOST_LISTED = 2_048
"""Maximum number of ranks, and of links, in the document of a page."""


def run_page(
    results: RunResults, *, budget_s: float = 0.0, say: Say = lambda _: None
) -> str:
    """Return the page of a run as HTML, as ``page_and_causes`` does."""
    return page_and_causes(results, budget_s=budget_s, say=say)[0]


def page_and_causes(
    results: RunResults, *, budget_s: float, say: Say
) -> tuple[str, Verified]:
    """Return the page of a run as HTML, and the tested causes.

    Args:
        results: Results of the run.
        budget_s: Budget for testing causes, as for ``verify``.  0: causes are
            not tested.
        say: Receives messages, for example the expected duration if it is long.

    Raises:
        RunDirectoryError: If the run directory cannot be read.
    """
    data = RunData(results)
    rows = report_rows(data)
    verified = UNTESTED
    if budget_s and not isinstance(data.why, str):
        # The modules that simulate are slow to import.
        from chakram.diagnosis.verification import verify

        verified = verify(results, data.why, budget_s=budget_s, say=say)
    # All plots over time share one time axis. If you pan one, the others follow.
    axis = Range1d(0, max(1.0, data.end_ns))
    fabric = [
        sections.device(data),
        traffic.uplinks(data),
        with_faults(data, traffic.nic_utilization(data, axis)),
    ]
    collectives = [
        sections.iterations(data, rows),
        sections.collectives(data, rows),
        bandwidth_and_fct.bandwidth(data, rows),
        sections.against_simulation(data, rows),
    ]
    flows = [
        bandwidth_and_fct.completion_times(data),
        traffic.slowest_flows(data),
        traffic.sessions(data),
    ]
    ranks = [
        sections.rank_times(data),
        with_faults(data, gantt(data, Range1d())),
        why_section(data),
    ]
    evidence = [
        sections.generator(data),
        source_ports(data),
        comparability(data, rows),
        raw_files(results.path),
    ]
    text = page.render_page(
        title=title_of(data),
        lead=lead_of(data),
        answer=answer(data, rows, verified),
        warnings=warnings_of(data),
        groups=[
            page.Group("Fabric and its loads", fabric, is_open=True),
            page.Group("Collectives", collectives, is_open=True),
            page.Group("Flows", flows),
            page.Group("Ranks and lost time", ranks),
            page.Group(
                "Queues, marks, retransmissions",
                [with_faults(data, traffic.congestion(data, axis))],
            ),
            page.Group("Faults", [faults(data)], is_open=bool(data.faults)),
            page.Group("Configuration, measurement, raw files", evidence),
        ],
        document=run_document(data, rows, verified),
        letters="vmf" if data.is_simulated else "bcmf",
    )
    return text, verified


def title_of(data: RunData) -> str:
    """Return the title of a run's page."""
    manifest = data.manifest
    kind = "Simulation" if data.is_simulated else "Run"
    return f"{kind} {manifest.name}" + (
        f", case {manifest.case}" if manifest.case else ""
    )


def lead_of(data: RunData) -> str:
    """Return the line below the title: what ran, where, when and with which scaling."""
    manifest = data.manifest
    texts = [
        manifest.fabric or manifest.world,
        f"{counted_text(len(data.summary.ranks), 'rank')}, "
        f"{counted_text(manifest.measured, 'measured iteration')} "
        f"after {manifest.warmup} of warm-up",
        *notes_of(data),
        f"{manifest.started_at[:16].replace('T', ' ')} UTC",
        f"run {manifest.run_id}",
    ]
    return " · ".join(texts)


def notes_of(data: RunData) -> list[str]:
    """Return notes on the scaling of times and sizes, empty if the run has none."""
    notes = []
    if data.dilation > 1:
        notes.append(
            f"time was stretched by {data.dilation}; times and rates are those of the "
            "fabric without stretching"
        )
    if data.manifest.size_scale != "1":
        notes.append(
            f"messages have {data.manifest.size_scale} of their size in the trace"
        )
    return notes


def run_document(
    data: RunData, rows: Sequence[ReportRow], verified: Verified = UNTESTED
) -> dict[str, Any]:
    """Return the numbers of ``chakram show`` and of the page, as plain values.

    If there are thousands of ranks or links, only those with the most exposed
    communication or bytes are included. ``report.left_out`` contains the numbers of
    omitted ranks and links.
    """
    why = data.why
    tested = verified.verdict, verified.reason
    summary = data.summary
    ranks = sorted(summary.ranks, key=lambda each: -each.exposed_ns)
    links = sorted(summary.links, key=lambda each: -each.bytes)
    if len(ranks) > _MOST_LISTED:
        summary = replace(summary, ranks=tuple(ranks[:_MOST_LISTED]))
    if len(links) > _MOST_LISTED:
        summary = replace(summary, links=tuple(links[:_MOST_LISTED]))
    return {
        **summary_document(summary),
        "why": None if isinstance(why, str) else why_document(why, *tested),
        "report": {
            "left_out": {
                "ranks": len(data.summary.ranks) - len(summary.ranks),
                "links": len(data.summary.links) - len(summary.links),
            },
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


def warnings_of(data: RunData) -> list[str]:
    """Return the run's banners, and warnings about losses and preflight findings."""
    summary = data.summary
    found = list(summary.banners)
    if summary.unfinished:
        found.append(f"{summary.unfinished} collectives were not finished")
    drops = sum(link.drops or 0 for link in summary.links)
    if drops:
        found.append(f"{drops} packets were dropped at links {data.seen('b')}")
    if summary.retransmitted:
        again = f"{summary.retransmitted} packets were retransmitted"
        found.append(f"{again} {data.seen('c')}")
    odd = data.manifest.preflight.get("findings", ())
    return [*found, *(f"preflight: {each.get('verdict', each)}" for each in odd)]


def _section(value: Any) -> Mapping[str, Any]:
    """Return a section of a recorded experiment, or an empty one if it is damaged."""
    return value if isinstance(value, dict) else {}


@page.section("Comparability", "f")
def comparability(data: RunData, rows: Sequence[ReportRow]) -> page.Parts:
    """Return the section of values that must be equal in two comparable runs."""
    manifest = data.manifest
    experiment = manifest.experiment
    places = []
    jobs = experiment.get("jobs")
    for each in jobs if isinstance(jobs, list) else ():
        job = _section(each)
        placement = _section(job.get("placement"))
        text = (
            f"{job.get('name')}: order {placement.get('order')}, pattern "
            f"{placement.get('pattern')}, {placement.get('ranks_per_port')} per port, "
            f"within hosts: {placement.get('same_host')}"
        )
        if placement.get("first_port") is not None:
            text += f", from port {placement['first_port']} on"
        if isinstance(ports := placement.get("ports"), list):
            text += f", of ports {' '.join(map(str, ports))}"
        places.append(text)
    transport = _section(experiment.get("transport"))
    pairs = _section(transport.get("queue_pairs"))
    switches = _section(_section(experiment.get("fabric")).get("switches"))
    balancing = (
        f"UDP source ports {transport.get('source_ports')}, queue pairs per "
        f"{pairs.get('per')} x {pairs.get('count')}, {pairs.get('split')}; equal-cost "
        f"paths by {switches.get('balancing') or 'hash'}"
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
    yield facts(
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


def raw_files(folder: Path, files: Sequence[Path] | None = None) -> page.Section:
    """Return the section of a folder's files, by default all of them, with digests."""
    rows = []
    for path in sorted(folder.rglob("*")) if files is None else files:
        if path.is_file() and path.suffix not in (".html", ".tmp"):
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = about_size(path.stat().st_size)
            rows.append((str(path.relative_to(folder)), digest, size))
    text = f"All numbers on this page come from these files of {folder}."
    blocks = (table("Raw files", "file | SHA-256 | size", rows, left=2),)
    return page.Section(title="Raw files", text=text, blocks=blocks)
