"""Sections of a run's page about the fabric, collectives, ranks and the generator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chakram.console.collective_tables import GENERATOR_BOUND_MARK
from chakram.console.number_format import MISSING, percent_text, variation_text
from chakram.foundation.units import about_size, format_time
from chakram.records.run_records import is_generator_bound
from chakram.report.blocks import facts, table
from chakram.report.page import Absent, Parts, Plot, section
from chakram.report.plots import Curve, curves, parts
from chakram.report.run.rows import RANK_PARTS, ReportRow, line_rates, time_or_missing
from chakram.report.topology_page import HOSTS_DRAWN, topology_facts, topology_plot
from chakram.telemetry.mapping import DESCRIBING, names_of

if TYPE_CHECKING:
    from chakram.report.run.data import RunData
    from chakram.run_directory.manifest import RunManifest
    from chakram.summary.generator_advice import KeepingUp
    from chakram.summary.generator_health import GeneratorSummary


_ROWS_SHOWN = 64


def switch_facts(manifest: RunManifest) -> list[tuple[str, str]]:
    """Return facts that the switches reported, and values that are unknown."""
    told: dict[str, list[str]] = {}
    for name, switch in manifest.switches.items():
        known = names_of(switch.get("facts", {}), DESCRIBING)
        text = ", ".join(f"{key} {known[key]}" for key in DESCRIBING if key in known)
        told.setdefault(text, []).append(name)
    share = "unknown: add them when you share this page"
    missing = "optics, buffers" if any(told) else "ASIC, NOS, optics, buffers"
    return [
        *((", ".join(names), f"{text} (b)") for text, names in told.items() if text),
        (missing, share),
    ]


@section("Device under test", "f", "b")
def device(data: RunData) -> Parts:
    """Return the section of the device under test and its topology."""
    manifest, topology = data.manifest, data.topology
    yield facts(
        ("device under test", manifest.fabric or MISSING),
        ("transport", manifest.transport or MISSING),
        *switch_facts(manifest),
        *topology_facts(topology),
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
    if len(topology.hosts) > HOSTS_DRAWN:
        caption += " A box represents all hosts of a switch; xN means N hosts."
    yield Plot(figure=plot, caption=caption)


@section("Iterations", "c")
def iterations(data: RunData, rows: Sequence[ReportRow]) -> Parts:
    """Return the section of iteration times, also relative to serial execution."""
    if not data.summary.iterations:
        raise Absent("nothing was measured.")
    found = []
    known = {each.job: each for each in data.rooflines}
    for each in data.summary.iterations:
        text = (
            f"{format_time(each.mean_ns)} per iteration, mean of {each.iterations} "
            f"(P50 {format_time(each.p50_ns)}, P99 {format_time(each.p99_ns)}"
            f"{variation_text(each.cv)})"
        )
        roofline = known.get(each.job)
        ratio = "unknown: ports have no rate" if roofline is None else MISSING
        if roofline is not None and roofline.ratio is not None:
            ratio = (
                f"{roofline.ratio:.3f}: over Roofline_seq (m) = compute "
                f"{format_time(roofline.compute_ns)} + 8 S algo_factor / B_acc "
                f"{format_time(roofline.communication_ns)}"
            )
        found += [(f"JCT of {each.job}", text), ("JCT ratio", ratio)]
    if rates := line_rates(rows):
        layer = "per accelerator, of layer-2 packets without preamble, FCS and gap"
        found.append(("line rate, B_acc (f)", f"{rates} {layer}"))
    yield facts(*found)


@section("Bandwidth and times", "c", "m")
def collectives(data: RunData, rows: Sequence[ReportRow]) -> Parts:
    """Return the section of collectives: bandwidths, and times compared with models."""
    if not rows:
        raise Absent("none was measured.")
    jobs = len({each.row.job for each in rows}) > 1
    names = [
        (f"{each.row.job}: {each.name}" if jobs else each.name)
        + GENERATOR_BOUND_MARK * bool(each.row.generator_bound)
        for each in rows
    ]
    waited = sum(each.row.generator_bound for each in rows)
    total = sum(each.row.time_ns * each.row.samples for each in rows)
    yield table(
        "Bandwidth",
        "collective | S (f) | S_fabric | N (f) | algo_factor (m) | n | mean time | "
        "CV % | busbw GB/s | per accelerator | % of rate | P01 GB/s | % of all time",
        (
            (
                *(name, *each.cells()),
                MISSING if not (p := each.percentiles_bps) else f"{p[0] / 8e9:.4g}",
                percent_text(each.row.time_ns * each.row.samples / (total or 1)),
            )
            for name, each in zip(names, rows, strict=True)
        ),
        note="S as in nccl-tests; S_fabric: payload that a rank's flows carry; n: "
        "collectives measured; CV: of their times; per accelerator: busbw in bits; % "
        "of rate: share of B_acc, of which headers also take a part; P01: slow end."
        + f" *: includes some of the {waited} collectives that waited for the "
        "generator for more than 5 % of their time." * bool(waited),
        limit=_ROWS_SHOWN,
    )
    models = table(
        "Times and models",
        "collective | S (f) | N (f) | time | simulated (m) | deviation % (m) | "
        "alone (m) | % of alone (m) | bound (m) | % of bound (m)",
        (
            (
                *(name, about_size(each.row.size_bytes), str(each.row.nranks)),
                *_models(each),
            )
            for name, each in zip(names, rows, strict=True)
        ),
        note="Deviation: measured over simulated time, minus 1. If paths or delays of "
        "hosts are unknown, simulated is the median of several simulations, and the "
        "deviation is that from their range. Alone: simulated "
        "without other traffic. Bound: the schedule cannot be faster.",
        limit=_ROWS_SHOWN,
    ).without_unknown()
    if len(models.header) > 4:
        yield models


def _models(each: ReportRow) -> tuple[str, ...]:
    row, found = each.row, each.row.predictions.get("simulate")
    return (
        format_time(row.time_ns),
        time_or_missing(found.time_ns if found else None),
        percent_text(found.deviation if found else None, sign="+"),
        time_or_missing(row.alone_ns),
        percent_text(row.alone_share),
        time_or_missing(row.bound_ns),
        percent_text(row.bound_share),
    )


@section("Measured against simulated", "c", "m")
def against_simulation(data: RunData, rows: Sequence[ReportRow]) -> Parts:
    """Return the section that plots measured times against simulated times."""
    if data.is_simulated:
        raise Absent("this run is itself a simulation.")
    points = sorted(
        (
            found.time_ns,
            each.row.time_ns,
            f"{each.name} {about_size(each.row.size_bytes)}",
        )
        for each in rows
        if (found := each.row.predictions.get("simulate"))
    )
    if not points:
        raise Absent("the run has no predictions (key predict).")
    xs, ys = np.array([point[:2] for point in points]).T
    text = [f"{name}: {format_time(time_ns)}" for _, time_ns, name in points]
    lines = {
        "measured": Curve(x=xs, y=ys, text=text),
        "as simulated": Curve(x=xs, y=xs),
    }
    title = "Mean time of each row, measured against simulated"
    labels = {"x_label": "simulated", "y_label": "measured"}
    look: dict[str, Any] = {
        "x": "ns",
        "y": "ns",
        "x_log": True,
        "y_log": True,
        **labels,
    }
    caption = "Points on the line 'as simulated' took exactly the simulated time."
    drawn = curves(lines, name="simulated", title=title, **look)
    yield Plot(figure=drawn, caption=caption)


@section("Generator, clocks and payload", "c")
def generator(data: RunData) -> Parts:
    """Return the section on whether the generator, not the network, limited the run."""
    summary = data.summary
    status = "status", summary.facts.status
    if data.is_simulated:
        none = "none: virtual time does not depend on this machine"
        clock = "clock bound", "0: one virtual clock"
        yield facts(status, ("generator", none), clock)
        return
    bound = f"{summary.generator_bound} of {summary.verdicts} collectives"
    if not summary.verdicts:
        verdict = "no collective was judged"
    elif summary.generator_bound:
        is_bound = is_generator_bound(summary.generator_wait_share)
        verdict = (
            f"{'GENERATOR-BOUND' if is_bound else 'kept up'}: {bound} waited for "
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
    found = [
        *(status, ("generator", verdict), *_health(summary.generator)),
        *summary.facts.nic_counters(),
        ("clock bound", clocks_text(data)),
        ("payload", payload if wrong.packets else "not checked"),
        ("samples lost", str(summary.facts.samples_dropped)),
    ]
    if summary.facts.nics:
        found = [each for each in found if each[0] != "drops at the generator"]
    if summary.keeping_up is not None:
        found.append(("would have kept up with", _remedy(summary.keeping_up)))
    yield facts(*found)


def clocks_text(data: RunData) -> str:
    """Return the accuracy of the agents' clock offsets as text."""
    uncertainty_ns = data.manifest.clock_uncertainty_ns / data.dilation
    if not uncertainty_ns:
        return "0: one clock for all ranks"
    readings = data.manifest.clocks.values()
    drift_ppm = max((abs(each.drift_ppm) for each in readings), default=0)
    text = f"offsets of the agents' clocks are known to {format_time(uncertainty_ns)}"
    if drift_ppm:
        text += f"; they drift by up to {drift_ppm:.2g} ppm"
    followed = [each for each in readings if each.wall_source]
    bounds_ns = [each.wall_bound_ns for each in followed if each.wall_bound_ns]
    if followed:
        names = " and ".join(sorted({str(each.wall_source) for each in followed}))
        text += f"; wall clocks of {len(followed)} agents follow {names}"
    if bounds_ns:
        text += f"; chrony bounds their error to {format_time(max(bounds_ns))}"
    stepped = [name for name, each in data.manifest.clocks.items() if each.steps]
    return f"{text}; set during the run: {', '.join(stepped)}" if stepped else text


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
    text = (
        f"pacing error P99 {time_or_missing(health.pacing_error_p99_ns)}, lag of its "
        f"loop P99 {time_or_missing(health.generator_lag_p99_ns)} (max "
        f"{format_time(health.generator_lag_max_ns)}), busiest process busy "
        f"{percent_text(health.busy_share)} %; round trips P50 "
        f"{time_or_missing(health.round_trip_p50_ns)}, P99 "
        f"{time_or_missing(health.round_trip_p99_ns)} (upper bounds)"
    )
    retries = f"{health.send_retries} failed sends"
    drops = f"{health.socket_drops} packets on arrival; {retries}"
    return [("generator health", text), ("drops at the generator", drops)]


@section("Compute, exposed communication, idle", "c")
def rank_times(data: RunData) -> Parts:
    """Return the section of compute, exposed communication and idle time of ranks."""
    ranks = [rank for rank in data.summary.ranks if rank.iteration_ns]
    if not ranks:
        raise Absent("no rank completed a measured iteration.")
    jobs = len({rank.job for rank in ranks}) > 1
    listed = ranks[:: -(-len(ranks) // 256)]
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
        names=[
            f"{each.job}:{each.rank}" if jobs else str(each.rank) for each in listed
        ],
        texts={kind: list(map(format_time, own)) for kind, own in times_ns.items()},
        name="rank-times",
        title="Time of an iteration by rank",
        x_label="rank",
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
