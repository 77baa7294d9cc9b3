"""Plots of queue depths, marks and pauses over time, and a table of affected links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chakram.console.number_format import MISSING
from chakram.foundation.units import about_size, format_time
from chakram.report.blocks import Table, facts, table
from chakram.report.page import Block, Plot
from chakram.report.plots import over_time
from chakram.report.run.data import RunData
from chakram.report.run.links_over_time import LinksOverTime, links_over_time
from chakram.report.run.rows import time_or_missing

if TYPE_CHECKING:
    from bokeh.models import Range1d
    from numpy.typing import NDArray


_PORTS_DRAWN, _LINKS_LISTED = 8, 24


def switch_blocks(
    data: RunData, x_range: Range1d, bands: Mapping[str, Sequence[tuple[float, float]]]
) -> Iterator[Block]:
    """Yield plots of queues, marks and pauses, and the reasons for missing plots."""
    drawn: list[tuple[str, str, str, dict[str, NDArray[Any]], str]] = []
    unknown = []
    bin_time = format_time(data.bin_ns)
    found, seen = links_over_time(data), data.seen("b")
    if isinstance(found, LinksOverTime):
        names = [found.name(at) for at in range(len(found.ports))]
        queues = _highest(names, found.queue_max_bytes)
        text = f"Packets waiting at ports {seen}: of {len(names)} ports and classes, "
        text += f"the {len(queues)} with the longest queues."
        drawn.append(("queues", f"Longest queue in {bin_time}", "bytes", queues, text))
        if not queues:
            why = "all queues were always empty"
            if "queue_max_bytes" not in found.counted:
                why = "the switches do not report them"
            unknown.append(("queues", why))
        text, title = f"At the ports that marked them {seen}.", "Packets marked CE in "
        marked = _highest(names, found.marked)
        drawn.append(("marks", f"{title}{bin_time}, by port", "packets", marked, text))
        paused = _highest(names, 100 * found.paused)
    else:
        unknown.append(("depths of queues over time", found))
        paused, seen = _paused_hosts(data), data.seen("c")
    text, title = f"Ports that received pause frames {seen}.", "PFC: time that a port "
    drawn.append(("pauses", f"{title}was paused", "% of the time", paused, text))
    if not paused:
        frames = [each.pauses for each in data.summary.links if each.pauses is not None]
        why = "they are not counted on this fabric"
        if frames:
            why = "no port received a pause frame"
        if sum(frames):
            why = f"{sum(frames)} pause frames were counted, but not sampled"
        unknown.append(("PFC pauses over time", why))
    for name, title, unit, series, text in drawn:
        if series:
            look = {"name": name, "title": title, "y": unit, "bands": bands}
            yield Plot(figure=over_time(series, x_range=x_range, **look), caption=text)
    if unknown:
        yield facts(*unknown)
    if (odd := link_table(data)) is not None:
        yield odd


def _highest(names: Sequence[str], rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the series with the highest maxima, by name."""
    most = rows.max(axis=1, initial=0)
    order = [at for at in np.argsort(-most, kind="stable")[:_PORTS_DRAWN] if most[at]]
    return {names[at]: rows[at] for at in order}


def _paused_hosts(data: RunData) -> dict[str, NDArray[Any]]:
    """Return the time that host ports were paused, in percent of each time bin."""
    if "paused_ns" not in data.results.columns("ports"):
        return {}
    found = data.deltas("ports", ("port", "shard"), ("paused_ns",))
    hosts = {port.number: port.host for port in data.results.ports()}
    if found is None or not hosts:
        return {}
    order = sorted(hosts)
    rows = np.searchsorted(order, found["port"])
    paused_ns = found["paused_ns"] / data.dilation
    times = found["start_ns"], found["end_ns"]
    bins = data.binned(rows, *times, paused_ns, count=len(order))
    return _highest([hosts[number] for number in order], 100 * bins / data.bin_ns)


def link_table(data: RunData) -> Table | None:
    """Return links with marks, drops, pauses or down time, or None without any."""
    rows = []
    for link in data.summary.links:
        odd = (link.drops, link.marked, link.pauses, link.paused_ns, link.down_ns)
        if any(odd):
            row = (
                f"{link.link} {link.direction}",
                link.port or MISSING,
                *(MISSING if each is None else f"{each:,}" for each in odd[:3]),
                *map(time_or_missing, odd[3:]),
                about_size(link.bytes),
            )
            rows.append((-sum(filter(None, odd)), row))
    if not rows:
        return None
    return table(
        f"Links that dropped, marked, were paused or were down {data.seen('b')}",
        "link | port | drops | marked | pauses | paused | down | bytes",
        (row for _, row in sorted(rows)),
        left=2,
        note="Whole run, warm-up included. paused: by pause frames, over all classes. "
        f"{MISSING}: not counted on this fabric.",
        limit=_LINKS_LISTED,
    )
