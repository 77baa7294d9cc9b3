"""Sections with curves on a run's page: bandwidth by size, completion times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from chakram.console.number_format import MISSING
from chakram.foundation.units import about_size, format_rate, format_time
from chakram.report.blocks import Table, table
from chakram.report.column_arithmetic import cdf_points, percentiles
from chakram.report.figure_elements import WHOLE
from chakram.report.page import NO_BANDWIDTHS, NO_FLOWS, Absent, Parts, Plot, section
from chakram.report.plots import Curve, curves

if TYPE_CHECKING:
    from chakram.report.run.data import RunData
    from chakram.report.run.flows import Flows
    from chakram.report.run.rows import ReportRow


_SIZES_SHOWN = 64

BANDWIDTH: Final[dict[str, Any]] = {
    "name": "busbw",
    "title": "Bus bandwidth against S; whiskers: P01 to P99",
    "x": "bytes",
    "y": "bit/s",
    "x_label": "S as in nccl-tests",
    "y_label": "bus bandwidth per accelerator",
    "x_log": True,
    "width": WHOLE,
    "height": 380,
}
COMPLETION: Final[dict[str, Any]] = {
    "name": "fct-cdf",
    "title": "Flow completion times",
    "x": "ns",
    "y": "%",
    "x_label": "posted to last byte acknowledged",
    "y_label": "cumulative share of flows",
    "x_log": True,
    "steps": True,
}
"""Properties of the figures of bus bandwidth by size and of completion times."""


@section("Bus bandwidth by size", "c")
def bandwidth(data: RunData, rows: Sequence[ReportRow]) -> Parts:
    """Return the section of bus bandwidth by size."""
    lines = bandwidth_lines(rows)
    if not lines:
        raise Absent(NO_BANDWIDTHS)
    rates = {rate for each in rows if (rate := each.line_rate_bps)}
    levels = {}
    if len(rates) == 1 and data.payload_share is not None:
        rate = rates.pop()
        levels = {
            f"- - line rate {format_rate(rate)}": rate,
            f"··· payload {100 * data.payload_share:.1f} %": rate * data.payload_share,
        }
    yield Plot(
        figure=curves(lines, **BANDWIDTH, levels=levels),
        caption=(
            "Points: bus bandwidth of the mean time, over all collectives of a size. "
            "Dashed line: line rate of layer 2 (f); dotted line: its payload (m)."
        ),
    )


def bandwidth_lines(rows: Sequence[ReportRow], prefix: str = "") -> dict[str, Curve]:
    """Return curves of busbw by size, per collective, algorithm and number of ranks."""
    found: dict[str, list[ReportRow]] = {}
    for each in rows:
        if each.busbw_bps is not None:
            key = f"{prefix}{each.name}, N={each.row.nranks}"
            found.setdefault(key, []).append(each)
    lines = {}
    for name, own in found.items():
        own.sort(key=lambda each: each.row.size_bytes)
        whiskers = [each.percentiles_bps or (0.0,) * 4 for each in own]
        lines[name] = Curve(
            x=[each.row.size_bytes for each in own],
            y=[each.busbw_bps or 0.0 for each in own],
            low=[each[0] for each in whiskers],
            high=[each[-1] for each in whiskers],
            text=[
                f"{about_size(each.row.size_bytes)}: {format_rate(each.busbw_bps or 0)}"
                f", n={each.row.samples}"
                for each in own
            ],
        )
    return lines


def fct_curves(flows: Flows, prefix: str = "") -> dict[str, Curve]:
    """Return the cumulative distribution of completion times for each collective."""
    lines = {}
    for number, op in enumerate(flows.names["collective"]):
        times = flows["fct_ns"][flows["collective"] == number]
        if len(times):
            values, shares = cdf_points(times)
            # The curve starts at 0 %, even if there is only one value.
            xs, ys = [values[0], *values], [0.0, *(100 * shares)]
            text = [
                f"{format_time(x)}: {y:.4g} % of {len(times)}"
                for x, y in zip(xs, ys, strict=True)
            ]
            lines[f"{prefix}{op}"] = Curve(x=xs, y=ys, text=text)
    return lines


@section("Flow completion times", "c", "m")
def completion_times(data: RunData) -> Parts:
    """Return the section of completion times (FCT) and slowdowns of flows."""
    flows = data.measured
    if not len(flows):
        raise Absent(NO_FLOWS)
    lines = fct_curves(flows)
    points = sum(len(line.x) for line in lines.values())
    yield Plot(
        figure=curves(lines, **COMPLETION),
        caption=(
            f"{len(flows):,} flows, drawn as {points:,} points: for each collective, "
            "200 evenly chosen flows and each of the 100 slowest."
        ),
    )
    known = _bounded(flows)
    if len(known):
        yield _slowdowns(known)
    else:
        yield "Slowdowns are left out: no flow has a bound."
    yield _fct_table(flows)


def _bounded(flows: Flows) -> Flows:
    """Return the flows that have a slowdown."""
    # Messages without payload belong to barriers.
    return flows.where((flows["bound_ns"] > 0) & (flows["bytes"] > 0))


def _slowdowns(flows: Flows) -> Plot:
    sizes = flows["bytes"]
    caption = "1: as fast as without other traffic. All flows with payload count; "
    caption += "sizes are shown as they occur"
    if len(np.unique(sizes)) > _SIZES_SHOWN:
        sizes = 2 ** np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
        caption += ", rounded up to powers of two"
    slowdown = flows["fct_ns"] / flows["bound_ns"]
    xs = np.unique(sizes).tolist()
    found = [percentiles(slowdown[sizes == size], (50, 99, 100)) for size in xs]
    lines = {
        name: Curve(
            x=xs,
            y=ys,
            text=[f"{about_size(x)}: {y:.4g}" for x, y in zip(xs, ys, strict=True)],
        )
        for name, ys in zip(
            ("P50", "P99", "largest"), zip(*found, strict=True), strict=True
        )
    }
    drawn = curves(
        lines,
        name="slowdown",
        title="Slowdown by size",
        x="bytes",
        y="times",
        x_label="payload of the flow",
        y_label="FCT over time alone (m)",
        x_log=True,
        y_log=True,
    )
    return Plot(figure=drawn, caption=f"{caption}.")


def _fct_table(flows: Flows) -> Table:
    rows = []
    for number, op in enumerate(flows.names["collective"]):
        own = flows.where(flows["collective"] == number)
        if not len(own):
            continue
        times = percentiles(own["fct_ns"], (50, 95, 99, 99.9, 100))
        known = _bounded(own)
        slow = [MISSING, MISSING]
        if len(known):
            slowdown = known["fct_ns"] / known["bound_ns"]
            slow = [f"{each:.3g}" for each in percentiles(slowdown, (50, 99))]
        rows.append((str(op), f"{len(own):,}", *map(format_time, times), *slow))
    return table(
        "Percentiles of all flows",
        "collective | flows | P50 | P95 | P99 | P99.9 | largest | slowdown P50 (m) | "
        "slowdown P99 (m)",
        rows,
    )
