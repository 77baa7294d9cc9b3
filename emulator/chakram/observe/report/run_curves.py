"""Sections of a run's page that are curves: bandwidth by size, completion times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from chakram.observe.number_format import MISSING
from chakram.observe.report.blocks import Table
from chakram.observe.report.columns import cdf_points, percentiles
from chakram.observe.report.page import Block, Plot, Section
from chakram.observe.report.run_plots import HALF, WHOLE, Curve, curves
from chakram.units import about_size, format_rate, format_time

if TYPE_CHECKING:
    from bokeh.plotting import figure

    from chakram.observe.report.run_data import Flows, RunData
    from chakram.observe.report.run_rows import ReportRow


_SIZES_SHOWN = 64


def bandwidth(data: RunData, rows: Sequence[ReportRow]) -> Section:
    """Return bus bandwidth by size."""
    lines = bandwidth_lines(rows)
    if not lines:
        return Section(
            title="Bus bandwidth by size",
            text="no collective with a bus bandwidth was measured.",
        )
    levels = _asymptotes(data, rows)
    return Section(
        title="Bus bandwidth by size",
        observed=data.seen("c"),
        blocks=(
            Plot(
                figure=bandwidth_figure(lines, levels=levels),
                caption="Points: of the mean time, all collectives of a size; lines "
                "dashed: line rate of layer 2 (f), and the payload in it (m).",
            ),
        ),
    )


def bandwidth_figure(
    lines: Mapping[str, Curve], levels: Mapping[str, float] | None = None
) -> figure:
    """Return bus bandwidth against size as a figure, with levels to reach."""
    return curves(
        lines,
        name="busbw",
        title="Bus bandwidth against S; whiskers: P01 to P99",
        x="bytes",
        y="bit/s",
        x_label="S of nccl-tests",
        y_label="bus bandwidth per accelerator",
        x_log=True,
        levels=levels,
        width=WHOLE,
        height=380,
    )


def bandwidth_lines(rows: Sequence[ReportRow], prefix: str = "") -> dict[str, Curve]:
    """Return bus bandwidth against size by collective, algorithm and ranks."""
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


def _asymptotes(data: RunData, rows: Sequence[ReportRow]) -> dict[str, float]:
    rates = {rate for each in rows if (rate := each.line_rate_bps)}
    if len(rates) != 1 or data.payload_share is None:
        return {}
    rate = rates.pop()
    return {
        f"- - line rate {format_rate(rate)}": rate,
        f"··· payload {100 * data.payload_share:.1f} %": rate * data.payload_share,
    }


def fct_curves(flows: Flows, prefix: str = "") -> dict[str, Curve]:
    """Return the distribution of completion times by collective."""
    lines = {}
    for number, op in enumerate(flows.names["collective"]):
        times = flows["fct_ns"][flows["collective"] == number]
        if len(times):
            values, shares = cdf_points(times)
            # A distribution begins at 0, also where it has one value.
            lines[f"{prefix}{op}"] = Curve(
                x=[values[0], *values],
                y=[0.0, *(100 * shares)],
                text=[
                    f"{format_time(value)}: {100 * share:.4g} % of {len(times)}"
                    for value, share in zip(
                        [values[0], *values], [0.0, *shares], strict=True
                    )
                ],
            )
    return lines


def fct_figure(lines: Mapping[str, Curve], width: int = HALF) -> figure:
    """Return the completion times of flows as a figure of their distribution."""
    return curves(
        lines,
        name="fct-cdf",
        title="Flow completion times",
        x="ns",
        y="%",
        x_label="posted to last byte acknowledged",
        y_label="flows that were not slower",
        x_log=True,
        steps=True,
        width=width,
    )


def completion_times(data: RunData) -> Section:
    """Return FCT and slowdown of flows."""
    title = "Flow completion times"
    flows = data.measured
    if not len(flows):
        return Section(
            title=title, text="no flow of a measured iteration was recorded."
        )
    lines = fct_curves(flows)
    blocks: list[Block] = [
        Plot(
            figure=fct_figure(lines),
            caption=f"{len(flows):,} flows, of which "
            f"{sum(len(line.x) for line in lines.values()):,} points are drawn: of "
            "each collective 200 evenly chosen, and the 100 slowest each by itself.",
        )
    ]
    # Messages without payload are those of barriers.
    known = flows.where((flows["bound_ns"] > 0) & (flows["bytes"] > 0))
    if len(known):
        sizes, slow = _by_size(known)
        blocks.append(
            Plot(
                figure=curves(
                    {
                        name: Curve(
                            x=sizes,
                            y=[each[at] for each in slow],
                            text=[
                                f"{about_size(int(size))}: {each[at]:.4g}"
                                for size, each in zip(sizes, slow, strict=True)
                            ],
                        )
                        for at, name in enumerate(("P50", "P99", "largest"))
                    },
                    name="slowdown",
                    title="Slowdown by size",
                    x="bytes",
                    y="times",
                    x_label="payload of the flow",
                    y_label="FCT over its time alone (m)",
                    x_log=True,
                    y_log=True,
                ),
                caption="1: as if nothing else were on the fabric. All flows with "
                "payload count; sizes are those that occur"
                + (
                    "."
                    if len(np.unique(known["bytes"])) <= _SIZES_SHOWN
                    else ", joined to powers of two."
                ),
            )
        )
    blocks.append(_fct_table(flows))
    text = "" if len(known) else "Slowdowns are left out: no flow has a bound."
    return Section(
        title=title,
        text=text,
        observed=data.seen("c", "m"),
        blocks=tuple(blocks),
    )


def _by_size(flows: Flows) -> tuple[list[float], list[tuple[float, ...]]]:
    sizes = flows["bytes"]
    if len(np.unique(sizes)) > _SIZES_SHOWN:
        sizes = 2 ** np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    slowdown = flows["fct_ns"] / flows["bound_ns"]
    found = np.unique(sizes)
    return (
        found.tolist(),
        [percentiles(slowdown[sizes == size], (50, 99, 100)) for size in found],
    )


def _fct_table(flows: Flows) -> Table:
    rows = []
    for number, op in enumerate(flows.names["collective"]):
        own = flows.where(flows["collective"] == number)
        if not len(own):
            continue
        times = percentiles(own["fct_ns"], (50, 95, 99, 99.9, 100))
        known = own.where(own["bound_ns"] > 0)
        slow = (
            percentiles(known["fct_ns"] / known["bound_ns"], (50, 99))
            if len(known)
            else ()
        )
        rows.append(
            (
                str(op),
                f"{len(own):,}",
                *map(format_time, times),
                *(f"{each:.3g}" for each in slow),
                *((MISSING,) * (2 - len(slow))),
            )
        )
    return Table(
        title="Percentiles of all flows",
        header=(
            *("collective", "flows", "P50", "P95", "P99", "P99.9", "largest"),
            *("slowdown P50 (m)", "slowdown P99 (m)"),
        ),
        rows=tuple(rows),
    )
