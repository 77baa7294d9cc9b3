"""Sections of a run's page about collectives and ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from chakram.console.number_format import MISSING, percent_text
from chakram.foundation.units import about_size, format_time
from chakram.records.run_records import is_generator_bound
from chakram.report.blocks import Facts, Table
from chakram.report.page import NO_FLOWS, Observed, Parts, Plot, section
from chakram.report.result_plots import Curve, Spans, curves, parts, spans
from chakram.report.run.rows import (
    BUSBW_PERCENTS,
    RANK_PARTS,
    ReportRow,
    line_rates,
    time_or_missing,
)
from chakram.report.topology_page import topology_facts, topology_plot

if TYPE_CHECKING:
    from bokeh.models import Range1d

    from chakram.report.run.data import RunData
    from chakram.summary.generator_advice import KeepingUp
    from chakram.summary.generator_health import GeneratorSummary


_ROWS_SHOWN = 64
_RANKS_SHOWN = 64
_BARS_SHOWN = 20_000


@section("Device under test", "f", "b")
def device(data: RunData) -> Parts:
    """Return the device under test and its topology."""
    manifest, topology = data.manifest, data.topology
    unknown = "unknown to Chakram: add them when you share this page"
    yield Facts(
        rows=(
            ("device under test", manifest.fabric or MISSING),
            ("transport", manifest.transport or MISSING),
            ("ASIC, NOS, optics, buffers", unknown),
            *topology_facts(topology),
        )
    )
    if isinstance(topology, str):
        yield f"No topology is drawn: {topology}."
        return
    loads: Counter[str] = Counter()
    for link in data.summary.links:
        loads[link.link] += link.bytes
    plot = topology_plot(topology, loads)
    if plot is None:
        yield "No topology is drawn: it has too many links."
        return
    caption = "The bytes of its links were not counted."
    if loads:
        caption = f"Bytes of links {data.seen('b')}, whole run, warm-up included."
    if len(topology.hosts) > _RANKS_SHOWN:
        caption += " A box represents all hosts of a switch; xN means N hosts."
    yield Plot(figure=plot, caption=caption)


@section("Headline", "c")
def headline(data: RunData, rows: Sequence[ReportRow]) -> Parts:
    """Return the JCT ratio, and bus bandwidth as a fraction of the line rate."""
    if not rows and not data.summary.iterations:
        yield "nothing was measured."
        return
    facts = []
    known = {each.job: each for each in data.rooflines}
    for iteration in data.summary.iterations:
        text = (
            f"{format_time(iteration.mean_ns)} per iteration, mean of "
            f"{iteration.iterations} (P50 {format_time(iteration.p50_ns)}, P99 "
            f"{format_time(iteration.p99_ns)}, CV {percent_text(iteration.cv)} %)"
        )
        roofline = known.get(iteration.job)
        ratio = "unknown: ports have no rate" if roofline is None else MISSING
        if roofline is not None and roofline.ratio is not None:
            ratio = (
                f"{roofline.ratio:.3f}: over Roofline_seq (m) = compute "
                f"{format_time(roofline.compute_ns)} + 8 S algo_factor / B_acc "
                f"{format_time(roofline.communication_ns)}"
            )
        facts += [(f"JCT of {iteration.job}", text), ("JCT ratio", ratio)]
    if rates := line_rates(rows):
        layer = "per accelerator, of layer-2 packets without preamble, FCS and gap"
        facts.append(("line rate, B_acc (f)", f"{rates} {layer}"))
    yield Facts(rows=tuple(facts))
    jobs = len({each.row.job for each in rows}) > 1
    yield Table(
        title="Headline",
        header=(
            *("collective", "S (f)", "S_fabric", "N (f)", "algo_factor (m)", "n"),
            *("mean time", "CV %", "busbw GB/s", "per accelerator", "% of rate"),
        ),
        rows=tuple(
            (f"{each.row.job}: {each.name}" if jobs else each.name, *each.cells())
            for each in rows
        ),
        note=(
            "S as in nccl-tests; S_fabric: payload that a rank's flows carry, mean "
            "over its ranks; N: ranks; algo_factor: busbw over algbw; n: collectives "
            "measured; CV: of their times; per accelerator: busbw in bits; % of rate: "
            "share of the line rate B_acc, of which headers also take a part."
        ),
    ).cut(_ROWS_SHOWN)


@section("Verdict", "c")
def generator(data: RunData) -> Parts:
    """Return generator and clock quality: whether the network limited the run."""
    summary = data.summary
    if data.is_simulated:
        yield Facts(
            rows=(
                ("status", summary.facts.status),
                ("generator", "none: virtual time does not depend on this machine"),
                ("clock bound", "0: one virtual clock"),
            )
        )
        return
    if not summary.verdicts:
        verdict = "no collective was judged"
    elif summary.generator_bound:
        is_bound = is_generator_bound(summary.generator_wait_share)
        verdict = (
            f"{'GENERATOR-BOUND' if is_bound else 'kept up'}: "
            f"{summary.generator_bound} of {summary.verdicts} collectives waited for "
            "the generator for more than 5 % of their time; those of one size for at "
            f"most {percent_text(summary.generator_wait_share)} % of their total time"
        )
    else:
        verdict = (
            f"kept up with all {summary.verdicts} collectives: none waited for it for "
            "more than 5 % of its time"
        )
    wrong = summary.facts.verification
    payload = f"{wrong.packets} packets checked, {wrong.wrong_payloads} wrong"
    rows = [
        ("status", summary.facts.status),
        ("generator", verdict),
        *_health(summary.generator),
        ("clock bound", clocks_text(data)),
        ("payload", payload if wrong.packets else "not checked"),
        ("samples lost", str(summary.facts.samples_dropped)),
    ]
    if summary.keeping_up is not None:
        rows.append(("would have kept up with", _remedy(summary.keeping_up)))
    yield Facts(rows=tuple(rows))


def clocks_text(data: RunData) -> str:
    """Return the accuracy of the agents' clock offsets as text."""
    uncertainty_ns = data.manifest.clock_uncertainty_ns / data.dilation
    if not uncertainty_ns:
        return "0: one clock for all ranks"
    return f"offsets of the agents' clocks are known to {format_time(uncertainty_ns)}"


