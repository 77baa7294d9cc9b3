"""Sections of a run's page: flows, sessions, links, congestion and ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chakram.observe.message_columns import ways_of_path
from chakram.observe.number_format import MISSING
from chakram.observe.report import plots
from chakram.observe.report.blocks import Table
from chakram.observe.report.columns import (
    joined_spans,
    percentiles,
    spread,
)
from chakram.observe.report.page import Block, Plot, Section
from chakram.observe.report.run_data import TIME_BINS, NicTraffic, RunData
from chakram.observe.report.run_plots import WHOLE, Curve, curves, heat_map
from chakram.observe.report.run_ports import source_port_blocks
from chakram.observe.report.run_queues import switch_blocks
from chakram.results.bandwidth import jain_index
from chakram.units import about_size, format_rate, format_time

if TYPE_CHECKING:
    from bokeh.models import Range1d
    from numpy.typing import NDArray


SESSION_PERCENTS = (1, 50, 99)
_FLOWS_SHOWN = 20
_LINKS_SHOWN = 12, 4
"""The busiest and the idlest of each direction that are drawn of more."""
_UTILISATION_BINS = 20


def sessions(data: RunData) -> Section:
    """Return the bandwidth of sessions."""
    title = "Session bandwidth"
    rates = data.session_rates
    if not rates:
        return Section(
            title=title, text="no flow of a measured iteration was recorded."
        )
    numbers = {op: percentiles(each, SESSION_PERCENTS) for op, each in rates.items()}
    return Section(
        title=title,
        text="A session is a pair of ranks; its bandwidth is its payload over the time "
        "in which one of its messages is under way, of all measured iterations. P01: "
        "the slow end.",
        observed=data.seen("c"),
        blocks=(
            Plot(
                figure=plots.bars(
                    {
                        f"P{percent:02}": [each[at] for each in numbers.values()]
                        for at, percent in enumerate(SESSION_PERCENTS)
                    },
                    names=list(numbers),
                    title="Bandwidth of sessions, by collective",
                    unit="bit/s",
                    name="sessions",
                )
            ),
            Table(
                title="Percentiles",
                header=(
                    *("collective", "sessions", "P01", "P50", "P99"),
                    *("Jain's index", "P99 over P01"),
                ),
                rows=tuple(
                    (
                        op,
                        f"{len(rates[op]):,}",
                        *map(format_rate, each),
                        f"{jain_index(rates[op].tolist()) or 0:.4f}",
                        f"{each[2] / each[0]:.3g}" if each[0] else MISSING,
                    )
                    for op, each in numbers.items()
                ),
            ),
        ),
    )


def predicted_link_bytes(data: RunData) -> Counter[tuple[str, str]] | None:
    """Return wire bytes by link and direction that the paths of flows say.

    Of the whole run, each packet once, without acknowledgements; None where paths or
    the topology are unknown.
    """
    flows, topology = data.flows, data.topology
    if isinstance(topology, str) or not flows.names["path"] or data.transport is None:
        return None
    known = flows["path"] >= 0
    if not known.any():
        return None
    wire = flows["bytes"] + flows["packets"] * data.transport.overhead_bytes
    by_path = np.bincount(
        flows["path"][known],
        weights=wire[known],
        minlength=len(flows.names["path"]),
    )
    link_at = {}
    for link in topology.uplinks():
        link_at[str(link.a)] = link.name, "up"
        link_at[str(link.b)] = link.name, "down"
    found = Counter(dict.fromkeys(link_at.values(), 0))
    for path, size in zip(flows.names["path"], by_path.tolist(), strict=True):
        ways = ways_of_path(path or "")
        for way in ways:
            for port in way:
                if port in link_at:
                    found[link_at[port]] += round(size / len(ways))
    return found


def uplinks(data: RunData) -> Section:
    """Return bytes of links between switches, beside what paths predict."""
    title = "Bytes per uplink"
    measured = {
        (link.link, link.direction): link
        for link in data.summary.links
        if link.kind == "uplink"
    }
    if not measured:
        why = "no link between switches was counted."
        if not data.summary.links:
            why = "nobody counts the links of this fabric."
        return Section(title=title, text=why)
    predicted = predicted_link_bytes(data)
    measured_at = f"measured {data.seen('b')}"
    order = sorted(measured, key=lambda each: (each[1] != "up", -measured[each].bytes))
    listed = []
    for direction in ("up", "down"):
        own = [each for each in order if each[1] == direction]
        most, least = _LINKS_SHOWN
        listed += own if len(own) <= most + least else [*own[:most], *own[-least:]]
    totals: dict[str, list[float]] = {
        measured_at: [measured[each].bytes for each in listed]
    }
    if predicted is not None:
        totals["predicted from paths (m)"] = [predicted[each] for each in listed]
    rows = []
    for direction in ("up", "down"):
        own = [each for each in order if each[1] == direction]
        for name, loads in (
            (measured_at, [measured[each].bytes for each in own]),
            ("predicted (m)", [predicted[each] for each in own] if predicted else []),
        ):
            if loads and sum(loads):
                rows.append(
                    (
                        f"{direction}, {name}",
                        str(len(loads)),
                        about_size(sum(loads)),
                        f"{max(loads) * len(loads) / sum(loads):.3f}",
                        f"{jain_index(loads) or 0:.4f}",
                        str(sum(measured[each].drops or 0 for each in own)),
                    )
                )
    text = "" if predicted is not None else "The paths of flows are not known."
    more = len(order) - len(listed)
    return Section(
        title=title,
        text=text,
        observed=data.seen("b", "m"),
        blocks=(
            Plot(
                figure=plots.bars(
                    totals,
                    names=[" ".join(each) for each in listed],
                    title="Layer-2 bytes of links between switches, whole run",
                    unit="bytes",
                    name="uplinks",
                ),
                caption="Predicted: of every flow's packets once, by the path that the "
                "switches' hash gives it; without acknowledgements and what was sent "
                "again."
                + (
                    f" Of each direction the {_LINKS_SHOWN[0]} busiest and the "
                    f"{_LINKS_SHOWN[1]} idlest are drawn; {more} others are left out."
                    if more
                    else ""
                ),
            ),
            Table(
                title="Balance",
                header=("direction", "links", "bytes", "MMR", "Jain's index", "drops"),
                rows=tuple(rows),
                observed="",
                note="MMR: bytes of the busiest link over the mean. Up: away from the "
                "hosts.",
            ),
            *source_port_blocks(data),
        ),
    )


_COUNTED = (
    ("CE: packets received with a congestion mark", "ecn_ce_rx"),
    ("CNP: congestion notifications received", "cnp_rx"),
    ("sent again", "data_frames_retransmitted"),
)


def congestion(data: RunData, x_range: Range1d) -> Section:
    """Return marks, notifications and retransmissions over time."""
    title = "Congestion and retransmissions"
    if not data.end_ns:
        return Section(title=title, text="no rank has done an iteration.")
    summary = data.summary
    sampled = data.deltas(
        "queue_pairs", ("job", "rank", "qpn"), tuple(name for _, name in _COUNTED)
    )
    series: dict[str, NDArray[np.float64]] = {}
    for name, column in _COUNTED:
        if sampled is not None:
            rows = sampled["start_ns"], sampled["end_ns"], sampled[column]
        else:
            rows = _of_records(data, column)
        starts, ends, counts = rows
        some = counts > 0
        series[name] = spread(
            np.zeros(int(some.sum()), np.int64),
            starts[some] / data.bin_ns,
            ends[some] / data.bin_ns,
            counts[some],
            shape=(1, TIME_BINS),
        )[0]
    totals = {name: each.sum() for name, each in series.items()}
    if not summary.packets:
        return Section(title=title, text="no flow was recorded.")
    facts = Table(
        title=(
            "Of measured iterations"
            if summary.traffic is None
            else "Of the whole run, warm-up included"
        ),
        header=("data packets", "marked CE", "CE share", "sent again", "share"),
        left=0,
        rows=(
            (
                f"{summary.packets:,}",
                f"{summary.marked:,}",
                _share(summary.marked, summary.packets),
                f"{summary.retransmitted:,}",
                _share(summary.retransmitted, summary.packets),
            ),
        ),
    )
    drawn = {name: each for name, each in series.items() if totals[name] >= 1}
    none = [name.partition(":")[0] for name in series if name not in drawn]
    bands = _bands(data)
    switches = switch_blocks(data, x_range, bands)
    if not drawn:
        return Section(
            title=title,
            text="No packet was marked, none was sent again, and no congestion "
            "notification was sent.",
            observed=data.seen("c", "b"),
            blocks=(facts, *switches),
        )
    edges = np.arange(TIME_BINS) * data.bin_ns
    source = (
        "From samples of queue pairs."
        if sampled is not None
        else "Spread evenly over the time of the messages and collectives that counted "
        "them: nobody took samples."
    )
    return Section(
        title=title,
        observed=data.seen("c", "b"),
        blocks=(
            Plot(
                figure=curves(
                    {
                        name: Curve(x=edges, y=each.round(3))
                        for name, each in drawn.items()
                    },
                    name="congestion",
                    title=f"Packets in {format_time(data.bin_ns)}",
                    x="ns",
                    y="packets",
                    x_label="time since the first rank began",
                    steps=True,
                    bands=bands,
                    x_range=x_range,
                    width=WHOLE,
                    height=300,
                ),
                caption=source + (f" None: {', '.join(none)}." if none else ""),
            ),
            facts,
            *switches,
        ),
    )


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
    """Return when collectives were under way, by kind, those of most time first."""
    found: dict[str, list[tuple[float, float]]] = {}
    for each in data.collectives:
        span = data.undilated(each.start_ns), data.undilated(each.end_ns)
        found.setdefault(str(each.identity.op), []).append(span)
    joined = {
        op: joined_spans(
            np.array([start for start, _ in spans]),
            np.array([end for _, end in spans]),
            gap=data.bin_ns / 4,
        )
        for op, spans in found.items()
    }
    longest = sorted(
        joined, key=lambda op: -sum(end - start for start, end in joined[op])
    )
    return {op: joined[op] for op in longest[:4]}


def nic_utilisation(data: RunData, x_range: Range1d) -> Section:
    """Return how busy ports were over time."""
    title = "NIC utilisation"
    nics = data.nics
    if not isinstance(nics, NicTraffic):
        return Section(title=title, text=f"{nics}.")
    blocks: list[Block] = []
    count = len(nics.hosts)
    sides = (("transmit", nics.transmit), ("receive", nics.receive))
    height = min(420, 130 + max(8, 16 if count <= 16 else 4) * min(count, 64))
    for side, shares in sides:
        drawn, names = _blocks_of_ports(shares, nics.hosts)
        blocks.append(
            Plot(
                figure=heat_map(
                    100 * drawn,
                    name=f"nic-{side}",
                    title=f"{side.capitalize()} utilisation of each port",
                    end_ns=data.end_ns,
                    y_label="port",
                    y_names=names,
                    legend="% of rate",
                    high=100,
                    x_range=x_range,
                    height=height,
                )
            )
        )
    if count >= 16:
        for side, shares in sides:
            levels = np.clip((shares * _UTILISATION_BINS).astype(np.int64), 0, 19)
            cells = np.stack(
                [(levels == level).mean(axis=0) for level in range(_UTILISATION_BINS)]
            )
            blocks.append(
                Plot(
                    figure=heat_map(
                        100 * cells,
                        name=f"nics-by-{side}",
                        title=f"Ports by {side} utilisation",
                        end_ns=data.end_ns,
                        y_label="utilisation (% of rate)",
                        y_end=100,
                        legend="% of ports",
                        high=100,
                        x_range=x_range,
                    )
                )
            )
    means = [100 * shares.mean() for _, shares in sides]
    text = (
        f"Mean over ports and the whole run: transmit {means[0]:.1f} %, receive "
        f"{means[1]:.1f} % of the rate of layer 2. Plots over the whole run share "
        "their axis: move or zoom one, and all follow. "
    )
    text += (
        "From samples of the ports: all packets, acknowledgements included."
        if nics.is_sampled
        else "Ports have no samples: the wire bytes of every flow are spread evenly "
        "between its first packet and its last acknowledgement."
    )
    if count > 128:
        text += " A row is the mean of neighbours."
    return Section(
        title=title,
        text=text,
        observed=data.seen("c") if nics.is_sampled else data.seen("c", "m"),
        blocks=tuple(blocks),
    )


def _blocks_of_ports(
    shares: NDArray[np.float64], hosts: Sequence[str]
) -> tuple[NDArray[np.float64], list[str]]:
    """Return at most 128 rows: of more ports, means of neighbours."""
    block = -(-len(hosts) // 128)
    if block == 1:
        return shares, list(hosts)
    firsts = list(range(0, len(hosts), block))
    sums = np.add.reduceat(shares, firsts, axis=0)
    sizes = np.diff([*firsts, len(hosts)])
    return sums / sizes[:, None], [f"{hosts[first]} ..." for first in firsts]


def slowest_flows(data: RunData) -> Section:
    """Return the flows with the largest slowdown, or the longest."""
    title = "Slowest flows"
    flows = data.measured
    flows = flows.where(flows["bytes"] > 0)
    if not len(flows):
        return Section(
            title=title, text="no flow of a measured iteration was recorded."
        )
    known = bool((flows["bound_ns"] > 0).any())
    slow = flows["fct_ns"] / np.where(flows["bound_ns"] > 0, flows["bound_ns"], np.inf)
    badness = slow if known else flows["fct_ns"]
    first = np.argsort(-badness, kind="stable")[:_FLOWS_SHOWN]
    own = flows.where(first)
    jobs = len(flows.names["job"]) > 1
    rows = []
    for at in range(len(own)):
        each = own.row(at)
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
                f"{slow[first[at]]:.3g}" if each["bound_ns"] > 0 else MISSING,
                format_rate(8e9 * each["bytes"] / max(1, each["fct_ns"])),
                format_rate(rate) if rate > 0 else "no limit",
                str(each["retransmitted"]),
                str(each["cnp"]),
            )
        )
    return Section(
        title=title,
        observed=data.seen("c", "m"),
        blocks=(
            Table(
                title=title,
                header=(
                    *("ranks", "collective", "path (m)", "iteration", "size", "FCT"),
                    *(
                        "slowdown (m)",
                        "mean rate",
                        "rate at start",
                        "sent again",
                        "CNP",
                    ),
                ),
                rows=tuple(rows),
                left=3,
                note=(
                    "By slowdown: completion time over that alone on the fabric."
                    if known
                    else "By completion time: no flow has a bound."
                )
                + " Rate at start: what congestion control allowed then.",
            ),
        ),
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3f} %" if whole else MISSING
