"""Sections of a run's page: flows, sessions, links, congestion and ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chakram.console.number_format import MISSING
from chakram.foundation.units import about_size, format_rate, format_time
from chakram.report import plots
from chakram.report.blocks import table
from chakram.report.column_arithmetic import joined_spans, percentiles
from chakram.report.page import NO_FLOWS, Absent, Observed, Parts, Plot, section
from chakram.report.plots import heat_map
from chakram.report.run.data import NicTraffic, RunData
from chakram.report.run.queues import switch_blocks
from chakram.run_directory.added_flow_columns import paths_of_text
from chakram.summary.bandwidth import jain_index

if TYPE_CHECKING:
    from bokeh.models import Range1d
    from numpy.typing import NDArray


SESSION_PERCENTS = (1, 50, 99)
_FLOWS_SHOWN = 20
_LINKS_SHOWN = 12, 4
"""Numbers of the busiest and of the least busy links to draw in each direction."""
_UTILIZATION_BINS = 20


@section("Session bandwidth", "c")
def sessions(data: RunData) -> Parts:
    """Return the section of bandwidths of sessions, which are pairs of ranks."""
    rates = data.session_rates
    if not rates:
        raise Absent(NO_FLOWS)
    numbers = {op: percentiles(each, SESSION_PERCENTS) for op, each in rates.items()}
    yield (
        "A session is a pair of ranks. Its bandwidth is its payload over the time with "
        "a message in flight, over all measured iterations. P01 is the slow end."
    )
    drawn = plots.bars(
        {
            f"P{percent:02}": [each[at] for each in numbers.values()]
            for at, percent in enumerate(SESSION_PERCENTS)
        },
        names=list(numbers),
        title="Bandwidth of sessions, by collective",
        unit="bit/s",
        name="sessions",
    )
    yield Plot(figure=drawn)
    yield table(
        "Percentiles",
        "collective | sessions | P01 | P50 | P99 | Jain's index | P99 over P01",
        (
            (
                *(op, f"{len(rates[op]):,}", *map(format_rate, each)),
                f"{jain_index(rates[op].tolist()) or 0:.4f}",
                f"{each[2] / each[0]:.3g}" if each[0] else MISSING,
            )
            for op, each in numbers.items()
        ),
    )


def predicted_link_bytes(data: RunData) -> Counter[tuple[str, str]] | None:
    """Return wire bytes by link and direction, derived from the paths of flows.

    The bytes cover the whole run, without retransmissions and acknowledgments. None if
    paths or the topology are unknown.
    """
    flows, topology = data.flows, data.topology
    if isinstance(topology, str) or not flows.names["path"] or data.transport is None:
        return None
    known = flows["path"] >= 0
    if not known.any():
        return None
    wire = flows["bytes"] + flows["packets"] * data.transport.overhead_bytes
    by_path = np.bincount(
        flows["path"][known], weights=wire[known], minlength=len(flows.names["path"])
    )
    link_at = topology.uplink_ports()
    found = Counter(dict.fromkeys(link_at.values(), 0))
    for path, size in zip(flows.names["path"], by_path.tolist(), strict=True):
        ways = paths_of_text(path or "")
        for way in ways:
            for port in way:
                if port in link_at:
                    found[link_at[port]] += round(size / len(ways))
    return found


@section("Bytes per uplink", "b", "m")
def uplinks(data: RunData) -> Parts:
    """Return the section of bytes per uplink, compared with predictions from paths."""
    measured = {
        (link.link, link.direction): link
        for link in data.summary.links
        if link.kind == "uplink"
    }
    if not measured:
        raise Absent(
            "no link between switches was counted."
            if data.summary.links
            else "the links of this fabric are not counted."
        )
    predicted = predicted_link_bytes(data)
    if predicted is None:
        yield "The paths of flows are unknown."
    measured_at = f"measured {data.seen('b')}"
    order = sorted(measured, key=lambda each: -measured[each].bytes)
    most, least = _LINKS_SHOWN
    listed, rows = [], []
    for direction in ("up", "down"):
        own = [each for each in order if each[1] == direction]
        drops = [measured[each].drops for each in own]
        known = [count for count in drops if count is not None]
        listed += own if len(own) <= most + least else [*own[:most], *own[-least:]]
        for name, loads, dropped in (
            (
                measured_at,
                [measured[each].bytes for each in own],
                str(sum(known)) if known else MISSING,
            ),
            (
                "predicted (m)",
                [predicted[each] for each in own] if predicted else [],
                "",
            ),
        ):
            if loads and sum(loads):
                rows.append(
                    (
                        f"{direction}, {name}",
                        str(len(loads)),
                        about_size(sum(loads)),
                        f"{max(loads) * len(loads) / sum(loads):.3f}",
                        f"{jain_index(loads) or 0:.4f}",
                        dropped,
                    )
                )
    totals: dict[str, list[float]] = {
        measured_at: [measured[each].bytes for each in listed]
    }
    if predicted is not None:
        totals["predicted from paths (m)"] = [predicted[each] for each in listed]
    caption = (
        "Predicted: the packets of every flow, counted once, on the path that the hash "
        "of the switches selects; without acknowledgments and retransmissions."
    )
    if more := len(order) - len(listed):
        caption += (
            f" For each direction, the {most} busiest and the {least} least busy links "
            f"are drawn; {more} others are left out."
        )
    drawn = plots.bars(
        totals,
        names=[" ".join(each) for each in listed],
        title="Layer-2 bytes of links between switches, whole run",
        unit="bytes",
        name="uplinks",
    )
    yield Plot(figure=drawn, caption=caption)
    yield table(
        "Balance",
        "direction | links | bytes | MMR | Jain's index | drops",
        rows,
        note="MMR: bytes of the busiest link over the mean. Up: away from the hosts.",
    )


_COUNTED = (
    ("CE: packets received with a congestion mark", "ecn_ce_rx"),
    ("CNP: congestion notifications received", "cnp_rx"),
    ("retransmitted", "data_frames_retransmitted"),
)


@section("Congestion and retransmissions", "c", "b")
def congestion(data: RunData, x_range: Range1d) -> Parts:
    """Return the section of marks, CNPs and retransmissions over time."""
    if not data.end_ns:
        raise Absent("no rank completed an iteration.")
    summary = data.summary
    if summary.facts.nics:
        raise Absent("RDMA NICs sent the packets; their counters are listed below.")
    if not summary.packets:
        raise Absent("no flow was recorded.")
    sampled = data.deltas(
        "queue_pairs", ("job", "rank", "qpn"), tuple(name for _, name in _COUNTED)
    )
    drawn: dict[str, NDArray[Any]] = {}
    none = []
    for name, column in _COUNTED:
        if sampled is not None:
            rows = sampled["start_ns"], sampled["end_ns"], sampled[column]
        else:
            rows = _of_records(data, column)
        starts, ends, counts = rows
        some = counts > 0
        one_row = np.zeros(int(some.sum()), np.int64)
        series = data.binned(one_row, starts[some], ends[some], counts[some])[0]
        if series.sum() >= 1:
            drawn[name] = series
        else:
            none.append(name.partition(":")[0])
    bands = _bands(data)
    if drawn:
        caption = "From samples of queue pairs."
        if sampled is None:
            caption = "There are no samples: counts are spread evenly over the time of "
            caption += "their messages and collectives."
        if none:
            caption += f" None: {', '.join(none)}."
        title = f"Packets in {format_time(data.bin_ns)}"
        look = {"name": "congestion", "title": title, "y": "packets", "bands": bands}
        plot = plots.over_time(drawn, x_range=x_range, **look)
        yield Plot(figure=plot, caption=caption)
    else:
        yield "No packet was marked or retransmitted, and no notification was sent."
    packets, marked, again = summary.packets, summary.marked, summary.retransmitted
    marks = f"{marked:,}", f"{100 * marked / packets:.3f} %"
    repeats = f"{again:,}", f"{100 * again / packets:.3f} %"
    yield table(
        "Of measured iterations"
        if summary.traffic is None
        else "Of the whole run, warm-up included",
        "data packets | marked CE | CE share | retransmitted | share",
        [(f"{packets:,}", *marks, *repeats)],
        left=0,
    )
    yield from switch_blocks(data, x_range, bands)


def _of_records(
    data: RunData, column: str
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    if column == "ecn_ce_rx":
        own = data.collectives
        return (
            np.array([data.undilated(each.start_ns) for each in own]),
            np.array([data.undilated(each.end_ns) for each in own]),
            np.array([each.ce for each in own]),
        )
    name = "cnp" if column == "cnp_rx" else "retransmitted"
    flows = data.flows
    return flows["first_sent_ns"], flows["last_acked_ns"], flows[name]


def _bands(data: RunData) -> dict[str, list[tuple[float, float]]]:
    """Return when the collectives with the longest total times were in progress."""
    found: dict[str, list[tuple[float, float]]] = {}
    for each in data.collectives:
        span = data.undilated(each.start_ns), data.undilated(each.end_ns)
        found.setdefault(str(each.identity.op), []).append(span)
    joined = {
        op: joined_spans(*np.array(spans).T, gap=data.bin_ns / 4)
        for op, spans in found.items()
    }
    longest = sorted(
        joined, key=lambda op: -sum(end - start for start, end in joined[op])
    )
    return {op: joined[op] for op in longest[:4]}


@section("NIC utilization", "c", "m")
def nic_utilization(data: RunData, x_range: Range1d) -> Parts:
    """Return the section of the utilization of ports over time."""
    nics = data.nics
    if not isinstance(nics, NicTraffic):
        raise Absent(f"{nics}.")
    if nics.is_sampled:
        yield Observed(data.seen("c"))
    sides = {"transmit": nics.transmit, "receive": nics.receive}
    sent, received = (100 * shares.mean() for shares in sides.values())
    yield (
        f"Mean over ports and the whole run: transmit {sent:.1f} %, receive "
        f"{received:.1f} % of the rate of layer 2. Plots over the whole run share "
        "their axis: if you pan or zoom one, the others follow."
    )
    yield (
        "From samples of the ports: all packets, acknowledgments included."
        if nics.is_sampled
        else "Ports have no samples: the wire bytes of every flow are spread evenly "
        "between its first packet and its last acknowledgment."
    )
    count = len(nics.hosts)
    if count > 128:
        yield "Each row is the mean of neighboring ports."
    look: dict[str, Any] = {"end_ns": data.end_ns, "high": 100, "x_range": x_range}
    for side, shares in sides.items():
        drawn, names = _blocks_of_ports(shares, nics.hosts)
        title = f"{side.capitalize()} utilization of each port"
        height = min(420, 130 + max(8, 16 if count <= 16 else 4) * min(count, 64))
        own = {"name": f"nic-{side}", "title": title, "height": height, **look}
        rows: dict[str, Any] = {
            "y_label": "port",
            "y_names": names,
            "legend": "% of rate",
        }
        yield Plot(figure=heat_map(100 * drawn, **rows, **own))
    for side, shares in sides.items() if count >= 16 else ():
        levels = np.clip((shares * _UTILIZATION_BINS).astype(np.int64), 0, 19)
        cells = [(levels == level).mean(axis=0) for level in range(_UTILIZATION_BINS)]
        plot = heat_map(
            100 * np.stack(cells),
            name=f"nics-by-{side}",
            title=f"Ports by {side} utilization",
            y_label="utilization (% of rate)",
            y_end=100,
            legend="% of ports",
            **look,
        )
        yield Plot(figure=plot)


def _blocks_of_ports(
    shares: NDArray[np.float64], hosts: Sequence[str]
) -> tuple[NDArray[np.float64], list[str]]:
    """Return at most 128 rows. If there are more ports, a row averages neighbors."""
    block = -(-len(hosts) // 128)
    if block == 1:
        return shares, list(hosts)
    firsts = list(range(0, len(hosts), block))
    sums = np.add.reduceat(shares, firsts, axis=0)
    sizes = np.diff([*firsts, len(hosts)])
    return sums / sizes[:, None], [f"{hosts[first]} ..." for first in firsts]


@section("Slowest flows", "c", "m")
def slowest_flows(data: RunData) -> Parts:
    """Return the section of flows with the largest slowdowns or completion times."""
    flows = data.measured
    flows = flows.where(flows["bytes"] > 0)
    if not len(flows):
        raise Absent(NO_FLOWS)
    known = bool((flows["bound_ns"] > 0).any())
    slow = flows["fct_ns"] / np.where(flows["bound_ns"] > 0, flows["bound_ns"], np.inf)
    badness = slow if known else flows["fct_ns"]
    jobs = len(flows.names["job"]) > 1
    rows = []
    for at in np.argsort(-badness, kind="stable")[:_FLOWS_SHOWN].tolist():
        each = flows.row(at)
        job = f"{flows.names['job'][each['job']]}:" if jobs else ""
        rate = each["rate_at_start_bps"] * data.dilation
        path = each["path"]
        rows.append(
            (
                f"{job}{each['src']} > {each['dst']}",
                f"{flows.names['collective'][each['collective']]} of "
                f"{flows.names['group'][each['group']]} #{each['k']}",
                flows.names["path"][path] or "one switch" if path >= 0 else MISSING,
                str(each["iteration"]),
                about_size(each["bytes"]),
                format_time(each["fct_ns"]),
                f"{slow[at]:.3g}" if each["bound_ns"] > 0 else MISSING,
                format_rate(8e9 * each["bytes"] / max(1, each["fct_ns"])),
                MISSING if rate < 0 else format_rate(rate) if rate else "no limit",
                *(
                    MISSING if each[name] < 0 else str(each[name])
                    for name in ("retransmitted", "cnp")
                ),
            )
        )
    order = (
        "Ordered by slowdown: completion time over the time alone on the fabric."
        if known
        else "Ordered by completion time, because no flow has a bound."
    )
    yield table(
        "Slowest flows",
        "ranks | collective | path (m) | iteration | size | FCT | slowdown (m) | "
        "mean rate | rate at start | retransmitted | CNP",
        rows,
        left=3,
        note=f"{order} Rate at start: the rate that congestion control allowed then.",
    )
