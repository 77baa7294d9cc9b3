"""The report page of a trace set, as ``chakram trace show --html`` writes it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chakram.chakra.read.reader_options import merge_warnings
from chakram.foundation.units import about_size
from chakram.report import page, plots
from chakram.report.trace import tables
from chakram.report.trace.document import trace_document

if TYPE_CHECKING:
    from chakram.chakra.sets.trace_set import TraceSet
    from chakram.chakra.summary.summary import CommunicationRow, TraceSummary


_PAIRS_SHOWN, _BARS = 20, 12

_ROWS_SHOWN = 256
"""Limit on rows of a table, which keeps pages with a thousand groups readable."""


_OPERATIONS = """Counts of one iteration, as in the Chakra paper's table of key
operations per GPU. Computation is classified by the names of nodes; nodes that match no
rule are among the others. P2P counts sends and receives. Identical ranks share a
row."""


def trace_page(
    traces: TraceSet, summary: TraceSummary, *, bytes_per_element: int | None
) -> str:
    """Return the page of a trace set as HTML.

    Args:
        traces: The trace set.
        summary: Summary of the trace set.
        bytes_per_element: Bytes of one unit of a stored size. None means one byte.
    """
    unit = bytes_per_element
    sizes = tables.sizes_table(summary).cut(_ROWS_SHOWN)
    groups = tables.groups_table(traces, summary).cut(_ROWS_SHOWN)
    operations = page.Section(
        title="Operations of each rank",
        text=_OPERATIONS,
        blocks=(tables.operations_table(summary.per_rank).cut(_ROWS_SHOWN),),
    )
    about = tables.trace_facts(traces, summary, bytes_per_element=unit)
    found = [
        page.Group(
            "Communication",
            [
                _communication(summary, unit),
                page.Section(
                    title="Sizes of collectives", blocks=(sizes,) if sizes.rows else ()
                ),
            ],
            is_open=True,
        ),
        page.Group("Traffic between ranks", [_matrix(summary)], is_open=True),
        page.Group(
            "Process groups", [page.Section(title="Process groups", blocks=(groups,))]
        ),
        page.Group("Operations", [operations]),
        page.Group("Times and dependencies", [_distributions(summary)]),
        page.Group(
            "Trace set",
            [page.Section(title="Trace set", blocks=(about,))],
            is_open=True,
        ),
    ]
    warnings = list(merge_warnings(traces.warnings).values())
    if summary.traffic.unplaced:
        warnings.insert(
            0,
            f"{summary.traffic.unplaced} nodes do not name their destination, so they "
            "are not in the traffic. See chakram trace lint.",
        )
    kept = (replace(g, sections=[s for s in g.sections if s.blocks]) for g in found)
    return page.render_page(
        title=f"Trace set {traces.name.rpartition('/')[2]}",
        lead="One iteration of every rank · traffic is that of the default algorithms",
        answer=_answer(traces, summary),
        warnings=warnings,
        groups=[group for group in kept if group.sections],
        document=trace_document(traces, summary, bytes_per_element=unit),
    )


def _answer(traces: TraceSet, summary: TraceSummary) -> page.Answer:
    """Return the answer: how much the ranks send, and by which collectives."""
    sent = sum(summary.traffic.sent_bytes)
    rows = summary.communication
    largest = max(rows, key=lambda row: row.sent_bytes, default=None)
    verdict = f"{traces.nranks} ranks send {about_size(sent)} in one iteration"
    if largest is not None and largest.sent_bytes:
        share = f"{100 * largest.sent_bytes / max(1, sent):.0f} %"
        verdict += f", {share} of it by {_name(largest)}"
    pairs = summary.largest_pairs
    none = "No node sends to another rank."
    tiles = [
        page.Tile(str(traces.nranks), "ranks"),
        page.Tile(f"{summary.nodes:,}", "nodes"),
        page.Tile(about_size(sent) if sent else "", "sent by all ranks", none),
        page.Tile(f"{pairs.all_pairs:,}" if pairs else "", "pairs of ranks send", none),
        page.Tile(f"{len(summary.groups):,}", "process groups communicate"),
    ]
    bars = page.Bars(
        title="Bytes by collective and size of group",
        series=["contributed", "sent", "on the wire"],
        rows=[
            (_name(row), [row.total_bytes, row.sent_bytes, row.wire_bytes])
            for row in rows[:_BARS]
        ],
        text=lambda size: about_size(int(size)),
        note=f"The first {_BARS} of {len(rows)}." * (len(rows) > _BARS),
    )
    shown = pairs.pairs[:3] if pairs else ()
    return page.Answer(
        verdict=f"{verdict}.",
        tiles=tiles,
        bars=bars if rows else None,
        heading="Most bytes from rank to rank",
        points=[
            (f"rank {src} to {dst}: {about_size(size)}", f"{100 * size / sent:.2f} %")
            for src, dst, size in shown
            if sent
        ],
    )


@page.section("Communication")
def _communication(summary: TraceSummary, bytes_per_element: int | None) -> page.Parts:
    rows = summary.communication
    if rows:
        yield tables.communication_table(summary, bytes_per_element=bytes_per_element)


def _name(row: CommunicationRow) -> str:
    if row.group_ranks is not None:
        return f"{row.what}, {row.group_ranks} ranks"
    return row.what if not row.groups else f"{row.what}, group not defined"


@page.section("Traffic between ranks")
def _matrix(summary: TraceSummary) -> page.Parts:
    traffic, messages = summary.traffic, summary.messages
    if traffic.matrix is None or not any(traffic.sent_bytes):
        return
    yield (
        "Rows send, columns receive. Strong cells mean many bytes, faint cells few, "
        "empty cells none. Traffic between neighboring ranks is next to the diagonal. "
        "Traffic far from the diagonal crosses the fabric if ranks are placed in "
        "order."
    )
    rows = [traffic.row(rank.rank) for rank in summary.per_rank]
    yield page.Plot(
        figure=plots.matrix(rows, title="Bytes from rank to rank"),
        caption=(
            f"Up to {plots.MATRIX_CELLS} ranks, a cell is a pair of ranks; with more "
            "ranks, it is a block of neighboring ranks."
        ),
    )
    if messages is not None:
        named = {"messages": messages}
        yield page.Plot(
            figure=plots.cdf(named, title="Sizes of messages", unit="bytes"),
            caption=(
                f"{messages.count:,} messages of all ranks; half of them have up to "
                f"{about_size(messages.p50)}, the largest has "
                f"{about_size(messages.largest)}."
            ),
        )
    yield tables.pairs_table(summary, _PAIRS_SHOWN)


@page.section("Times and dependencies")
def _distributions(summary: TraceSummary) -> page.Parts:
    yield tables.distributions_table(summary)
    if durations := summary.durations:
        stated = sum(spread.count for spread in durations.values())
        yield page.Plot(
            figure=plots.cdf(durations, title="Durations of nodes", unit="ns"),
            caption=f"{stated:,} of {summary.nodes:,} nodes state a duration.",
        )
    degrees = {
        name: spread
        for name, spread in (
            ("dependencies", summary.dependencies.parents),
            ("dependents", summary.dependencies.children),
        )
        if spread is not None
    }
    if degrees:
        unit = "dependencies or dependents of a node"
        yield page.Plot(
            figure=plots.cdf(degrees, title="Dependencies of nodes", unit=unit),
            caption="Share of nodes with up to this number of others.",
        )
