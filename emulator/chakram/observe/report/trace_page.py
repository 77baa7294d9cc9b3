"""The page of a trace set: what ``chakram trace show --html`` writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.chakra.read.options import merge_warnings
from chakram.observe.report import plots
from chakram.observe.report.page import Block, Plot, Section, render_page
from chakram.observe.report.trace_document import trace_document
from chakram.observe.report.trace_tables import (
    communication_table,
    distributions_table,
    groups_table,
    operations_table,
    trace_facts,
)
from chakram.observe.report.traffic_tables import pairs_table, sizes_table
from chakram.units import about_size

if TYPE_CHECKING:
    from chakram.chakra.sets.trace_set import TraceSet
    from chakram.chakra.summary.summary import CommunicationRow, TraceSummary
    from chakram.observe.report.blocks import Table


_PAIRS_SHOWN = 20

_ROWS_SHOWN = 256
"""Rows of a table; a page of a thousand groups would be scrolled, not read."""


_OPERATIONS = """Counted as in the Chakra paper's table of key operations per GPU, one
iteration. Computation is told apart by the names of nodes: what no rule knows is among
the others. P2P counts sends and receives. Ranks that are alike share a row."""


def trace_page(
    traces: TraceSet, summary: TraceSummary, *, bytes_per_element: int | None
) -> str:
    """Return the page that shows a trace set, as HTML.

    Args:
        traces: The set.
        summary: Its numbers.
        bytes_per_element: What one unit of a stored size is worth; None: a byte.
    """
    sizes = sizes_table(summary)
    sections = [
        Section(
            title="Trace set",
            blocks=(trace_facts(traces, summary, bytes_per_element=bytes_per_element),),
        ),
        Section(
            title="Operations of each rank",
            text=_OPERATIONS,
            blocks=(operations_table(summary.per_rank).cut(_ROWS_SHOWN),),
        ),
        _communication(
            summary,
            communication_table(summary, bytes_per_element=bytes_per_element),
        ),
        Section(
            title="Sizes of collectives",
            blocks=(sizes.cut(_ROWS_SHOWN),) if sizes.rows else (),
        ),
        _matrix(summary),
        Section(
            title="Process groups",
            blocks=(groups_table(traces, summary).cut(_ROWS_SHOWN),),
        ),
        _distributions(summary),
    ]
    return render_page(
        title=f"Trace set {traces.name.rpartition('/')[2]}",
        lead="One iteration of every rank. Traffic is that of the algorithms which "
        "an experiment takes by default.",
        banners=_banners(traces, summary),
        sections=[section for section in sections if section.blocks],
        document=trace_document(traces, summary, bytes_per_element=bytes_per_element),
    )


def _banners(traces: TraceSet, summary: TraceSummary) -> list[str]:
    banners = []
    if summary.traffic.unplaced:
        banners.append(
            f"{summary.traffic.unplaced} nodes do not say whom they send to: they are "
            "not in the traffic. chakram trace lint tells more."
        )
    return banners + list(merge_warnings(traces.warnings).values())


def _communication(summary: TraceSummary, table: Table) -> Section:
    rows = summary.communication
    if not rows:
        return Section(title="Communication", blocks=())
    return Section(
        title="Communication",
        blocks=(
            table,
            Plot(
                figure=plots.bars(
                    {
                        "contributed": [row.total_bytes for row in rows],
                        "sent": [row.sent_bytes for row in rows],
                        "on the wire": [row.wire_bytes for row in rows],
                    },
                    names=[_name(row) for row in rows],
                    title="Bytes by collective and size of group, all ranks",
                    unit="bytes",
                ),
            ),
        ),
    )


def _name(row: CommunicationRow) -> str:
    if row.group_ranks is not None:
        return f"{row.what}, {row.group_ranks} ranks"
    return row.what if not row.groups else f"{row.what}, group not defined"


def _matrix(summary: TraceSummary) -> Section:
    traffic = summary.traffic
    if traffic.matrix is None or not any(traffic.sent_bytes):
        return Section(title="Who sends to whom", blocks=())
    return Section(
        title="Who sends to whom",
        text="Rows send, columns receive: a bright cell is little, a dark one much, a "
        "white one nothing. Neighbours that exchange much stand beside the diagonal; "
        "what stands far from it crosses the fabric if ranks are placed in order.",
        blocks=(
            Plot(
                figure=plots.matrix(
                    [traffic.row(rank.rank) for rank in summary.per_rank],
                    title="Bytes from rank to rank",
                ),
                caption=f"Up to {plots.MATRIX_CELLS} ranks a cell is a pair of ranks; "
                "of more ranks it is a block of neighbours.",
            ),
            *(
                (
                    Plot(
                        figure=plots.cdf(
                            {"messages": summary.messages},
                            title="Sizes of messages",
                            unit="bytes",
                        ),
                        caption=f"{summary.messages.count:,} messages of all ranks; "
                        f"half of them have up to {about_size(summary.messages.p50)}, "
                        f"the largest {about_size(summary.messages.largest)}.",
                    ),
                )
                if summary.messages is not None
                else ()
            ),
            pairs_table(summary, _PAIRS_SHOWN),
        ),
    )


def _distributions(summary: TraceSummary) -> Section:
    blocks: list[Block] = [distributions_table(summary)]
    if summary.durations:
        stated = sum(spread.count for spread in summary.durations.values())
        blocks.append(
            Plot(
                figure=plots.cdf(
                    summary.durations, title="Durations that nodes state", unit="ns"
                ),
                caption=f"{stated:,} of {summary.nodes:,} nodes state a duration.",
            )
        )
    degrees = {
        name: spread
        for name, spread in (
            ("waits for", summary.dependencies.parents),
            ("is waited for by", summary.dependencies.children),
        )
        if spread is not None
    }
    if degrees:
        blocks.append(
            Plot(
                figure=plots.counts(
                    degrees,
                    title="Dependencies of nodes",
                    unit="nodes that one waits for, or that wait for it",
                ),
                caption="Of one to many nodes, how many there are; each colour counts "
                "all nodes.",
            )
        )
    return Section(title="Times and dependencies", blocks=tuple(blocks))