def _remedy(found: KeepingUp) -> str:
    texts = []
    if found.slowdown == 1:
        return "a slower fabric would not help: check what else ran on this machine"
    if found.slowdown is not None:
        texts.append(f"rates lower by a factor of {found.slowdown:.3g}")
    if found.dilation is not None:
        texts.append(f"a dilation of {found.dilation}")
    return ", or ".join(texts) or "not known"


def _health(health: GeneratorSummary | None) -> list[tuple[str, str]]:
    if health is None:
        return [("generator health", "not recorded")]
    return [
        (
            "generator health",
            f"pacing error P99 {time_or_missing(health.pacing_error_p99_ns)}, lag of "
            f"its loop P99 {time_or_missing(health.generator_lag_p99_ns)} (max "
            f"{format_time(health.generator_lag_max_ns)}), busiest process busy "
            f"{percent_text(health.busy_share)} %; round trips P50 "
            f"{time_or_missing(health.round_trip_p50_ns)}, P99 "
            f"{time_or_missing(health.round_trip_p99_ns)} (upper bounds)",
        ),
        (
            "drops at the generator",
            f"{health.socket_drops} packets on arrival; {health.send_retries} failed "
            "sends",
        ),
    ]


@section("Compute, exposed communication, idle", "c")
def rank_times(data: RunData) -> Parts:
    """Return compute, exposed communication and idle time of the ranks."""
    ranks = [rank for rank in data.summary.ranks if rank.iteration_ns]
    if not ranks:
        yield "no rank completed a measured iteration."
        return
    jobs = len({rank.job for rank in ranks}) > 1
    listed = ranks[:: -(-len(ranks) // 256)]
    names = [f"{rank.job}:{rank.rank}" if jobs else str(rank.rank) for rank in listed]
    times_ns = {
        kind: [getattr(rank, name) for rank in listed]
        for kind, name in RANK_PARTS.items()
    }
    drawn = parts(
        {
            kind: [
                100 * time_ns / rank.iteration_ns
                for time_ns, rank in zip(own, listed, strict=True)
            ]
            for kind, own in times_ns.items()
        },
        names=names,
        texts={kind: list(map(format_time, own)) for kind, own in times_ns.items()},
        name="rank-times",
        title="Time of an iteration by rank",
        x_label="rank",
        colours=("#d62728", "#1f77b4", "#b8b8b8"),
    )
    total = sum(rank.iteration_ns for rank in ranks)
    shares = ", ".join(
        f"{kind} {percent_text(sum(getattr(rank, name) for rank in ranks) / total)} %"
        for kind, name in RANK_PARTS.items()
    )
    hidden_ns = sum(rank.communication_ns - rank.exposed_ns for rank in ranks)
    hidden = hidden_ns / max(1, sum(rank.communication_ns for rank in ranks))
    caption = (
        f"Mean over the measured iterations. All ranks together: {shares}; "
        f"{percent_text(hidden)} % of communication is hidden behind compute."
    )
    if len(listed) < len(ranks):
        caption += (
            f" {len(listed)} of {len(ranks)} ranks are drawn, evenly chosen; the "
            "shares include all ranks."
        )
    yield Plot(figure=drawn, caption=caption)


@section("Top collectives", "c", "m")
def top_collectives(data: RunData, rows: Sequence[ReportRow]) -> Parts:
    """Return the collectives that took the most time, compared with isolated ones."""
    if not rows:
        yield "none was measured."
        return
    total = sum(each.row.time_ns * each.row.samples for each in rows)
    ordered = sorted(rows, key=lambda each: -each.row.time_ns * each.row.samples)
    jobs = len({each.row.job for each in rows}) > 1
    cells = []
    for each in ordered[:10]:
        row = each.row
        tail = each.percentiles_bps
        alone = None
        if row.busbw and row.alone_ns:
            alone = row.busbw * row.time_ns / row.alone_ns
        cells.append(
            (
                f"{row.job}: {each.name}" if jobs else each.name,
                about_size(row.size_bytes),
                str(row.nranks),
                format_time(row.time_ns),
                percent_text(row.time_ns * row.samples / total if total else None),
                MISSING if row.busbw is None else f"{row.busbw / 1e9:.4g}",
                MISSING if tail is None else f"{tail[0] / 8e9:.4g}",
                MISSING if alone is None else f"{alone / 1e9:.4g}",
                MISSING if not row.alone_share else f"{row.alone_share:.3f}",
                time_or_missing(row.bound_ns),
                percent_text(row.bound_share),
            )
        )
    yield Table(
        title="Top collectives",
        header=(
            *("collective", "size (f)", "ranks (f)", "mean time", "% of all"),
            *("busbw GB/s", f"P{BUSBW_PERCENTS[0]:02}", "busbw alone (m)"),
            *("ratio (m)", "bound (m)", "% of bound (m)"),
        ),
        rows=tuple(cells),
        note=(
            "The ten rows with the largest total time. Ratio: bus bandwidth over the "
            "simulated bus bandwidth alone on the fabric. % of all: share of the time "
            "of all collectives, with overlap counted twice."
        ),
    ).without_unknown()


class _Bar(NamedTuple):
    """An activity of a rank, with its time and kind."""

    place: tuple[str, int]
    start_ns: float
    end_ns: float
    kind: str
    text: str


@section("Timeline of ranks")
def gantt(data: RunData, x_range: Range1d) -> Parts:
    """Return the activities of ranks in the slowest iteration and its critical path."""
    spans_of: dict[int, tuple[int, int]] = {}
    for rank in data.ranks:
        if rank.measured and (rank.job, rank.iteration) in data.whole_iterations:
            first, last = spans_of.get(rank.iteration, (rank.start_ns, rank.end_ns))
            spans_of[rank.iteration] = min(first, rank.start_ns), max(last, rank.end_ns)
    if not spans_of:
        yield "no rank completed a measured iteration."
        return
    slowest = max(spans_of, key=lambda each: spans_of[each][1] - spans_of[each][0])
    path = None if isinstance(data.why, str) else data.why.path
    bars = [] if path is None else _bars_of_operations(data, path.job)
    what = "from its start on the rank to its end there"
    if path is not None and bars:
        slowest = path.iteration
    else:
        bars, path = _bars_of_flows(data, slowest), None
        what = (
            "from the first message that a rank posted or that was sent to it, to the "
            "last one acknowledged"
        )
    if not bars:
        yield NO_FLOWS
        return
    x_range.start, x_range.end = map(data.undilated, spans_of[slowest])
    on_path = {} if path is None else {(path.job, each.rank): 0 for each in path.pieces}
    ranks = sorted({bar.place for bar in bars})
    evenly = ranks[:: -(-len(ranks) // _RANKS_SHOWN)]
    drawn = sorted(list(dict.fromkeys([*on_path, *evenly]))[:_RANKS_SHOWN])
    several = len({job for job, _ in ranks}) > 1
    names = {
        (job, rank): f"{job}:{rank}" if several else str(rank) for job, rank in drawn
    }
    chosen = sorted(
        (bar for bar in bars if bar.place in names),
        key=lambda bar: bar.start_ns - bar.end_ns,
    )
    kinds: dict[str, list[_Bar]] = {}
    for bar in chosen[:_BARS_SHOWN]:
        kinds.setdefault(bar.kind, []).append(bar)
    caption = f"Measured iteration {slowest}, the slowest; each bar: {what}."
    stretches = []
    if path is not None:
        caption += (
            f" Of job {path.job}. The red line is the critical path (m): what the end "
            "of the iteration had to wait for."
        )
        stretches = [
            (
                names[path.job, each.rank],
                data.undilated(each.start_ns),
                data.undilated(each.end_ns),
                f"{each.part}: {format_time(each.time_ns / data.dilation)}",
            )
            for each in path.pieces
            if (path.job, each.rank) in names
        ]
    if len(drawn) < len(ranks):
        caption += f" {len(drawn)} of {len(ranks)} ranks are drawn, those on the path "
        caption += "first, the others evenly chosen."
    if len(chosen) > _BARS_SHOWN:
        caption += f" The {_BARS_SHOWN} longest of {len(chosen)} bars are drawn."
    yield Observed(data.seen("c") if path is None else data.seen("c", "m"))
    figure = spans(
        {
            kind: Spans(
                rows=[names[bar.place] for bar in own],
                starts=[bar.start_ns for bar in own],
                ends=[bar.end_ns for bar in own],
                texts=[bar.text for bar in own],
            )
            for kind, own in sorted(kinds.items())
        },
        rows=list(names.values()),
        name="gantt",
        title="Activity of each rank",
        y_label="rank",
        x_range=x_range,
        path=stretches,
    )
    yield Plot(figure=figure, caption=caption)


def _bars_of_operations(data: RunData, job: str) -> list[_Bar]:
    ops = {
        (record.identity.key.group, record.identity.key.k): str(record.identity.op)
        for record in data.collectives
        if record.identity.key.job == job
    }
    bars = []
    for each in data.operations:
        kind = each.kind
        what = each.name
        if each.group is not None and each.k is not None:
            kind = ops.get((each.group, each.k), kind)
            what = f"{each.name}, {each.group} #{each.k}"
        took = format_time((each.end_ns - each.start_ns) / data.dilation)
        start_ns, end_ns = data.undilated(each.start_ns), data.undilated(each.end_ns)
        text = f"rank {each.rank}, {what}: {took}"
        bars.append(_Bar((job, each.rank), start_ns, end_ns, kind, text))
    return bars


def _bars_of_flows(data: RunData, iteration: int) -> list[_Bar]:
    flows = data.measured
    shares = data.shares(flows.where(flows["iteration"] == iteration))
    jobs, groups, ops = (flows.names[name] for name in ("job", "group", "collective"))
    bars = []
    for at in range(len(shares)):
        own = {name: int(column[at]) for name, column in shares.columns.items()}
        took = format_time(own["end_ns"] - own["start_ns"])
        text = (
            f"rank {own['rank']}, {groups[own['group']]} #{own['k']}: {took}, "
            f"{about_size(own['sent_bytes'])} sent"
        )
        place, kind = (str(jobs[own["job"]]), own["rank"]), str(ops[own["collective"]])
        times_ns = float(own["start_ns"]), float(own["end_ns"])
        bars.append(_Bar(place, *times_ns, kind, text))
    return bars


@section("Measured against simulated", "c", "m")
def against_simulation(data: RunData, rows: Sequence[ReportRow]) -> Parts:
    """Return measured times compared with models."""
    known = [
        each
        for each in rows
        if each.row.predictions or each.row.alone_ns or each.row.bound_ns
    ]
    if data.is_simulated:
        yield "this run is itself a simulation."
        return
    if not known:
        yield "the run has no predictions (key predict)."
        return
    cells = []
    points = []
    for each in known:
        row = each.row
        found = row.predictions.get("simulate")
        cells.append(
            (
                each.name,
                about_size(row.size_bytes),
                str(row.nranks),
                format_time(row.time_ns),
                time_or_missing(found.time_ns if found else None),
                percent_text(found.deviation if found else None, sign="+"),
                time_or_missing(row.alone_ns),
                percent_text(row.alone_share),
                time_or_missing(row.bound_ns),
                percent_text(row.bound_share),
            )
        )
        if found is not None:
            points.append((found.time_ns, row.time_ns))
    yield Table(
        title="Measured against simulated",
        header=(
            *("collective", "size (f)", "ranks (f)", "measured", "simulated (m)"),
            *("deviation % (m)", "alone (m)", "% of alone (m)", "bound (m)"),
            "% of bound (m)",
        ),
        rows=tuple(cells),
        note=(
            "Deviation: measured over simulated time, minus 1. If paths were drawn at "
            "random, it is the deviation from the range of the draws."
        ),
    ).cut(_ROWS_SHOWN)
    if points:
        order = np.argsort([simulated for simulated, _ in points])
        xs, ys = np.array(points)[order].T
        text = [f"{cells[at][0]} {cells[at][1]}: {cells[at][3]}" for at in order]
        drawn = curves(
            {
                "measured": Curve(x=xs, y=ys, text=text),
                "as simulated": Curve(x=xs, y=xs),
            },
            name="simulated",
            title="Mean time of each row, measured against simulated",
            x="ns",
            y="ns",
            x_label="simulated",
            y_label="measured",
            x_log=True,
            y_log=True,
        )
        caption = "Points on the line 'as simulated' took exactly the simulated time."
        yield Plot(figure=drawn, caption=caption)
